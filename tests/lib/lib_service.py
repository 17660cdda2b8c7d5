"""What the scenarios share: stores, services, clients and a journal reader.

Everything lives in a temporary directory, everything that is started here is
stopped here, and nothing else is.
"""

import array
import contextlib
import dataclasses
import fcntl
import http.client
import inspect
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
# The settings of this machine's service are none of a test's.
NO_FILE = "PLANT_STORE_ENVIRONMENT"
os.environ.setdefault(NO_FILE, "/nonexistent")
# Nor is the umask of who runs them: files that a web server reads are for it.
os.umask(0o022)
# A shell starts what runs in the background without SIGINT, and nohup without
# SIGHUP.  A handler in its place is not inherited by what is started here.
for number in signal.SIGINT, signal.SIGHUP:
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda *_: None)
# What the tests of one folder have, those of another may need.
sys.path += [str(TOP / "tests" / name) for name in (
    "lib", "commands", "scenarios", "fixtures", "packaging", "faults", "servers", "postgresql")]

import lib_place  # noqa: E402 - found by that
import second_reader  # noqa: E402
from lib_place import SYSTEM_PATH  # noqa: E402

JOURNAL_NAME = "plants.jsonl"
TOKEN_NAME = "scenario"
PIPE_FULL = 60_000  # bytes, of Linux's 65,536: no larger write goes in whole
# Against what hangs; what takes longer only because a machine is busy is no failure.
WAIT_S = 600.0
# What a sanitizer, assert or the stack protector says.
BUG_REPORT = re.compile(r"Sanitizer|runtime error:|Assertion|\*\*\* ")
TOKEN_PATTERN = re.compile(rb"pst_[A-Za-z0-9_-]{43}")

Pairs = list[tuple[str, str]]
_claims: list[socket.socket] = []  # of ports, until this process ends


# --- Reporting ---------------------------------------------------------------


def caller() -> str:
    """File and line of the test that calls a function of a lib_*.py, or one named `told`."""
    for frame in inspect.stack()[1:]:
        path = pathlib.Path(frame.filename)
        if not path.name.startswith("lib_") and frame.function not in ("told", "expect"):
            return f"{path.name}:{frame.lineno}: "
    return ""


class Tally:
    """Counts what passed and prints a line for each, which `about` begins."""

    def __init__(self, about: str = "") -> None:
        self.about = about
        self.passed = 0
        self.failed = 0
        self.skipped = 0

    def check(self, passed: bool, sentence: str, detail: object = "") -> bool:
        if passed:
            self.passed += 1
            print(f"ok - {self.about}{sentence}", flush=True)
        else:
            self.failed += 1
            print(f"not ok - {caller()}{self.about}{sentence}: {detail}", flush=True)
        return passed

    def skip(self, sentence: str, reason: str) -> None:
        self.skipped += 1
        print(f"ok - {sentence} # skipped: {reason}", flush=True)

    def lacks(self, sentence: str, *needs: str) -> bool:
        """Whether this place lacks one of these programs or rights (lib_place): skipped then."""
        for need in needs:
            if not lib_place.allows(need):
                self.skip(sentence, f"needs {need}")
                return True
        return False

    @contextlib.contextmanager
    def part(self, sentence: str) -> Iterator[None]:
        """A part of a scenario that must not end in an exception."""
        try:
            yield
        except Exception as error:  # the other parts shall run nevertheless
            self.check(False, sentence, f"{type(error).__name__}: {error}")

    def finish(self) -> int:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        print(f"{self.passed} passed, {self.failed} failed{skipped}")
        return 1 if self.failed or not self.passed + self.skipped else 0


def wait_until(condition: Callable[[], object], seconds: float = WAIT_S) -> bool:
    """Poll until `condition` is true; False if it does not become so in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


# --- Programs ----------------------------------------------------------------


def run(*command: object, **options: object) -> subprocess.CompletedProcess:
    """Run a program to its end.  It has no input but what is given; its output is kept."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": WAIT_S} | options
    if "input" not in options:
        options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([str(word) for word in command], **options)


