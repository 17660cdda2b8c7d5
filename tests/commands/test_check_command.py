#!/usr/bin/env python3
"""Drives `plant-store check` as an operator does.

usage: test_check_command.py PATH_OF_plant-store

The web servers of the second half answer as broken ones do; the real ones,
broken on purpose, are in tests/servers.
"""

import contextlib
import datetime
import http.server
import json
import os
import pathlib
import pty
import pwd
import shutil
import socket
import ssl
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator

from lib_command import (
    CONFIG, IOERR, NOINPUT, NOPERM, TIMEOUT_S, UNAVAILABLE, USAGE, read_to_end,
)
from lib_service import (
    NO_FILE, TOKEN_NAME, Store, Tally, append_plants, lighttpd, manifest_of, new_plant, passed_on,
    responder, run, run_scenario, temporary_store, wait_until,
)
from lib_faults import mount, mounted

UNKNOWN = 4242424  # nobody's number
NOBODY = pwd.getpwnam("nobody").pw_uid
OURS = {
    "": (400, 4101, {}),
    "bare": (401, 1001, {"WWW-Authenticate": 'Bearer realm="plant-store"'}),
    "GET": (405, 2002, {"Allow": "POST"}),
    "large": (413, 3007, {}),
}


def check(
    store: Store, *arguments: str, stdin: str = "", **settings: str
) -> subprocess.CompletedProcess:
    return store.command("check", *arguments, env=store.environment(**settings), input=stdin,
                         text=True, timeout=TIMEOUT_S)


def told(
    tally: Tally, done: subprocess.CompletedProcess, status: int, words: str, sentence: str
) -> None:
    """The exit status, and the words of a complaint; no words: no complaint."""
    fine = words in done.stderr if words else done.stderr == ""
    tally.check(done.returncode == status and fine, sentence,
                f"expected: status {status}, {words!r} on stderr; came: {done}")


# --- This machine ------------------------------------------------------------


def check_machine(tally: Tally, store: Store) -> None:
    told(tally, check(store), 0, "", "a store that was never used is well")
    gone = store.journal.rename(store.root / "gone")
    told(tally, check(store), CONFIG, f"plant-store init {store.dir}", "an empty directory is none")
    gone.rename(store.journal)
    link = store.root / "link"
    link.symlink_to(store.root / "away")
    for settings, words, sentence in (
        ({"THREADS": "0"}, "PLANT_STORE_THREADS", "a wrong setting is named"),
        ({"SANDBOX": "off"}, "PLANT_STORE_SANDBOX=off", "a sandbox that is off is wrong"),
        ({"DIR": str(store.root / "none")}, "plant-store init",
         "a missing directory is made how"),
        ({"DIR": str(link)}, f"{link}: is a link to {store.root}/away, which cannot be opened",
         "a link that leads nowhere is told"),
        ({"DIR": str(store.tokens)}, "tokens: cannot open: Not a directory",
         "a file is no directory"),
        ({"TOKENS": str(store.root / "none")}, "plant-store token add",
         "a missing token file is made how"),
    ):
        named = {f"PLANT_STORE_{name}": value for name, value in settings.items()}
        told(tally, check(store, **named), CONFIG, words, sentence)
    for path, mode, well, words in (
        (store.tokens, 0o644, 0o600, "tokens"),
        (store.tokens, 0o660, 0o600, "run: chmod g-w"), (store.dir, 0o755, 0o700, "chmod 0700"),
    ):
        path.chmod(mode)
        told(tally, check(store), CONFIG, words, f"{path.name} open to all is refused")
        path.chmod(well)


def check_room(tally: Tally, store: Store) -> None:
    if tally.lacks("a disk with little room", "mounts"):
        return
    with mounted("none", store.dir, "-t", "tmpfs", "-o", "size=1m,mode=0700"):
        done = check(store)
    told(tally, done, CONFIG, "MiB free; make room", "a disk with little room is told")
    index = store.dir / "index"
    index.mkdir(0o700)
    with mounted(store.dir, store.dir, "--bind"):
        mount("none", store.dir, "-o", "remount,bind,ro")
        done = check(store)
    tally.check("ReadWritePaths=" in done.stderr, "or its unit's drop-in is missing", done)
    index.rmdir()
    told(tally, done, CONFIG, "Read-only file system; mount", "a directory is read-only")
    tally.check(done.stderr.count("Read-only") == 1, "and not each file in it as well", done.stderr)


