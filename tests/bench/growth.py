"""Part `growth`: what a store of many plants takes, file by file and in PostgreSQL.

For each size a store is imported, and then measured with a warm cache: the service's start and its memory; plants stored one by one (callers.c),
with syncs and without; each command that reads or copies it; the index built anew; and
the import of all its plants, into a fresh store and into a database.
"""

import dataclasses
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable

import store as alone
from report import Bench, print_table, spread
from sides import BUILD, TOP, preloaded

from lib_service import Store, init_store, listening, new_plant, start, stop_process, temporary_store
from lib_faults import import_samples, own_kib
from lib_postgresql import BIN, clusters

MILLION = 1_000_000
# The journal twice, an export, two indexes.
DISK_BYTES_PER_PLANT = 700
STARTS, POLLS, REQUESTS, ONE_BY_ONE_S = 5, 20, 2000, 2
SAMPLE_S = 0.005
# Even, and above what import_samples gives the greatest store: ids not taken.
FREE_ID = 1 << 40

START_MS, SERVICE_MIB, COMMAND_MIB, STALL_MS, COST_RATIO = 20, 8, 32, 5, 1.5
READ_MB_PER_S, IMPORT_PER_S = 500, 300_000
# A poll that finds nothing: how much more than --version; than in the least store.
POLL_MORE_MS, POLL_RATIO = 20, 2


@dataclasses.dataclass
class Took:
    seconds: float
    cpu_s: float
    own_mib: float  # at most, without pages of files
    said: str


