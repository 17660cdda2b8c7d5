"""Part `store`: the store without the service, next to SQLite (see callers.c)."""

import contextlib
import json
import pathlib
import sqlite3
import statistics
import subprocess

from report import Bench, print_table, spread
from sides import BUILD

from lib_faults import compile_program
from lib_service import init_store

TIMEOUT_S = 60
AIMS = {64: 12.0}  # callers; how many times what SQLite stores


def callers(bench: Bench) -> pathlib.Path | None:
    """The program, unless SQLite's library is missing."""
    asked = subprocess.run(["pkg-config", "--libs", "sqlite3"], capture_output=True, text=True)
    if asked.returncode:
        bench.skip("store, growth", "libsqlite3-dev is not installed")
        return None
    return compile_program(BUILD, "callers", "../bench/callers.c", "../bench/peer_sqlite.c",
                           libraries=asked.stdout.split())


def call(program: pathlib.Path, kind: str, path: pathlib.Path, n: int, seconds: float,
         first: int = 0, **more: object) -> dict[str, float]:
    words = map(str, (program, kind, path, n, seconds, first))
    return json.loads(subprocess.check_output([*words], timeout=TIMEOUT_S + 10 * seconds, **more))


def plants_of(kind: str, path: pathlib.Path) -> int:
    if kind == "sqlite":
        with contextlib.closing(sqlite3.connect(path)) as db:
            return db.execute("SELECT count(*) FROM plants").fetchone()[0]
    with open(path / "plants.jsonl", "rb") as journal:
        return sum(b'"plant":' in line for line in journal)


def run_store(bench: Bench) -> None:
    if (program := callers(bench)) is None:
        return
    results: dict[tuple[int, str], list[dict]] = {}
    for number in range(bench.args.rounds):
        for n in (1, 64) if bench.args.quick else (1, 16, 64, 256):
            # Who goes first changes, for what the first leaves behind.
            for kind in ("plants", "sqlite")[:: -1 if number % 2 else 1]:
                path = bench.folder()
                if kind == "plants":
                    init_store(BUILD, path)
                bench.progress(f"store: round {number + 1}: {n} callers, {kind}")
                one = call(program, kind, path, n, bench.args.seconds)
                results.setdefault((n, kind), []).append(one)
                stored = plants_of(kind, path)
                bench.check(stored == one["acknowledged"],
                            f"store, {n} callers: {kind}: {one} were acknowledged, {stored} stored")
    bench.progress("")
    rows = []
    for (n, kind), found in sorted(results.items()):
        ratio = [ours["per_s"] / theirs["per_s"]
                 for ours, theirs in zip(results[n, "plants"], found, strict=True)]
        rows.append((n, kind, spread([one["per_s"] for one in found]),
                     *(f"{statistics.median(one[key] for one in found) / unit:.2f}"
                       for key, unit in (("p50", 1e3), ("p99", 1e3), ("cpu", 1))),
                     spread(ratio, ".2f") if kind == "sqlite" else ""))
        if kind == "sqlite" and n in AIMS:
            bench.aim(f"store, {n} callers: times SQLite", statistics.median(ratio), AIMS[n])
    print_table("store: without a service", ("callers", "", "plants/s", "p50 ms", "p99 ms", "CPU us",
                                             "plants / it"), rows)
    bench.figures["store"] = [{"callers": n, "of": kind, "rounds": found}
                              for (n, kind), found in results.items()]