def check_expired(tally: Tally, store: Store) -> None:
    text = store.tokens.read_text()
    line = next(line for line in text.splitlines() if not line.startswith("#"))
    name, digest = line.split()[:2]
    store.tokens.write_text(f"{name} {digest} 2001-01-01T00:00:00Z\n")
    told(tally, check(store), CONFIG, "every token has expired", "expired tokens")
    soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=13)
    soon = soon.strftime("%Y-%m-%dT%H:%M:%SZ")
    store.tokens.write_text(f"{name} {digest} {soon}\n")
    told(tally, check(store), CONFIG, f"{name} expires in 12 days; run: plant-store token renew {name}",
         "a token that expires in two weeks is told")
    store.tokens.write_text(f"{name} {digest} {soon}\n{name} {digest[::-1]}\n")
    told(tally, check(store), 0, "", "but not one that was renewed")
    store.tokens.write_text("")
    told(tally, check(store), CONFIG, "answered 401; add one with: plant-store token add NAME",
         "a file without a token is told")
    store.tokens.write_text(text)


def check_environment(tally: Tally, store: Store) -> None:
    """The settings of a service's file, in the form that systemd reads."""
    file = store.root / "environment"
    good = f"# comment\n ; another\n\n PLANT_STORE_DIR = '{store.dir}' \r\nA_B=c\\d\n" \
        f'PLANT_STORE_TOKENS="{store.tokens}"'

    def run(text: str) -> subprocess.CompletedProcess:
        file.write_text(text)
        # What the shell has is not the service's.
        return check(store, "--environment", str(file), "--socket", "/none",
                     PLANT_STORE_DIR="relative", PLANT_STORE_THREADS="0")

    told(tally, check(store, "--environment", str(store.root)), IOERR,
         f"{store.root}: cannot read: Is a directory", "a directory has no settings")
    done = run(good)
    told(tally, done, UNAVAILABLE, "/none: cannot connect: No such file or directory; see: journalctl",
         "the settings are those of the file")
    tally.check(f"settings: {file}: ok\n" in done.stdout and done.stderr.count("\n") == 1,
                "which is named, and nothing else is wrong", done)
    for line in ("PLANT_STORE_DIR", "=x", "export A=b", "A B=c", 'PLANT_STORE_DIR="b"c',
                 "PLANT_STORE_DIR='b", "PLANT_STORE_DIR=b\\"):
        told(tally, run(f"{good}\n{line}\n"), CONFIG, f"{file}: line 7: not NAME=VALUE",
             f"{line!r} is no line of it")
    told(tally, run(good + "\nPLANT_STORE_THREADS=0"), CONFIG, "PLANT_STORE_THREADS: '0'",
         "a wrong setting in it is told")
    told(tally, run(good + "\nPLANT_STORE_THREAD=1"), UNAVAILABLE,
         "PLANT_STORE_THREAD: there is no such setting", "so is an unknown one")
    told(tally, check(store, "--environment", "/none"), NOINPUT, "/none: cannot open",
         "a file that is not there is told")


def in_service_place(
    store: Store, run_path: pathlib.Path, *arguments: object, command: object = "check"
) -> subprocess.CompletedProcess:
    """A command on a machine whose /etc and /run are these, without any setting of ours."""
    script = 'mount --bind "$1" /etc && mount --bind "$2" /run && shift 2 && exec "$@"'
    return run("unshare", "--mount", "sh", "-c", script, "sh", store.root / "etc", run_path,
               *(["setpriv", f"--reuid={NOBODY}", "--clear-groups"] if command is None else []),
               store.installed(), *([command] if command else []), *arguments, text=True,
               env=passed_on() | {"PATH": f"{store.root}/tools:{os.environ['PATH']}", NO_FILE: ""})


