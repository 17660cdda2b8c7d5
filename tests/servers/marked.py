#!/usr/bin/env python3
"""Goal: what deploy/ starts shows a secret to nobody: in no argument, in no environment of
a program that does not need it, in no log, and in no file that others may read.

usage: marked.py BUILD_DIR

Each secret has a mark.  strace shows every program that is executed, with its arguments
and its environment, however short it lives.  tokens.py looks at the web servers' logs,
scenario_secrets.py at the service.
"""

import contextlib
import http.server
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading

from lib_servers import MINIMAL, SET_UPS, Running, install_program, running  # and the way to the next ones
from lib_service import (
    TOP, WAIT_S, Store, Tally, children_of, free_port, listens, main, new_plant, run, start,
    stop_process, temporary_store, wait_until,
)

DEPLOY = TOP / "deploy"
MARK = "mark3d-s3cret"
DATABASE = f"host=127.0.0.1 port=1 dbname=plants password={MARK} connect_timeout=1"
# What needs the service's password: itself, and what it is started by, as its user.
SERVICE = {"plant-store-start", "spawn-fcgi", "multiwatch", "plant-store.fcgi", "plant-store",
           "plant-store-consume", "true", "env", "getent", "install", "run", "entrypoint", "sed", "sleep"}
INSTALLED = "/usr/local/share/plant-store"


class Watched:
    """What was executed below a command: the program's name, its arguments, its environment."""

    def __init__(self, root: pathlib.Path) -> None:
        self.trace = root / "trace"

    def command(self, *words: object) -> list[object]:
        self.trace.unlink(missing_ok=True)
        return ["strace", "-f", "-qq", "-v", "-s", "100000", "-e", "trace=execve", "-o", self.trace,
                *words]

    def executed(self) -> list[tuple[str, str, str]]:
        found = re.findall(r'execve\("([^"]*)", \[(.*)\], \[(.*)\](?:\)| <)', self.trace.read_text())
        return [(path.rpartition("/")[2], words, more) for path, words, more in found]


def judge(tally: Tally, what: str, watched: Watched, needed: set[str], programs: set[str],
          said: bytes = b"", marks: tuple[str, ...] = (MARK,)) -> None:
    """`needed` may have a mark in their environment; all of `programs` were seen."""
    executed = watched.executed()
    names = {name for name, _, _ in executed}
    tally.check(programs <= names, f"{what}: is run", (programs - names, said[-500:]))
    for mark in marks:
        shown = [each[:2] for each in executed if mark in each[1]]
        tally.check(not shown, f"{what}: no argument has it", shown)
        given = {name for name, _, more in executed if mark in more} - needed
        tally.check(not given, f"{what}: no other program gets it", given)
        tally.check(mark.encode() not in said, f"{what}: no message has it", said[-2000:])


