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

Several may run at once; each has a directory and a port of its own.
"""

import contextlib
import dataclasses
import grp
import http.client
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from lib_service import (
    TOP,
    WAIT_S,
    HttpClient,
    Store,
    children_of,
    free_port,
    passed_on,
    responder,
    stop_process,
    temporary_store,
    wait_until,
)

DEPLOY = TOP / "deploy"
MOUNTS = ("", "/api/v1")
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
    streams_body: the service may be called before the whole body has come, so
        it sees an upload that breaks off; otherwise the server keeps that away.
    keeps_connections: FastCGI connections are used for several requests.
    http2: HTTP/2 with prior knowledge is served on the same port.
    """

    server: str  # lighttpd, apache, nginx
    mode: str  # the name of its file in deploy/SERVER/
    mount: str  # before /plants: "" or "/api/v1"
    own_socket: bool
    cgi: bool
    streams_body: bool
    keeps_connections: bool
    http2: bool

    @property
    def name(self) -> str:
        """Such as "nginx keep /api/v1"."""
        return f"{self.server} {self.mode} {self.mount or '/'}"

    def missing(self) -> str | None:
        """Why it cannot run on this machine; None if it can."""
        raise NotImplementedError


class Running:
    """A set-up that serves.

    set_up      what it is
    host, port  where it listens: "127.0.0.1" and a free port
    mount       "" or "/api/v1", path is mount + "/plants"
    base_url    "http://127.0.0.1:PORT" + mount
    token       a good token
    store       lib_service.Store: .dir, .tokens, .journal, .plants()
    server_log  what the server said
    service_log what the responder said (the same file unless own_socket)
    """

    def client(self, timeout_s: float = 30.0) -> HttpClient:
        """A client with the token whose requests go to `path`."""

    def worker_pids(self) -> list[int]:
        """The processes of the responder; none between CGI requests."""

    def stop_backend(self) -> None:
        """From now on the service does not answer; returns when that is so.

        own_socket: its supervisor and workers end, the socket is removed.
        Otherwise the program is replaced by one that fails at once, and the
        workers end.
        """

    def start_backend(self) -> None:
        """Undo stop_backend; returns when the service answers."""

    def command(self, *arguments: str) -> subprocess.CompletedProcess:
        """`plant-store ARGUMENTS...` as the user who owns the store."""


SET_UPS: list[SetUp] = []


@contextlib.contextmanager
def running(
    set_up: SetUp, build_dir: str, **settings: str
) -> Iterator[Running]:
    """Start a set-up; `settings` are further PLANT_STORE_... of the service.

    RuntimeError, with the logs, if it does not come up, or if a process stays.
    """
    raise NotImplementedError
    yield