def check_places(tally: Tally, store: Store) -> None:
    """Without an option and a variable, the files of the service are found."""
    if tally.lacks("the service's own places", "mounts"):
        return
    settings = store.root / "etc" / "plant-store" / "environment"
    settings.parent.mkdir(parents=True)
    for name in "passwd", "group":
        shutil.copy(f"/etc/{name}", store.root / "etc")
    settings.write_text(f"PLANT_STORE_DIR={store.dir}\nPLANT_STORE_TOKENS={store.tokens}\n")
    with responder(store) as service:
        place = store.root / "run" / "plant-store"
        place.mkdir(parents=True)
        os.link(service.socket_path, place / "socket")
        done = in_service_place(store, place.parent)
        told(tally, done, 0, "", "the service's settings and socket are found")
        tally.check("settings: /etc/plant-store/environment: ok" in done.stdout
                    and "/run/plant-store/socket: the service answers: ok" in done.stdout,
                    "and named", done)
        with broken() as url:
            done = in_service_place(store, store.root, "--url", url, "--token", "pst_x")
            told(tally, done, 0, "", "of a URL alone no file is needed")
            tally.check("settings" not in done.stdout and "large" not in done.stdout,
                        "nor read", done)
        with broken(**by_server(503, 5007)) as url:
            done = in_service_place(store, store.root, "--url", url)
            told(tally, done, UNAVAILABLE, "start it", "a URL alone has a status for monitors")


def check_moved(tally: Tally, store: Store) -> None:
    """The store of the machine's file is that of each command, unless one is named."""
    if tally.lacks("a store that was moved", "mounts"):
        return
    etc = store.root / "etc" / "plant-store"
    file, other = etc / "environment", store.root / "other"
    etc.mkdir(parents=True)
    file.write_text(f"PLANT_STORE_DIR={store.dir}\nPLANT_STORE_TOKENS={store.tokens}\n")
    run(store.build / "plant-store", "init", other, env=passed_on(), check=True)
    store.command("import", "--quiet", input=new_plant(7, "Fern"), check=True)

    def told_by(command: object, *words: object) -> subprocess.CompletedProcess:
        return in_service_place(store, store.root, *words, command=command)

    done = told_by("get", "7", "8")
    told(tally, done, 1, f"8: no plant has this id in {store.dir}\n", "a moved store is read")
    done = told_by("stats", "--json")
    tally.check(f'"directory":"{store.dir}"' in done.stdout, "stats names it", done)
    done = told_by("token", "list")
    tally.check(TOKEN_NAME in done.stdout, "its tokens are listed", done)
    told(tally, told_by("get", "--dir", other, "7"), 1, f"in {other}\n", "one that is named is it")
    for directory in store.root / "systemd/system", store.root / "tools":
        directory.mkdir(parents=True)
    (store.root / "tools/systemctl").write_text("#!/bin/sh\ntest -e /run/${2#is-}\n")
    (store.root / "tools/systemctl").chmod(0o755)
    words = "plant-store-backup.timer is not running; run: systemctl enable --now plant-store-backup.timer"
    for enabled, active in (False, False), (True, False), (True, True):
        for name, there in ("enabled", enabled), ("active", active):
            if there:
                (store.root / name).touch()
        tally.check((words in told_by("check").stderr) == (enabled and not active),
                    f"a timer of backups that is enabled: {enabled}, and active: {active}")
    file.write_text(file.read_text() + "PLANT_STORE_DATABASE=host=/nowhere password=x\n")
    told(tally, told_by("get", "--dir", other, "7"), 1, f"in {other}\n", "the file names no other")
    for mode, folder, there in (0o644, 0o755, True), (0o640, 0o755, False), (0o644, 0o750, False):
        file.chmod(mode)
        etc.chmod(folder)
        done = told_by("check")
        tally.check(("others can read the password" in done.stderr) == there,
                    f"a password in a file of mode {mode:o} in one of {folder:o}", done)
    text = file.read_text().replace("host=/nowhere password=x", "postgresql://u:x@/d?host=/nowhere")
    file.write_text(text)
    file.chmod(0o644)
    etc.chmod(0o755)
    tally.check("others can read the password" in told_by("check").stderr, "also one in a URL")
    etc.chmod(0o700)
    done = told_by(None, "stats")
    told(tally, done, NOPERM, "run this with sudo", "an ordinary user is told to be root")
    store.root.chmod(0o755)
    told(tally, told_by(None, "verify", "/none"), NOINPUT, "/none: cannot", "but not where a store is named")
    etc.chmod(0o755)
    os.chown(file, NOBODY, -1)
    told(tally, told_by("stats"), CONFIG, "chown root", "root uses no file of another user")