def start(command: Sequence[object], log_path: pathlib.Path, **options: object) -> subprocess.Popen:
    """Start a program whose output goes to the end of a log."""
    with open(log_path, "ab") as log:
        options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log} | options
        return subprocess.Popen([str(word) for word in command], **options)


def install_npm() -> subprocess.CompletedProcess:
    """Install npm's packages for the tests; the folder is what it prints."""
    return run(TOP / "tests" / "interface" / "openapi" / "install", text=True)


# --- Answers -----------------------------------------------------------------


@dataclasses.dataclass
class Answer:
    """An answer, over CGI, FastCGI or HTTP."""

    status: int
    headers: Pairs
    body: bytes

    def header(self, name: str) -> str | None:
        """The header's value; None if it is absent or there more than once."""
        values = [v for n, v in self.headers if n.lower() == name.lower()]
        return values[0] if len(values) == 1 else None

    def error(self) -> int | None:
        """The number of an Error body; None if it is not one."""
        try:
            parsed = json.loads(self.body.decode("utf-8"))
        except ValueError:
            return None
        if not isinstance(parsed, dict) or set(parsed) != {"error", "message"}:
            return None
        number, message = parsed["error"], parsed["message"]
        if type(number) is not int or not isinstance(message, str) or not message:
            return None
        return number

    def is_error(self, status: int, number: int) -> bool:
        return (self.status == status and self.error() == number
                and self.header("Content-Type") == "application/json")

    def is_plant(self, name: str, tag: str | None = None) -> bool:
        return (self.status == 200 and self.header("Content-Type") == "application/json"
                and self.body == answer_body(name, tag))


@dataclasses.dataclass(frozen=True)
class ErrorRow:
    """A row of the table of errors."""

    number: int
    status: int
    message: str
    name: str = dataclasses.field(default="", compare=False)


def read_errors() -> list[ErrorRow]:
    """The rows of deploy/errors.txt."""
    lines = (TOP / "deploy" / "errors.txt").read_text().splitlines()
    rows = [line.split(" ", 3) for line in lines]
    return [ErrorRow(int(row[1]), int(row[2]), row[3], row[0]) for row in rows]


def read_met() -> set[tuple[str, str, str]]:
    """What web servers send themselves, by scripts/errors: error, status, server."""
    lines = run(TOP / "scripts" / "errors", "--met", text=True).stdout.splitlines()
    return {(number, status, who.lower()) for number, status, *servers in map(str.split, lines)
            for who in servers}


def parse_cgi(raw: bytes) -> Answer:
    """Read a CGI response (RFC 3875, section 6); ValueError if it is none."""
    found = re.search(rb"\r?\n\r?\n", raw)
    if not found:
        raise ValueError(f"no end of the header in {raw[:200]!r}")
    headers: Pairs = []
    for line in raw[: found.start()].decode("latin-1").splitlines():
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise ValueError(f"not a header line: {line!r}")
        headers.append((name, value.strip()))
    statuses = [value for name, value in headers if name.lower() == "status"]
    if len(statuses) > 1 or (statuses and not re.match(r"\d{3}( |$)", statuses[0])):
        raise ValueError(f"not one good status: {statuses}")
    status = int(statuses[0][:3]) if statuses else 200
    return Answer(status, headers, raw[found.end():])


