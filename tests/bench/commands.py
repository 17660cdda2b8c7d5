"""verify, export and import over a store of many plants, with a warm cache.

Import: into a fresh store, with sequential and with random ids, and a fifth as many
random ones into the store that this made.  Then verify, and export as JSON lines to
/dev/null and into a file, and as CSV; last, polls with a cursor that find nothing, by
turns in this store and in one of 1,000 plants, beside `plant-store --version`.  Rates are by the wall clock; CPU s is user
and system time; the memory is the greatest sampled of the process's own, without
pages of files.  10,000,000 plants are what is quoted; they take 8 GB of disk.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from lib_disk import machine, program_parser, scratch, write_json
from report import spread

from lib_service import init_store

# The aims, of every measurement of the kind.
READ_MB_PER_S = 500
IMPORT_PER_S = 300_000
OWN_MIB = 32
AIM_PLANTS = 1_000_000
# A poll: how many times the one of few plants, and how much more than --version.
POLL_TIMES, POLL_MORE_MS = 2.0, 20.0
POLLS, FEW_PLANTS = 40, 1000
SAMPLE_S = 0.005
# Odd, so that no two numbers below 2^63 have the same product modulo 2^63.
SCATTER = 0x1E3779B97F4A7C15
CHUNK = 20_000


@dataclasses.dataclass(frozen=True)
class Run:
    """One command, from its start to its end."""

    seconds: float
    cpu_s: float
    own_mib: float
    megabytes: float  # of journal
    plants: int

    @property
    def mb_per_s(self) -> float:
        return self.megabytes / self.seconds

    @property
    def per_s(self) -> float:
        return self.plants / self.seconds


def own_kib(pid: int) -> int:
    """The process's own memory now; 0 if it has ended."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.M)
    return int(found[1]) if found else 0


class Commands:
    """Runs the command, and keeps what is wrong."""

    def __init__(self, program: pathlib.Path) -> None:
        self.program = program.resolve()
        self.wrong: list[str] = []

    def check(self, right: bool, wrong: str) -> None:
        if not right:
            self.wrong.append(wrong)
            print(f"commands.py: {wrong}", file=sys.stderr)

    def run(self, store: pathlib.Path, plants: int, said: str, *words: object) -> Run:
        """It must succeed and say, in a line of its own, what `said` matches."""
        arguments = [str(word) for word in words]
        command = [str(self.program), *arguments, "--quiet"]
        environment = os.environ | {"PLANT_STORE_DIR": str(store)}
        journal = store / "plants.jsonl"
        before = journal.stat().st_size if journal.exists() else 0
        reads = arguments[0] != "import"
        with tempfile.TemporaryFile("w+") as told:
            began = time.monotonic()
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if "--format" in words else told, stderr=told)
            kib = pid = 0
            while pid == 0:
                kib = max(kib, own_kib(process.pid))
                pid, status, used = os.wait4(process.pid, os.WNOHANG)
                if pid == 0:
                    time.sleep(SAMPLE_S)
            seconds = time.monotonic() - began
            process.returncode = os.waitstatus_to_exitcode(status)
            told.seek(0)
            text = told.read()
        name = " ".join(arguments)
        self.check(process.returncode == 0, f"{name}: status {process.returncode}")
        self.check(re.search(said, text) is not None, f"{name}: says {text!r}")
        size = journal.stat().st_size - (0 if reads else before)
        return Run(seconds, used.ru_utime + used.ru_stime, kib / 1024, size / 1e6, plants)


def generate(path: pathlib.Path, first: int, n: int, scattered: bool) -> None:
    """JSON lines of n plants, numbered from `first` on."""
    with open(path, "w") as out:
        for begin in range(first, first + n, CHUNK):
            numbers = range(begin, min(begin + CHUNK, first + n))
            out.writelines(
                f'{{"id":{i * SCATTER % 2**63 if scattered else i},'
                f'"name":"plant number {i}","tag":"shrub"}}\n'
                for i in numbers
            )


