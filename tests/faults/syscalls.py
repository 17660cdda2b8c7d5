#!/usr/bin/env python3
"""Goal: killed at any system call, or with any of them failing, no plant that
was acknowledged is lost, none is invented, and the next start serves again."""

import collections
import contextlib
import dataclasses
import errno
import functools
import itertools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from lib_faults import (
    SANITIZER_WORDS, Event, Tally, compile_driver, compile_shim, create_by_cgi, event, judge,
    outcome_of, preload, run_script, side_by_side,
)
from lib_service import (
    JOURNAL_NAME, FastCgiPeer, Store, listening, memory, new_plant, read_journal, run,
    temporary_store,
)

# Of a name whose request and answer are more than a socket takes at once.
LARGE = 900 << 10
WORKER_SETTINGS = {
    "PLANT_STORE_THREADS": "1",
    "PLANT_STORE_LOG_LEVEL": "error",
    "PLANT_STORE_BODY_BYTES_MAX": str(1 << 20),
}
LIMIT_S = 120.0  # a fault may leave a peer without an answer
MANY = range(1000, 2100)
EARLIER = (1, 2, 3)  # the plants of a store that is not empty
PROBE = 900  # created after each fault
SYSEXITS = range(64, 79)
LOST = 65  # a salvage prints what it could not read
# What one process may say of one fault.
LOG_LINES_MAX = 8


NO_FILE = ("EIO", "ENOMEM", "EACCES")
NEW_NAME = ("EIO", "ENOSPC", "EDQUOT", "EROFS", "EACCES", "ENOMEM")
OPEN = (*NEW_NAME, "EMFILE", "ENFILE", "EINTR")
WRITE = ("EIO", "ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EINTR", "ENOMEM", "short")
READ = ("EIO", "EINTR", "ENOMEM", "short")
SYNC = ("EIO", "ENOSPC", "EDQUOT", "EROFS", "EINTR")
# What each call can give.
ERRORS = {
    "open": OPEN,
    "openat": OPEN,
    "close": ("EIO", "EINTR", "ENOSPC", "EDQUOT"),
    "read": READ,
    "pread": READ,
    "write": WRITE,
    "pwrite": WRITE,
    "pwritev": WRITE,
    "writev": WRITE,
    "fsync": SYNC,
    "fdatasync": SYNC,
    "ftruncate": ("EIO", "ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EINTR"),
    "fchmod": ("EIO", "EPERM", "EROFS"),
    "fchown": ("EIO", "EPERM", "EROFS"),
    "fstat": NO_FILE,
    "fstatat": NO_FILE,
    "stat": NO_FILE,
    "lstat": NO_FILE,
    "statx": NO_FILE,
    "fstatfs": NO_FILE,
    "fstatvfs": NO_FILE,
    "faccessat": NO_FILE,
    "link": (*NEW_NAME, "EEXIST"),
    "linkat": NEW_NAME,
    "rename": NEW_NAME,
    "renameat": NEW_NAME,
    "renameat2": (*NEW_NAME, "EEXIST", "EINVAL"),
    "unlink": NEW_NAME,
    "unlinkat": NEW_NAME,
    "mkdir": (*NEW_NAME, "EEXIST"),
    "mkdirat": (*NEW_NAME, "EEXIST"),
    # EAGAIN is another holder: once, since for ever it is waited for.
    "flock": ("EIO", "EINTR", "ENOLCK"),
    "fcntl": ("EINTR", "EIO", "ENOMEM", "ENOLCK"),
    "mmap": ("ENOMEM", "EACCES", "ENODEV"),
    "getrandom": ("EINTR", "ENOSYS"),
}
# A signal interrupts a few times, never for ever.
INTERRUPTIONS = 10
NO_FAILURES = ("EINTR", "short")
WRITES = ("write", "pwrite", "pwritev", "writev")


# --- Operations --------------------------------------------------------------


@dataclasses.dataclass
class Tools:
    build: pathlib.Path
    shim: pathlib.Path
    driver: pathlib.Path


@dataclasses.dataclass
class Outcome:
    """How a process ended, and what its clients know."""

    events: list[Event]
    status: int
    stderr: str
    wrong: str = ""  # what is wrong with its result in itself
    unanswered: int = 0


