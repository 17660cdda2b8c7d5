#!/usr/bin/env python3
"""Goal: when the power goes while clients create, on real file systems, every
plant that was acknowledged is there after the next start; and this test would
see it if one were not."""

import fcntl
import itertools
import os
import pathlib
import random
import shutil
import struct
import sys
import time
import uuid

from clients import Clients
from lib_faults import (
    Event, Tally, cannot_mount, compile_shim, judge, make_image, mount, preload, run_script,
    unmount,
)
from lib_service import Store, init_store, responder, temporary_store, wait_until

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


class Machine:
    """A store on a file system of its own that can lose its power."""

    def __init__(self, store: Store, kind: str, shim: pathlib.Path) -> None:
        self.store, self.kind, self.shim = store, kind, shim
        self.image = store.root / "image"
        self.boot = store.root / "boot"
        self.ids = itertools.count(1)
        self.events: list[Event] = []
        self.chance = random.Random(kind)
        self.refused = ""  # why a start did not serve

    def make(self) -> None:
        make_image(self.image, self.kind)
        mount(self.image, self.store.dir, "-o", "loop")
        init_store(self.store.build, self.store.dir)
        unmount(self.store.dir)
        self.events.clear()

    def settings(self, synced: bool) -> dict[str, str]:
        """For a service on a machine that has just been started."""
        self.boot.write_text(f"{uuid.uuid4()}\n")
        more = {} if synced else {"FAULT_NO_SYNC": "1"}
        return preload(self.shim, FAULT_BOOT_ID=str(self.boot), **more)

    def run(self, *, cut: bool, synced: bool = True) -> bool:
        """A start of the machine, and its end; whether plants were created."""
        mount(self.image, self.store.dir, "-o", "loop")
        try:
            settings = self.settings(synced)
            with (
                responder(self.store, watched=False, **settings) as service,
                Clients(self.store, service.socket_path, self.ids) as clients,
            ):
                served = wait_until(lambda: clients.stored() > 0 or ended(service))
                served = served and clients.stored() > 0
                if not served:
                    self.refused = service.log()[-1000:]
                time.sleep(self.chance.uniform(*LOAD_S))
                if cut:
                    self.cut()
                else:
                    service.process.terminate()
                    wait_until(lambda: ended(service))
                # They end when no answer comes.
            self.events += clients.events
        finally:
            unmount(self.store.dir)
        return served

    def cut(self) -> None:
        place = os.open(self.store.dir, os.O_RDONLY)
        try:
            fcntl.ioctl(place, GO_DOWN, NO_LOG_FLUSH)
        finally:
            os.close(place)

    def judge(self) -> list[str]:
        """Start once more, and compare with all that was ever answered."""
        if not self.run(cut=False):
            return [f"the next start does not serve: {self.refused}"]
        mount(self.image, self.store.dir, "-o", "loop")
        try:
            return judge(self.store, self.events)
        finally:
            unmount(self.store.dir)


def ended(service) -> bool:
    return service.process.poll() is not None


def check_cuts(tally: Tally, machine: Machine, cuts: int) -> None:
    done = acknowledged = 0
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
    print(f"# {kind}: {done} power cuts, {acknowledged} plants acknowledged")
    detail = f"{done} cuts, {wrong[:5]}"
    sentence = f"{kind}: {cuts} power cuts lost, doubled and invented nothing"
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


def scenario(tally: Tally, arguments) -> None:
    shim = compile_shim(arguments.build)
    for kind in KINDS:
        with temporary_store(str(arguments.build)) as store:
            reason = cannot_mount(store.root, kind)
            if not reason and shutil.which("spawn-fcgi") is None:
                reason = "needs spawn-fcgi"
            if reason:
                tally.skip(f"{kind}: power cuts", reason)
                continue
            machine = Machine(store, kind, shim)
            with tally.part(f"{kind}: the power cuts run to their end"):
                check_cuts(tally, machine, CUTS * (20 if arguments.long else 1))
            with tally.part(f"{kind}: the cuts without syncs run to their end"):
                check_mutant(tally, machine)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, scenario))
