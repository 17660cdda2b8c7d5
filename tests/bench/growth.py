"""How a store behaves as it grows: 1 million plants, 10 million, 100 million.

For each size a store is made, by commits of 20,000 plants, and then measured with
a warm cache: its start, in the process that serves, and the memory of that process;
the size of its index; plants stored one by one (time, CPU, and the slowest: what of
it was the disk's, what was ours); a scan that checks every line; and the index built
anew.  Exit status 1 if a count is wrong; that an aim is missed is only said.
"""

import argparse
import dataclasses
import json
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from lib_disk import machine, program_parser, scratch, write_json
from report import spread

import measure
from lib_service import (
    Store, listening, new_plant, start, stop_process, temporary_store, wait_until,
)
from programs import Programs

MILLION = 1_000_000
STARTS = 5
COMMITS = 20_000
REQUESTS = 2_000
# Measured: 188 in the journal and up to 85 in an index that grew; and what is kept
# while the other is made.
DISK_BYTES_PER_PLANT = 300
DISK_BYTES = 1 << 28
# What a million may take on a slow disk, before it is given up.
TIMEOUT_S_PER_MILLION = 60
# Even, and above what sample.c gives the greatest store: ids not taken.
FREE_ID = 1 << 40

START_MS = 20
MEMORY_MIB = 8
STALL_MS = 5
COST_RATIO = 1.5


@dataclasses.dataclass
class Memory:
    """MiB of a process."""

    anonymous: float
    total: float

    @staticmethod
    def of(pid: int) -> "Memory":
        fields = {}
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            fields[name] = value.split()
        return Memory(int(fields["RssAnon"][0]) / 1024, int(fields["VmRSS"][0]) / 1024)

    def __str__(self) -> str:
        return f"{self.anonymous:.1f} MiB of its own (RSS {self.total:.1f} MiB)"


@dataclasses.dataclass
class Size:
    """What was measured of one size."""

    plants: int
    made_s: float = 0
    journal_bytes: int = 0
    index_bytes: int = 0
    # Until the service's first answer: after a clean end, and after a kill.
    starts_ms: list[float] = dataclasses.field(default_factory=list)
    killed_ms: list[float] = dataclasses.field(default_factory=list)
    # Of the service: fresh, and used for some time.
    memory: list[Memory] = dataclasses.field(default_factory=list)
    # Of the commits one by one, in microseconds, by the state of the index.
    cost: dict[str, dict] = dataclasses.field(default_factory=dict)
    scans_s: list[float] = dataclasses.field(default_factory=list)
    rebuilds_s: list[float] = dataclasses.field(default_factory=list)
    # The most that a process had meanwhile, and what it kept.
    rebuilding: list[Memory] = dataclasses.field(default_factory=list)
    rebuilt_mib: list[float] = dataclasses.field(default_factory=list)
    rebuilt_index_bytes: int = 0
    opens_ms: list[float] = dataclasses.field(default_factory=list)