Run = Callable[[Tools, Store, dict[str, str]], Outcome]
Prepare = Callable[[Tools, Store], None]


@dataclasses.dataclass
class Operation:
    name: str
    prepare: list[Prepare]
    run: Run
    again: Run | None = None  # must succeed after the fault


def by_cgi(plant_id: int, name: str, *, escaped: bool = False) -> Run:
    def run_it(tools: Tools, store: Store, environment: dict[str, str]) -> Outcome:
        known, done, _ = create_by_cgi(
            store, plant_id, name, environment, LIMIT_S, escaped=escaped)
        return Outcome([known], done.returncode, done.stderr.decode())

    return run_it


def by_worker(tools: Tools, store: Store, environment: dict[str, str]) -> Outcome:
    """A FastCGI worker: a request, then two over one connection, one of them large."""
    path = store.root / "worker.sock"
    with listening(path) as listener:
        process = subprocess.Popen(
            [store.responder], env={**store.environment(**WORKER_SETTINGS), **environment},
            stdin=listener, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    # Only the worker listens now: whoever connects after its end is refused.
    events = []
    unanswered = 3
    for plants in (((10, "plant 10"),), ((11, "l" * LARGE), (12, "plant 12"))):
        ended = (OSError, ValueError)
        with contextlib.suppress(*ended), FastCgiPeer(path, LIMIT_S) as peer:
            for plant_id, name in plants:
                request = store.fcgi(new_plant(plant_id, name), keep=True)
                start, answer = time.monotonic(), None
                try:
                    answer = peer.exchange(request)
                finally:
                    unanswered -= answer is not None
                    outcome = outcome_of(answer)
                    events.append(event(start, plant_id, (name, None), outcome))
    process.terminate()
    try:
        _, said = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    created = sum(known.outcome == "created_or_same" for known in events)
    faultless = "FAULT_PLAN" not in environment and created != 3
    wrong = f"it creates {created} of 3 plants" if faultless else ""
    return Outcome(events, process.returncode, said.decode(), wrong, unanswered)


# Two results of a batch, idle time, one more, and a clean end.
SCRIPT = "batch 100 3\nput 2 plant 2\nput 3 other\nidle\nbatch 103 2\nclose\n"
SCRIPT_IDS = {**{i: f"plant {i}" for i in (*range(100, 105), 2)}, 3: "other"}
RESULTS = {
    "created": "created_or_same",
    "same": "created_or_same",
    "conflict": "conflict",
    "full": "refused",
    "busy": "refused",
    "failed": "maybe",
}


def by_driver(tools: Tools, store: Store, environment: dict[str, str]) -> Outcome:
    start = time.monotonic()
    done = run(tools.driver, store.dir, env={**store.environment(), **environment},
               input=SCRIPT.encode(), timeout=LIMIT_S)
    told = {}
    for line in done.stdout.decode().splitlines(True):
        words = line.split()
        if len(words) == 2 and line.endswith("\n"):
            told[int(words[0])] = RESULTS[words[1]]
    events = [
        event(start, i, (name, None), told.get(i, "maybe"))
        for i, name in SCRIPT_IDS.items()
    ]
    return Outcome(events, done.returncode, done.stderr.decode())


def no_lines(store: Store, output: str) -> None:
    """A command's output is not looked at."""


def by_command(*arguments: str, lines: Callable = no_lines) -> Run:
    """`plant-store`; the word `DEST` is a place for what it makes.  `lines` gives the
    plants that came out, which must be the earlier ones if it succeeds."""

    def run_it(tools: Tools, store: Store, environment: dict[str, str]) -> Outcome:
        places = {"STORE": str(store.dir), "DEST": str(dest_of(store))}
        words = [places.get(word, word) for word in arguments]
        done = run(tools.build / "plant-store", *words, timeout=LIMIT_S,
                   env={**store.environment(), **environment})
        wrong = ""
        plants = lines(store, done.stdout.decode()) if done.returncode == 0 else None
        if plants is not None:
            ids = [json.loads(plant)["id"] for plant in plants]
            wrong = "" if ids[:3] == list(EARLIER) else f"the plants {ids} came out"
        said = done.stderr.decode()
        if done.returncode == LOST:
            said += done.stdout.decode()
        return Outcome([], done.returncode, said, wrong)

    return run_it


def dest_of(store: Store) -> pathlib.Path:
    return store.root / "dest"


def of_output(store: Store, output: str) -> list[str]:
    return output.splitlines()


def of_file(store: Store, output: str) -> list[str]:
    return dest_of(store).read_text().splitlines()


def of_copy(store: Store, output: str) -> list[str]:
    plants = read_journal(dest_of(store) / JOURNAL_NAME)
    return [json.dumps(plant) for plant in plants]


def by_import(tools: Tools, store: Store, environment: dict[str, str]) -> Outcome:
    start = time.monotonic()
    plants = store.root / "plants.jsonl"
    plants.write_bytes(new_plant(10, "plant 10") + b"\n" + new_plant(11, "plant 11"))
    outcome = by_command("import", str(plants))(tools, store, environment)
    known = "created_or_same" if outcome.status == 0 else "maybe"
    events = [event(start, i, (f"plant {i}", None), known) for i in (10, 11)]
    return dataclasses.replace(outcome, events=events)


BACKUP = by_command("backup", "DEST", lines=of_copy)


def backup_again(tools: Tools, store: Store, environment: dict[str, str]) -> Outcome:
    """To the same place, with the plant that was created meanwhile."""
    outcome = BACKUP(tools, store, environment)
    ids = [plant["id"] for plant in read_journal(dest_of(store) / JOURNAL_NAME)]
    wrong = "" if ids == [*EARLIER, PROBE] else f"the backup has {ids}"
    return dataclasses.replace(outcome, wrong=wrong)


INIT = by_command("init", "DEST")


def salvage(tools: Tools, store: Store, environment: dict[str, str]) -> Outcome:
    """What is there after a kill is complete."""
    outcome = by_command("recover", "STORE", "DEST", lines=of_copy)(tools, store, environment)
    if outcome.status >= 0 or not (dest_of(store) / JOURNAL_NAME).exists():
        return outcome
    ids = [plant["id"] for plant in read_journal(dest_of(store) / JOURNAL_NAME)]
    wrong = "" if ids == list(EARLIER) else f"a kill has left a store with {ids}"
    return dataclasses.replace(outcome, wrong=wrong)


def whole_or_none(make: Run) -> Run:
    """Where no store was made, it can be made; it is whole in any case."""

    def again(tools: Tools, store: Store, environment: dict[str, str]) -> Outcome:
        if not (dest_of(store) / JOURNAL_NAME).exists():
            outcome = make(tools, store, environment)
            if outcome.status:
                return outcome
        return by_command("verify", "DEST")(tools, store, environment)

    return again


def add_token(tools: Tools, store: Store, environment: dict[str, str]) -> Outcome:
    """The file keeps what it had, and has the new token if that was told."""
    before = store.tokens.read_text()
    outcome = by_command("token", "add", "other")(tools, store, environment)
    now = store.tokens.read_text()
    added = now.startswith(before) and now[len(before):].startswith("other ")
    return dataclasses.replace(outcome, wrong=wrong_tokens(outcome, before, now, added))


def revoke_token(tools: Tools, store: Store, environment: dict[str, str]) -> Outcome:
    """The file keeps what it had but one line, and has lost it if that was told."""
    before = store.tokens.read_text()
    outcome = by_command("token", "revoke", "other")(tools, store, environment)
    now = store.tokens.read_text()
    left = [line for line in before.splitlines(True) if not line.startswith("other ")]
    done = now == "".join(left)
    return dataclasses.replace(outcome, wrong=wrong_tokens(outcome, before, now, done))


def wrong_tokens(outcome: Outcome, before: str, now: str, done: bool) -> str:
    if done:
        # The token was changed, but that is not certain, or could not be told.
        unsure = "a power cut may undo it" in outcome.stderr or "revoke" in outcome.stderr
        well = outcome.status <= 0 or unsure
        return "" if well else f"it has changed the file, but says {outcome.stderr!r}"
    if now != before:
        return f"the token file is neither as it was nor as it should be: {now!r}"
    return "it has not changed the file, but succeeds" if outcome.status == 0 else ""


# --- Stores to begin with ----------------------------------------------------


def three(tools: Tools, store: Store) -> None:
    for plant_id in EARLIER:
        create(store, plant_id)


def earlier_copy(tools: Tools, store: Store) -> None:
    dest_of(store).mkdir(0o700)
    lines = store.journal.read_bytes().splitlines(keepends=True)
    (dest_of(store) / JOURNAL_NAME).write_bytes(b"".join(lines[:2]))


def create(store: Store, plant_id: int) -> Event:
    known, done, _ = create_by_cgi(store, plant_id, f"plant {plant_id}")
    if known.outcome != "created_or_same":
        raise RuntimeError(f"no store to begin with: {done}")
    return known


def torn(tools: Tools, store: Store) -> None:
    """As a kill in the middle of a write leaves it."""
    with open(store.journal, "ab") as journal:
        journal.write(b'{"seq":7,"safe":100,"prev":"01234567","at":"20')


def other_token(tools: Tools, store: Store) -> None:
    outcome = add_token(tools, store, {})
    if outcome.status or outcome.wrong:
        raise RuntimeError(f"no second token: {outcome}")


def renamed_by_1_0_0(tools: Tools, store: Store) -> None:
    store.journal.rename(failed_of(store))


def failed_of(store: Store) -> pathlib.Path:
    return store.journal.with_name(f"{JOURNAL_NAME}.failed")


def without_index(tools: Tools, store: Store) -> None:
    shutil.rmtree(store.dir / "index")


def many(tools: Tools, store: Store) -> None:
    """So many that a request makes a checkpoint after its answer."""
    lines = b"".join(b'{"id":%d,"name":"plant %d"}\n' % (n, n) for n in MANY)
    store.command("import", "--quiet", input=lines, check=True)
    without_index(tools, store)


OPERATIONS = [
    Operation("a new store", [], by_cgi(10, "plant 10")),
    Operation("a new plant", [three], by_cgi(10, "plant 10")),
    # Its name is one that json-c prints.
    Operation("an escaped name", [three], by_cgi(10, "plant 10", escaped=True)),
    Operation("a repeat", [three], by_cgi(2, "plant 2")),
    Operation("a conflict", [three], by_cgi(2, "other")),
    Operation("a torn tail", [three, torn], by_cgi(10, "plant 10")),
    Operation("a journal that 1.0.0 renamed", [three, renamed_by_1_0_0],
              by_cgi(10, "plant 10")),
    Operation("no index", [three, without_index], by_cgi(10, "plant 10")),
    Operation("a checkpoint", [three, many], by_cgi(10, "plant 10")),
    Operation("a long life", [three], by_driver),
    Operation("a long life of a new store", [], by_driver),
    Operation("a long life after a torn tail", [three, torn], by_driver),
    Operation("a long life after 1.0.0 renamed the journal", [three, renamed_by_1_0_0],
              by_driver),
    Operation("a backup", [three], BACKUP, backup_again),
    Operation("a backup onto an earlier one", [three, earlier_copy], BACKUP, backup_again),
    Operation("a verification", [three], by_command("verify")),
    Operation("an empty store", [three], INIT, whole_or_none(INIT)),
    Operation("a salvage", [three], salvage, whole_or_none(salvage)),
    Operation("a token added", [], add_token),
    Operation("a token revoked", [other_token], revoke_token),
]

# They change nothing, or as the above do, so each call fails once and none is killed.
COMMANDS = [
    Operation("the plants of ids", [three], by_command("get", "1", "2", "3", lines=of_output)),
    Operation("the plants of ids without an index", [three, without_index],
              by_command("get", "--full", "1", "2", "3")),
    Operation("an export", [three], by_command("export", lines=of_output)),
    Operation(
        "an export to a file", [three], by_command("export", "-o", "DEST", lines=of_file)),
    Operation("an import", [three], by_import),
    Operation("a count", [three], by_command("stats")),
    Operation("a check", [three], by_command("check")),
]

# Its system calls are too many to try each: of each kind the first three and
# the last three fail once.
WORKER_ERRORS = {
    "accept4": ("ECONNABORTED", "EMFILE"),
    "epoll_create1": ("EMFILE",),
    "epoll_ctl": ("ENOSPC",),
    "epoll_wait": ("EINTR", "EBADF"),
    "eventfd": ("EMFILE",),
    "fcntl": ("EMFILE",),
    "memfd_create": ("EMFILE", "ENOMEM"),
    "pthread_create": ("EAGAIN",),
    "send": ("EPIPE", "ENOBUFS"),
    "setrlimit": ("EPERM",),
    "setsockopt": ("ENOMEM",),
}
WORKER = Operation("a FastCGI worker", [three], by_worker)


# --- Cases -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Call:
    number: int
    name: str
    size: int
    first: int  # bytes of the first part of a gathered write
    path: str


@dataclasses.dataclass
class Template:
    """A store made ready once, to be copied for each case."""

    tools: Tools
    operation: Operation
    store: Store
    earlier: list[Event]
    # What counts, where it is not the system calls in scope.
    counting: dict[str, str] = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def copy(self) -> Iterator[Store]:
        with tempfile.TemporaryDirectory(dir=self.store.root.parent) as place:
            root = pathlib.Path(place) / "root"
            shutil.copytree(self.store.root, root)
            yield Store(self.tools.build, root, self.store.token)

    def environment(self, store: Store, **settings: str) -> dict[str, str]:
        return preload(self.tools.shim, FAULT_SCOPE=f"{store.root}:pipe", **self.counting, **settings)

    def trace(self) -> list[Call]:
        """The calls of the operation when nothing fails."""
        with self.copy() as store:
            path = store.root.parent / "trace"
            environment = self.environment(store, FAULT_TRACE=str(path))
            outcome = self.operation.run(self.tools, store, environment)
            if outcome.status != 0 or outcome.wrong:
                raise RuntimeError(f"it fails without a fault: {outcome}")
            return [parse_call(line) for line in path.read_text().splitlines()]


def parse_call(line: str) -> Call:
    number, name, size, first, where = line.split(" ", 4)
    return Call(int(number), name, int(size), int(first), where)


@contextlib.contextmanager
def template_of(operation: Operation, tools: Tools) -> Iterator[Template]:
    with temporary_store(str(tools.build)) as store:
        for prepare in operation.prepare:
            prepare(tools, store)
        earlier = []
        if three in operation.prepare:
            now = time.monotonic()
            ids = [*EARLIER, *MANY] if many in operation.prepare else EARLIER
            earlier = [Event(now, now, i, (f"plant {i}", None), "created_or_same") for i in ids]
        yield Template(tools, operation, store, earlier)


def failing(call: Call, name: str, times: int) -> str:
    """The call fails so many times, 0: for ever."""
    what = "short=0" if name == "short" else f"error={getattr(errno, name)}"
    return f"{call.number}:{what},{times}"


def kills_of(call: Call) -> Iterator[str]:
    """Killed before it, which is after the one before, and in it."""
    yield f"{call.number}:kill-before"
    if call.name in WRITES:
        first, size = call.first, call.size
        cuts = {1, first // 2, first - 1, first, (first + size) // 2, size - 1}
        for cut in sorted(cut for cut in cuts if 0 < cut < size):
            yield f"{call.number}:kill-at={cut}"


def errors_of(call: Call, everything: bool) -> Iterator[str]:
    """All that the call can give, once and for ever; or the most likely error, what
    is no failure and one of the others, of which each is once or for ever by turns."""
    first, *others = (name for name in ERRORS[call.name] if name not in NO_FAILURES)
    names = list(ERRORS[call.name])
    if not everything and others:
        turn = others[call.number // 2 % len(others)]
        names = [name for name in names if name in (first, turn, *NO_FAILURES)]
    for name in names:
        more = INTERRUPTIONS if name == "EINTR" else 0
        all_times = (1, more)
        if not everything and name != first:
            all_times = all_times[call.number % 2:][:1]
        for times in all_times:
            yield failing(call, name, times)
    if call.name == "fcntl":
        yield failing(call, "EAGAIN", 1)


def failures_of(call: Call) -> Iterator[str]:
    """The most likely error, and what is no failure."""
    names = ERRORS[call.name]
    for name in (names[0], *(name for name in names[1:] if name in NO_FAILURES)):
        yield failing(call, name, 1)


def run_case(template: Template, plan: str) -> tuple[str, str]:
    """Run one case: how it ended, and what is wrong; empty if nothing is."""
    with template.copy() as store:
        environment = template.environment(store, FAULT_PLAN=plan)
        try:
            outcome = template.operation.run(template.tools, store, environment)
        except subprocess.TimeoutExpired:
            return "hung", "it hangs"
        killed = "kill" in plan
        ended = "killed" if outcome.status < 0 else f"status {outcome.status}"
        wrong = outcome.wrong or judge_end(outcome, killed)
        if wrong:
            return ended, wrong
        settings = template.environment(store)
        name = f"plant {PROBE}"
        probe, done, answer = create_by_cgi(store, PROBE, name, settings, LIMIT_S)
        if probe.outcome != "created_or_same":
            return ended, f"the next start does not serve: {answer}, {done.stderr!r}"
        found = judge(store, [*template.earlier, *outcome.events, probe])
        if template.operation.again:
            again = template.operation.again(template.tools, store, settings)
            if again.status or again.wrong:
                return ended, f"it fails afterwards too: {again}"
        known = "+".join(sorted({known.outcome for known in outcome.events}))
        return f"{ended} {known}", "; ".join(found)


def judge_end(outcome: Outcome, killed: bool) -> str:
    lines = outcome.stderr.splitlines()
    if killed:
        return "" if outcome.status == -9 else f"not killed: {outcome.status}"
    if outcome.status < 0 or outcome.status not in (0, *SYSEXITS):
        return f"ended with {outcome.status}: {outcome.stderr[-2000:]}"
    if outcome.status != 0 and not lines:
        return f"ended with {outcome.status} and does not say why"
    if any(word in outcome.stderr for word in SANITIZER_WORDS):
        return outcome.stderr[-3000:]
    if len(lines) > LOG_LINES_MAX:
        return f"said {len(lines)} lines: {lines[:10]}"
    return ""


def run_cases(tally: Tally, template: Template, what: str, plans: list[tuple[Call, str]]) -> None:
    start = time.monotonic()
    ends: collections.Counter[str] = collections.Counter()
    wrong = []
    results = side_by_side(lambda plan: run_case(template, plan), [plan for _, plan in plans])
    for (call, plan), (ended, problem) in zip(plans, results):
        ends[ended] += 1
        if problem:
            wrong.append(f"{plan} {call.name} {call.path}: {problem}")
    name = template.operation.name
    took = time.monotonic() - start
    print(f"# {name}, {what}: {len(plans)} cases in {took:.1f} s, {dict(ends)}")
    detail = f"{len(wrong)} are not: " + "\n# ".join(wrong[:40])
    tally.check(not wrong, f"{name}: {len(plans)} cases hold, {what}", detail)


def check_worker(tally: Tally, tools: Tools) -> None:
    with template_of(WORKER, tools) as template:
        for name, errors in WORKER_ERRORS.items():
            template.counting = {"FAULT_ONLY": name}
            kinds = collections.defaultdict(list)
            for call in template.trace():
                kinds[call.size].append(call)
            plans = [(call, failing(call, error, 1)) for calls in kinds.values()
                     for call in (*calls[:3], *calls[3:][-3:]) for error in errors]
            tally.check(plans != [], f"a worker calls {name}")
            run_cases(tally, template, f"{name} failing once", plans)


# --- Two processes -----------------------------------------------------------


class Driver:
    """A driver that is told what to do line by line."""

    def __init__(self, tools: Tools, store: Store, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [tools.driver, store.dir], env={**store.environment(), **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.opened = self.process.stdout.readline() == "open\n"

    def tell(self, line: str) -> list[str]:
        """The results of a command; less when the process ends."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        results = []
        for answer in iter(self.process.stdout.readline, ""):
            if answer == "done\n":
                break
            results.append(answer.split()[1])
        return results

    def end(self) -> int:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            status = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()
        return status


# What a failed sync may leave on the disk of the bytes it was for: of what is
# there now, and what was before it.
LEAVINGS: dict[str, Callable[[bytes, bytes], bytes]] = {
    "all": lambda now, before: now,
    "zeros": lambda now, before: before + bytes(len(now) - len(before)),
    "nothing": lambda now, before: before,
    "the second half": lambda now, before: (
        before + bytes((len(now) - len(before)) // 2)
        + now[len(before) + (len(now) - len(before)) // 2:]),
}


def fail_sync(template: Template, plan: str, left: str) -> str:
    """Two processes; the first one's sync of a batch fails, and the second one goes on
    with what the disk has."""
    with template.copy() as store:
        environment = template.environment(store, FAULT_PLAN=plan)
        # The room behind the records is not to be mistaken for them.
        first = Driver(template.tools, store, environment)
        second = Driver(template.tools, store, template.environment(store))
        before = store.journal.read_bytes()
        inode = store.journal.stat().st_ino
        start = time.monotonic()
        results = [first.tell("put 50 plant 50")]
        statuses = [first.end()]
        store.journal.write_bytes(LEAVINGS[left](store.journal.read_bytes(), before))
        results += [second.tell(f"put {i} plant {i}") for i in (51, 1)]
        statuses.append(second.end())
        if not first.opened or not second.opened:
            return "they did not open"
        if results != [["failed"], ["created"], ["same"]] or statuses != [74, 0]:
            return f"not as it should: {results}, {statuses}"
        events = [event(start, i, (f"plant {i}", None), outcome)
                  for i, outcome in ((50, "maybe"), (51, "created_or_same"))]
        name = f"plant {PROBE}"
        settings = template.environment(store)
        probe, done, answer = create_by_cgi(store, PROBE, name, settings, LIMIT_S)
        if probe.outcome != "created_or_same":
            return f"the next start does not serve: {answer}, {done.stderr!r}"
        if store.journal.stat().st_ino != inode or list(store.dir.glob("*.failed*")):
            return "it is another file"
        return "; ".join(judge(store, [*template.earlier, *events, probe]))


def check_poison(tally: Tally, tools: Tools) -> None:
    """Each sync of a batch, and each write that cannot be taken back."""
    operation = Operation("two processes", [three], by_driver)
    with template_of(operation, tools) as template:
        traced = template.trace()
        batch = next(call for call in traced
                     if call.name == "pwrite" and call.path.endswith(JOURNAL_NAME))
        sync = next(call for call in traced[batch.number:]
                    if call.name == "fdatasync" and call.path.endswith(JOURNAL_NAME))
        plans = [failing(sync, name, 1) for name in SYNC] + [failing(batch, "EIO", 0)]
        cases = list(itertools.product(plans, LEAVINGS))
        problems = side_by_side(lambda case: fail_sync(template, *case), cases)
        wrong = [f"{plan}, {left} is left: {problem}"
                 for (plan, left), problem in zip(cases, problems) if problem]
    sentence = f"a failed sync ends its process, and another goes on: {len(cases)} cases"
    tally.check(not wrong, sentence, wrong)


# --- The whole ---------------------------------------------------------------


def scenario(tally: Tally, arguments) -> None:
    build = arguments.build
    tempfile.tempdir = memory()
    tools = Tools(build, compile_shim(build), compile_driver(build))
    number = itertools.count()

    def sample(calls: list[Call], plans_of: Callable) -> list[tuple[Call, str]]:
        cases = [(call, plan) for call in calls for plan in plans_of(call)]
        return [case for case in cases if next(number) % arguments.sample == 0]

    for operation in (*OPERATIONS, *COMMANDS):
        if arguments.only not in operation.name:
            continue
        with (
            tally.part(f"{operation.name} runs to its end"),
            template_of(operation, tools) as template,
        ):
            calls = template.trace()
            names = collections.Counter(call.name for call in calls)
            print(f"# {operation.name}: {len(calls)} calls, {dict(names)}")
            if operation in COMMANDS:
                what = "each call failing once"
                cases = [(call, plan) for call in calls for plan in failures_of(call)]
                run_cases(tally, template, what, cases)
                continue
            what = "killed before and in each call, and after the last"
            kills = sample(calls, kills_of)
            kills.append((calls[-1], f"{calls[-1].number}:kill-after"))
            run_cases(tally, template, what, kills)
            what = "each call failing once and for ever"
            errors = functools.partial(errors_of, everything=arguments.long)
            run_cases(tally, template, what, sample(calls, errors))
    if arguments.only in WORKER.name:
        with tally.part(f"{WORKER.name} runs to its end"):
            check_worker(tally, tools)
    with tally.part("the failed syncs run to their end"):
        check_poison(tally, tools)


if __name__ == "__main__":
    sys.exit(run_script(
        __doc__, scenario,
        ("--sample", {"type": int, "default": 1, "help": "each so many-th case"}),
        ("--only", {"default": "", "help": "operations with this in the name"})))