def check_service_user(tally: Tally, store: Store) -> None:
    """What the service's user cannot read, though root can."""
    if tally.lacks("the service's user", "root"):
        return
    for path in store.dir, store.journal:
        os.chown(path, NOBODY, NOBODY)
    os.chown(store.tokens, 0, NOBODY)
    store.tokens.chmod(0o640)
    told(tally, check(store), 0, "", "a token file of the service's group is well")
    os.chown(store.tokens, 0, 0)
    done = check(store)
    told(tally, done, CONFIG, "tokens: cannot open: Permission denied", "one of root's is not")
    tally.check("the service's user, nobody" in done.stderr, "nor who cannot read it", done)
    store.tokens.chmod(0o600)
    for path in store.dir, store.journal:
        os.chown(path, 0, 0)


def check_prompt(tally: Tally, store: Store) -> None:
    """A token that is typed is asked for, and not shown."""
    words = store.build / "plant-store", "check", "--url", "http://127.0.0.1:1", "--token", "-"
    master, slave = pty.openpty()
    with subprocess.Popen(words, stdin=slave, stderr=slave, stdout=subprocess.DEVNULL,
                          env=store.environment(), start_new_session=True) as process:
        wait_until(lambda: not termios.tcgetattr(slave)[3] & termios.ECHO)
        os.write(master, b"pst_SECRET\n")
        status = process.wait(TIMEOUT_S)
    shown = termios.tcgetattr(slave)[3] & termios.ECHO
    os.close(slave)
    text = read_to_end(master)
    tally.check(status == UNAVAILABLE and b"Token: " in text and b"SECRET" not in text and shown,
                "a token that is typed is asked for and not shown", (status, text))


def check_socket(tally: Tally, store: Store) -> None:
    """Each fault between the web server and the service has its own sentence."""
    def run(path: object, *arguments: str) -> subprocess.CompletedProcess:
        return check(store, "--socket", str(path), *arguments)

    if tally.lacks("the socket", "root"):
        return
    with responder(store) as service:
        path = service.socket_path
        told(tally, run(path), 0, "", "a service that answers is well")
        told(tally, check(store, "--socket", str(path), PLANT_STORE_STATUS="contract"), 0, "",
             "whatever the settings")
        for what, mode in (path, 0o600), (path, 0o666), (store.root, 0o700):
            before = what.stat().st_mode & 0o777
            what.chmod(mode)
            told(tally, run(path), UNAVAILABLE,
                 f"{what}: mode {mode:04o}: give access to the web server only; "
                 f"run: chmod {0o755 if what == store.root else 0o660:04o} {what}",
                 f"{what.name} of mode {mode:o} is told")
            what.chmod(before)
        group = path.stat().st_gid
        os.chown(path, -1, UNKNOWN)
        told(tally, run(path), UNAVAILABLE, f"{path}: no web server's user is in its "
             f"group, {UNKNOWN}; run: chgrp www-data {path}", "a wrong group is told")
        os.chown(path, -1, group)
        with broken(**by_server(503, 5007)) as url:
            told(tally, run(path, "--url", url), UNAVAILABLE,
                 "the service answers at its socket, but the web server does not reach it: "
                 "set this socket", "a wrong socket in the web server's file is told")
            told(tally, run("/none", "--url", url), UNAVAILABLE, "gets no response",
                 "but not of a service that is down")
        kept = path.rename(store.root / "kept")
    told(tally, run(kept), UNAVAILABLE, f"{kept}: cannot connect: Connection refused; see: "
         "journalctl -u plant-store; then run: systemctl start plant-store.socket", "a socket that was left is told")
    kept.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(kept))
        told(tally, run(kept), UNAVAILABLE, f"{kept}: cannot connect: Protocol wrong type",
             "another kind of socket is told")
    kept.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(kept))
        kept.chmod(0o660)
        os.chown(kept, -1, group)
        listener.listen()
        for answer, words in (
            (b"", "the service does not answer; see: journalctl"),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the service does not answer; see: journalctl"),
            (b'\1\6\0\1\0\x2f\0\0Status: 503\r\n\r\n{"error":5003,"message":"Gone."}',
             "could not store a plant: error 5003: Gone. See: journalctl"),
        ):
            process = threading.Thread(target=answer_one, args=(listener, answer))
            process.start()
            told(tally, run(kept), UNAVAILABLE, words, f"{words} is told")
            process.join()


