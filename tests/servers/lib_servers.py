"""The real web servers with the configurations of deploy/, for tests.

`SET_UPS` lists what is shipped: server, mode and mount.  `running()` starts one
of them as an operator would: it copies the program, makes a store and a token,
puts this place's paths, port and mount into the very file of deploy/, starts
the server and, where it has a socket of its own, the responder, and waits for
the first answer.  In the end everything is stopped, and a process that stays
is an error.

    for set_up in SET_UPS:
        if reason := set_up.missing():
            tally.skip(set_up.name, reason)
            continue
        with running(set_up, build_dir) as server:
            client = server.client()
            answer = client.create(1, "Fern")     # POST to server.path
            server.stop_backend()

A deliberate fault is put between the installation and the start of the server:

    def limit(server):
        server.edit("nginx/common.conf", "client_max_body_size 65536", "...")
    with running(set_up, build_dir, limit) as server:

Several may run at once, as try_set_ups() runs them; each has a directory and a port
of its own.
"""

import contextlib
import dataclasses
import functools
import http.client
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence


from lib_service import (
    BUG_REPORT, SYSTEM_PATH, HttpClient, Store, Tally, await_start, free_port, run,
    install_config, listens, passed_on, processes, responder, start, stop_process, temporary_store,
    wait_until,
)
from lib_faults import Part, parts_side_by_side

MOUNTS = ("", "/api/v1")
AT_ONCE = 4
# As in deploy/: the web server's user, and the service's where it has its own.
SERVER_USER = "www-data"
SERVICE_USER = "nobody"


@dataclasses.dataclass(frozen=True)
class SetUp:
    """A way to run the service behind a web server.

    own_socket: a supervisor owns responder and socket (spawn-fcgi, multiwatch);
        otherwise the server starts the program, and settings reach it by the
        server's configuration.
    cgi: a process for each request, so that between requests there is none.
    streams_body: the service is called before the body has come; otherwise an
        upload that breaks off never reaches it.
    keeps_connections: FastCGI connections are used for several requests.
    http2: HTTP/2 with prior knowledge is served on the same port.
    """

    server: str  # lighttpd, apache, nginx
    mode: str  # the name of its file in deploy/SERVER/
    mount: str  # before /plants: "" or "/api/v1"
    own_socket: bool = False
    cgi: bool = False
    streams_body: bool = False
    keeps_connections: bool = False
    http2: bool = False

    @property
    def name(self) -> str:
        """Such as "nginx keep /api/v1"."""
        return f"{self.server} {self.mode} {self.mount or '/'}"

    def missing(self) -> str | None:
        """Why it cannot run on this machine; None if it can."""
        programs = [PROGRAMS[self.server]]
        if self.own_socket:
            programs += ["spawn-fcgi", "multiwatch"]
        for program in programs:
            if not shutil.which(program, path=SYSTEM_PATH):
                return f"{program} is not installed"
        return None


PROGRAMS = {"lighttpd": "lighttpd", "apache": "apache2", "nginx": "nginx",
            "caddy": "caddy", "haproxy": "haproxy"}


@functools.cache
def version_of(server: str) -> tuple[int, ...]:
    """Such as (1, 4, 69); of one that is not installed, ()."""
    program = shutil.which(PROGRAMS[server], path=SYSTEM_PATH)
    if not program:
        return ()
    told = run(program, "-v", stderr=subprocess.STDOUT, text=True).stdout
    return tuple(map(int, re.search(r"/(\d+)\.(\d+)\.(\d+)", told).groups()))


SET_UPS = [
    dataclasses.replace(set_up, mount=mount)
    for set_up in (
        SetUp("lighttpd", "fastcgi", "", own_socket=True, http2=True),
        SetUp("lighttpd", "spawn", "", http2=True),
        SetUp("lighttpd", "cgi", "", cgi=True, http2=True),
        SetUp("apache", "proxy_fcgi", "", own_socket=True),
        SetUp("apache", "cgid", "", cgi=True, streams_body=True),
        SetUp("nginx", "fastcgi", "", own_socket=True),
        SetUp("nginx", "keep", "", own_socket=True, keeps_connections=True),
    )
    for mount in MOUNTS
]
# Minimal files, of which less is asked.
MINIMAL = [SetUp(server, "minimal", mount, own_socket=True)
           for server in ("caddy", "haproxy") for mount in MOUNTS]