def check_started(tally: Tally, store: Store, watched: Watched, what: str, command: list[object],
                  programs: set[str], environment: dict[str, str], port: int = 0) -> None:
    """Until the service says that its database is away, and a web server listens."""
    log = store.root / "log"
    log.write_bytes(b"")
    process = start(watched.command(*command), log, env=environment)
    try:
        up = wait_until(lambda: b"database" in log.read_bytes() and (not port or listens(port)))
        tally.check(up, f"{what}: the service says that its database is away", log.read_bytes())
    finally:
        for pid in children_of(process.pid):  # strace itself is deaf
            os.kill(pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(WAIT_S)
        stop_process(process)
    tally.check(process.returncode == 0, f"{what}: SIGTERM ends it", process.returncode)
    judge(tally, what, watched, SERVICE, programs | {"plant-store.fcgi"}, log.read_bytes())


def install(place: pathlib.Path, *names: str, **changes: str) -> None:
    """Folders or files of deploy/ with the paths of this place, and with these changes."""
    for name in names:
        run("cp", "-r", DEPLOY / name, place, check=True)
    changes = {**changes, INSTALLED: str(place)}
    for path in filter(pathlib.Path.is_file, place.rglob("*")):
        path.write_text(re.sub("|".join(map(re.escape, changes)), lambda found: changes[found[0]],
                               path.read_text()))


def check_service(tally: Tally, store: Store, watched: Watched) -> None:
    """By itself, below runit, and as in the container, whose entrypoint runs in a folder."""
    place, port = store.root / "bin", free_port()
    place.mkdir(mode=0o755)
    for name in "plant-store.fcgi", "postgresql.so":
        install_program(store.build / name, place / name)
    responder = str(place / "plant-store.fcgi")
    as_user = "--user nobody --group nogroup".split() if os.geteuid() == 0 else []
    for path in store.owned if as_user else ():
        shutil.chown(path, "nobody")
    store.root.chmod(0o711)
    bare = store.environment(PATH=f"{os.environ['PATH']}:/usr/sbin", PLANT_STORE_RESPONDER=responder,
                             PLANT_STORE_LOG_LEVEL="debug", PLANT_STORE_BASE_PATH="")
    environment = bare | {"PLANT_STORE_DATABASE": DATABASE}
    begin = [DEPLOY / "plant-store-start", "--socket", place / "socket", *as_user]
    check_started(tally, store, watched, "plant-store-start", begin, {"multiwatch"}, environment)
    share = store.root / "share"
    share.mkdir(mode=0o755)
    settings = store.root / "settings"
    with open(os.open(settings, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
        file.write(f"PLANT_STORE_DATABASE={DATABASE}\n")
    install(share, "runit/run", **{"/etc/plant-store/environment": str(settings),
                                   f"{INSTALLED}/plant-store-start": " ".join(map(str, begin))})
    check_started(tally, store, watched, "runit", [share / "run"], {"multiwatch"}, bare)
    for path in store.owned if as_user else ():
        shutil.chown(path, os.geteuid())
    install(share, "container", "lighttpd", **{
        "/usr/local/libexec/plant-store.fcgi": responder, "/tmp/": f"{place}/", "8080": str(port)})
    check_started(tally, store, watched, "the container", [share / "container" / "entrypoint"],
                  {"lighttpd", "spawn-fcgi"}, environment, port)
    done = run(*watched.command(store.build / "plant-store", "check"),
               env=store.environment(PLANT_STORE_DATABASE=DATABASE))
    judge(tally, "check of a database", watched, SERVICE, {"plant-store"}, done.stdout + done.stderr)


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(self.headers["Authorization"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def check_consumers(tally: Tally, store: Store, watched: Watched) -> None:
    """A command gets its own secret, not the service's; and none of the two is an argument."""
    own, theirs = store.root / "own", f"0wn-{MARK[:6]}"
    server = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
    server.seen = []
    threading.Thread(target=server.serve_forever).start()
    try:
        for name, words, program, needed in (
            ("into-http", (), "curl", {"into-http", "curl"}),
            ("into-postgresql", (), "psql", {"into-postgresql", "psql"}),
            ("into-sqlite", (store.root / "db",), "sqlite3", {"into-sqlite", "sqlite3", "sh", "cat"}),
            ("into-files", (store.root / "files",), "into-files", {"into-files", "mv", "sync"}),
        ):
            (store.root / "files").mkdir(exist_ok=True)
            place = store.root / f"place-{name}"
            place.mkdir(mode=0o700)
            own.write_text(f"URL=http://127.0.0.1:{server.server_port}/\nAUTHORIZATION=Bearer {theirs}\n"
                           f"PGHOST=127.0.0.1\nPGPORT=1\nPGPASSWORD={theirs}\nno_proxy=127.0.0.1\n")
            own.chmod(0o600)
            # A cursor keeps its store in files: here the setting is only there to be leaked.
            script = store.root / "exporter"
            script.write_text("#!/bin/sh\nunset PLANT_STORE_DATABASE\n"
                              f"exec {store.build}/plant-store \"$@\"\n")
            script.chmod(0o700)
            done = run(*watched.command(
                DEPLOY / "consumer" / "plant-store-consume", "--environment", own, place, "-",
                DEPLOY / "consumer" / name, *words), env=store.environment(
                    PLANT_STORE=str(script), PLANT_STORE_DATABASE=DATABASE, PATH=os.environ["PATH"]))
            said = done.stdout + done.stderr
            outside = {"plant-store-consume", "exporter", "plant-store", "id", "stat", "realpath",
                       "flock", "rm", "env"}
            judge(tally, name, watched, outside, {program, "plant-store"}, said)
            judge(tally, f"{name}, its own", watched, needed | {"sh", "timeout"}, set(), said,
                  (theirs,))
    finally:
        server.shutdown()
        server.server_close()
    tally.check(server.seen == [f"Bearer {theirs}"], "into-http: the receiver gets it", server.seen)
    done = run(DEPLOY / "consumer" / "into-postgresql", f"password={MARK}")
    tally.check(done.returncode == 64, "into-postgresql takes no argument", done)


def check_tokens(tally: Tally, server: Running, watched: Watched) -> None:
    """Behind a web server, and in what it leaves."""
    done = run(*watched.command(server.store.build / "plant-store", "check", "--url", server.base_url,
                                "--token", "-"), env=server.store.environment(
                                    PLANT_STORE_DATABASE=DATABASE,
                                    PATH=f"{server.store.build}:{os.environ['PATH']}"),
               input=server.token.encode() + b"\n")
    name = server.set_up.name
    judge(tally, f"{name}: check --url", watched, {"plant-store"}, {"plant-store", "curl"},
          done.stdout + done.stderr, (server.token, MARK))
    tally.check(b"ok" in done.stdout + done.stderr or done.returncode == 0,
                f"{name}: check --url has asked the service", done)
    answer = server.client().create(1, "Fern")
    tally.check(answer.status == 200, f"{name}: a plant is stored", answer)
    for path in server.root.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and server.token.encode() in path.read_bytes():
                tally.check(path == watched.trace, f"{name}: no file has the token", path)


def check_files(tally: Tally, store: Store) -> None:
    """What has a secret or a plant is for its owner alone, under the loosest umask."""
    # Not of the store: what a consumer makes is its own.
    files = [path for path in store.root.rglob("*") if path.is_file() and
             (MARK in path.read_text(errors="replace") or b'"name":"Ivy' in path.read_bytes())]
    wrong = [(path, oct(path.stat().st_mode)) for path in files
             if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
             and not path.is_relative_to(store.root / "files") and path.name not in ("db", "trace")]
    tally.check(len(files) > 3 and not wrong, "no file with a secret or a plant is for others", wrong)


def scenario(tally: Tally, build_dir: str) -> None:
    if tally.lacks("no secret is shown", "strace", "curl", "psql", "sqlite3", "spawn-fcgi",
                   "multiwatch", "nginx"):
        return
    os.umask(0)
    with temporary_store(build_dir) as store:
        watched = Watched(store.root)
        with tally.part("the service"):
            check_service(tally, store, watched)
        plants = b"".join(new_plant(n, f"Ivy {n}") + b"\n" for n in range(3))
        store.command("import", stdin=None, input=plants).check_returncode()
        backups = store.root / "backups"
        backups.mkdir()
        with tally.part("backups"):
            done = run(*watched.command(DEPLOY / "plant-store-backup", backups, "2"),
                       env=store.environment(PLANT_STORE=str(store.build / "plant-store"),
                                             PATH=os.environ["PATH"], RESTIC_PASSWORD=MARK))
            tally.check(done.returncode == 0, "a backup is made", done)
            shown = [each for each in watched.executed() if MARK in each[1]]
            tally.check(not shown and MARK.encode() not in done.stdout + done.stderr,
                        "a backup: no argument has a secret", shown)
        with tally.part("consumers"):
            check_consumers(tally, store, watched)
        check_files(tally, store)
    for set_up in SET_UPS + MINIMAL:
        if not set_up.mount and not set_up.missing():
            with tally.part(set_up.name), running(set_up, str(pathlib.Path(build_dir).resolve())) as server:
                check_tokens(tally, server, Watched(server.root))


if __name__ == "__main__":
    sys.exit(main(scenario))