def canonical(value: object) -> bytes:
    """Minimal JSON in UTF-8, as the service writes it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8")


def new_plant(plant_id: int, name: str, tag: str | None = None) -> bytes:
    plant: dict[str, object] = {"id": plant_id, "name": name}
    if tag is not None:
        plant["tag"] = tag
    return canonical(plant)


def answer_body(name: str, tag: str | None = None) -> bytes:
    return canonical({"name": name} if tag is None else {"name": name, "tag": tag})


# --- The journal -------------------------------------------------------------


class JournalError(Exception):
    """The journal is not what its format says."""


def manifest_of(uuid: str) -> bytes:
    """The manifest of an empty index of this store, as a copy has it."""
    data = struct.pack("=II36s4x48x32x1408x", 3, 0, uuid.encode())
    return data + struct.pack("=I4x", second_reader.crc32c(data))


def seal(line: str, uuid: str) -> bytes:
    """Put the checksum behind a line of the journal that ends before it."""
    crc = second_reader.crc32c((uuid + line).encode("utf-8"))
    return f'{line},"crc":"{crc:08x}"}}\n'.encode("utf-8")


def append_plants(path: pathlib.Path, plants: Iterable[dict]) -> None:
    """Put a batch behind the last line of a journal that nobody uses, and not into its index."""
    whole = path.read_bytes().rstrip(b"\n") + b"\n"
    lines = whole.split(b"\n")
    uuid, last = json.loads(lines[0])["store"], json.loads(lines[-2])
    batch, seq, prev = b"", last.get("seq", 0), last["crc"]
    for plant in plants:
        seq += 1
        head = f'{{"seq":{seq},"safe":{len(whole)},"prev":"{prev}"'
        text = canonical(plant).decode()
        line = seal(f'{head},"at":"2026-01-02T03:04:05.006Z","by":"x","plant":{text}', uuid)
        batch, prev = batch + line, json.loads(line)["crc"]
    path.write_bytes(whole + batch)


def read_journal(path: pathlib.Path) -> list[dict]:
    """The plants in their order, also one that is there twice; by second_reader.py, which the
    manual page defines.  JournalError unless it finds all whole."""
    verdict, plants = second_reader.read(path.read_bytes())
    if verdict.split()[0] not in ("ok", "duplicate"):
        raise JournalError(verdict)
    return [json.loads(plant) for plant in plants]


# --- Stores ------------------------------------------------------------------


@dataclasses.dataclass
class Store:
    """A store's directory and a token file with one good token."""

    build: pathlib.Path
    root: pathlib.Path
    token: str

    @property
    def dir(self) -> pathlib.Path:
        return self.root / "store"

    @property
    def tokens(self) -> pathlib.Path:
        return self.root / "tokens"

    @property
    def journal(self) -> pathlib.Path:
        return self.dir / JOURNAL_NAME

    @property
    def owned(self) -> tuple[pathlib.Path, ...]:
        """What the user of the service must own while the store is new."""
        return self.root, self.dir, self.journal, self.tokens

    @property
    def responder(self) -> pathlib.Path:
        return self.build / "plant-store.fcgi"

    def installed(self) -> pathlib.Path:
        """The command, for another user: the build may be where only we come, as in /root."""
        names = self.build / "plant-store", self.build / "plant-store-check-url"
        run("install", "-m", "755", "-t", self.root, *names, check=True)
        return self.root / "plant-store"

    def environment(self, **settings: str) -> dict[str, str]:
        """For a process of this store: nothing but what it needs."""
        environment = passed_on()
        environment["PLANT_STORE_DIR"] = str(self.dir)
        environment["PLANT_STORE_TOKENS"] = str(self.tokens)
        # So that reactors meet on any machine.
        environment["PLANT_STORE_THREADS"] = "2"
        environment.update(settings)
        return environment

    def plants(self) -> list[dict]:
        return read_journal(self.journal)

    def is_closed(self) -> bool:
        """Whether the last line closes a batch, as an idle service writes it."""
        last = self.journal.read_bytes().rstrip(b"\n").rpartition(b"\n")[2]
        return b'"plant":' not in last and last.endswith(b"}")

    def request(self, body: bytes, **variables: str) -> dict[str, str]:
        """The CGI variables of a good request."""
        request = {
            "GATEWAY_INTERFACE": "CGI/1.1",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REQUEST_METHOD": "POST",
            "SCRIPT_NAME": "/plants",
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_AUTHORIZATION": f"Bearer {self.token}",
        }
        request.update(variables)
        return request

    def command(self, *words: object, **options: object) -> subprocess.CompletedProcess:
        """`plant-store WORDS...` on this store."""
        options.setdefault("env", self.environment())
        return run(self.build / "plant-store", *words, **options)

    def cgi(
        self, body: bytes, settings: dict[str, str] | None = None, **variables: str
    ) -> subprocess.CompletedProcess:
        """A request through a process of its own."""
        environment = self.environment(**settings or {}) | self.request(body, **variables)
        return run(self.responder, env=environment, input=body)

    def fcgi(self, body: bytes, *, keep: bool = False, **variables: str) -> bytes:
        """The bytes of a request to a FastCGI process."""
        return fcgi_request(self.request(body, **variables).items(), body, keep=keep)

    def ask(self, socket_path: pathlib.Path, body: bytes, **variables: str) -> "Answer":
        """A request on a FastCGI connection of its own."""
        with FastCgiPeer(socket_path) as peer:
            return peer.exchange(self.fcgi(body, **variables))