# --- Processes ---------------------------------------------------------------

Process = tuple[int, str]  # its id and when it started: ids come again


def running_processes() -> dict[Process, int]:
    """All that run, with their parents."""
    found = processes().items()
    return {(pid, fields[19]): int(fields[1]) for pid, fields in found}


def descendants(pid: int) -> set[Process]:
    """A process and all below it."""
    table = running_processes()
    below = {process for process in table if process[0] == pid}
    while more := {
        process
        for process, parent in table.items()
        if process not in below and any(parent == pid for pid, _ in below)
    }:
        below |= more
    return below


def uses(pid: int, folder: pathlib.Path) -> bool:
    """Whether a process runs a program of the folder or was started with it."""
    place = f"{folder}/"
    try:
        entry = pathlib.Path("/proc", str(pid))
        if os.readlink(entry / "exe").startswith(place):
            return True
        return place.encode() in (entry / "cmdline").read_bytes()
    except OSError:  # ended meanwhile, or not ours
        return False


def is_script(pid: int, path: pathlib.Path) -> bool:
    """Whether a process is an interpreter that runs this file."""
    try:
        return read_words(pid)[1:2] == [str(path)]
    except OSError:  # ended meanwhile
        return False


def read_words(pid: int) -> list[str]:
    """The words of a process's command."""
    return os.fsdecode(pathlib.Path("/proc", str(pid), "cmdline").read_bytes()).split("\0")


def install_program(source: str | os.PathLike, target: pathlib.Path) -> None:
    """By another process: a child that a thread of ours forks meanwhile would keep
    our open file, and a file that is open for writing cannot be run."""
    subprocess.run(["install", "-m", "755", source, target], check=True)


# --- A running set-up --------------------------------------------------------


Fault = Callable[["Running"], None]


