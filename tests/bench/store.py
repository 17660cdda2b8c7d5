"""The store without the service, against SQLite.

Plants stored durably per second, each engine by turns in a fresh directory on the
same disk, with 1, 16, 64 and 256 callers that each wait until their plant is on
the disk, and in transactions of 1,000.  Callers of SQLite are threads, each with a
connection and a transaction for each plant.  Those of the Plant Store are what
they are in the service: requests whose plants a reactor for two CPUs gathers, so that
a commit has all that came while another was syncing.  --all also measures it with
threads, and SQLite behind two threads that gather.  Fails if what is stored is
not what was acknowledged.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys

from lib_disk import machine, program_parser, scratch, write_json
from report import spread

from programs import Programs

BATCH = 1000
TIMEOUT_S = 60
# The aim: how many times what SQLite does, with 64 callers.
AIM_CALLERS = 64
AIM = 12.0

OURS = "plant-store"
# An engine, its source, its library as pkg-config knows it, its package.
ENGINES = (
    (OURS, "engine_plants.c", None, None),
    ("sqlite", "engine_sqlite.c", "sqlite3", "libsqlite3-dev"),
)


@dataclasses.dataclass(frozen=True)
class Case:
    """Callers of an engine: what callers.c is told, and in which row."""

    row: str
    engine: str
    threads: int
    plants: int
    how: str

    @property
    def name(self) -> str:
        return f"{self.engine}, {self.how}"


def cases(engine: str, args: argparse.Namespace) -> list[Case]:
    found = []
    for callers in args.callers:
        row = f"{callers} callers"
        gathered = Case(row, engine, min(args.committers, callers), callers, "gathered")
        each = Case(row, engine, callers, callers, "threads")
        if args.all or engine == OURS:
            found.append(gathered)
        if args.all or engine != OURS:
            found.append(each)
    found.append(Case(f"batches of {BATCH}", engine, 1, BATCH, "a thread"))
    return found


def build(build_dir: pathlib.Path) -> dict[str, pathlib.Path]:
    """A program for each engine whose library is there."""
    programs = Programs(build_dir.resolve())
    made = {}
    for engine, source, library, package in ENGINES:
        flags: list[str] = []
        if library:
            asked = subprocess.run(
                ["pkg-config", "--libs", library], capture_output=True, text=True)
            if asked.returncode:
                print(f"skipped: {engine}: {package} is not installed")
                continue
            flags = asked.stdout.split()
        sources = [f"../bench/{name}" for name in ("callers.c", "sample.c", source)]
        made[engine] = programs.make(f"callers-{engine}", *sources, libraries=flags)
    return made


def run(case: Case, program: pathlib.Path, root: pathlib.Path, seconds: float) -> dict:
    directory = root / "store"
    directory.mkdir(mode=0o700)
    try:
        out = subprocess.check_output(
            [program, directory, str(case.threads), str(case.plants), str(seconds)],
            timeout=TIMEOUT_S + 10 * seconds)
    finally:
        shutil.rmtree(directory)
    return json.loads(out)


def report(results: dict[Case, list[dict]]) -> None:
    header = "{:16} {:22} {:>26} {:>9} {:>9} {:>8}  {}"
    print(header.format("", "", "plants/s", "p50 ms", "p99 ms", "CPU us", "ratio"))
    for row in dict.fromkeys(case.row for case in results):
        ours = next(runs for case, runs in results.items()
                    if case.row == row and case.engine == OURS)
        for case, runs in results.items():
            if case.row != row:
                continue
            print(header.format(
                case.row, case.name, spread([one["per_s"] for one in runs], ".0f"),
                f"{statistics.median(one['p50_us'] for one in runs) / 1000:.2f}",
                f"{statistics.median(one['p99_us'] for one in runs) / 1000:.2f}",
                f"{statistics.median(one['cpu_us'] for one in runs):.1f}",
                "" if runs is ours else spread(ratios(ours, runs), ".2f")))
    print(
        "ms: from commit to durable; CPU us: a plant; ratio: how many times as many "
        f"the first {OURS} of the row stores"
    )


def ratios(ours: list[dict], theirs: list[dict]) -> list[float]:
    return [a["per_s"] / b["per_s"] for a, b in zip(ours, theirs, strict=True)]


def report_aims(results: dict[Case, list[dict]]) -> None:
    row = f"{AIM_CALLERS} callers"
    found = {(case.engine, case.how): runs for case, runs in results.items()
             if case.row == row}
    if ("sqlite", "threads") in found:
        pairs = ratios(found[OURS, "gathered"], found["sqlite", "threads"])
        ratio = statistics.median(pairs)
        print(
            f"aim {'met' if ratio >= AIM else 'MISSED'}: {row}: {ratio:.1f} times "
            f"what SQLite stores, of {AIM:g}"
        )


def arguments() -> argparse.Namespace:
    parser = program_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="0.5 s a measurement; fewer callers")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--seconds", type=float, help="a measurement; default 2")
    parser.add_argument("--callers", help="default '1 16 64 256', with --quick '1 64'")
    parser.add_argument("--committers", type=int, default=((os.cpu_count() or 1) + 1) // 2,
                        help="threads that gather; default one for two CPUs")
    parser.add_argument("--all", action="store_true", help="see above")
    args = parser.parse_args()
    args.build = args.build.resolve()
    args.seconds = args.seconds or (0.5 if args.quick else 2.0)
    args.callers = args.callers or ("1 64" if args.quick else "1 16 64 256")
    try:
        args.callers = [int(word) for word in args.callers.split()]
    except ValueError:
        parser.error("--callers takes numbers")
    if min(args.rounds, args.committers, *args.callers) < 1 or args.seconds < 0:
        parser.error("all numbers are from 1")
    return args


def main() -> int:
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    programs = build(args.build)
    chosen = [case for engine in programs for case in cases(engine, args)]
    results: dict[Case, list[dict]] = {case: [] for case in chosen}
    wrong = 0
    with scratch(args.dir or args.build / "bench") as root:
        print(
            f"{args.rounds} rounds of {args.seconds:g} s; median (least-greatest); "
            f"{machine(root)}",
            flush=True,
        )
        for number in range(args.rounds):
            # Who goes first changes, for what the first leaves behind.
            for case in chosen[:: -1 if number % 2 else 1]:
                one = run(case, programs[case.engine], root, args.seconds)
                results[case].append(one)
                if one["stored"] != one["acknowledged"]:
                    wrong += 1
                    print(
                        f"store.py: {case.row}, {case.name}: {one['acknowledged']} "
                        f"plants were acknowledged, {one['stored']} are stored",
                        file=sys.stderr,
                    )
    report(results)
    report_aims(results)
    figures = [dataclasses.asdict(case) | {"runs": runs} for case, runs in results.items()]
    write_json(args, figures)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