def passed_on() -> dict[str, str]:
    """The part of our environment that a tested program shall see."""
    names = (NO_FILE, "TMPDIR", "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS")
    names += ("UBSAN_OPTIONS", "LLVM_PROFILE_FILE", "GCOV_PREFIX")
    return {name: os.environ[name] for name in names if name in os.environ}


def init_store(build: pathlib.Path, directory: pathlib.Path) -> None:
    """A new, empty store in the directory, which is made too."""
    run(build / "plant-store", "init", directory, env=passed_on(), check=True)


def memory() -> str | None:
    """Where a sync costs nothing, for tests that cut no power."""
    place = "/dev/shm"
    room = os.access(place, os.W_OK) and shutil.disk_usage(place).free
    return place if room > 1 << 30 else None


@contextlib.contextmanager
def temporary_store(build_dir: str) -> Iterator[Store]:
    """A new store with a token that `plant-store token add` made."""
    build = pathlib.Path(build_dir).resolve()
    with tempfile.TemporaryDirectory(prefix="plant-store-") as root:
        store = Store(build, pathlib.Path(root), "")
        store.root.chmod(0o711)  # the web server is another user
        init_store(build, store.dir)
        done = store.command("token", "add", TOKEN_NAME)
        found = TOKEN_PATTERN.search(done.stdout)
        if done.returncode or not found:
            raise RuntimeError(f"token add: {done.returncode}, {done.stderr!r}")
        store.token = found[0].decode()
        yield store


def take_lock(journal: pathlib.Path) -> int:
    """Take the store's lock, as another process does; closing gives it back."""
    fd = os.open(journal, os.O_RDWR)
    whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, whole)
    except OSError:
        os.close(fd)
        raise
    return fd


@contextlib.contextmanager
def held_lock(store: Store) -> Iterator[None]:
    """Nobody else gets the store's lock meanwhile."""
    held, deadline = -1, time.monotonic() + WAIT_S
    while held < 0:
        try:
            held = take_lock(store.journal)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise RuntimeError("the store's lock is never free") from None
            time.sleep(0.0002)  # workers give it to one another at once
    try:
        yield
    finally:
        os.close(held)


# --- Services ----------------------------------------------------------------


def stop_process(process: subprocess.Popen) -> int:
    """End a process that we started; its exit status."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def read_stat(path: pathlib.Path) -> list[str]:
    """The fields of a /proc/.../stat behind the name, of which the first is the state."""
    return path.read_text().rpartition(")")[2].split()


def state_of(pid: int) -> str:
    return read_stat(pathlib.Path(f"/proc/{pid}/stat"))[0]


def is_stopped(pid: int) -> bool:
    """Each of its threads: one may still be giving a lock back."""
    stats = pathlib.Path(f"/proc/{pid}/task").glob("*/stat")
    return all(read_stat(stat)[0] in "Tt" for stat in stats)


def processes() -> dict[int, list[str]]:
    """All that run, with the fields of their stat."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile
            fields = read_stat(entry / "stat")
            if fields[0] != "Z":
                found[int(entry.name)] = fields
    return found


def children_of(pid: int) -> list[int]:
    return [child for child, fields in processes().items() if int(fields[1]) == pid]


