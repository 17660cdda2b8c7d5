#!/usr/bin/env python3
"""Goal: when the power goes while clients create, on real file systems, every
plant that was acknowledged is there after the next start, and no stored id takes
another plant; and this test would see it if one were not.  A consumer, on another disk, got each one
once, in order, and none that is lost.  A file that was reported as made keeps
its name."""

import dataclasses
import fcntl
import itertools
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import threading
import time

from clients import Clients
from lib_faults import (
    Event, Tally, compile_shim, create_by_cgi, judge, make_image, mount, preload,
    run_script, unmount,
)
from leftovers import contradict, load
from lib_service import (
    JOURNAL_NAME, Store, init_store, responder, run, take_lock, temporary_store, wait_until,
)

KINDS = ("ext4", "xfs")
CUTS = 52  # for each kind
CUTS_PER_STORE = 13  # then it is read whole, and another one is begun
MUTANT_CUTS = 5
# From the first answer to the cut.
LOAD_S = (0.0, 0.12)
# One start in so many is after a clean end.
CLEAN_EVERY = 3

# _IOR('X', 125, uint32_t), and: without writing the file system's own journal.
GO_DOWN = 0x8004587D
NO_LOG_FLUSH = struct.pack("I", 2)


class Consumer:
    """Polls again and again while the machine runs."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.cursor, self.out = store.root / "cursor", store.root / "out"
        self.taken: list[dict] = []
        self.running = threading.Event()

    def poll(self) -> None:
        """A file that is there is whole, also where the cursor was not replaced."""
        self.store.command("export", "--cursor", self.cursor, "--full", "-o", self.out)
        if self.out.exists():
            self.taken += map(json.loads, self.out.read_text().splitlines())
            self.out.unlink()

    def work(self) -> None:
        while self.running.is_set():
            self.poll()
            # Its end is a checkpoint of the index.
            self.store.command("import", "--quiet", input=b"")

    def __enter__(self) -> None:
        self.running.set()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.running.clear()
        self.thread.join()

    def judge(self) -> list[str]:
        before = len(self.taken)
        self.poll()
        stored = self.store.command("export", "--full").stdout
        if self.taken != [json.loads(line) for line in stored.splitlines()]:
            return [f"the consumer has {len(self.taken)} plants, {before} before the end, of "
                    f"{len(stored.splitlines())}, or others"]
        return []


class Machine:
    """A store on a file system of its own that can lose its power."""

    def __init__(self, store: Store, kind: str, shim: pathlib.Path) -> None:
        self.store, self.kind, self.shim = store, kind, shim
        self.image = store.root / "image"
        self.ids = itertools.count(1)
        self.events: list[Event] = []
        self.chance = random.Random(kind)
        self.refused = ""  # why a start did not serve

    def make(self) -> None:
        make_image(self.image, self.kind)
        mount(self.image, self.store.dir, "-o", "loop")
        init_store(self.store.build, self.store.dir)
        self.events[:] = load(self.store, self.chance)
        unmount(self.store.dir)
        self.consumer = Consumer(self.store)
        self.consumer.cursor.unlink(missing_ok=True)

    def settings(self, synced: bool) -> dict[str, str]:
        """For a service on a machine that has just been started."""
        return {} if synced else preload(self.shim, FAULT_NO_SYNC="1")

    def run(self, *, cut: bool, synced: bool = True) -> bool:
        """A start of the machine, and its end; whether plants were created."""
        mount(self.image, self.store.dir, "-o", "loop")
        try:
            settings = self.settings(synced)
            with (
                responder(self.store, watched=False, **settings) as service,
                Clients(self.store, service.socket_path, self.ids) as clients,
                self.consumer,
            ):
                served = wait_until(lambda: clients.stored() > 0 or ended(service))
                served = served and clients.stored() > 0
                if not served:
                    self.refused = service.log()[-1000:]
                time.sleep(self.chance.uniform(*LOAD_S))
                cut_at = float("inf")
                if cut:
                    cut_at = self.cut()
                else:
                    service.process.terminate()
                    wait_until(lambda: ended(service))
                # They end when no answer comes.
            self.events += (without_power(event, cut_at) for event in clients.events)
        finally:
            unmount(self.store.dir)
        return served

    def cut(self) -> float:
        """Return the time at which the power went."""
        if self.chance.random() < 0.5:  # in the middle of the kernel's periodic write-back
            with subprocess.Popen(["sync", "-f", self.store.dir], stderr=subprocess.DEVNULL):
                time.sleep(self.chance.uniform(0, 0.05))
                return self.go_down()
        return self.go_down()

    def go_down(self) -> float:
        place = os.open(self.store.dir, os.O_RDONLY)
        try:
            cut_at = time.monotonic()
            fcntl.ioctl(place, GO_DOWN, NO_LOG_FLUSH)
            return cut_at
        finally:
            os.close(place)

    def judge(self) -> list[str]:
        """Start once more, and compare with all that was ever answered."""
        if not self.run(cut=False):
            return [f"the next start does not serve: {self.refused}"]
        mount(self.image, self.store.dir, "-o", "loop")
        try:
            known = [told.plant_id for told in self.events if told.outcome == "created_or_same"]
            outcomes = contradict(self.store, known, self.chance)
            taken = [f"another plant with a stored id: {outcomes}"] * (set(outcomes) != {"conflict"})
            return judge(self.store, self.events) + self.consumer.judge() + taken
        finally:
            unmount(self.store.dir)


def without_power(event: Event, cut_at: float) -> Event:
    """No answer counts that came after the power went, as no such machine gives one.

    The processes run on, and ext4 can tell a sync that waits while its file system goes down,
    in the middle of another's write-back, that it has succeeded.
    """
    return dataclasses.replace(event, outcome="maybe") if event.end > cut_at else event


def ended(service) -> bool:
    return service.process.poll() is not None


def check_cuts(tally: Tally, machine: Machine, cuts: int) -> None:
    done = acknowledged = taken = 0
    wrong: list[str] = []
    kind = machine.kind
    while done < cuts and not wrong:
        machine.make()
        for number in range(min(CUTS_PER_STORE, cuts - done)):
            if number % CLEAN_EVERY == CLEAN_EVERY - 1:
                machine.run(cut=False)
            if not machine.run(cut=True):
                wrong.append(f"a start does not serve: {machine.refused}")
                break
            done += 1
        wrong += machine.judge()
        acknowledged += sum(e.outcome == "created_or_same" for e in machine.events)
        taken += len(machine.consumer.taken)
    print(f"# {kind}: {done} power cuts, {acknowledged} plants acknowledged, {taken} consumed")
    detail = f"{done} cuts, {wrong[:5]}"
    sentence = f"{kind}: {cuts} power cuts lost, doubled and invented nothing, for a consumer too"
    tally.check(not wrong and done == cuts, sentence, detail)


def check_mutant(tally: Tally, machine: Machine) -> None:
    """A service that does not sync is found out."""
    lost: list[str] = []
    for number in range(MUTANT_CUTS):
        machine.make()
        machine.run(cut=False)
        served = machine.run(cut=True, synced=False)
        found = machine.judge() if served else [machine.refused]
        lost = [line for line in found if "acknowledged, is lost" in line]
        if lost:
            break
    print(f"# {machine.kind}, no syncs: {len(found)} violations at cut {number + 1}")
    sentence = f"{machine.kind}: without its syncs the same test finds plants lost"
    tally.check(bool(lost), sentence, found[:3])


# --- Names ---------------------------------------------------------------------

TORN = b'{"seq":2,"torn'


def give_back_names(store: Store) -> None:
    """What 1.0.0 has renamed, and a torn end, which is to be kept."""
    init_store(store.build, store.dir)
    create_by_cgi(store, 1, "Fern")
    whole = store.journal.read_bytes().rstrip(b"\n") + b"\n"
    store.journal.write_bytes(whole + TORN)
    store.journal.rename(store.dir / "plants.jsonl.failed")


def post(store: Store, environment: dict[str, str]) -> bool:
    return create_by_cgi(store, 7, "Fern", environment)[0].outcome == "created_or_same"


def call(store: Store, environment: dict[str, str], *words: object) -> bool:
    return store.command(*words, env=store.environment() | environment).returncode == 0


def is_valid(store: Store) -> bool:
    return call(store, {}, "verify", "--quiet", store.dir / "new")


def make_earlier_copy(store: Store) -> None:
    (store.dir / "new").mkdir(0o700)
    lines = (store.root / "source" / JOURNAL_NAME).read_bytes().splitlines(keepends=True)
    (store.dir / "new" / JOURNAL_NAME).write_bytes(b"".join(lines[:2]))


def take_over(store: Store, environment: dict[str, str]) -> bool:
    (store.root / "out").unlink(missing_ok=True)
    return call(store, environment, "export", "--dir", store.root / "source",
                "--cursor", store.dir / "place", "-o", store.root / "out")


def is_taken(store: Store) -> bool:
    """A cursor that has its place hands over nothing again."""
    return take_over(store, {}) and not (store.root / "out").read_bytes()


def kept_torn(store: Store) -> bool:
    kept = [path.read_bytes() for path in store.dir.glob("*.torn-*")]
    return TORN in kept and {plant["id"] for plant in store.plants()} == {1, 7}


# What comes before, what is done, and what is true then.
OPERATIONS = {
    "init": (None, lambda store, env: call(store, env, "init", store.dir / "new"), is_valid),
    "backup": (None, lambda store, env: call(store, env, "backup", "--dir", store.root / "source",
                                             store.dir / "new"), is_valid),
    # What the earlier copy has stays there.
    "backup, again": (make_earlier_copy, lambda store, env: is_valid(store) and call(
        store, env, "backup", "--dir", store.root / "source", store.dir / "new"), is_valid),
    "recover": (None, lambda store, env: call(store, env, "recover", store.root / "source",
                                              store.dir / "new"), is_valid),
    "token add": (None, lambda store, env: call(store, env, "token", "add", "one", "--file",
                                                store.dir / "tokens"),
                  lambda store: "one " in (store.dir / "tokens").read_text()),
    "export --cursor": (None, take_over, is_taken),
    "a start": (give_back_names, post, kept_torn),
}


def cut_at(machine: Machine, what: str, plan: dict[str, str]) -> bool:
    """Whether all is well if the power goes at that call, or in the end."""
    before, act, is_well = OPERATIONS[what]
    store, held = machine.store, machine.store.root / "held"
    make_image(machine.image, machine.kind)
    mount(machine.image, store.dir, "-o", "loop")
    try:
        if before is not None:
            before(store)
        run("sync", "-f", store.dir, check=True)
        done: list[bool] = []
        environment = preload(machine.shim, FAULT_SCOPE=str(store.dir), FAULT_HOLD=str(held),
                              **plan)
        thread = threading.Thread(target=lambda: done.append(act(store, environment)))
        thread.start()
        wait_until(lambda: held.exists() or not thread.is_alive())
        journal = store.dir / "new" / "plants.jsonl"
        # A backup is not served.
        open_to_others = (not what.startswith("backup") and held.exists() and journal.exists()
                          and is_free(journal))
        reported = any(done)  # before the power went
        machine.go_down()
        held.unlink(missing_ok=True)
        thread.join()
        unmount(store.dir)
        mount(machine.image, store.dir, "-o", "loop")
        return not open_to_others and (reported or act(store, {})) and is_well(store)
    finally:
        unmount(store.dir)


def is_free(journal: pathlib.Path) -> bool:
    """What another process stored in it would be lost if its name were."""
    try:
        os.close(take_lock(journal))
    except OSError:
        return False
    return True


def unsynced(calls: list[list[str]]) -> list[str]:
    """New names behind which something else comes before the sync of their directory; the
    file systems here happen to keep that order by themselves."""
    changes = ("mkdir", "rename", "fsync", "fdatasync", "ftruncate", "pwrite")
    calls = [call for call in calls if call[1].startswith(changes)]
    return [path for (_, name, *_, path), following in zip(calls, [*calls[1:], ["", "", ""]])
            if name.startswith(("mkdir", "rename"))
            and (following[1], following[-1]) != ("fsync", os.path.dirname(path))]


def check_names(tally: Tally, machine: Machine) -> None:
    trace = machine.store.root / "trace"
    machine.store.command("init", machine.store.root / "source", check=True)
    machine.store.command("import", "--dir", machine.store.root / "source", "--quiet",
                          input=b'{"id":1,"name":"Fern"}\n{"id":2,"name":"Moss"}', check=True)
    for what in OPERATIONS:
        trace.unlink(missing_ok=True)
        wrong = [] if cut_at(machine, what, {"FAULT_TRACE": str(trace)}) else ["in the end"]
        calls = [line.split() for line in trace.read_text().splitlines()]
        syncs = [call[0] for call in calls if call[1] in ("fsync", "fdatasync")]
        # A copy that is extended has its names.
        wrong += unsynced(calls) if OPERATIONS[what][0] is not make_earlier_copy else []
        wrong += [f"at call {number}" for number in syncs
                  if not cut_at(machine, what, {"FAULT_PLAN": f"{number}:hold=0"})]
        tally.check(not wrong and len(syncs) > 1,
                    f"{what}: done once it is reported, and again after a power cut before any of "
                    f"its syncs", (len(syncs), wrong))


def scenario(tally: Tally, arguments) -> None:
    shim = compile_shim(arguments.build)
    for kind in KINDS:
        with temporary_store(str(arguments.build)) as store:
            if tally.lacks(f"{kind}: power cuts", f"{kind} on a loop device", "spawn-fcgi"):
                continue
            machine = Machine(store, kind, shim)
            with tally.part(f"{kind}: the power cuts run to their end"):
                check_cuts(tally, machine, CUTS * (20 if arguments.long else 1))
            if kind == KINDS[0]:
                with tally.part("the names of files"):
                    check_names(tally, machine)
            with tally.part(f"{kind}: the cuts without syncs run to their end"):
                check_mutant(tally, machine)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, scenario))