def answer_one(listener: socket.socket, answer: bytes) -> None:
    peer, _ = listener.accept()
    with peer:
        peer.recv(65536)
        peer.sendall(answer)


def check_used(tally: Tally, store: Store) -> None:
    done = check(store)
    told(tally, done, 0, "", "a store in use is well")
    tally.check("index: current" in done.stdout, "its index is", done.stdout)
    before = {path: path.stat() for path in store.dir.rglob("*")}
    check(store)
    tally.check(
        {path: path.stat().st_mtime_ns for path in store.dir.rglob("*")}
        == {path: stat.st_mtime_ns for path, stat in before.items()},
        "checking changes nothing in the store",
    )
    if os.geteuid() == 0:
        os.chown(store.journal, NOBODY, -1)
        told(tally, check(store), CONFIG, "chown -R", "a foreign owner is told")
        os.chown(store.journal, 0, -1)
        os.chown(store.dir, UNKNOWN, -1)
        told(tally, check(store), CONFIG, str(UNKNOWN), "an owner without a name is told")
        os.chown(store.dir, 0, -1)
    else:
        tally.skip("a foreign owner is told", "only root can give files away")
    failed = store.journal.rename(f"{store.journal}.failed")
    told(tally, check(store), CONFIG, "a sync had failed in version 1.0.0; start",
         "a journal that 1.0.0 renamed is told")
    failed.rename(store.journal)
    gone = store.journal.rename(store.root / "gone")
    told(tally, check(store), CONFIG, "restore the store from a backup", "a lost journal is told")
    gone.rename(store.journal)


def check_end(tally: Tally, store: Store) -> None:
    """The end of the journal, as the next start of the service judges it."""
    store.cgi(new_plant(1, "Fern"))
    whole = store.journal.read_bytes()
    first = whole.index(b"\n") + 1
    end = whole.index(b"\n", first) + 1  # a closing line follows
    for content, words, sentence in (
        (whole[:first], "is shorter", "a journal without its last plant is told"),
        (whole[:end - 9], f"is shorter ({end - 9} bytes) than what was stored in it ({end}): ",
         "so is one that was cut in its line"),
        (whole[:end - 9] + b"?" + whole[end - 8:], "damaged", "so is a damaged line"),
    ):
        store.journal.write_bytes(content)
        done = check(store)
        told(tally, done, CONFIG, words, sentence)
        tally.check("store: ok" not in done.stdout, f"{sentence}: it is not ok", done)
    store.journal.write_bytes(whole[:end] + b'{"seq":')
    told(tally, check(store), 0, f"a batch is torn at byte {end}, before it was acknowledged",
         "what was never acknowledged is no fault")
    store.journal.write_bytes(whole)
    store.command("import", "--quiet", input=new_plant(2, "Moss"), check=True)
    append_plants(store.journal, [{"id": 3, "name": "Ivy"}])
    done = check(store)
    told(tally, done, 0, "", "an index that is behind is no fault")
    tally.check("index: behind; the service catches up" in done.stdout, "and told", done)
    index = (store.dir / "index").rename(store.root / "index-kept")
    shutil.copytree(index, store.dir / "index")
    done = check(store)
    told(tally, done, 0, "", "nor is a copy of an index")
    tally.check("index: a copy, or of another version; the service builds it\n" in done.stdout,
                "and told, too", done)
    mark = store.dir / "index" / "manifest"
    text = mark.read_bytes()
    mark.write_bytes(manifest_of("0" * 36))
    told(tally, check(store), CONFIG, "a different store", "an index of another store is told")
    mark.write_bytes(text)