class Running:
    """A set-up that serves.

    set_up      what it is
    host, port  where it listens: "127.0.0.1" and a free port
    mount       "" or "/api/v1"; path is mount + "/plants"
    base_url    "http://127.0.0.1:PORT" + mount
    token       a good token
    docs        the folder of the page, which is not there yet
    store       lib_service.Store: .dir, .tokens, .journal, .plants()
    server_pid  the process that was started, with others below it
    server_log  what the server said
    access_log  its line per request, when it has written it
    service_log what the responder said (the same file unless own_socket)
    """

    host = "127.0.0.1"

    def __init__(self, set_up: SetUp, store: Store, settings: dict[str, str]) -> None:
        self.set_up = set_up
        self.mount = set_up.mount
        self.path = f"{self.mount}/plants"
        self.store = store
        self.token = store.token
        self.root = store.root
        self.port = free_port()
        self.base_url = f"http://{self.host}:{self.port}{self.mount}"
        self.server_log = self.root / "server.log"
        self.access_log = self.root / "run" / "access.log"
        self.service_log = self.server_log
        if set_up.own_socket:
            self.service_log = self.root / "responder.log"
        self.socket_path = self.root / "fcgi.sock"
        self.docs = f"{self.root}/docs/"
        self.settings = settings
        self._responder = contextlib.ExitStack()
        # As an operator is told: who runs the responder owns store and tokens.
        self.owner = None
        if os.geteuid() == 0:
            self.owner = SERVICE_USER if set_up.own_socket else SERVER_USER
            self.root.chmod(0o711)
            for path in store.owned:
                shutil.chown(path, self.owner)

    def client(self, timeout_s: float = 30.0) -> HttpClient:
        """A client with the token whose requests go to `path`."""
        return HttpClient(self.port, self.token, timeout_s, self.path)

    def worker_pids(self) -> list[int]:
        """The processes of the responder; none between CGI requests."""
        program = str(self.store.responder)
        found = []
        for pid in processes():
            with contextlib.suppress(OSError):
                try:
                    exe = os.readlink(f"/proc/{pid}/exe")
                except PermissionError:  # another user's, where root may not trace
                    exe = read_words(pid)[0]
                if exe in (program, f"{program} (deleted)"):
                    found.append(pid)
        return found

    def answers(self) -> bool:
        """Whether the service answers: without a token, error 1001."""
        client = self.client()  # a request may be lost while it restarts; then another
        try:
            answer = client.send(None, method="GET", headers={"Authorization": None})
            return answer.error() == 1001
        except (OSError, http.client.HTTPException):
            return False
        finally:
            client.close()

    def stop_backend(self) -> None:
        """From now on the service does not answer; returns when that is so.

        own_socket: its supervisor and workers end, the socket is removed.
        Otherwise the program is replaced by one that fails at once, and the
        workers end.
        """
        if self.set_up.own_socket:
            self._responder.close()
        else:
            self._replace_program("/bin/false")
        self._end_workers()

    def start_backend(self) -> None:
        """Undo stop_backend; returns when the service answers."""
        if self.set_up.own_socket:
            self._start_responder()
        else:
            self._replace_program(self.store.responder.with_suffix(".kept"))
        if not wait_until(self.answers):
            raise RuntimeError(f"the service does not answer again: {self.logs()}")

    @contextlib.contextmanager
    def other_program(self, program: str | os.PathLike) -> Iterator[None]:
        """A script in the responder's place, which ends when it is not."""

        def scripts() -> list[int]:
            return [pid for pid in processes() if is_script(pid, self.store.responder)]

        self._replace_program(program)
        self._end_workers()
        try:
            yield
        finally:
            self._replace_program(self.store.responder.with_suffix(".kept"))
            # Until then it may take a request.
            wait_until(lambda: not scripts())
            if not wait_until(self.answers):
                raise RuntimeError(f"the service does not answer again: {self.logs()}")

    def command(self, *arguments: str) -> subprocess.CompletedProcess:
        """`plant-store ARGUMENTS...` as the user who owns the store."""
        as_owner: dict = {}
        if self.owner:
            group = pwd.getpwnam(self.owner).pw_gid
            as_owner = {"user": self.owner, "group": group, "extra_groups": []}
        return self.store.command(*arguments, **as_owner)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace what a file, such as "apache/common.conf", must have once
        outside of its comments.

        For a fault of running(): the server has not read it yet.
        """
        path = self.root / name
        text = path.read_text()
        found = re.findall(rf"(?m)^[^\n#]*{re.escape(old)}", text)
        if len(found) != 1:
            raise RuntimeError(f"{name} has not once: {old}")
        path.write_text(text.replace(found[0], found[0].replace(old, new)))

    def logs(self) -> str:
        """The ends of the logs, for a message."""
        paths = {self.server_log, self.service_log}
        return "\n".join(
            path.read_text(errors="replace")[-3000:] for path in paths if path.exists())

    # -- how it comes up and goes down

    def _replace_program(self, source: str | os.PathLike) -> None:
        # By renaming, since a program that runs cannot be written to.
        new = self.store.responder.with_suffix(".new")
        install_program(source, new)
        new.rename(self.store.responder)

    def _end_workers(self) -> None:
        # multiwatch forgets a worker that it is just starting again.
        for pid in self.worker_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        if not wait_until(lambda: not self.worker_pids()):
            raise RuntimeError(f"a worker stays: {self.logs()}")

    def _start_responder(self) -> None:
        settings = {"PLANT_STORE_BASE_PATH": self.mount} | self.settings
        self._responder.enter_context(responder(self.store, user=self.owner, **settings))

    def _install(self) -> list[str]:
        """Put the configuration in its place; the server's command."""
        set_up = self.set_up
        program = shutil.which(PROGRAMS[set_up.server], path=SYSTEM_PATH)
        run = self.root / "run"
        run.mkdir(exist_ok=True)
        if self.owner:
            shutil.chown(run, SERVER_USER)
        if set_up.server == "nginx":
            config = self._install_nginx()
            return [program, "-g", "daemon off;", "-c", config]
        if set_up.server == "caddy":
            return [program, "run", "--adapter", "caddyfile", "--config", self._install_changed(
                "caddy/Caddyfile", {
                    "unix//run/plant-store/socket": f"unix/{self.socket_path}",
                    "http://:80 ": f"http://:{self.port} ", "/plants* {": f"{self.path}* {{",
                    "\n{\n": "\n{\nadmin off\n"})]
        if set_up.server == "haproxy":
            return [program, "-db", "-f", self._install_changed("haproxy/haproxy.cfg", {
                "unix@/run/plant-store/socket": f"unix@{self.socket_path}",
                "127.0.0.1:80\n": f"127.0.0.1:{self.port}\n", "beg /plants": f"beg {self.path}"})]
        quoted = (lambda text: f'"{text}"') if set_up.server == "lighttpd" else str
        values = {
            "address": quoted(self.host),
            "port": str(self.port),
            "mount": quoted(self.mount),
            "user": quoted(SERVER_USER),
            "group": quoted(SERVER_USER),
            "docs": quoted(self.docs),
        }
        if set_up.own_socket:
            values["socket"] = quoted(self.socket_path)
        else:
            values["program"] = quoted(self.store.responder)
            values["store"] = quoted(self.store.dir)
            values["tokens"] = quoted(self.store.tokens)
        if set_up.server == "lighttpd":
            values["errors"] = quoted(f"{self.root}/lighttpd/errors/")
            values["log"] = quoted(self.access_log)
            values["pidfile"] = quoted(run / "lighttpd.pid")
            if set_up.mode == "spawn":
                values["socket"] = quoted(self.socket_path)
            command = [program, "-D", "-f"]
        else:
            values["mount"] = self.mount or "/"
            values["folder"] = str(self.root / "apache")
            values["run"] = str(run)
            values["log"] = str(self.server_log)
            values["access"] = str(self.access_log)
            # As Debian's apachectl has it.
            command = ["prlimit", "--nofile=8192:", program, "-DFOREGROUND", "-f"]
        config = install_config(self.root, f"{set_up.server}/{set_up.mode}.conf", values)
        if not set_up.own_socket:
            self._add_settings(config)
        return [*command, str(config)]

    def _add_settings(self, config: pathlib.Path) -> None:
        """Further settings, next to the one that each such file has."""
        text = config.read_text()
        line = re.search(r"^.*PLANT_STORE_BASE_PATH.*\n", text, re.MULTILINE)
        more = ""
        for name, value in (passed_on() | self.settings).items():
            added = line[0].replace("PLANT_STORE_BASE_PATH", name)
            for old in ("var.mount", '"${mount}"'):
                added = added.replace(old, json.dumps(value))
            more += added
        config.write_text(text[: line.end()] + more + text[line.end() :])

    def _install_changed(self, name: str, changes: dict[str, str]) -> str:
        """The path of a configuration with its texts replaced, which it has once each."""
        config = install_config(self.root, name, {})
        text = config.read_text()
        for old, new in changes.items():
            if text.count(old) != 1:
                raise RuntimeError(f"{config.name} has not once: {old}")
            text = text.replace(old, new)
        config.write_text(text)
        return str(config)

    def _install_nginx(self) -> str:
        replacements = {
            "unix:/run/plant-store/socket;": f"unix:{self.socket_path};",
            "listen 127.0.0.1:80 ": f"listen {self.host}:{self.port} ",
            "location /plants {": f"location {self.path} {{",
            "location /docs/ {": f"location {self.mount}/docs/ {{",
            "location = /openapi.json {": f"location = {self.mount}/openapi.json {{",
            "pid /run/nginx.pid;": f"pid {self.root}/nginx.pid;",
            "/var/log/nginx/plant-store.log": f"{self.access_log}",
        }
        if os.geteuid() != 0:  # Debian's places are root's
            places = "".join(f"{kind}_temp_path {self.root}/{kind};"
                             for kind in ("client_body", "fastcgi", "proxy", "scgi", "uwsgi"))
            replacements["http {"] = f"http {{ {places}"
        config = self._install_changed(f"nginx/{self.set_up.mode}.conf", replacements)
        self.edit("nginx/errors.conf", "/usr/local/share/plant-store/docs/", self.docs)
        return config

    @contextlib.contextmanager
    def serving(self, fault: Fault | None = None) -> Iterator[None]:
        def ready() -> bool:
            # What the server with a fault answers, if anything, is the caller's.
            return self.answers() if fault is None else listens(self.port)

        command = self._install()
        with self._responder:
            if self.set_up.own_socket:
                self._start_responder()
            if fault:
                fault(self)
            environment = passed_on() | {"PATH": SYSTEM_PATH, "HOME": str(self.root)}
            process = start(command, self.server_log, env=environment)
            self.server_pid = process.pid
            try:
                await_start(process, ready, self.server_log)
                yield
            finally:
                started = descendants(process.pid)
                stop_process(process)
        if self.set_up.own_socket:
            self._end_workers()
        self._check_end(started)

    def _check_end(self, started: set[Process]) -> None:
        def left() -> set[Process]:
            return {process for process in running_processes()
                    if process in started or uses(process[0], self.root)}

        if not wait_until(lambda: not left()):
            stay = left()
            for pid, _ in stay:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise RuntimeError(f"{self.set_up.name}: {stay} stayed: {self.logs()}")
        for path in {self.server_log, self.service_log}:
            log = path.read_text(errors="replace")
            if found := BUG_REPORT.search(log):
                place = max(0, found.start() - 100)
                raise RuntimeError(f"{self.set_up.name}: {log[place:][:3000]}")