class Service:
    """The responder on a socket that is there already, as under systemd."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.path = store.root / "fcgi.sock"
        self.listener = listening(self.path)
        self.ids = random.Random(1)
        self.process: subprocess.Popen | None = None
        self.answered = 0

    def send(self) -> None:
        """A plant with a new id; 200 is the only answer that is right."""
        body = new_plant(2 * self.ids.randrange(FREE_ID, 1 << 61), "Fern", "indoor")
        answer = self.store.ask(self.path, body)
        if answer.status != 200:
            raise RuntimeError(f"answered {answer}: {self.log()}")
        self.answered += 1

    def log(self) -> str:
        return (self.store.root / "log").read_text(errors="replace")

    def start_ms(self) -> float:
        """Until the first plant is answered."""
        begun = time.monotonic()
        self.process = start([self.store.responder], self.store.root / "log",
                             stdin=self.listener, env=self.store.environment())
        self.send()
        return (time.monotonic() - begun) * 1000

    def stop(self) -> None:
        if self.process and stop_process(self.process) != 0:
            raise RuntimeError(f"ended {self.process.returncode}: {self.log()}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.listener.close()


def measure_service(store: Store, size: Size) -> int:
    """Starts and memory; how many plants it stored."""
    service = Service(store)
    try:
        for _ in range(STARTS):
            size.starts_ms.append(service.start_ms())
            fresh = Memory.of(service.process.pid)
            service.kill()
            size.killed_ms.append(service.start_ms())
            service.stop()
        service.start_ms()
        for _ in range(REQUESTS):
            service.send()
        used = Memory.of(service.process.pid)
        service.stop()
    finally:
        service.close()
    size.memory = [fresh, used]
    print(
        f"  the service's first answer after {spread(size.starts_ms, '.1f')} ms, "
        f"after a kill {spread(size.killed_ms, '.1f')} ms\n"
        f"  its memory then {fresh}, {REQUESTS} requests later {used}"
    )
    return service.answered


def index_bytes(store: Store) -> int:
    """What it takes of the disk."""
    return (store.dir / "index/data.mdb").stat().st_blocks * 512


def warm(store: Store) -> None:
    """Into the page cache, from which other programs may have driven it."""
    with open(store.dir / "index/data.mdb", "rb") as index:
        while index.read(1 << 20):
            pass


def one_by_one(program: pathlib.Path, store: Store, size: Size, first: int, index: str) -> int:
    """Plants with a commit each; how many were stored."""
    for mode in ("sync", "nosync"):
        warm(store)
        out = subprocess.check_output([program, store.dir, str(first), str(COMMITS), mode])
        times = json.loads(out)
        size.cost[f"{index} {mode}"] = times
        faults = times.pop("faults")
        whole, cpu = times["whole"], times["cpu"]
        name = "one by one" if mode == "sync" else "without syncs"
        worst = {part: times[part]["max"] / 1000 for part in times}
        print(
            f"  {name}, {index} index: {whole['median']:.0f} us (99 %: "
            f"{whole['p99']:.0f}), CPU {cpu['median']:.0f} us; slowest "
            f"{worst['whole']:.2f} ms; apart: syncs {worst['sync']:.2f}, waiting for "
            f"a CPU {worst['queue']:.2f}, the rest {worst['own']:.2f}, CPU "
            f"{worst['cpu']:.2f} ms; {faults} pages came from the disk",
            flush=True,
        )
        first += COMMITS
    return 2 * COMMITS


def rebuild(program: pathlib.Path, store: Store, size: Size, timeout_s: float) -> None:
    """Build the index anew, and look every few milliseconds how large that is."""
    shutil.rmtree(store.dir / "index")
    process = subprocess.Popen([program, "open", store.dir], stdout=subprocess.PIPE, text=True)

    def ended() -> bool:
        try:
            size.rebuilding.append(Memory.of(process.pid))
        except (KeyError, OSError):  # it has ended, or only just begun
            pass
        return process.poll() is not None

    in_time = wait_until(ended, timeout_s)
    out, _ = process.communicate() if in_time else ("", stop_process(process))
    if process.returncode != 0 or not in_time:
        raise RuntimeError(f"the index is not built: {process.returncode}")
    seconds, kib = out.split()
    size.rebuilds_s.append(float(seconds))
    size.rebuilt_mib.append(int(kib) / 1024)


def measure_size(millions: int, build: pathlib.Path, programs: list) -> Size:
    maker, inserter = programs
    size = Size(millions * MILLION)
    timeout_s = millions * TIMEOUT_S_PER_MILLION
    # What takes minutes is measured once.
    rounds = measure.ROUNDS if millions < 50 else 1
    print(f"{millions} M plants", flush=True)
    with temporary_store(build) as store:
        begun = time.monotonic()
        subprocess.run([maker, "make", store.dir, str(size.plants)], stdout=subprocess.DEVNULL,
                       timeout=timeout_s, check=True)
        size.made_s = time.monotonic() - begun
        size.journal_bytes = (store.dir / "plants.jsonl").stat().st_size
        size.index_bytes = index_bytes(store)
        print(
            f"  made in {size.made_s:.0f} s; journal "
            f"{size.journal_bytes / size.plants:.0f} bytes a plant, index "
            f"{size.index_bytes / size.plants:.1f}",
            flush=True,
        )
        stored = size.plants + measure_service(store, size)
        stored += one_by_one(inserter, store, size, size.plants, "grown")
        journal = store.dir / "plants.jsonl"
        scans = [measure.scan(build, journal) for _ in range(rounds)]
        for _, count in scans:
            if count != stored:
                raise RuntimeError(f"{count} plants, not {stored}")
        size.scans_s = [seconds for seconds, _ in scans]
        per_s = size.journal_bytes / statistics.median(size.scans_s) / 1e9
        print(f"  verified scan {spread(size.scans_s, '.2f')} s, {per_s:.2f} GB/s", flush=True)
        for _ in range(rounds):
            rebuild(maker, store, size, timeout_s)
        size.rebuilding = [max(size.rebuilding, key=lambda memory: memory.anonymous)]
        size.rebuilt_index_bytes = index_bytes(store)
        opens = [measure.start(maker, store.dir) for _ in range(measure.ROUNDS)]
        size.opens_ms = [seconds * 1000 for seconds, _ in opens]
        print(
            f"  index built anew in {spread(size.rebuilds_s, '.2f')} s, "
            f"{size.rebuilt_index_bytes / stored:.1f} bytes a plant, with at most "
            f"{size.rebuilding[0]}, of which it keeps {max(size.rebuilt_mib):.1f}; "
            f"opened again in {spread(size.opens_ms, '.1f')} ms",
            flush=True,
        )
        first = size.plants + 2 * COMMITS
        one_by_one(inserter, store, size, first, "rebuilt")
    return size


def report_aims(sizes: list[Size]) -> None:
    def aim(met: bool, sentence: str) -> None:
        print(f"aim {'met' if met else 'MISSED'}: {sentence}")

    for size in sizes:
        name = f"{size.plants // MILLION} M plants"
        start = statistics.median(size.starts_ms + size.killed_ms)
        own_mib = max([memory.anonymous for memory in size.memory] + size.rebuilt_mib)
        aim(start <= START_MS, f"{name}: starts in {start:.1f} of {START_MS} ms")
        aim(own_mib <= MEMORY_MIB,
            f"{name}: the service takes {own_mib:.1f} of {MEMORY_MIB} MiB")
        for state, times in size.cost.items():
            index, mode = state.split()
            parts = (("whole", ""), ("own", ", the disk and others apart,"))
            for part, what in parts if mode == "sync" else parts[1:]:
                stall = times[part]["max"] / 1000
                aim(
                    stall <= STALL_MS,
                    f"{name}, {index} index, {mode}: the slowest of {COMMITS} "
                    f"commits{what} takes {stall:.2f} of {STALL_MS} ms",
                )
    least, greatest = sizes[0], sizes[-1]
    if least is greatest:
        return
    for state, times in greatest.cost.items():
        for what, key in (("time", "whole"), ("CPU", "cpu")):
            ratio = times[key]["median"] / least.cost[state][key]["median"]
            aim(
                ratio <= COST_RATIO,
                f"{greatest.plants // MILLION} M plants, {state}: a commit's {what} is "
                f"{ratio:.2f} of that at {least.plants // MILLION} M, of {COST_RATIO}",
            )


def arguments() -> argparse.Namespace:
    parser = program_parser(__doc__)
    parser.add_argument(
        "--millions", default="1 10",
        help="sizes, in millions of plants; default '1 10'; '1 10 100' needs 30 GB")
    args = parser.parse_args()
    args.build = args.build.resolve()
    try:
        args.millions = sorted({int(word) for word in args.millions.split()})
    except ValueError:
        parser.error("--millions takes numbers")
    if not args.millions or args.millions[0] < 1:
        parser.error("--millions takes numbers from 1")
    return args


def main() -> int:
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with scratch(args.dir or args.build / "bench") as root:
        need = args.millions[-1] * MILLION * DISK_BYTES_PER_PLANT + DISK_BYTES
        free = shutil.disk_usage(root).free
        print(
            f"{machine(root)}; needs {need / 1e9:.1f} GB of the {free / 1e9:.1f} GB "
            "that are free",
            flush=True,
        )
        if free < need:
            print("growth.py: no room; see --millions and --dir", file=sys.stderr)
            return 1
        tempfile.tempdir = str(root)
        made = Programs(args.build.resolve())
        programs = [
            measure.make_program(made),
            made.make("growth", "../bench/growth.c", "../bench/sample.c"),
        ]
        sizes = [measure_size(n, args.build, programs) for n in args.millions]
        report_aims(sizes)
    write_json(args, [dataclasses.asdict(size) for size in sizes])
    return 0


if __name__ == "__main__":
    sys.exit(main())
