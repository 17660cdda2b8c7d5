#!/usr/bin/env python3
"""Goal: where the system refuses a call, the service keeps every promise, or refuses to
start with a message that names the call; it never does less in silence.  A sync that fails
while no client waits ends it, too."""

import ctypes
import errno
import functools
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

from lib_faults import (
    Event, Tally, compile_shim, create_by_cgi, event, judge, outcome_of, parts_side_by_side,
    preload, run_script,
)
from lib_service import (
    WAIT_S, FastCgiPeer, Store, listening, new_plant, run, start, stop_process,
    temporary_store, wait_until,
)

ALLOW, FAIL = 0x7FFF0000, 0x00050000  # SCMP_ACT_ALLOW, SCMP_ACT_ERRNO
MASKED_EQUAL = 7  # SCMP_CMP_MASKED_EQ
PR_SET_SECCOMP = 22
CONFIG, OSERR, IOERR = 78, 71, 74
LONG = 2000
IDLE_PLANTS = 270  # more than an idle service keeps in memory


class Call(NamedTuple):
    name: str
    logged: str  # in the log
    status: int = 0  # of the service; 0: it serves
    argument: tuple[int, int] | None = None  # refused if it has all bits of the second
    errors: tuple[int, ...] = (errno.ENOSYS, errno.EPERM)


CALLS = (
    Call("mincore", "mincore: ", CONFIG),
    # As gVisor has it: it succeeds, and tells nothing.
    Call("mincore", "gVisor lacks mincore", CONFIG, errors=(0,)),
    Call("fadvise64", "posix_fadvise: ", CONFIG),
    Call("accept4", "accept4: ", OSERR),
    Call("memfd_create", "memfd_create: ", OSERR),
    Call("openat", "", argument=(2, os.O_TMPFILE)),
    Call("statx", ""),
    Call("renameat2", ""),
    Call("landlock_create_ruleset", "landlock is not supported by this kernel, or was refused"),
    Call("seccomp", ""),  # libseccomp has another call for it
    Call("prctl", "seccomp is not supported by this kernel, or was refused",
         argument=(0, PR_SET_SECCOMP)),
)
SITUATIONS = ("a new store", "a kill -9", "a failed sync")


class Argument(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint), ("how", ctypes.c_int),
                ("mask", ctypes.c_uint64), ("value", ctypes.c_uint64)]