def lines_of(path: pathlib.Path) -> int:
    with open(path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def fresh(program: pathlib.Path, path: pathlib.Path) -> pathlib.Path:
    shutil.rmtree(path, ignore_errors=True)
    init_store(program.parent, path)
    return path


def import_all(commands: Commands, root: pathlib.Path, n: int, round_: int) -> dict[str, Run]:
    """Leaves the store of random ids in root/store."""
    source = root / "plants.jsonl"
    found = {}
    for name, scattered in (("sequential ids", False), ("random ids", True)):
        store = fresh(commands.program, root / "store")
        generate(source, 1, n, scattered)
        found[f"import, {name}"] = commands.run(
            store, n, f"(?m)^{n} created, 0 there already", "import", source)
    more = max(n // 5, 1)
    generate(source, n + 1 + round_ * more, more, True)
    found[f"import of {more} more"] = commands.run(
        store, more, f"(?m)^{more} created, 0 there already", "import", source)
    source.unlink()
    return found


def read_all(commands: Commands, root: pathlib.Path, n: int) -> dict[str, Run]:
    store, file = root / "store", root / "exported"
    lines_of(store / "plants.jsonl")  # so that the cache is warm
    exported = rf"exported {n} plants"
    found = {
        "verify": commands.run(store, n, rf": {n} plants, \d+ bytes, all valid", "verify"),
        "export": commands.run(store, n, exported, "export", "--format", "jsonl"),
        "export -o FILE": commands.run(store, n, exported, "export", "-o", file),
    }
    commands.check(lines_of(file) == n, f"export -o has {lines_of(file)} lines")
    file.unlink()
    found["export, CSV"] = commands.run(store, n, exported, "export", "--format", "csv")
    return found


def poll(commands: Commands, root: pathlib.Path) -> dict[str, list[float]]:
    """How long they take, in milliseconds."""
    few = fresh(commands.program, root / "few")
    generate(root / "few.jsonl", 1, FEW_PLANTS, False)
    commands.run(few, FEW_PLANTS, "(?m)^1000 created", "import", root / "few.jsonl")
    ways: dict[str, list[object]] = {"--version": ["--version"]}
    for name, store in (f"poll of {FEW_PLANTS:,}", few), ("poll of all", root / "store"):
        ways[name] = ["export", "--dir", store, "--cursor", f"{store}-cursor"]
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(POLLS + 1):
        for name, words in ways.items():
            began = time.monotonic()
            done = subprocess.run([commands.program, *words], capture_output=True)
            # The first one finds all there is.
            if number > 0:
                found[name].append((time.monotonic() - began) * 1000)
                commands.check(done.returncode == 0 and (b"exported 0 plants" in done.stderr)
                               == (name != "--version"), f"{name}: {done}")
    return found


def report_polls(polls: dict[str, list[float]]) -> None:
    for name, took_ms in polls.items():
        print(f"{name:24} {spread(took_ms, '.1f'):>20} ms")
    none, few, all_ = (statistics.median(took_ms) for took_ms in polls.values())
    met = "met" if all_ <= POLL_TIMES * few and all_ <= none + POLL_MORE_MS else "MISSED"
    print(f"aim {met}: a poll that finds nothing: {all_ / few:.2f} times one of {FEW_PLANTS:,}, "
          f"of {POLL_TIMES}; {all_ - none:.1f} ms more than --version, of {POLL_MORE_MS}")


def report(results: dict[str, list[Run]]) -> None:
    form = "{:24} {:>20} {:>28} {:>20} {:>16}"
    print(form.format("", "MB/s of journal", "plants/s", "CPU s", "own MiB"))
    for name, runs in results.items():
        print(form.format(name, spread([run.mb_per_s for run in runs], ".0f"),
                          spread([run.per_s for run in runs], ".0f"),
                          spread([run.cpu_s for run in runs], ".2f"),
                          spread([run.own_mib for run in runs], ".1f")))


def report_aims(results: dict[str, list[Run]]) -> None:
    for name, runs in results.items():
        if name.startswith("import"):
            value, aim, unit = (
                statistics.median(run.per_s for run in runs), IMPORT_PER_S, "plants/s"
            )
        else:
            value, aim, unit = (
                statistics.median(run.mb_per_s for run in runs), READ_MB_PER_S, "MB/s"
            )
        met = "met" if value >= aim else "MISSED"
        print(f"aim {met}: {name}: {value:,.0f} {unit}, of {aim:,}")
    most = max(run.own_mib for runs in results.values() for run in runs)
    met = "met" if most <= OWN_MIB else "MISSED"
    print(f"aim {met}: memory of their own: {most:.1f} MiB at most, of {OWN_MIB}")


def arguments() -> argparse.Namespace:
    parser = program_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="100,000 plants")
    parser.add_argument("--plants", type=int, metavar="N", help="default 1000000")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default 3")
    args = parser.parse_args()
    if args.plants is None:
        args.plants = 100_000 if args.quick else 1_000_000
    if args.rounds < 1 or args.plants < 1:
        parser.error("--rounds and --plants take numbers from 1")
    return args


def main() -> int:
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    commands = Commands(args.build / "plant-store")
    results: dict[str, list[Run]] = {}
    with scratch(args.dir or args.build / "bench") as root:
        print(
            f"{args.plants} plants; {args.rounds} rounds; median (least-greatest); "
            f"{machine(root)}",
            flush=True,
        )
        for round_ in range(args.rounds):
            found = import_all(commands, root, args.plants, round_)
            stored = args.plants + max(args.plants // 5, 1)
            found |= read_all(commands, root, stored)
            for name, run in found.items():
                results.setdefault(name, []).append(run)
        polls = poll(commands, root)
    report(results)
    report_polls(polls)
    if args.plants >= AIM_PLANTS:
        report_aims(results)
    else:
        print(f"the aims are for {AIM_PLANTS} plants and more: with fewer, starting counts")
    figures = {
        name: [dataclasses.asdict(run) for run in runs] for name, runs in results.items()
    }
    write_json(args, figures | {"polls_ms": polls})
    return 1 if commands.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
