#!/usr/bin/env python3
"""Goal: what supervisors are given in deploy/ is right, and enough to run.

usage: test_units.py BUILD_DIR

systemd itself does not run here: its tools judge the units, and the system
calls that the service makes are compared with those that its unit allows.
"""

import contextlib
import fcntl
import functools
import grp
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from lib_service import (
    TOP,
    WAIT_S,
    FastCgiPeer,
    Store,
    Tally,
    children_of,
    fcgi_request,
    listens,
    main,
    new_plant,
    processes,
    read_journal,
    run,
    start,
    stop_process,
    temporary_store,
    wait_until,
)

DEPLOY = TOP / "deploy"
SERVICE = DEPLOY / "systemd" / "plant-store.service"
SOCKET = DEPLOY / "systemd" / "plant-store.socket"
REFUSED = DEPLOY / "systemd" / "plant-store-refused.target"
BACKUP = DEPLOY / "systemd" / "plant-store-backup.service"
TIMER = DEPLOY / "systemd" / "plant-store-backup.timer"
DATABASE = DEPLOY / "postgresql" / "database.conf"  # a drop-in
CONSUMER = sorted((DEPLOY / "consumer").glob("*.[st]*"))  # the service and its timer
OFFSITE = DEPLOY / "backup" / "plant-store-offsite.service"
UNITS = (SERVICE, SOCKET, REFUSED, BACKUP, TIMER, OFFSITE, *CONSUMER)
START = DEPLOY / "plant-store-start"
MAKE_BACKUP = DEPLOY / "plant-store-backup"
INSTALLED = "/usr/local/libexec/plant-store.fcgi"
EXPOSURE_MAX = 0.4
STATE_DIRECTORY = 238  # systemd's EXIT_STATE_DIRECTORY
BACKUP_INSTALLED = "/usr/local/share/plant-store/plant-store-backup"
BACKUPS = "/var/lib/plant-store-backup"
USER, GROUP = "nobody", "www-data"


def output_of(*command: object, **how: object) -> subprocess.CompletedProcess:
    return run(*command, stderr=subprocess.STDOUT, text=True, timeout=2 * WAIT_S, **how)


def values(unit: pathlib.Path, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


def send(store: Store, socket_path: pathlib.Path, plant_id: int, name: str) -> bool:
    body = new_plant(plant_id, name)
    with FastCgiPeer(socket_path, WAIT_S) as peer:
        request = fcgi_request(store.request(body).items(), body)
        return peer.exchange(request).is_plant(name)


# --- The units ---------------------------------------------------------------


def check_units(tally: Tally, build: str) -> None:
    """By systemd's own judgement, with the service where it is now."""
    responder = str(pathlib.Path(build).resolve() / "plant-store.fcgi")
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder, unit.name) for unit in UNITS]
        for unit, path in zip(UNITS, paths):
            text = unit.read_text().replace(INSTALLED, responder)
            path.write_text(text.replace("/usr/local/share/plant-store", str(DEPLOY)))
        drop_ins = pathlib.Path(folder, f"{SERVICE.name}.d")
        drop_ins.mkdir()
        drop_in = pathlib.Path(shutil.copy(DATABASE, drop_ins))
        moved = pathlib.Path(folder, "plant-.service.d", "store.conf")
        moved.parent.mkdir()
        shutil.copy(DEPLOY / "store.conf", moved)
        done = output_of("systemd-analyze", "verify", "--man=no", *paths)
        # It also complains of units of the machine that they depend on.
        faults = [line for line in done.stdout.splitlines() if "plant-store" in line]
        well = done.returncode == 0 and not faults
        tally.check(well, "systemd finds no fault in the units", done.stdout)
        for path, word in ((paths[0], "Restart"), (drop_in, "PrivateNetwork"),
                           (moved, "ReadWritePaths")):
            path.write_text(path.read_text().replace(f"{word}=", f"Not{word}="))
            done = output_of("systemd-analyze", "verify", "--man=no", *paths)
            # The last is of both services.
            found = done.stdout.count(f"Not{word}") >= 1 + (path == moved)
            tally.check(found, f"it would find one in {path.name}", done.stdout)
    for unit in SERVICE, BACKUP:
        security = ("security", "--offline=true", "--no-pager", unit)
        done = output_of("systemd-analyze", *security)
        found = re.search(r"Overall exposure level .*: ([0-9.]+) ", done.stdout)
        exposure = float(found[1]) if found else 10.0
        sentence = f"the exposure of {unit.name} is {EXPOSURE_MAX} at most"
        well = exposure <= EXPOSURE_MAX
        tally.check(well, f"{sentence}: {exposure}", done.stdout[-300:])


