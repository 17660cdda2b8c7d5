"""What is measured: programs behind web servers, each idle until it is its turn.

A side has a web server of its own, with the configuration of deploy/, and the
program that it asks.  tests/servers/lib_servers.py has most of it; here the
programs differ, and run as whoever started us.
"""

import contextlib
import dataclasses
import http.client
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path += [str(TOP / f"tests{folder}") for folder in ("/lib", "/servers", "/faults", "/postgresql")]

from lib_servers import Running, SetUp, descendants
from lib_service import (
    SYSTEM_PATH, HttpClient, Store, await_start, init_store, listens, new_plant, read_stat, start,
    stop_process, temporary_store,
)

BUILD = TOP / "build"
BENCH = BUILD / "bench"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# As in wrk's script.
NAME, TAG = "Fern", "indoor"
FIRST_ID = -1

# The configurations that users copy: the one of each server to choose.
SERVERS = {
    "lighttpd": SetUp("lighttpd", "fastcgi", "", own_socket=True),
    "nginx": SetUp("nginx", "keep", "", own_socket=True, keeps_connections=True),
    # With the changes that are in APACHE.
    "apache": SetUp("apache", "proxy_fcgi", "", own_socket=True, keeps_connections=True),
}
Changes = Sequence[tuple[str, str]]
# A kept connection to the program, and a thread for each connection of the most
# that are measured: with Apache's own defaults it closes clients' connections
# when its threads are busy, whatever is behind it.
APACHE: Changes = [
    ('" retry=0 timeout=30>', '" enablereuse=on retry=0 timeout=30>'),
    (
        'Include "${folder}/common.conf"',
        'Include "${folder}/common.conf"\n'
        "ThreadLimit 320\nThreadsPerChild 320\nServerLimit 1\nStartServers 1\n"
        "MaxRequestWorkers 320\nMinSpareThreads 25\nMaxSpareThreads 320",
    ),
]


def children_cpu_s(pid: int) -> float:
    """Seconds of CPU of a process and all below it, ended ones included."""
    ticks = 0
    for process, _ in descendants(pid):
        with contextlib.suppress(OSError):  # ended meanwhile
            fields = read_stat(pathlib.Path(f"/proc/{process}/stat"))
            ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS_PER_S


@dataclasses.dataclass(frozen=True)
class Program:
    """What is to run behind a server; all of it may name this side's places:
    @root@, a folder of its own, @socket@, and @token@, the token that is sent.

    settings  its environment
    stored    how many plants it has, if it keeps them
    changes   of the server's configuration
    files     that are put into @root@
    """

    name: str
    command: Sequence[str | os.PathLike]
    settings: dict[str, str] = dataclasses.field(default_factory=dict)
    stored: Callable[[], int] | None = None
    changes: Changes = ()
    files: dict[str, str] = dataclasses.field(default_factory=dict)


class Side(Running):
    """A program behind a web server.

    label     such as "nginx no-op"
    answered  how many requests were answered 200
    """

    def __init__(self, set_up: SetUp, store: Store, program: Program) -> None:
        super().__init__(set_up, store, {})
        # The program runs as whoever started us, and reads no other user's tokens.
        for path in store.owned:
            os.chown(path, os.geteuid(), -1)
        self.label = f"{set_up.server} {program.name}"
        self.answered = 0
        self.program = program
        self._process: subprocess.Popen | None = None

    def answers(self) -> bool:
        """Whether the program answers a request without a credential."""
        client = HttpClient(self.port, self.token)
        try:
            answer = client.send(None, method="GET", headers={"Authorization": None})
            return answer.status in (200, 401)
        except (OSError, http.client.HTTPException):
            return False
        finally:
            client.close()

    def check(self) -> None:
        """A good request has the answer that all are to give."""
        client = HttpClient(self.port, self.token)
        try:
            answer = client.send(new_plant(FIRST_ID, NAME, TAG))
        finally:
            client.close()
        if not answer.is_plant(NAME, TAG):
            raise RuntimeError(f"{self.label}: {answer}: {self.logs()}")
        self.answered += 1

    def cpu_s(self) -> tuple[float, float]:
        """CPU time so far: of the program, and of the web server."""
        return children_cpu_s(self._process.pid), children_cpu_s(self.server_pid)

    def _placed(self, text: str) -> str:
        for name, value in (
            ("@root@", self.root),
            ("@socket@", self.socket_path),
            ("@token@", self.token),
        ):
            text = text.replace(name, str(value))
        return text

    # -- how it comes up, as Running asks

    def _install(self) -> list[str]:
        command = super()._install()
        for name, text in self.program.files.items():
            path = self.root / name
            path.write_text(self._placed(text))
            path.chmod(0o644)  # for the web server's user
        config = os.path.relpath(command[-1], self.root)
        of_server = APACHE if self.set_up.server == "apache" else ()
        for old, new in (*of_server, *self.program.changes):
            self.edit(config, old, self._placed(new))
        return command

    def _start_responder(self) -> None:
        settings = self.program.settings.items()
        # With as many reactors as there are by default.
        environment = self.store.environment(PATH=SYSTEM_PATH, PLANT_STORE_THREADS="")
        environment |= {name: self._placed(text) for name, text in settings}
        command = [self._placed(str(word)) for word in self.program.command]
        process = start(command, self.service_log, env=environment)
        self._responder.callback(stop_process, process)
        await_start(process, lambda: listens(self.socket_path), self.service_log)
        self._process = process


def spawned(*command: str | os.PathLike) -> list[str | os.PathLike]:
    """A command with the socket as its descriptor 0, without a fork."""
    group = ["-G", "www-data"] if os.geteuid() == 0 else []
    spawn = ["spawn-fcgi", "-n", "-s", "@socket@", "-M", "0660"]
    return [*spawn, *group, "-b", "1024", "--", *command]


def preloaded(**settings: str) -> dict[str, str]:
    """The environment of a program whose syncs are others."""
    return {"LD_PRELOAD": str(BENCH / "preload.so"), **settings}


def service(store: pathlib.Path, name: str = "Plant Store", **settings: str) -> Program:
    """The service with a new store in this directory."""
    init_store(BUILD, store)

    def stored() -> int:
        with open(store / "plants.jsonl", "rb") as journal:
            return sum(b'"plant":' in line for line in journal)

    settings["PLANT_STORE_DIR"] = str(store)
    return Program(name, spawned(BUILD / "plant-store.fcgi"), settings, stored)


@contextlib.contextmanager
def running(server: str, program: Program) -> Iterator[Side]:
    """Start a side; it has answered once when it is yielded."""
    with temporary_store(str(BUILD)) as store:
        side = Side(SERVERS[server], store, program)
        with side.serving():
            side.check()
            yield side