def catches(pid: int, number: int, kind: str = "SigCgt") -> bool:
    """Whether the process has a handler of its own for the signal; SigIgn: ignores it."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    mask = int(re.search(rf"^{kind}:\s*(\w+)$", status, re.MULTILINE)[1], 16)
    return bool(mask >> (number - 1) & 1)


def unread(pipe: int | IO, of_peer: bool = False) -> int:
    """How many bytes wait in a pipe or socket; `of_peer`: for its other end."""
    left = array.array("i", [0])
    fcntl.ioctl(pipe, termios.TIOCOUTQ if of_peer else termios.FIONREAD, left)
    return left[0]


def await_start(
    process: subprocess.Popen, is_ready: Callable[[], object], log_path: pathlib.Path
) -> None:
    """RuntimeError, with its log, if it ends or does not become ready."""
    up = wait_until(lambda: process.poll() is not None or is_ready())
    if not up or process.poll() is not None:
        log = log_path.read_text(errors="replace")
        raise RuntimeError(f"{process.args[0]} does not start: {log[-3000:]}")


@dataclasses.dataclass
class Responder:
    """A responder on a Unix socket, alone or below multiwatch."""

    process: subprocess.Popen
    socket_path: pathlib.Path
    log_path: pathlib.Path
    watched: bool

    def worker(self) -> int | None:
        """The process that serves; None while there is none."""
        if not self.watched:
            return self.process.pid if self.process.poll() is None else None
        children = children_of(self.process.pid)
        return children[0] if children else None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def check_end(self, tally: Tally) -> None:
        """It ended when it was told to, and no sanitizer said anything."""
        status = self.process.returncode
        tally.check(status == 0, "the service ends with status 0", status)
        log = self.log()
        found = BUG_REPORT.search(log)
        detail = log[max(0, found.start() - 100):][:3000] if found else ""
        tally.check(not found, "the log holds no report of a bug", detail)


@contextlib.contextmanager
def responder(
    store: Store, *, watched: bool = True, workers: int = 1, user: str | None = None,
    tracer: Sequence[str] = (), name: str = "fcgi", **settings: str
) -> Iterator[Responder]:
    """The responder under spawn-fcgi, and multiwatch if `watched`: `workers` of them.

    As `user`, who must be able to use the store, if one is given.  Started by
    `tracer`, which becomes it.
    """
    socket_path = store.root / f"{name}.sock"
    log_path = store.root / "responder.log"
    socket_path.unlink(missing_ok=True)
    command = ["spawn-fcgi", "-n", "-s", str(socket_path), "-M", "0660"]
    command += ["-b", "1024"]
    if os.geteuid() == 0:
        # The web servers' configurations have them give up root for this group.
        command += ["-G", "www-data"]
    if user:
        command += ["-U", user, "-u", user]
    command.append("--")
    if watched:
        # The scenarios kill workers more often than multiwatch's default
        # takes for an accident.  It ends them with SIGUSR1.
        command += ["/usr/bin/multiwatch", "--retry=1000", "--timeout=1000"]
        command += [f"--forks={workers}", "--"]
    command += [*tracer, str(store.responder)]
    environment = store.environment(PATH=SYSTEM_PATH, **settings)
    process = start(command, log_path, env=environment)
    try:
        await_start(process, lambda: listens(socket_path), log_path)
        yield Responder(process, socket_path, log_path, watched)
    finally:
        stop_process(process)
        socket_path.unlink(missing_ok=True)


def listening(path: pathlib.Path) -> socket.socket:
    """A listener on a Unix socket, as a supervisor hands it to the service."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path.unlink(missing_ok=True)
    listener.bind(str(path))
    listener.listen(1024)
    return listener


def listens(address: pathlib.Path | int) -> bool:
    """Whether a Unix socket or a local TCP port takes connections."""
    try:
        if isinstance(address, int):
            socket.create_connection(("127.0.0.1", address), 1).close()
        else:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
                peer.connect(str(address))
    except OSError:
        return False
    return True


def free_port() -> int:
    """A local TCP port to listen on, which no other test gets while this one runs.

    It is below those that the kernel gives to connections: one of those may go
    to a client of another test before the server here has bound it.  A socket
    without a file says whose it is.
    """
    for port in random.sample(range(10240, 32768), 1000):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0plant-store-test-port-{port}")
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return port
    raise RuntimeError("no free port among a thousand")