def check_agreement(tally: Tally) -> None:
    """What the units say and the rest relies on."""
    must_mend = f"{os.EX_USAGE} {os.EX_DATAERR} {os.EX_NOPERM} {os.EX_CONFIG} {STATE_DIRECTORY}"
    path = re.findall(r"^socket=(\S+) ", START.read_text(), re.MULTILINE)
    for unit, name, wanted, sentence in (
        (SOCKET, "ListenStream", path, "one socket path everywhere"),
        (SOCKET, "SocketMode", ["0660"], "the socket is closed to others"),
        (SOCKET, "SocketGroup", [GROUP], "the socket is for the web server's group"),
        (SOCKET, "ConditionFileNotEmpty", [], "the socket listens before the first token"),
        (SERVICE, "StandardInput", ["socket"], "the socket is descriptor 0"),
        (SERVICE, "NonBlocking", ["yes"], "the socket does not block"),
        (SERVICE, "RestartPreventExitStatus", [must_mend],
         "what a person must mend is not tried again"),
        (SERVICE, "OnFailure", [REFUSED.name], "a refusal starts its target"),
        (REFUSED, "Conflicts", [SOCKET.name], "which closes the socket"),
        (SERVICE, "OnFailureJobMode", ["fail"],
         "a restart whose stop fails still starts it"),
        (BACKUP, "ExecStart", [f"{BACKUP_INSTALLED} {BACKUPS} $BACKUP_KEEP"],
         "a backup is made by the script"),
        (BACKUP, "StateDirectory", ["plant-store plant-store-backup"],
         "a backup writes to its directory and the store"),
        (BACKUP, "User", values(SERVICE, "User"), "a backup is made by the store's owner"),
        (BACKUP, "WantedBy", [], "a backup is not made at each boot"),
        (TIMER, "WantedBy", ["timers.target"], "the timer can be enabled"),
    ):
        found = values(unit, name)
        tally.check(found == wanted, sentence, found)
    sandbox = [re.search(r"^CapabilityBoundingSet=(?:.|\n)*^SystemCallErrorNumber=.*$",
                         unit.read_text(), re.MULTILINE)[0] for unit in (SERVICE, BACKUP)]
    lines = [set(re.findall(r"^[A-Z].*$", text, re.MULTILINE)) for text in sandbox]
    # The service's filter may allow more, which the system calls show.
    differ = {line for line in lines[0] ^ lines[1] if line in lines[1]
              or not line.startswith("SystemCallFilter=")}
    well = differ == {"ProcSubset=all", "ProcSubset=pid"}
    well = well and allowed(BACKUP) <= allowed(SERVICE)
    tally.check(well, "a backup has the sandbox of the service", differ)


# --- System calls ------------------------------------------------------------


@functools.cache
def members(group: str) -> frozenset[str]:
    """The system calls of a group, those of its groups included."""
    done = output_of("systemd-analyze", "syscall-filter", "--no-pager", group)
    if done.returncode:
        raise RuntimeError(done.stdout)
    found: set[str] = set()
    for line in done.stdout.splitlines()[1:]:
        name = line.strip()
        if name.startswith("@"):
            found |= members(name)
        elif name and not name.startswith("#"):
            found.add(name)
    return frozenset(found)


def allowed(unit: pathlib.Path = SERVICE) -> set[str]:
    """As SystemCallFilter= lines are read: in order, `~` takes away."""
    calls: set[str] = set()
    for value in values(unit, "SystemCallFilter"):
        takes_away = value.startswith("~")
        for word in value.lstrip("~").split():
            names = members(word) if word.startswith("@") else {word}
            calls = calls - names if takes_away else calls | names
    # Whatever a filter says, these are allowed to start a program at all; and
    # only root has capabilities to drop.
    return calls | members("@default") | {"capset"}