# --- The way of a client -----------------------------------------------------


class Broken(http.server.BaseHTTPRequestHandler):
    """Answers as the service does, but for what `answers` says."""

    answers: dict[str, tuple[int, object, dict[str, str]]] = {}

    def kind(self, length: int) -> str:
        if self.command == "GET":
            return "GET"
        if "Authorization" not in self.headers:
            if length == 65536 and "bare_full" in self.answers:
                return "bare_full"
            return "bare"
        if length > 65536:
            return "large"
        return "full" if length == 65536 and "full" in self.answers else ""

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        kind = self.kind(length)
        status, content, headers = self.answers.get(kind) or OURS[kind]
        body = content
        if isinstance(content, int):
            body = json.dumps({"error": content, "message": "."})
        data = str(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET = answer

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def broken(
    tls: pathlib.Path | None = None, **answers: tuple[int, object, dict[str, str]]
) -> Iterator[str]:
    """A web server that answers the kinds of requests so; its URL."""
    handler = type("Handler", (Broken,), {"answers": {
        "" if kind == "plain" else kind: answer for kind, answer in answers.items()
    }})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http{'s' * (tls is not None)}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """What takes a connection and closes it without an answer; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(15)

        def close_one() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)

        thread = threading.Thread(target=close_one, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


PAGE = "<html>no</html>"


def by_server(status: int, error: int) -> dict:
    """Our Error, whether with a credential or without: the web server's."""
    return {"plain": (status, error, {}), "bare": (status, error, {})}


FAULTS: list[tuple[str, dict, str]] = [
    ("a dropped Authorization", {"plain": (401, 1001, {})}, "CGIPassAuth On"),
    ("a replaced Authorization", {"plain": (401, 1002, {})}, "own authentication"),
    ("an added Authorization", {"plain": (401, 1004, {})}, "remove it"),
    ("an unknown token", {"plain": (401, 1005, {})}, "does not know this token"),
    ("an expired token", {"plain": (401, 1006, {})}, "has expired"),
    ("a wrong base path", {"plain": (404, 2001, {})}, "PLANT_STORE_BASE_PATH"),
    ("variables passed twice", {"plain": (400, 3009, {})}, "fastcgi_params"),
    ("a wrong base path, contract", {"plain": (400, 2001, {})}, "PLANT_STORE_BASE_PATH"),
    ("a changed method", {"plain": (405, 2002, {})}, "its rewrite rule"),
    ("a dropped Content-Type", {"plain": (400, 3001, {})}, "CONTENT_TYPE"),
    ("a dropped body", {"plain": (400, 3006, {})}, "did not arrive"),
    ("a service that cannot start", {"plain": (503, 5006, {})}, "cannot start"),
    ("a failed store", {"plain": (503, 5003, {})}, "the service failed"),
    ("an unmounted path", {"plain": (404, PAGE, {})}, "mount the service"),
    ("static files", {"plain": (405, PAGE, {})}, "mount the service"),
    ("authentication before it", {"plain": (401, PAGE, {})}, "switch its"),
    ("a forbidden path", {"plain": (403, PAGE, {})}, "allow it"),
    ("a program that fails", {"plain": (500, PAGE, {})}, "error log"),
    ("a backend that is down", {"plain": (502, PAGE, {})}, "start it"),
    ("another service", {"plain": (200, "{}", {})}, "something else answers"),
    ("an unexpected status", {"plain": (418, PAGE, {})}, "not the service's"),
    ("a server that wants a length", {"plain": (411, PAGE, {})}, "Content-Length"),
    ("a redirect", {"plain": (301, "", {"Location": "/x/plants"})}, "/x/plants"),
    ("a small limit", {"full": (413, PAGE, {})}, "client_max_body_size"),
    ("a body that is lost", {"full": (400, 3006, {})}, "LimitRequestBody"),
    ("a body cut short", {"full": (400, 3004, {})}, "LimitRequestBody"),
    ("a small limit of the service", {"full": (413, 3007, {})}, "set both to the same"),
    ("an unmounted path, our Error", by_server(404, 2001), "does not pass this path"),
    ("a method refused, our Error", by_server(405, 2002), "does not pass POST on"),
    ("a bad request, our Error", by_server(400, 3008), "begin with https"),
    ("a backend that is down, our Error", by_server(503, 5007), "start it"),
    ("a program that fails, our Error", by_server(500, 5007), "can start the program"),
    ("a service that comes up", {"plain": (503, 5007, {})}, "start it"),
    ("a service that cannot start, contract", by_server(400, 5006), "cannot start"),
    (
        "a small limit, our Error",
        {"full": (413, 3007, {}), "bare_full": (413, 3007, {})},
        "client_max_body_size",
    ),
    ("no limit at all", {"large": (400, 4101, {})}, "status 400, error 4101"),
    ("a dropped WWW-Authenticate", {"bare": (401, 1001, {})}, "WWW-Authenticate"),
    ("a dropped Allow", {"GET": (405, 2002, {})}, "header Allow"),
]


def check_faults(tally: Tally, store: Store) -> None:
    with broken() as url:
        done = check(store, "--url", url, "--token", "pst_x")
        told(tally, done, 0, "", "a server that answers as the service does is well")
    with broken(large=(413, PAGE, {})) as url:
        done = check(store, "--url", url, "--token", "pst_x")
        told(tally, done, 0, "", "a server that refuses too large a body itself is well")
    for what, answers, words in FAULTS:
        with broken(**answers) as url:
            done = check(store, "--url", url, "--token", "pst_x")
            told(tally, done, UNAVAILABLE, words, f"{what} is told")
    done = check(store, "--url", "http://127.0.0.1:1", "--token", "pst_x")
    told(tally, done, UNAVAILABLE, "no response", "nobody who listens is told")
    tally.check("that the web server is running" in done.stderr, "and what to do", done)
    with broken() as url:
        done = check(store, "--url", url.replace("http:", "https:"))
    words = "something listens there"
    told(tally, done, UNAVAILABLE, words, "an answer that is not HTTP is told")
    with silent() as url:
        done = check(store, "--url", url)
    told(tally, done, UNAVAILABLE, words, "an answer that never comes is told")
    proxy = {"http_proxy": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1"}
    with broken() as url:
        bare = url.removeprefix("http://")
        for url in f"http:/{bare}", f"HTTP:///{bare}":
            done = check(store, "--url", url, "--token", "pst_x", **proxy)
            told(tally, done, 0, "", f"{url} is of this machine: no proxy gets the token")
        done = check(store, "--url", bare, "--token", "pst_x")
        told(tally, done, UNAVAILABLE, "check http or https",
             "a URL without a scheme is of https: its token is not sent in clear")
        tally.check(done.stdout.endswith("\n1 problem\n"), "the last line counts the problems", done)
    done = check(store, "--url", "ftp://127.0.0.1", "--token", "pst_x")
    told(tally, done, UNAVAILABLE, "no response", "a URL that is not HTTP is refused")
    tools = store.root / "tools"
    tools.mkdir()
    for name in "sed", "tr":
        (tools / name).symlink_to(shutil.which(name))
    done = check(store, "--url", "127.0.0.1", PATH=str(tools))
    told(tally, done, UNAVAILABLE, "curl is missing: install it", "a machine without curl is told")
    (tools / "curl").write_text(f'#!/bin/sh\necho "$@" >>{tools}/words\nexec {shutil.which("curl")} "$@"\n')
    (tools / "curl").chmod(0o755)
    with broken() as url:
        done = check(store, "--url", url, "--token", "pst_x", PATH=str(tools))
    told(tally, done, 0, "", "the requests are curl's")
    words = (tools / "words").read_text()
    tally.check(words.count(url) == 5 and "pst_x" not in words, "ps shows no token", words)


def check_way(tally: Tally, store: Store) -> None:
    """Whom a token is shown on its way."""
    with broken() as url:
        for host in "127.0.0.1", "localhost":
            done = check(store, "--url", url.replace("127.0.0.1", host), "--token", "pst_x",
                        http_proxy="http://127.0.0.1:1")
            told(tally, done, 0, "", f"no proxy is asked for {host}")
        for host in "plants.invalid", "127.0.0.1.invalid":
            words = "--url", f"http://{host}", "--token", "pst_x"
            done = check(store, *words, http_proxy=url)
            told(tally, done, 0, f"sent to {host} in clear", f"http to {host} is warned of")
            tally.check("pst_x" not in done.stdout + done.stderr, "without the token", done)
        told(tally, check(store, "--url", "http://plants.invalid", http_proxy=url), 0, "",
             "no token, no warning")
    with broken(plain=(404, 2001, {})) as url:
        done = check(store, "--url", url + "/plants", "--token", "pst_x")
        told(tally, done, UNAVAILABLE, "leave /plants off the URL", "a URL too long by /plants")
    sentence = "a certificate that nobody signed is told"
    if shutil.which("openssl") is None:
        tally.skip(sentence, "no openssl")
        return
    pem = store.root / "pem"
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
        "-nodes", "-subj", "/CN=127.0.0.1", "-keyout", pem, "-out", store.root / "crt", check=True)
    pem.write_bytes(pem.read_bytes() + (store.root / "crt").read_bytes())
    with broken(tls=pem) as url:
        done = check(store, "--url", url, "--token", "pst_x")
        told(tally, done, UNAVAILABLE, "not trusted here: install its CA", sentence)


def check_service(tally: Tally, store: Store, build: str) -> None:
    with responder(store) as service, lighttpd(store, service.socket_path) as port:
        url = f"http://127.0.0.1:{port}"
        done = check(store, "--url", url + "/", "--token", "-", stdin=store.token + "\n")
        told(tally, done, 0, "", "the real service behind lighttpd is well")
        told(tally, check(store, "--url", url), 0, "", "without a token what needs none is tried")
        done = check(store, "--url", url, "--token", "pst_wrong")
        told(tally, done, UNAVAILABLE, "does not know", "a wrong token is told")
        tally.check("pst_wrong" not in done.stderr + done.stdout, "no token is printed")
        done = check(store, "--url", url + "/api/v1", "--token", store.token)
        told(tally, done, UNAVAILABLE, "status 404, error 2001: the web server does not pass this "
             "path to the service: mount the service there, or correct the URL",
             "a wrong base path is told")
        tally.check(store.plants() == [], "nothing was created")


def check_usage(tally: Tally, store: Store) -> None:
    for arguments, status, words in (
        (["--help"], 0, ""), (["x"], USAGE, "too many"), (["--nonsense"], USAGE, "--nonsense"),
        (["--url"], USAGE, "--url"), (["--token", "x"], USAGE, "--url"),
        (["--url", "http://127.0.0.1:1", "--token", "-"], NOINPUT, "no token on stdin"),
        (["--url", "http://127.0.0.1:1", "--token", "x" * 70_000], USAGE, "longer than any"),
        (["--url", "http://127.0.0.1:1", "--token", "Bearer pst_x"], USAGE, 'token contains "Bearer"'),
        (["--url", "http://127.0.0.1:1", "--token", '"pst_x"'], USAGE, "token contains quotes"),
        (["--url", "http://127.0.0.1:1", "--token", "pst_x "], USAGE, "token contains blanks"),
        (["--socket", "/" + "x" * 107], USAGE, "exceeds 107 bytes"),
    ):
        told(tally, check(store, *arguments, stdin=""), status, words,
             f"{arguments} ends with {status}")


def scenario(tally: Tally) -> None:
    build = str(pathlib.Path(sys.argv[1]).resolve().parent)
    with temporary_store(build) as store:
        check_usage(tally, store)
        check_machine(tally, store)
        check_room(tally, store)
        check_expired(tally, store)
        check_environment(tally, store)
        check_socket(tally, store)
        check_places(tally, store)
        check_prompt(tally, store)
        check_faults(tally, store)
        check_way(tally, store)
        check_service(tally, store, build)
        check_used(tally, store)
        check_end(tally, store)
    with temporary_store(build) as store:
        check_service_user(tally, store)
        check_moved(tally, store)


if __name__ == "__main__":
    sys.exit(run_scenario(scenario))