def refuse(call: Call, error: int) -> Callable[[], None]:
    """What a child does before its program begins: from then on the call fails."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    number = library.seccomp_syscall_resolve_name(call.name.encode())
    names = [number]
    if call.name == "prctl":
        # libseccomp asks by this one first.
        names.append(library.seccomp_syscall_resolve_name(b"seccomp"))

    def in_child() -> None:
        rules = ctypes.c_void_p(library.seccomp_init(ALLOW))
        arguments = (Argument * 1)()
        if call.argument:
            place, value = call.argument
            arguments[0] = Argument(place, MASKED_EQUAL, value, value)
        for name in names:
            count = int(bool(call.argument) and name == number)
            if library.seccomp_rule_add_array(rules, FAIL | error, name, count, arguments):
                os._exit(99)
        if library.seccomp_load(rules):
            os._exit(99)

    return in_child


def prepare(store: Store, shim: pathlib.Path, situation: str) -> list[Event]:
    """A plant that was answered, and the end that others have left."""
    events = []
    if situation == "a kill -9":
        path = store.root / "first.sock"
        with listening(path) as listener:
            process = start([store.responder], store.root / "first.log", stdin=listener,
                            env=store.environment())
        events.append(ask(store, path, 1))
        process.kill()
        process.wait()
    elif situation == "a failed sync":
        events.append(create_by_cgi(store, 1, "one")[0])
        failing = preload(shim, FAULT_SCOPE=str(store.dir), FAULT_ONLY="fdatasync",
                          FAULT_PLAN="1:error=EIO,1")
        events.append(create_by_cgi(store, 2, "two", failing)[0])
    return events


def ask(store: Store, path: pathlib.Path, plant_id: int) -> Event:
    """A plant whose request arrives in parts, so that it needs a spool."""
    name = "x" * LONG
    planned = event(0, plant_id, (name, None), "maybe")
    request = store.fcgi(new_plant(plant_id, name))
    with FastCgiPeer(path) as peer:
        peer.send_slowly(request, LONG // 2, 0.01)
        return event(planned.start, plant_id, (name, None), outcome_of(peer.answer()))


def check_case(tally: Tally, build: pathlib.Path, shim: pathlib.Path,
               case: tuple[Call, int, str]) -> None:
    call, error, situation = case
    tally.about = f"{call.name} {errno.errorcode.get(error, 'does nothing')}, {situation}: "
    refused = refuse(call, error)
    with temporary_store(str(build)) as store:
        events = prepare(store, shim, situation)
        if situation == "a new store":
            for file in store.dir.iterdir():
                file.unlink()
            done = store.command("init", preexec_fn=refused)
            tally.check(done.returncode == 0, "a store is made", done)
        path, log = store.root / "fcgi.sock", store.root / "service.log"
        with listening(path) as listener:
            process = start([store.responder], log, stdin=listener, env=store.environment(),
                            preexec_fn=refused)
        try:
            wait_until(lambda: process.poll() is not None or "serving" in log.read_text())
            if call.status == 0:
                tally.check(process.poll() is None, "it serves", log.read_text())
                events += [ask(store, path, 10), ask(store, path, 1)]
                well = [one.outcome for one in events[-2:]]
                tally.check(well[0] == "created_or_same", "a plant is stored", well)
                process.kill()
            status = process.wait(WAIT_S)
        finally:
            stop_process(process)
        if call.status != 0:
            tally.check(status == call.status, "it refuses to start", (status, log.read_text()))
        tally.check(call.logged in log.read_text(), "the log names the call", log.read_text())
        check_reader(tally, store, call, refused)
        # Where all calls are there again.
        events.append(create_by_cgi(store, 3, "three")[0])
        tally.check(events[-1].outcome == "created_or_same", "elsewhere it serves", events[-1])
        wrong = judge(store, events)
        tally.check(not wrong, "nothing is lost", wrong)


def check_reader(tally: Tally, store: Store, call: Call, refused: Callable[[], None]) -> None:
    """A reader has all plants, or says which call it lacks."""
    done: subprocess.CompletedProcess = run(
        store.build / "plant-store", "verify", env=store.environment(), preexec_fn=refused)
    well = done.returncode == (CONFIG if done.returncode else 0) and (
        done.returncode == 0 or call.logged.encode() in done.stderr)
    tally.check(well, "verify reads the store, or names the call", done)


def left_alone(store: Store, act: Callable[[pathlib.Path], Event], settings: dict[str, str]
               ) -> tuple[Event, int, str]:
    """A service from which nothing is asked after `act`, until it ends by itself: what `act`
    gives, the status, the log."""
    path, log = store.root / "fcgi.sock", store.root / "service.log"
    with listening(path) as listener:
        process = start([store.responder], log, stdin=listener, env=store.environment(**settings))
    try:
        return act(path), process.wait(WAIT_S), log.read_text()
    finally:
        stop_process(process)


def check_idle(tally: Tally, build: pathlib.Path, shim: pathlib.Path) -> None:
    """The sync of the closing line fails, while no client waits for an answer."""
    with temporary_store(str(build)) as store:
        # The first two are of the start and of the plant.
        failing = preload(shim, FAULT_SCOPE=str(store.dir), FAULT_ONLY="fdatasync",
                          FAULT_PLAN="3:error=EIO,1")
        stored, status, log = left_alone(store, lambda path: ask(store, path, 1), failing)
        tally.check(status == IOERR and "fdatasync failed" in log,
                    "a sync that fails while the service is idle ends it", (status, log))
        counted = store.command("metrics").stdout
        tally.check(b"plant_store_failed 1\n" in counted, "and is counted", counted)
        again = create_by_cgi(store, 1, "x" * LONG)[0]
        wrong = judge(store, [stored, again])
        tally.check(stored.outcome == again.outcome == "created_or_same" and not wrong,
                    "the next process has the plant", wrong)


def check_idle_damage(tally: Tally, build: pathlib.Path) -> None:
    """The checkpoint of an idle service finds a flipped bit in a run that it would merge."""
    with temporary_store(str(build)) as store:
        lines = b"".join(new_plant(number, "one") + b"\n" for number in range(300))
        store.command("import", "--quiet", input=lines, check=True)
        run_file = next((store.dir / "index").glob("run-*"))
        content = bytearray(run_file.read_bytes())
        content[len(content) // 2] ^= 1
        run_file.write_bytes(content)

        def act(_: pathlib.Path) -> Event:
            return [create_by_cgi(store, 1000 + number, "one")[0]
                    for number in range(IDLE_PLANTS)][-1]

        _, status, log = left_alone(store, act, {})
        tally.check(status == IOERR and "damaged and removed" in log,
                    "damage that is found while the service is idle ends it", (status, log))


def scenario(tally: Tally, arguments) -> None:
    build = arguments.build
    shim = compile_shim(build)
    cases = [(call, error, situation) for call in CALLS for error in call.errors
             for situation in SITUATIONS]
    parts = [(str(case), functools.partial(check_case, build=build, shim=shim, case=case))
             for case in cases]
    parts.append(("idle", functools.partial(check_idle, build=build, shim=shim)))
    parts.append(("damage", functools.partial(check_idle_damage, build=build)))
    parts_side_by_side(tally, parts)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, scenario))