@contextlib.contextmanager
def lighttpd(store: Store, socket_path: pathlib.Path) -> Iterator[int]:
    """lighttpd in front of the responder's socket; yields its port."""
    port = free_port()
    logs = store.root / "logs"
    logs.mkdir(exist_ok=True)
    if os.geteuid() == 0:  # as Debian's folder is
        shutil.chown(logs, "www-data", "www-data")
    config = install_config(
        store.root,
        "lighttpd/fastcgi.conf",
        {
            "address": '"127.0.0.1"',
            "port": str(port),
            "mount": '""',
            "socket": f'"{socket_path}"',
            "user": '"www-data"',
            "group": '"www-data"',
            "errors": f'"{store.root}/lighttpd/errors/"',
            "docs": f'"{store.root}/docs/"',
            "log": f'"{logs}/access.log"',
            "pidfile": f'"{store.root}/lighttpd.pid"',
        },
    )
    log_path = store.root / "lighttpd.out"
    process = start(["/usr/sbin/lighttpd", "-D", "-f", config], log_path)
    try:
        await_start(process, lambda: listens(port), log_path)
        yield port
    finally:
        stop_process(process)


def install_config(root: pathlib.Path, name: str, values: dict[str, str]) -> pathlib.Path:
    """Copy the folder of a configuration of deploy/ with the values of this place.

    `values` has one for each `var.NAME = ` or `Define NAME ` of the file, but not
    for near, and nothing else of it changes.  Returns the copy's path.
    """
    source = TOP / "deploy" / name
    folder = root / source.parent.name
    shutil.copytree(source.parent, folder, dirs_exist_ok=True)
    for path in [folder, *folder.rglob("*")]:  # for the web server's user
        path.chmod(0o755 if path.is_dir() else 0o644)
    left = dict(values)
    config = re.sub(r"^(var\.(?!near)(\w+)\s*= |Define\s+(?!near)(\w+)\s+).*$",
                    lambda found: found[1] + left.pop(found[2] or found[3]), source.read_text(),
                    flags=re.MULTILINE)
    if left:
        raise RuntimeError(f"{name} has no value {', '.join(left)}")
    path = folder / source.name
    path.write_text(config)
    return path


# --- HTTP --------------------------------------------------------------------


class HttpClient:
    """A client that keeps its connection.  For one thread."""

    def __init__(
        self, port: int, token: str, timeout_s: float = WAIT_S, path: str = "/plants"
    ) -> None:
        self.token = token
        self.path = path
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout_s)

    def send(
        self, body: bytes | Iterable[bytes] | None, *, method: str = "POST",
        path: str | None = None, headers: dict[str, str | None] | None = None
    ) -> Answer:
        """One exchange; a header given as None is left out.

        A body of pieces is sent chunked.
        """
        merged: dict[str, str | None] = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
        }
        merged.update(headers or {})
        sent = {name: value for name, value in merged.items() if value is not None}
        try:
            self.connection.request(method, path or self.path, body, sent)
            response = self.connection.getresponse()
            answer = Answer(response.status, response.getheaders(), response.read())
        except BaseException:
            self.connection.close()
            raise
        return answer

    def create(self, plant_id: int, name: str, tag: str | None = None) -> Answer:
        return self.send(new_plant(plant_id, name, tag))

    def close(self) -> None:
        self.connection.close()


# --- FastCGI -----------------------------------------------------------------

FCGI_BEGIN = 1
FCGI_ABORT = 2
FCGI_END = 3
FCGI_PARAMS = 4
FCGI_STDIN = 5
FCGI_STDOUT = 6
FCGI_STDERR = 7
FCGI_GET_VALUES = 9
FCGI_KEEP_CONN = 1
FCGI_RESPONDER = 1


def fcgi_record(kind: int, content: bytes, request_id: int = 1, *, version: int = 1) -> bytes:
    head = struct.pack("!BBHHBx", version, kind, request_id, len(content), 0)
    return head + content


def fcgi_stream(kind: int, content: bytes, request_id: int = 1) -> bytes:
    """A stream in records as large as they can be, with its end."""
    pieces = [content[at:at + 65528] for at in range(0, len(content), 65528)]
    return b"".join(fcgi_record(kind, piece, request_id) for piece in [*pieces, b""])


