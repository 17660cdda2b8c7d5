#!/usr/bin/env python3
"""Goal: on a disk whose writes fail, or hang and then fail, no acknowledged plant is
lost or twice, no healthy store is refused, and the service resumes by itself.

The disk is a loop device on failing_disk.c.  It is judged after it was mounted anew: then
nothing counts but what it has.  Calls that fail for one process alone are the shim's."""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

from lib_faults import (
    HERE, Event, Tally, compile_shim, event, judge, make_image, mount, outcome_of,
    parts_side_by_side, preload, read_answer, run_script, unmount,
)
from lib_service import (
    Store, init_store, listening, new_plant, responder, run, start, stop_process, temporary_store,
    wait_until,
)
from load import ask, single

LINE = '"seq":'  # what each line of the journal has
FERN, LONG = "Fern", "x" * 20_000  # names; the second on blocks of its own
# Words that only files of the index have: they are the bytes of ids.  The second id is the
# greatest of its run, which the manifest has.
WORDS = {"run": "FAILME!!", "manifest": "MANIFEST"}
INDEXED = [int.from_bytes(word.encode(), "little") for word in WORDS.values()]
KINDS = ("ext4", "xfs")
ROUNDS, ROUNDS_LONG = 4, 300
ROUNDS_PER_MOUNT = 10
AT_ONCE = 6  # CGI requests
TRIES = 3  # of a client whose disk is well again
# Others run meanwhile, unless they wait for what is held.
MEANWHILE_S = 0.1
SYNCS = ("fsync", "fdatasync")
CHANGES = (*SYNCS, "pwrite", "ftruncate", "renameat2", "renameat", "unlinkat")


