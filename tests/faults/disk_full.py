#!/usr/bin/env python3
"""Goal: a full disk is answered 503 and passes by itself: nothing is lost, and
plants are created again within seconds of room being made."""

import contextlib
import itertools
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator

from clients import Clients
from lib_faults import (
    MIB, SANITIZER_WORDS, Tally, create_by_cgi, judge, make_image, mounted,
    run_script,
)
from lib_service import Responder, Store, init_store, responder, temporary_store, wait_until
FULL = 5002
ROUNDS = 3
ROUNDS_LONG = 30
# How long the disk stays full after the first answer that says so.
FULL_S = 0.7
HEAL_S = 5.0  # a sync of a busy disk takes a second at times
# Two lines a round: there is no room, there is room again.  Five times that,
# against hundreds of refusals: at the edge a short record may still find room.
LOG_LINES_A_ROUND = 10
STORED_MIN = 50

Disk = contextlib.AbstractContextManager[None]
# Makes the disk full for as long as it is entered.
Filler = Callable[[Store, Responder], Disk]


@contextlib.contextmanager
def fill_disk(store: Store, service: Responder) -> Iterator[None]:
    filler = store.dir / "filler"
    with open(filler, "wb", buffering=0) as out:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    out.write(bytes(size))
        with contextlib.suppress(OSError):
            os.fsync(out)
    try:
        yield
    finally:
        filler.unlink()


@contextlib.contextmanager
def limit_files(store: Store, service: Responder) -> Iterator[None]:
    """As a quota: no file may grow."""
    limit = store.journal.stat().st_size
    unlimited = resource.RLIM_INFINITY
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (limit, unlimited))
    try:
        yield
    finally:
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))


def check_round(
    store: Store, service: Responder, clients: Clients, fill: Filler
) -> tuple[str, float]:
    """Full, and not full again: what is wrong, and how long healing took."""
    stored = clients.stored()
    if not wait_until(lambda: clients.stored() > stored + STORED_MIN):
        return "no plants are created", 0
    before = clients.errors.get(FULL, 0)
    with fill(store, service):
        # The room that was written ahead is used first.
        if not wait_until(lambda: clients.errors.get(FULL, 0) > before):
            return f"never full: {clients.errors}", 0
        time.sleep(FULL_S)
        if service.process.poll() is not None:
            return f"the service ended: {service.log()[-2000:]}", 0
    made = time.monotonic()
    # A repeat is answered 200 on a full disk too: only new plants count.
    size = store.journal.stat().st_size
    if not wait_until(lambda: created_since(clients, made), 2 * HEAL_S):
        return f"not healed: {clients.errors}, the journal has {size} bytes", 0
    return "", created_since(clients, made) - made


def created_since(clients: Clients, when: float) -> float:
    """When the first plant of a request that began after `when` was stored."""
    seen = set()
    for known in list(clients.events):
        if known.outcome != "created_or_same":
            continue
        if known.start > when and known.plant_id not in seen:
            return known.end
        seen.add(known.plant_id)
    return 0.0


def check_disk(tally: Tally, store: Store, name: str, fill: Filler, rounds: int) -> None:
    ids = itertools.count(1)
    with (
        responder(store, watched=False) as service,
        Clients(store, service.socket_path, ids) as clients,
    ):
        wrong, healed = [], []
        for _ in range(rounds):
            problem, took = check_round(store, service, clients, fill)
            wrong += [problem] if problem else []
            healed.append(took)
            if problem:
                break
    log = service.log()
    lines = log.splitlines()
    errors = dict(clients.errors)
    worst = max(healed)
    print(
        f"# {name}: {rounds} times full, {clients.stored()} answers 200, others "
        f"{errors}, healed in {worst * 1000:.0f} ms at most, {len(lines)} log lines"
    )
    detail = f"{wrong}, the log ends {lines[-4:]}"
    tally.check(not wrong, f"{name}: 503 while full, then created again", detail)
    sentence = f"{name}: created again within {HEAL_S:.0f} s of room being made"
    tally.check(not wrong and worst <= HEAL_S, sentence, healed)
    # The clients stop before the service does, so nobody is left without.
    tally.check(set(errors) == {FULL}, f"{name}: no other failure", errors)
    allowed = LOG_LINES_A_ROUND * rounds + 2
    tally.check(len(lines) <= allowed, f"{name}: at most {allowed} lines in the log",
                f"{len(lines)}: {lines[:8]} ... {lines[-3:]}")
    found = [word for word in SANITIZER_WORDS if word in log]
    tally.check(not found, f"{name}: no report of a bug", log[:3000])
    probe, done, answer = create_by_cgi(store, 10**9, "afterwards")
    sentence = f"{name}: the next start serves"
    tally.check(probe.outcome == "created_or_same", sentence, (answer, done.stderr))
    violations = judge(store, [*clients.events, probe])
    tally.check(not violations, f"{name}: nothing is lost, doubled or invented", violations[:5])


def scenario(tally: Tally, arguments) -> None:
    rounds = ROUNDS_LONG if arguments.long else ROUNDS
    build = str(arguments.build)
    with temporary_store(build) as store, tally.part("tmpfs runs to its end"):
        if not tally.lacks("a full tmpfs", "mounts"):
            options = ("-t", "tmpfs", "-o", "size=8m,mode=0700")
            with mounted("tmpfs", store.dir, *options):
                init_store(store.build, store.dir)
                check_disk(tally, store, "tmpfs", fill_disk, rounds)
    with temporary_store(build) as store, tally.part("ext4 runs to its end"):
        if not tally.lacks("a full ext4", "ext4 on a loop device"):
            image = make_image(store.root / "image", "ext4", 16 * MIB)
            with mounted(str(image), store.dir, "-o", "loop"):
                init_store(store.build, store.dir)
                check_disk(tally, store, "ext4", fill_disk, rounds)
    with temporary_store(build) as store, tally.part("a quota runs to its end"):
        check_disk(tally, store, "a limit of the files' size", limit_files, rounds)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, scenario))