def fcgi_begin(request_id: int = 1, *, keep: bool = False, role: int = FCGI_RESPONDER) -> bytes:
    flags = FCGI_KEEP_CONN if keep else 0
    return fcgi_record(FCGI_BEGIN, struct.pack("!HB5x", role, flags), request_id)


def fcgi_length(length: int) -> bytes:
    return bytes([length]) if length < 128 else struct.pack("!I", length | 1 << 31)


def fcgi_pairs(pairs: Iterable[tuple[str, str]]) -> bytes:
    out = b""
    for name, value in pairs:
        raw_name, raw_value = name.encode("utf-8"), value.encode("utf-8")
        out += fcgi_length(len(raw_name)) + fcgi_length(len(raw_value))
        out += raw_name + raw_value
    return out


def fcgi_head(variables: Iterable[tuple[str, str]], *, keep: bool = False) -> bytes:
    return fcgi_begin(keep=keep) + fcgi_stream(FCGI_PARAMS, fcgi_pairs(variables))


def fcgi_request(variables: Iterable[tuple[str, str]], body: bytes, *, keep: bool = False) -> bytes:
    """All bytes of a request."""
    return fcgi_head(variables, keep=keep) + fcgi_stream(FCGI_STDIN, body)


class FastCgiPeer:
    """A web server's end of one FastCGI connection."""

    def __init__(self, socket_path: pathlib.Path, timeout_s: float = WAIT_S) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout_s)
        self.socket.connect(str(socket_path))

    def __enter__(self) -> "FastCgiPeer":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_slowly(self, data: bytes, piece: int, pause_s: float) -> None:
        for at in range(0, len(data), piece):
            self.socket.sendall(data[at:at + piece])
            time.sleep(pause_s)

    def _read(self, length: int) -> bytes:
        out = b""
        while len(out) < length:
            piece = self.socket.recv(length - len(out))
            if not piece:
                raise ConnectionError(f"closed after {len(out)} of {length} bytes")
            out += piece
        return out

    def read_record(self) -> tuple[int, bytes]:
        version, kind, _, length, padding = struct.unpack("!BBHHBx", self._read(8))
        if version != 1:
            raise ValueError(f"a record of version {version}")
        return kind, self._read(length + padding)[:length]

    def answer(self) -> Answer:
        """Read one whole answer, up to its END_REQUEST."""
        out = b""
        while True:
            kind, content = self.read_record()
            if kind == FCGI_STDOUT:
                out += content
            elif kind == FCGI_STDERR:
                if content:
                    raise ValueError(f"unexpected STDERR: {content!r}")
            elif kind == FCGI_END:
                app_status, protocol_status = struct.unpack("!IB3x", content)
                if app_status or protocol_status:
                    raise ValueError(f"ended {app_status}, {protocol_status}")
                return check_length(parse_cgi(out))
            else:
                raise ValueError(f"unexpected record of type {kind}")

    def exchange(self, data: bytes) -> Answer:
        self.send(data)
        return self.answer()

    def wait_closed(self, seconds: float) -> bool:
        """Read away whatever comes; whether the other end closes in time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                if not self.socket.recv(65536):
                    return True
            except TimeoutError:
                return False
            except OSError:
                return True
        return False


def check_length(answer: Answer) -> Answer:
    if answer.header("Content-Length") != str(len(answer.body)):
        raise ValueError(f"the Content-Length is not that of the body: {answer}")
    return answer


# --- Scenarios ---------------------------------------------------------------


def main(scenario: Callable[[Tally, str], None]) -> int:
    """Run a scenario whose one argument is the build directory."""
    if len(sys.argv) != 2:
        print(f"usage: {sys.argv[0]} BUILD_DIR", file=sys.stderr)
        return os.EX_USAGE
    return run_scenario(lambda tally: scenario(tally, sys.argv[1]))


def run_scenario(scenario: Callable[[Tally], None]) -> int:
    tally = Tally()
    # A terminated scenario stops its services on its way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tally.part("the scenario runs to its end"):
        scenario(tally)
    return tally.finish()