@contextlib.contextmanager
def running(
    set_up: SetUp, build_dir: str, fault: Fault | None = None, **settings: str
) -> Iterator[Running]:
    """Start a set-up; `settings` are further PLANT_STORE_... of the service.

    With a fault it is only waited until the server listens.

    RuntimeError, with the logs, if it does not come up, if a process stays, or
    if a log holds the report of a bug.
    """
    with temporary_store(build_dir) as made:
        # Installed, since the web server's user need not reach the build.
        bin_dir = made.root / "bin"
        bin_dir.mkdir(mode=0o755)
        for name in ("plant-store", "plant-store.fcgi", "plant-store-check-url"):
            install_program(made.build / name, bin_dir / name)
        bin_dir.chmod(0o755)
        store = dataclasses.replace(made, build=bin_dir)
        shutil.copy(store.responder, store.responder.with_suffix(".kept"))
        server = Running(set_up, store, settings)
        with server.serving(fault):
            yield server


Check = Callable[[Tally, SetUp, str], None]


def try_set_ups(
    tally: Tally, build_dir: str, check: Check, what: str, set_ups: Sequence[SetUp] = SET_UPS,
    missing: Callable[[SetUp], str | None] = SetUp.missing, at_once: int = AT_ONCE
) -> None:
    """Check each of the set-ups that can run here, some at a time."""
    parts = []
    for set_up in set_ups:
        if reason := missing(set_up):
            tally.skip(f"{set_up.name}: {what}", reason)
        else:
            parts.append(part_of(set_up, functools.partial(check, build_dir=build_dir)))
    parts_side_by_side(tally, parts, at_once)


def part_of(set_up: SetUp, check: Callable[[Tally, SetUp], None]) -> Part:
    def part(own: Tally) -> None:
        own.about = f"{set_up.name}: "
        check(own, set_up)

    return f"{set_up.name} is tried to the end", part