@dataclasses.dataclass
class Disk:
    """A store, its disk if it has one of its own, and what clients were told."""

    store: Store
    shim: pathlib.Path
    loop: str = ""
    events: list[Event] = dataclasses.field(default_factory=list)
    wrong: list[str] = dataclasses.field(default_factory=list)
    ids: Iterator[int] = dataclasses.field(default_factory=lambda: itertools.count(1))

    @property
    def held(self) -> pathlib.Path:
        return self.store.root / "rule.held"

    def rule(self, text: str = "") -> None:
        """As failing_disk.c has it; none: all is well."""
        fresh = self.store.root / "rule.new"
        self.held.unlink(missing_ok=True)
        fresh.write_text(text)
        fresh.rename(self.store.root / "rule")

    def failing(self) -> dict[str, str]:
        """The environment of a process whose first sync fails."""
        return preload(self.shim, FAULT_ONLY="fdatasync", FAULT_PLAN="1:error=5,1")

    def note(self, who: str, status: int, said: str) -> None:
        if status == os.EX_CONFIG:
            self.wrong.append(f"{who} refuses a healthy store: {said}")

    def post(self, plant_id: int = 0, name: str = FERN, environment: dict[str, str] | None = None,
             meanwhile: Callable[[subprocess.Popen], object] = lambda process: None
             ) -> tuple[Event, str]:
        """One plant by CGI: what its client was told, and what the process said."""
        plant_id = plant_id or next(self.ids)
        body, begun = new_plant(plant_id, name), time.monotonic()
        settings = self.store.environment() | self.store.request(body) | (environment or {})
        with subprocess.Popen([self.store.responder], stdin=subprocess.PIPE, env=settings,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(body)
                process.stdin.close()
            process.stdin = None
            meanwhile(process)
            out, said = process.communicate()
        self.note("a CGI process", process.returncode, said.decode())
        self.events.append(event(begun, plant_id, (name, None), outcome_of(read_answer(out))))
        return self.events[-1], said.decode()

    def export(self) -> set[int]:
        """The ids that are printed, which must be all that were acknowledged before."""
        known = {told.plant_id for told in self.events if is_stored(told)}
        done = self.store.command("export")
        self.note("export", done.returncode, done.stderr.decode())
        found = {json.loads(line)["id"] for line in done.stdout.splitlines()}
        if done.returncode == 0 and not known <= found:
            self.wrong.append(f"export does not have the plants {known - found}")
        return found

    def stored(self, plant_id: int = 0, name: str = FERN) -> bool:
        """Whether a client that tries again is told so."""
        plant_id = plant_id or next(self.ids)
        return any(is_stored(self.post(plant_id, name)[0]) for _ in range(TRIES))

    def judge(self) -> list[str]:
        """What is wrong once nothing is left but what the disk has."""
        if self.loop:
            self.rule()
            unmount(self.store.dir)
            mount(self.loop, self.store.dir)
        if not self.stored():
            self.wrong.append(f"no start serves: {self.post()}")
        return self.wrong + judge(self.store, self.events)


def is_stored(told: Event) -> bool:
    return told.outcome == "created_or_same"


@contextlib.contextmanager
def failing_disk(build: pathlib.Path, shim: pathlib.Path, kind: str) -> Iterator[Disk]:
    with temporary_store(str(build)) as store, contextlib.ExitStack() as stack:
        disk, place = Disk(store, shim), store.root / "fuse"
        place.mkdir()
        flags = run("pkg-config", "--cflags", "--libs", "fuse3", check=True, text=True).stdout
        run("cc", "-std=gnu17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o",
            store.root / "program", HERE / "failing_disk.c", *flags.split(), check=True)
        image = make_image(store.root / "image", kind)
        process = start([store.root / "program", image, store.root / "rule", place],
                        store.root / "disk.log")
        stack.callback(stop_process, process)
        wait_until(lambda: (place / "disk").exists() or process.poll() is not None)
        stack.callback(unmount, place)
        disk.loop = run("losetup", "--find", "--show", place / "disk", check=True,
                        text=True).stdout.strip()
        stack.callback(run, "losetup", "--detach", disk.loop)
        mount(disk.loop, store.dir)
        stack.callback(unmount, store.dir)
        stack.callback(disk.rule)
        init_store(store.build, store.dir)
        yield disk


# --- One failure -------------------------------------------------------------


def check_killed(tally: Tally, disk: Disk, what: str, room: bool) -> None:
    """The process that waits for its sync is killed, and the sync then fails."""
    if not room:
        disk.stored()
    else:  # which a service has left behind the journal's end
        with responder(disk.store, watched=False) as service:
            with single(disk.store, service.socket_path) as exchange:
                disk.events.append(ask(exchange, (next(disk.ids), FERN, None))[0])
            service.process.kill()
            service.process.wait()

    def kill(process: subprocess.Popen) -> None:
        tally.check(wait_until(disk.held.exists), f"{what}: a write hangs")
        process.kill()
        disk.rule(f"fail 0 {LINE}")

    disk.rule(f"hold 0 {LINE}")
    plant_id = disk.post(0, LONG, meanwhile=kill)[0].plant_id
    disk.rule()
    printed = disk.export()
    tally.check(printed == {1}, f"{what}: a reader prints what the disk has", printed)
    again = disk.stored(plant_id, LONG) and disk.stored() and disk.stored()
    tally.check(again, f"{what}: when the disk is well again, clients are served")
    wrong = disk.judge()
    tally.check(not wrong, f"{what}: killed in a sync that then fails: nothing is lost", wrong[:3])


def check_for_ever(tally: Tally, disk: Disk) -> None:
    """The sector in which the journal ends takes no write any more."""
    store = disk.store
    last = [disk.post()[0].plant_id for _ in range(3)][-1]
    disk.rule(f'fail 0 "id":{last},')
    told = [disk.post(100 + n) for n in range(3)]
    stored = [is_stored(known) for known, _ in told]
    tally.check(not any(stored), "a sector fails for ever: nothing is acknowledged", told)
    tally.check("plant-store backup" in told[-1][1], "the log names the remedy", told)
    torn = [path.name for path in store.dir.glob("*.torn-*")]
    tally.check(len(torn) < 2, "no attempt leaves a file of its own", torn)
    other = dataclasses.replace(disk, store=dataclasses.replace(store, root=store.root / "other"))
    other.loop = ""
    other.store.root.mkdir()
    shutil.copy(store.tokens, other.store.tokens)
    done = store.command("backup", other.store.dir)
    tally.check(done.returncode == 0, "a backup to another disk succeeds", done)
    stored = [other.stored(plant_id) for plant_id in (last, 100, 101)]
    wrong = other.judge()
    tally.check(all(stored) and not wrong, "it serves, and has all that was acknowledged",
                (stored, wrong[:3]))


# --- A checkpoint of the index ------------------------------------------------


class Importer:
    """Imports, each of which ends with a checkpoint."""

    def __init__(self, disk: Disk) -> None:
        self.disk, self.ids = disk, itertools.count(1000)

    def run(self, ids: list[int], meanwhile: Callable[[subprocess.Popen], object] | None = None
            ) -> int:
        store, begun = self.disk.store, time.monotonic()
        lines = b"".join(new_plant(plant_id, FERN) + b"\n" for plant_id in ids)
        with subprocess.Popen([store.build / "plant-store", "import", "--quiet"],
                              stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, env=store.environment()) as process:
            process.stdin.write(lines)
            process.stdin.close()
            if meanwhile is not None:
                meanwhile(process)
            said = process.stderr.read().decode()
        self.disk.note("an import", process.returncode, said)
        outcome = "created_or_same" if process.returncode == 0 else "maybe"
        self.disk.events += [event(begun, plant_id, (FERN, None), outcome) for plant_id in ids]
        return process.returncode

    def some(self, n: int) -> list[int]:
        return list(itertools.islice(self.ids, n))


def check_checkpoint(tally: Tally, disk: Disk, kind: str) -> None:
    """It fails, or is killed in a sync that then fails."""
    importer = Importer(disk)

    def again(what: str) -> None:
        disk.rule()
        unmount(disk.store.dir)
        mount(disk.loop, disk.store.dir)
        told = [disk.post(plant_id, "another")[0].outcome for plant_id in INDEXED]
        tally.check(set(told) == {"conflict"}, f"{kind}, {what}: no id takes another plant", told)

    importer.run(importer.some(400))
    for where, word in WORDS.items():
        def kill(process: subprocess.Popen) -> None:
            tally.check(wait_until(disk.held.exists), f"{kind}: the write of a {where} hangs")
            process.kill()
            disk.rule(f"fail 0 {word}")

        disk.rule(f"fail 0 {word}")
        status = importer.run(importer.some(1) + INDEXED)
        tally.check(status == 0, f"{kind}: a {where} cannot be written: the plant is stored", status)
        again(f"a failed {where}")
        disk.rule(f"hold 0 {word}")
        importer.run(importer.some(1), kill)
        again(f"killed in the sync of a {where} that then fails")
        importer.run(importer.some(200))
        again(f"after the {where}")
    figures = json.loads(disk.store.command("stats", "--json", check=True).stdout)
    tally.check(figures["index"] == "current", f"{kind}: the index is written again", figures)
    wrong = disk.judge()
    tally.check(not wrong, f"{kind}: nothing is lost or refused", wrong[:3])


# --- Many processes at the same time -----------------------------------------


def name_of(plant_id: int) -> str:
    """Some need fresh blocks, whose pages ext4 then takes for written whatever comes."""
    return FERN if plant_id % 4 else LONG


class Race:
    """CGI requests, services and a reader, all at once, some of them killed."""

    def __init__(self, disk: Disk, chance: random.Random) -> None:
        self.disk, self.chance = disk, chance
        self.waiting: list[int] = []  # plants that were not acknowledged
        self.ending = threading.Event()
        self.printed: set[int] = set()

    def run(self, failing: bool) -> None:
        disk = self.disk
        self.ending.clear()
        self.listeners = [listening(disk.store.root / f"race-{n}.sock") for n in (0, 1)]
        services = [threading.Thread(target=self.serve, args=(n,)) for n in (0, 1)]
        jobs = [(self.cgi, failing)] * max(AT_ONCE, len(self.waiting))
        jobs += [(self.ask, 0), (self.ask, 1)]
        threads = [threading.Thread(target=self.insist, args=(failing, *job)) for job in jobs]
        threads.append(threading.Thread(target=lambda: self.printed.update(disk.export())))
        for thread in services + threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.ending.set()
        for thread in services:
            thread.join()

    def serve(self, number: int) -> None:
        """A service that is started again, as systemd does, and in the end is killed or not."""
        log = self.disk.store.root / "race.log"
        with contextlib.closing(self.listeners[number]):
            while not self.ending.is_set():
                process = start([self.disk.store.responder], log, stdin=self.listeners[number],
                                env=self.disk.store.environment())
                wait_until(lambda: self.ending.is_set() or process.poll() is not None)
                if self.chance.random() < 0.5:
                    process.kill()
                self.disk.note("a service", stop_process(process), log.read_text()[-500:])

    def insist(self, failing: bool, job: Callable[[int, object], Event], argument) -> None:
        """One try while the disk fails; what is not stored then, is once it is well."""
        plant_id = self.waiting.pop() if self.waiting else next(self.disk.ids)
        if any(is_stored(job(plant_id, argument)) for _ in range(1 if failing else TRIES)):
            return
        self.waiting.append(plant_id)
        if not failing:
            self.disk.wrong.append(f"the disk is well, and plant {plant_id} is refused")

    def cgi(self, plant_id: int, failing: bool) -> Event:
        luck = self.chance.random() if failing else 1

        def kill(process: subprocess.Popen) -> None:
            time.sleep(luck * 0.1)
            process.kill()

        environment = self.disk.failing() if 0.3 < luck < 0.5 else None
        meanwhile = kill if luck < 0.3 else (lambda process: None)
        return self.disk.post(plant_id, name_of(plant_id), environment, meanwhile)[0]

    def ask(self, plant_id: int, number: int) -> Event:
        with single(self.disk.store, self.disk.store.root / f"race-{number}.sock") as exchange:
            self.disk.events.append(ask(exchange, (plant_id, name_of(plant_id), None))[0])
            return self.disk.events[-1]


def check_races(tally: Tally, disk: Disk, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    race, done, wrong = Race(disk, chance), 0, []
    while done < rounds and not wrong:
        disk.rule(f"fail {chance.choice((1, 1, 2, 3))} {LINE}")
        race.run(failing=True)
        disk.rule()
        race.run(failing=False)
        done += 1
        wrong = list(disk.wrong)
        if done % ROUNDS_PER_MOUNT == 0 or done == rounds:
            wrong = disk.judge()
            lost = race.printed - {plant["id"] for plant in disk.store.plants()}
            wrong += [f"printed and lost: {lost}"] * bool(lost)
    told = sum(map(is_stored, disk.events))
    print(f"# races, seed {seed}: {done} rounds, {told} answers 200 of {len(disk.events)}")
    tally.check(not wrong and told > rounds,
                "races after failed syncs: nothing is lost, refused or stored twice",
                (done, wrong[:3]))


# --- One process held, others run --------------------------------------------


class Held:
    """A process is held at a call, others come, and it goes on or the call fails."""

    def __init__(self, store: Store, shim: pathlib.Path, reader: bool) -> None:
        self.disk, self.reader = Disk(store, shim), reader
        self.at, self.writer = store.root / "at", store.root / "writer"

    def begin(self, failed: bool) -> None:
        """A new store; `failed`: the last sync has failed, in one process alone."""
        store = self.disk.store
        shutil.rmtree(store.dir)
        init_store(store.build, store.dir)
        self.disk.events.clear()
        self.disk.wrong.clear()
        self.disk.post(1)
        if failed:
            self.disk.post(2, FERN, self.disk.failing())

    def act(self, **settings: str) -> None:
        store = self.disk.store
        environment = preload(self.disk.shim, FAULT_SCOPE=str(store.dir), **settings)
        if self.reader:
            store.command("export", env=store.environment() | environment)
        else:
            self.disk.post(3, FERN, environment)

    def calls(self, failed: bool) -> list[list[str]]:
        """The numbers and names of those that change something."""
        self.begin(failed)
        trace = self.disk.store.root / "trace"
        trace.write_text("")
        self.act(FAULT_TRACE=str(trace))
        calls = [line.split()[:2] for line in trace.read_text().splitlines()]
        return [call for call in calls if call[1] in CHANGES]

    def case(self, failed: bool, number: str, error: int, other_fails: bool) -> list[str]:
        self.begin(failed)
        disk, threads = self.disk, []

        def beside(function, *arguments, **settings) -> None:
            threads.append(threading.Thread(target=function, args=arguments, kwargs=settings))
            threads[-1].start()
            threads[-1].join(MEANWHILE_S)

        beside(self.act, FAULT_HOLD=str(self.at), FAULT_PLAN=f"{number}:hold={error}")
        wait_until(lambda: self.at.exists() or not threads[0].is_alive())
        own = disk.failing() if other_fails else {}
        if other_fails:
            beside(disk.store.command, "verify", env=disk.store.environment() | own)
        beside(disk.post, 10)
        if self.reader:  # a writer, before its write
            own = preload(disk.shim, FAULT_ONLY="pwrite", FAULT_PLAN="1:hold=0",
                          FAULT_HOLD=str(self.writer))
        beside(disk.post, 11, FERN, own)
        self.at.unlink(missing_ok=True)
        threads[0].join(MEANWHILE_S)
        beside(disk.post, 12)
        # It may get so far only now.
        while any(thread.is_alive() for thread in threads):
            self.writer.unlink(missing_ok=True)
            time.sleep(0.005)
        return disk.judge()


def check_held(tally: Tally, build: pathlib.Path, shim: pathlib.Path, reader: bool,
               names: tuple[str, ...]) -> None:
    who, wrong, cases = "a reader" if reader else "a start", [], 0
    with temporary_store(str(build)) as store:
        held = Held(store, shim, reader)
        for failed, error in itertools.product((True, False) if reader else (True,), (0, 5)):
            for number, name in held.calls(failed):
                if name not in names or (error and name not in (*SYNCS, "pwrite")):
                    continue
                for case in ((failed, number, error, fails) for fails in (False, True)):
                    wrong += [f"{name}, {case}: {line}" for line in held.case(*case)]
                    cases += 1
    print(f"# {who}: held and gone on, or failed, in {cases} cases")
    tally.check(not wrong and cases > 0, f"{who} is held at a call that then fails, while others "
                "store: nothing is lost or refused", (cases, wrong[:4]))


# --- All ---------------------------------------------------------------------


def scenario(tally: Tally, arguments) -> None:
    build, long, shim = arguments.build, arguments.long, compile_shim(arguments.build)
    parts = [(who, lambda own, who=who: check_held(own, build, shim, who == "a reader",
                                                  CHANGES if long else SYNCS))
             for who in ("a start", "a reader")]

    def on_disk(kind: str, check, *more) -> None:
        def part(own: Tally) -> None:
            with failing_disk(build, shim, kind) as disk:
                check(own, disk, *more)
        parts.append((f"{check.__name__} {kind} {more}", part))

    if not tally.lacks("a disk that fails", "ext4 on a loop device", "FUSE"):
        for kind, room in itertools.product(KINDS, (False, True)):
            what = f"{kind}, {'room' if room else 'fresh blocks'}"
            on_disk(kind, check_killed, what, room)
        for kind in KINDS:
            on_disk(kind, check_checkpoint, kind)
        on_disk("ext4", check_for_ever)
        for seed in range(5 if long else 1):
            on_disk("ext4", check_races, ROUNDS_LONG // 5 if long else ROUNDS, seed)
    parts_side_by_side(tally, parts)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, scenario))