class Traced:
    """Runs of the responder under strace, and the system calls they made."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.socket_path = store.root / "traced.sock"
        self.log = store.root / "traced.log"
        self.calls: set[str] = set()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(self.socket_path))
        self.listener.listen()

    @contextlib.contextmanager
    def run(self, *inject: str) -> Iterator[tuple[subprocess.Popen, int]]:
        """strace, and the responder's process below it."""
        trace = self.store.root / "trace"
        environment = self.store.environment(
            PLANT_STORE_THREADS="2", PLANT_STORE_BODY_BYTES_MAX="1000000"
        )
        command = ["strace", "-f", "-qq", "-o", trace, *inject, self.store.responder]
        strace = start(command, self.log, env=environment, stdin=self.listener)
        try:
            # strace has had other children before, to try the kernel.
            if not wait_until(lambda: workers_of(self.store.responder, strace.pid)):
                raise RuntimeError("strace started nothing")
            yield strace, workers_of(self.store.responder, strace.pid)[0]
        finally:
            for pid in children_of(strace.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            strace.wait()
            text = trace.read_text(errors="replace")
            self.calls |= set(re.findall(r"^\d+ +([a-z0-9_]+)\(", text, re.MULTILINE))

    def end(self, strace: subprocess.Popen, pid: int) -> int:
        os.kill(pid, signal.SIGTERM)
        return strace.wait(WAIT_S)


def trace_all(store: Store, traced: Traced) -> list[bool]:
    """The ways that the service goes; whether each went as it should."""
    path = traced.socket_path
    lines = store.dir / "plants.jsonl"
    large = "x" * 500_000  # more than a socket's buffer, so it goes by a spool
    well = []

    with traced.run() as (strace, pid):
        well.append(send(store, path, 1, "Fern") and send(store, path, 2, large))
        done = store.command("token", "add", "two")
        os.kill(pid, signal.SIGHUP)
        well.append(done.returncode == 0 and send(store, path, 3, "Moss"))
        # As an idle service does.
        well.append(wait_until(store.is_closed))
        well.append(traced.end(strace, pid) == 0)
    with traced.run() as (strace, pid):
        well.append(send(store, path, 4, "Reed"))
        os.kill(pid, signal.SIGKILL)
        strace.wait(WAIT_S)
    text = lines.read_bytes().rstrip(b"\n") + b'\n{"seq":9,'
    lines.write_bytes(text)
    shutil.rmtree(store.dir / "index")
    with traced.run() as (strace, pid):
        well.append(send(store, path, 5, "Sedge"))
        well.append(any(store.dir.glob("*.torn-*")))
        well.append(traced.end(strace, pid) == 0)
    inject = ("-P", str(lines), "-e", "inject=fdatasync:error=EIO:when=1")
    with traced.run("-e", "trace=all", *inject) as (strace, pid):
        with contextlib.suppress(OSError, ValueError):
            send(store, path, 6, "Rush")
        well.append(strace.wait(WAIT_S) == os.EX_IOERR)
    with traced.run() as (strace, pid):
        well.append(send(store, path, 7, "Iris"))
        well.append([plant["id"] for plant in store.plants()] == list(range(1, 8)))
        well.append(not any(store.dir.glob("*.failed*")))
        well.append(traced.end(strace, pid) == 0)
    return well


def check_calls(tally: Tally, build: str) -> None:
    sentence = "the unit allows every system call that the service makes"
    if tally.lacks(sentence, "strace"):
        return
    with temporary_store(build) as store:
        traced = Traced(store)
        well = trace_all(store, traced)
        detail = (well, traced.log.read_text(errors="replace")[-2000:])
        tally.check(all(well), "the service went all of its ways", detail)
        # That the trace has what makes a store and a service at all.
        seen = {"accept4", "epoll_wait", "fdatasync", "memfd_create", "mincore"} <= traced.calls
        tally.check(seen, "the trace holds them", sorted(traced.calls))
        refused = sorted(traced.calls - allowed())
        tally.check(not refused, f"{sentence}: {len(traced.calls)}", refused)
    few = {"setuid", "mount", "bpf", "ptrace", "mlock"} & allowed()
    tally.check(not few, "it allows none that only an attacker needs", few)


# --- Backups -----------------------------------------------------------------


class Backups:
    """A store with one plant, its backups, and the script that makes them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.dir = store.root / "backups"
        self.dir.mkdir()
        self.create(1)

    def create(self, plant_id: int) -> None:
        self.store.cgi(new_plant(plant_id, f"plant {plant_id}"))

    def make(self, keep: object = 3, *tracer: object, **environment: str):
        """The script, and how it ended."""
        command = str(self.store.build / "plant-store")
        return output_of(
            *tracer, MAKE_BACKUP, self.dir, str(keep),
            env={"PATH": "/usr/bin:/bin", "PLANT_STORE": command}
            | self.store.environment(**environment),
        )  # fmt: skip

    def found(self) -> list[tuple[int, list[int]]]:
        """The number and the plants of each, the oldest first."""
        paths = [path for path in self.dir.iterdir() if path.name[0].isdigit()]
        return sorted(
            (int(path.name.partition("-")[0]),
             [plant["id"] for plant in read_journal(path / "plants.jsonl")])
            for path in paths
        )  # fmt: skip


def check_backups(tally: Tally, build: str) -> None:
    """plant-store-backup keeps the last backups, and what fails removes none."""
    with temporary_store(build) as store:
        backups = Backups(store)

        def fails(status: int, words: str, sentence: str, done=None, **how) -> None:
            before = backups.found()
            done = done or backups.make(1, **how)
            well = (done.returncode, words in done.stdout) == (status, True)
            well = well and backups.found() == before
            well = well and not (backups.dir / "unfinished").exists()
            tally.check(well, f"backup: {sentence}", (done, backups.found()))

        for plant_id in range(2, 6):
            done = backups.make()
            backups.create(plant_id)
            if plant_id == 2:  # so that the numbers get longer
                (first,) = backups.dir.glob("1-*")
                first.rename(first.with_name(f"8{first.name[1:]}"))
        wanted = [(n, list(range(1, n - 6))) for n in (9, 10, 11)]
        well = backups.found() == wanted and "all valid" not in done.stdout
        tally.check(well, "backup: the last three are kept", (done, backups.found()))
        latest = read_journal(backups.dir / "latest" / "plants.jsonl")
        tally.check(len(latest) == 4, "backup: latest is the last one", latest)
        for keep in ("0", "x", ""):
            fails(os.EX_USAGE, "N is at least 1", f"not {keep!r} are kept",
                  backups.make(keep))  # fmt: skip
        lock = os.open(backups.dir, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        fails(os.EX_TEMPFAIL, "another backup is being made", "two at a time are one")
        os.close(lock)
        whole = store.journal.read_bytes()
        store.journal.write_bytes(whole.replace(b"plant 3", b"plant X"))
        for marker in backups.dir.glob("*/verified"):
            os.utime(marker, (0, 0))
        fails(os.EX_DATAERR, "", "a damaged store removes none")
        store.journal.write_bytes(whole)
        older = store.root / "older"
        older.mkdir()
        shutil.copy(next(backups.dir.glob("9-*")) / "plants.jsonl", older)
        with temporary_store(build) as other:
            for path, plants in (other.dir, []), (older, [1, 2]):
                before = backups.found()
                done = backups.make(1, PLANT_STORE_DIR=str(path))
                (aside,) = backups.dir.glob("before-*")
                well = done.returncode == 0 and f"kept in {aside}" in done.stdout
                well = well and [found for _, found in backups.found()] == [plants]
                shutil.rmtree((backups.dir / "latest").resolve())
                for path in aside.iterdir():
                    path.rename(backups.dir / path.name)
                aside.rmdir()
                tally.check(well and backups.found() == before,
                            "backup: a store that does not continue them has them set aside",
                            (done, before))  # fmt: skip
        tally.check((older / "last-backup").exists(), "backup: the store has its time")
        broken = store.root / "broken"
        broken.write_text("#!/bin/sh\nexit 65\n")
        broken.chmod(0o755)
        fails(os.EX_DATAERR, "", "nor does a copy that is not valid",
              PLANT_STORE=str(broken))  # fmt: skip
        # Killed in the middle, as by a power cut: the next one removes what is left.
        broken.write_text("#!/bin/sh\nkill -9 $PPID\n")
        before = backups.found()
        backups.make(4, PLANT_STORE=str(broken))
        left = (backups.dir / "unfinished").exists() and backups.found() == before
        well = backups.make(1).returncode == 0
        well = well and backups.found() == [(before[-1][0] + 1, [1, 2, 3, 4, 5])]
        well = well and len(list(backups.dir.iterdir())) == 2
        tally.check(left and well, "backup: one that is killed removes none",
                    (left, backups.found()))  # fmt: skip


def check_backup_verified(tally: Tally, build: str) -> None:
    """Of two copies each has its turn every other night."""
    with temporary_store(build) as store:
        backups = Backups(store)
        done = [backups.make(2) for _ in range(2)]
        for copy, days in zip(sorted(backups.dir.glob("[0-9]-*")), (4.9, 5.1)):
            os.utime(copy / "verified", times=(0, time.time() - days * 86400))
        done += [backups.make(2) for _ in range(3)]
        tally.check(["all valid" in each.stdout for each in done]
                    == [True, True, False, True, False],
                    "backup: each copy is read whole again within a week", done)


def check_backup_full_disk(tally: Tally, build: str) -> None:
    sentence = "backup: a full disk removes none"
    if tally.lacks(sentence, "root"):
        return
    with temporary_store(build) as store:
        backups = Backups(store)
        output_of("mount", "-t", "tmpfs", "-o", "size=1m", "none", backups.dir, check=True)
        try:
            first = backups.make(1)
            room = os.statvfs(backups.dir)
            with open(backups.dir / "filler", "wb") as filler:
                filler.write(b"x" * (room.f_bavail * room.f_bsize - 1))
            backups.create(2)
            done = backups.make(1)
            free = os.statvfs(backups.dir).f_bavail * room.f_bsize
            well = (first.returncode, done.returncode) == (0, os.EX_CANTCREAT)
            well = well and backups.found() == [(1, [1])]
            tally.check(well, sentence, (done, free, backups.found()))
            (backups.dir / "filler").unlink()
            done = backups.make(1)
            well = done.returncode == 0 and backups.found() == [(2, [1, 2])]
            tally.check(well, "backup: with room again the next one is made", done)
        finally:
            output_of("umount", backups.dir)


def check_backup_calls(tally: Tally, build: str) -> None:
    sentence = "its unit allows every system call of a backup"
    if tally.lacks(sentence, "strace"):
        return
    with temporary_store(build) as store:
        backups = Backups(store)
        trace = store.root / "trace"
        done = [
            backups.make(1, "strace", "-f", "-qq", "-A", "-o", trace) for _ in range(2)
        ]
        well = [one.returncode for one in done] == [0, 0]
        calls = set(re.findall(r"^\d+ +([a-z0-9_]+)\(", trace.read_text(), re.MULTILINE))
        refused = sorted(calls - allowed(BACKUP))
        tally.check(well and "flock" in calls and not refused, sentence, (done, refused))
        words = "export", "--cursor", store.root / "cursor", "--full"
        done = output_of("strace", "-f", "-qq", "-o", trace, store.build / "plant-store", *words,
                         env=store.environment())
        shutil.rmtree(store.dir / "index")
        again = output_of("strace", "-f", "-qq", "-A", "-o", trace, store.build / "plant-store",
                          "stats", env=store.environment())
        calls = set(re.findall(r"^\d+ +([a-z0-9_]+)\(", trace.read_text(), re.MULTILINE))
        refused = sorted(calls - allowed(CONSUMER[0]))
        tally.check((done.returncode, again.returncode) == (0, 0) and "mincore" in calls
                    and not refused, "a consumer's unit allows those of a reader",
                    (done, again, refused))


# --- Without systemd ---------------------------------------------------------


def check_refusals(tally: Tally, build: str) -> None:
    """plant-store-start says what is missing, and takes nobody's socket."""
    responder = pathlib.Path(build).resolve() / "plant-store.fcgi"
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    good = {"PATH": path, "PLANT_STORE_RESPONDER": str(responder)}

    def refused(status: int, names: str, *arguments: str, **environment: str) -> None:
        done = output_of(START, *arguments, env=good | environment)
        well = done.returncode == status and names in done.stdout
        tally.check(well, f"start is refused: {names}", done)

    done = output_of(START, "--help", env=good)
    well = done.returncode == 0 and "--workers" in done.stdout
    tally.check(well, "start tells of its options", done)
    with tempfile.TemporaryDirectory(prefix="plant-store-") as folder:
        at = f"{folder}/socket"
        refused(os.EX_USAGE, "unknown argument: --frob", "--frob")
        refused(os.EX_USAGE, "--workers needs a value", "--workers")
        for number in ("0", "65", "two"):
            refused(os.EX_USAGE, f"not: {number}", "--workers", number)
        refused(os.EX_USAGE, "absolute path", "--socket", "socket")
        refused(os.EX_USAGE, "too long", "--socket", f"/{'s' * 107}")
        missing = f"{folder}/missing"
        refused(
            os.EX_UNAVAILABLE, missing, "--socket", at, PLANT_STORE_RESPONDER=missing
        )
        bare = pathlib.Path(folder, "bin")
        bare.mkdir()
        (bare / "bash").symlink_to(shutil.which("bash"))
        refused(os.EX_UNAVAILABLE, "spawn-fcgi is missing", PATH=str(bare))
        if os.geteuid() == 0:
            refused(os.EX_NOUSER, "no user nobody-here", "--user", "nobody-here")
            group = ("--user", USER, "--group", "nobody-here")
            refused(os.EX_NOUSER, "no group nobody-here", *group)
        ours = ("--user", USER, "--group", GROUP, "--socket", at)
        pathlib.Path(at).write_text("not a socket")
        refused(os.EX_CANTCREAT, "not a socket: remove it", *ours)
        kept = pathlib.Path(at).read_text() == "not a socket"
        tally.check(kept, "a file in the socket's place is left alone")
        pathlib.Path(at).unlink()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            other.bind(at)
            other.listen()
            refused(os.EX_TEMPFAIL, f"{at} is in use", *ours)
            tally.check(listens(pathlib.Path(at)), "a live socket is left alone")


@contextlib.contextmanager
def own_store(build: str) -> Iterator[tuple[Store, dict[str, str], list[str]]]:
    """A store for plant-store-start, its environment and its arguments."""
    with temporary_store(build) as store:
        # Where the build is, another user may not look.
        responder = store.root / "plant-store.fcgi"
        shutil.copy(store.responder, responder)
        arguments = ["--socket", str(store.root / "run" / "socket")]
        if os.geteuid() == 0:
            for path in store.owned[1:]:
                shutil.chown(path, USER)
            arguments += ["--user", USER, "--group", GROUP]
        environment = store.environment(
            PATH="/usr/sbin:/usr/bin:/sbin:/bin", PLANT_STORE_RESPONDER=str(responder)
        )
        yield store, environment, arguments


def workers_of(program: pathlib.Path, pid: int) -> list[int]:
    """The processes below this one that run the program."""
    found = []
    for child in children_of(pid):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{child}/exe") == str(program):
                found.append(child)
        found += workers_of(program, child)
    return found


def check_started(
    tally: Tally, store: Store, process: subprocess.Popen, where: str,
    settings: dict[str, str | None]
) -> None:
    """Two workers behind the socket, each of them replaced when it crashes."""
    path = store.root / "run" / "socket"

    def workers() -> list[int]:
        return workers_of(store.root / "plant-store.fcgi", process.pid)

    up = wait_until(lambda: listens(path) and len(workers()) == 2)
    if not tally.check(up, f"{where}: two workers serve", store.root.iterdir()):
        return
    pairs = pathlib.Path(f"/proc/{workers()[0]}/environ").read_text().split("\0")
    variables = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    found = {name: variables.get(name) for name in settings}
    tally.check(found == settings, f"{where}: they have the settings as given", found)
    mode = path.stat()
    if os.geteuid() == 0:
        user = pathlib.Path(f"/proc/{workers()[0]}").stat().st_uid
        owner = (user, mode.st_uid, mode.st_gid)
        uid, gid = pwd.getpwnam(USER).pw_uid, grp.getgrnam(GROUP).gr_gid
        well = owner == (uid, uid, gid)
        tally.check(well, f"{where}: they are not root, the socket is theirs", owner)
    closed = mode.st_mode & 0o777 == 0o660
    tally.check(closed, f"{where}: the socket is closed to others", oct(mode.st_mode))
    before = workers()
    tally.check(send(store, path, 1, "Fern"), f"{where}: a plant is stored")
    os.kill(before[0], signal.SIGKILL)
    served = all(send(store, path, i, f"plant {i}") for i in range(2, 20))
    tally.check(served, f"{where}: plants are stored while one is replaced")
    fresh = wait_until(lambda: len(workers()) == 2 and before[0] not in workers())
    tally.check(fresh, f"{where}: a worker that crashed is replaced", workers())
    running = workers()
    status = stop_process(process)
    gone = wait_until(lambda: not processes().keys() & set(running))
    well = status == 0 and gone
    tally.check(well, f"{where}: SIGTERM ends all of it", (status, running))


@contextlib.contextmanager
def started(
    command: list, log: pathlib.Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen]:
    process = start(command, log, env=environment)
    try:
        yield process
    finally:
        stop_process(process)


@contextlib.contextmanager
def elsewhere(path: pathlib.Path) -> Iterator[None]:
    """One listens on a path of this name, as in another root, which is not here."""
    here = path.rename(path.with_suffix(".here"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(path))
        other.listen()
        here.rename(path)
        yield


def check_start(tally: Tally, build: str) -> None:
    with own_store(build) as (store, environment, arguments):
        how = ([START, *arguments], store.root / "start.log", environment)
        with started(*how) as process:
            given = {"PLANT_STORE_DIR": str(store.dir)}
            check_started(tally, store, process, "plant-store-start", given)
        # The socket's file stays; nobody listens on it, so it is replaced.
        path = store.root / "run" / "socket"
        left = path.is_socket()
        with elsewhere(path), started(*how) as again:
            up = wait_until(lambda: listens(path))
            tally.check(left and up, "plant-store-start: a dead socket is replaced")
            # Stopped while it starts one, multiwatch would leave it behind.
            program = store.root / "plant-store.fcgi"
            wait_until(lambda: len(workers_of(program, again.pid)) == 2)


# Lines of the settings' file, of which systemd makes the variables.
LINES = r"""
# HASH=a comment
; COLON=a comment
no line of a setting
NOT-A-NAME=1
AMPERSAND=host=a&user=$HOME; true
BLANKS = a  b=		
QUOTED="it's `it`"
  SINGLE='"a" b '
EMPTY=
CRLF=on
LAST=no newline"""
READ = {
    "AMPERSAND": "host=a&user=$HOME; true", "BLANKS": "a  b=", "QUOTED": "it's `it`",
    "SINGLE": '"a" b ', "EMPTY": "", "CRLF": "on", "LAST": "no newline",
    "HASH": None, "COLON": None, "NOT": None, "NOT-A-NAME": None,
}  # fmt: skip


def check_runit(tally: Tally, build: str) -> None:
    """The run script as it is, but for the paths of this place."""
    runsv = shutil.which("runsv")
    with own_store(build) as (store, environment, arguments):
        settings = store.root / "environment"
        mine = {n: v for n, v in environment.items() if n.startswith("PLANT_STORE_")}
        settings.write_text("".join(f"{n}={v}\n" for n, v in mine.items()) + LINES)
        text = (DEPLOY / "runit" / "run").read_text()
        start = "/usr/local/share/plant-store/plant-store-start"
        places = {
            "/etc/plant-store/environment": str(settings),
            start: " ".join([str(START), *arguments]),
        }
        for place, here in places.items():
            if place not in text:
                raise RuntimeError(f"the run script does not name {place}")
            text = text.replace(place, here)
        service = store.root / "service"
        service.mkdir()
        run = service / "run"
        run.write_text(text)
        run.chmod(0o755)
        bare = {n: v for n, v in environment.items() if n not in mine}
        command = [runsv, service] if runsv else [run]
        with started(command, store.root / "run.log", bare) as process:
            where = "runsv" if runsv else "the run script"
            check_started(tally, store, process, where, READ)


def scenario(tally: Tally, build: str) -> None:
    if shutil.which("systemd-analyze"):
        parts = (check_units, check_calls, check_backup_calls)
    else:
        tally.skip("systemd's judgement", "systemd-analyze is not installed")
        parts = ()
    backups = (check_backups, check_backup_verified, check_backup_full_disk)
    with tally.part("agreement"):
        check_agreement(tally)
    for part in (*parts, *backups, check_refusals, check_start, check_runit):
        with tally.part(part.__name__):
            part(tally, build)


if __name__ == "__main__":
    sys.exit(main(scenario))