def take(*command: object, env: dict[str, str]) -> Took:
    """Run it to its end, which must be good; what it exports is thrown away."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [str(word) for word in command], env=env, stdin=subprocess.DEVNULL, stderr=said,
            stdout=subprocess.DEVNULL if "--format" in command else said)
        mib = pid = 0
        while pid == 0:
            mib = max(mib, own_kib(process.pid) / 1024)
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid == 0:
                time.sleep(SAMPLE_S)
        seconds = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read()
    if process.returncode:
        raise RuntimeError(f"{command}: status {process.returncode}: {text}")
    return Took(seconds, used.ru_utime + used.ru_stime, mib, text)


class Service:
    """The responder on a socket that is there already, as under systemd."""

    def __init__(self, store: Store, **settings: str) -> None:
        self.store, self.settings = store, settings
        self.path, self.log = store.root / "fcgi.sock", store.root / "log"
        self.listener = listening(self.path)
        self.ids, self.answered = random.Random(1), 0

    def send(self) -> None:
        body = new_plant(2 * self.ids.randrange(FREE_ID, 1 << 61), "Fern", "indoor")
        answer = self.store.ask(self.path, body)
        if answer.status != 200:
            raise RuntimeError(f"answered {answer}: {self.log.read_text(errors='replace')}")
        self.answered += 1

    def start_ms(self) -> float:
        """Until the first plant is answered."""
        began = time.monotonic()
        self.process = start([self.store.responder], self.log, stdin=self.listener,
                             env=self.store.environment(**self.settings))
        self.send()
        return (time.monotonic() - began) * 1000

    def stop(self) -> None:
        if stop_process(self.process) != 0:
            raise RuntimeError(f"ended {self.process.returncode}: {self.log.read_text()}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclasses.dataclass
class Size:
    """What was measured of one size."""

    plants: int
    stored: int = 0  # with those that were stored meanwhile
    bytes_a_plant: dict[str, float] = dataclasses.field(default_factory=dict)
    starts_ms: list[float] = dataclasses.field(default_factory=list)
    killed_ms: list[float] = dataclasses.field(default_factory=list)  # after a kill
    service_mib: float = 0
    one_by_one: dict[str, dict] = dataclasses.field(default_factory=dict)  # us
    took: dict[str, Took] = dataclasses.field(default_factory=dict)
    polls_ms: dict[str, float] = dataclasses.field(default_factory=dict)


def measure_service(store: Store, size: Size) -> int:
    service = Service(store)
    try:
        for _ in range(STARTS):
            size.starts_ms.append(service.start_ms())
            service.kill()
            size.killed_ms.append(service.start_ms())
            service.stop()
        service.start_ms()
        for _ in range(REQUESTS):
            service.send()
        size.service_mib = own_kib(service.process.pid) / 1024
        service.stop()
    finally:
        service.kill()
        service.listener.close()
    return service.answered


def used_bytes(path: pathlib.Path) -> int:
    """What it takes of the disk."""
    return sum(file.stat().st_blocks * 512 for file in path.rglob("*"))


def poll_ms(command: Callable[..., Took], store: Store) -> dict[str, float]:
    """With a cursor at the end, and what a process takes in any case."""
    ways = {"--version": ("--version",),
            "poll": ("export", "--cursor", store.root / "cursor")}
    command(*ways["poll"])  # finds all there is
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(POLLS):
        for name, words in ways.items():
            found[name].append(command(*words).seconds * 1000)
    return {name: statistics.median(took) for name, took in found.items()}


def measure_file(bench: Bench, callers: pathlib.Path, store: Store, size: Size) -> None:
    root, journal, env = store.root, store.journal, store.environment()

    def command(*words: object, **settings: str) -> Took:
        return take(BUILD / "plant-store", *words, env=env | settings)

    import_samples(BUILD / "plant-store", store.dir, size.plants)
    size.bytes_a_plant["journal"] = journal.stat().st_size / size.plants
    size.bytes_a_plant["index, grown"] = used_bytes(store.dir / "index") / size.plants
    stored = size.plants + measure_service(store, size)
    for name, more in ("with syncs", {}), ("without", preloaded(FAULT_NO_SYNC="1")):
        bench.progress(f"growth: one by one, {name}")
        one = alone.call(callers, "plants", store.dir, 1, ONE_BY_ONE_S, stored,
                         env=os.environ | more)
        size.one_by_one[name] = one
        stored += int(one["acknowledged"])
    size.stored, lines, copy = stored, root / "exported.jsonl", root / "backup"
    for words in (("verify",), ("export", "--format", "jsonl"), ("export", "--format", "csv"),
                  ("export", "-o", lines), ("backup", copy), ("backup", copy),
                  ("backup", "--verify", copy)):
        name = " ".join("FILE" if word == lines else str(word) for word in words if word != copy)
        name += ", the next" * (name in size.took)
        bench.progress(f"growth: {name}")
        size.took[name] = command(*words, "--quiet")
    bench.check(f": {stored} plants, " in size.took["verify"].said,
                f"growth: {stored} plants were stored: {size.took['verify'].said}")
    size.bytes_a_plant["backup"] = used_bytes(copy) / stored
    shutil.rmtree(copy)
    size.polls_ms = poll_ms(command, store)
    shutil.rmtree(store.dir / "index")
    size.took["index built anew"] = command("import", "--quiet")  # of nothing
    size.bytes_a_plant["index, built anew"] = used_bytes(store.dir / "index") / stored
    fresh = root / "fresh"
    init_store(BUILD, fresh)
    size.took["import"] = command("import", "--quiet", lines, PLANT_STORE_DIR=str(fresh))
    shutil.rmtree(fresh)


def measure_database(bench: Bench, store: Store, size: Size) -> None:
    """On a server of its own, with its defaults, and without a standby."""
    lines = store.root / "exported.jsonl"
    with clusters(BUILD) as made, made.running(made.new()) as server:
        env = store.environment(PLANT_STORE_DATABASE=server.conninfo())
        del env["PLANT_STORE_DIR"]

        def command(*words: object) -> Took:
            return take(BUILD / "plant-store", *words, "--quiet", env=env)

        size.took["PostgreSQL: import"] = command("import", lines)
        count, used = server.sql("SELECT count(*), pg_total_relation_size('plants') FROM plants")[0]
        size.bytes_a_plant["PostgreSQL, table and index"] = int(used) / int(count)
        size.took["PostgreSQL: export"] = command("export", "--format", "jsonl")
        service = Service(store, PLANT_STORE_DATABASE=server.conninfo())
        try:
            size.polls_ms["PostgreSQL: start"] = service.start_ms()
            service.stop()
        finally:
            service.kill()
            service.listener.close()


def report_size(bench: Bench, size: Size) -> None:
    name = f"{size.plants // MILLION} M plants"
    rows = [(of, f"{n:.1f}") for of, n in size.bytes_a_plant.items()]
    print_table(f"growth, {name}: bytes a plant", ("", "bytes"), rows)
    rows = [(of, *(f"{one[key]:.0f}" for key in ("p50", "p99", "max", "own", "cpu")))
            for of, one in size.one_by_one.items()]
    print_table(f"growth, {name}: plants one by one, us; `own` is the slowest without what "
                "waited for a CPU", ("", "p50", "p99", "slowest", "own", "CPU"), rows)
    rows = [(of, f"{took.seconds:.2f}", f"{size.stored / took.seconds:,.0f}", f"{took.cpu_s:.2f}",
             f"{took.own_mib:.1f}") for of, took in size.took.items()]
    print_table(f"growth, {name}: commands", ("", "seconds", "plants/s", "CPU s", "own MiB"), rows)
    print(f"the service's first answer after {spread(size.starts_ms, '.1f')} ms, after a kill "
          f"{spread(size.killed_ms, '.1f')} ms; its memory "
          f"{size.service_mib:.1f} MiB; " +
          "; ".join(f"{of} {ms:.1f} ms" for of, ms in size.polls_ms.items()), flush=True)

    def at_most(what: str, value: float, bound: float) -> None:
        bench.aim(f"growth, {name}: {what}", value, bound, least=False)

    at_most("start, ms", statistics.median(size.starts_ms), START_MS)
    at_most("memory of the service, MiB", size.service_mib, SERVICE_MIB)
    at_most("the slowest commit, ms", size.one_by_one["with syncs"]["max"] / 1000, STALL_MS)
    at_most("the slowest without syncs, ms", size.one_by_one["without"]["own"] / 1000, STALL_MS)
    at_most("poll more than --version, ms", size.polls_ms["poll"] - size.polls_ms["--version"],
            POLL_MORE_MS)
    at_most("memory of a command, MiB", max(took.own_mib for took in size.took.values()),
            COMMAND_MIB)
    for of in ("verify", "export --format jsonl", "export --format csv"):
        rate = size.bytes_a_plant["journal"] * size.stored / 1e6 / size.took[of].seconds
        bench.aim(f"growth, {name}: {of}, MB/s", rate, READ_MB_PER_S)
    bench.aim(f"growth, {name}: import, plants/s", size.stored / size.took["import"].seconds,
              IMPORT_PER_S)


def run_growth(bench: Bench) -> None:
    if (callers := alone.callers(bench)) is None:
        return
    tempfile.tempdir = str(bench.scratch)
    sizes = []
    for millions in sorted(bench.args.millions):
        need, free = millions * MILLION * DISK_BYTES_PER_PLANT, shutil.disk_usage(TOP).free
        if free < need:
            bench.skip(f"growth, {millions} M", f"{need / 1e9:.0f} GB are not free")
            continue
        size = Size(millions * MILLION)
        sizes.append(size)
        with temporary_store(str(BUILD)) as store:
            measure_file(bench, callers, store, size)
            if BIN is None:
                bench.skip("growth: PostgreSQL", "it is not installed")
            elif millions <= 10:
                measure_database(bench, store, size)
        bench.progress("")
        report_size(bench, size)
    bench.figures["growth"] = [dataclasses.asdict(size) for size in sizes]
    if len(sizes) > 1:
        least, greatest = sizes[0], sizes[-1]
        for of, one in greatest.one_by_one.items():
            for what, key in ("time", "p50"), ("CPU", "cpu"):
                bench.aim(f"growth: {what} of a commit {of}, greatest / least",
                          one[key] / least.one_by_one[of][key], COST_RATIO, least=False)
        bench.aim("growth: poll, greatest / least",
                  greatest.polls_ms["poll"] / least.polls_ms["poll"], POLL_RATIO, least=False)
