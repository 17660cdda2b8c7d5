#!/usr/bin/env python3
"""Goal: deploy/consumer hands every plant to a command, and nothing of the service's.

usage: test_consume_command.py build/plant-store
"""

import contextlib
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

from lib_command import NOPERM, TEMPFAIL, USAGE, expect
from lib_service import (
    TOP, Store, Tally, new_plant, run, run_scenario, temporary_store, wait_until,
)

FOLDER = TOP / "deploy" / "consumer"
NOBODY = "nobody"
PLANTS = 25


@contextlib.contextmanager
def consumed(build: str) -> Iterator[tuple[Store, pathlib.Path]]:
    """A store with plants, and a directory for the script."""
    with temporary_store(build) as store:
        plants = b"".join(new_plant(n, f"plant {n}") + b"\n" for n in range(PLANTS))
        store.command("import", stdin=None, input=plants).check_returncode()
        place = store.root / "place"
        place.mkdir(mode=0o700)
        yield store, place


def consume(store: Store, place: pathlib.Path, *command: object, options: tuple = (),
            user: str = "-") -> subprocess.CompletedProcess:
    environment = store.environment(
        PLANT_STORE=str(store.build / "plant-store"), PATH=os.environ["PATH"], SECRET="marked")
    return run(FOLDER / "plant-store-consume", *options, place, user, *command, env=environment)


def names(place: pathlib.Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def environment_of(store: Store, text: str, mode: int = 0o600) -> pathlib.Path:
    path = store.root / "environment"
    path.unlink(missing_ok=True)
    path.touch(mode)
    path.chmod(mode)
    path.write_text(text)
    return path


def test_environment(tally: Tally, build: str) -> None:
    with consumed(build) as (store, place):
        shown = store.root / "shown"
        show = ("sh", "-c", f"cat >/dev/null; env >{shown}")
        done = consume(store, place, *show)
        found = {line.split("=")[0] for line in shown.read_text().splitlines()}
        tally.check(done.returncode == 0 and found <= {"PATH", "PWD", "SHLVL", "OLDPWD", "_"},
                    "the command gets a PATH and nothing of the service's", (done, found))
        path = environment_of(store, "# a comment\n\nPGHOST=a b\nX=$(id)'\"\nLAST=1")
        store.command("import", stdin=None, input=new_plant(900, "one more"))
        done = consume(store, place, *show, options=("--environment", path))
        lines = shown.read_text().splitlines()
        tally.check(done.returncode == 0 and {"PGHOST=a b", "X=$(id)'\"", "LAST=1"} <= set(lines),
                    "what it needs comes from a file of its own, as it is written", lines)
        store.command("import", stdin=None, input=new_plant(901, "one more"))
        for mode in 0o640, 0o604, 0o644:
            path = environment_of(store, "A=b", mode)
            done = consume(store, place, *show, options=("--environment", path))
            expect(tally, done, f"a file of mode {mode:o} is refused", NOPERM, b"",
                   b"environment: it may contain secrets: run chmod 0600")
        if tally.lacks("as another user", "root", "setpriv"):
            return
        for path in store.root, store.root.parent:
            path.chmod(path.stat().st_mode | 0o001)
        shown.unlink()
        shown.touch(0o666)
        shown.chmod(0o666)
        path = environment_of(store, "A=b")
        done = consume(store, place, "sh", "-c", f"cat >/dev/null; (id -un; env) >{shown}",
                       options=("--environment", path), user=NOBODY)
        lines = shown.read_text().splitlines()
        tally.check(done.returncode == 0 and {NOBODY, "A=b"} <= set(lines),
                    "a user who cannot read the file gets it, too", (done, lines))
        os.chown(path, 65534, -1)
        store.command("import", stdin=None, input=new_plant(902, "one more"))
        done = consume(store, place, *show, options=("--environment", path))
        expect(tally, done, "another user's file is refused", NOPERM)


def test_directory(tally: Tally, build: str) -> None:
    with consumed(build) as (store, place):
        link = store.root / "secret"
        link.write_text("of root alone")
        (place / "batch").symlink_to(link)
        for mode in 0o770, 0o702, 0o720, 0o1777:
            place.chmod(mode)
            done = consume(store, place, "cat")
            expect(tally, done, f"a directory of mode {mode:o} is refused", NOPERM, b"",
                   b"place: others can write to it: create it with install -d")
        place.chmod(0o700)
        if not tally.lacks("a directory of another user", "root"):
            os.chown(place, 65534, -1)
            expect(tally, consume(store, place, "cat"), "a directory of another user is refused",
                   NOPERM, b"", b"others can write to it")


def test_batches(tally: Tally, build: str) -> None:
    with consumed(build) as (store, place):
        counts = store.root / "counts"
        count = ("sh", "-c", f"wc -l >>{counts}")
        done = consume(store, place, *count, options=("--limit", 10))
        expect(tally, done, "--limit is the size of a batch", 0, b"")
        tally.check(counts.read_text().split() == ["10", "10", "5"] and
                    names(place) == ["cursor", "cursor.lock"], "and each is handed over once",
                    (counts.read_text(), names(place)))
        store.command("import", stdin=None, input=new_plant(900, "one more"))
        done = consume(store, place, "cat", options=("--full",))
        tally.check(set(json.loads(done.stdout)) == {"at", "by", "plant"},
                    "--full adds the time and the token's name", done)
        store.command("import", stdin=None, input=new_plant(901, "one more"))
        done = consume(store, place, "sh", "-c", "cat; exit 3")
        expect(tally, done, "a command that fails names its status", 3, None,
               b"sh exited with 3; it will get this batch again")
        done = consume(store, place, "sleep", "1000", options=("--timeout", "0.2"))
        expect(tally, done, "one that does not end is ended", TEMPFAIL, b"",
               b"sleep took longer than 0.2 s; it will get this batch again")
        pid = store.root / "pid"
        held = subprocess.Popen(
            [FOLDER / "plant-store-consume", place, "-", "sh", "-c", f"echo $$ >{pid}; sleep 99"],
            env=store.environment(PLANT_STORE=str(store.build / "plant-store"),
                                  PATH=os.environ["PATH"]))
        wait_until(lambda: pid.exists() and pid.read_text().endswith("\n"))
        held.kill()
        held.wait()
        expect(tally, consume(store, place, "cat"), "a command that outlives the script is alone",
               TEMPFAIL, b"", b"another process is passing plants on")
        os.killpg(os.getpgid(int(pid.read_text())), 9)
        done = [consume(store, place, "cat")]
        wait_until(lambda: done[0].returncode == 0 or done.insert(0, consume(store, place, "cat")))
        tally.check(json.loads(done[0].stdout)["id"] == 901, "and then its batch comes", done)
        for words in (), ("x",), ("x", "-"), ("--limit",), ("--limit", "3"), ("--nothing", "x", "-", "y"):
            expect(tally, run(FOLDER / "plant-store-consume", *words), f"{words} is a usage error",
                   USAGE, b"", b"usage: plant-store-consume")
        done = run(FOLDER / "plant-store-consume", "--help")
        tally.check(done.returncode == 0 and b"--timeout" in done.stdout, "--help tells it", done)


def test_seen(tally: Tally, build: str) -> None:
    """The store has the position of each consumer, once its command has all up to there."""
    with consumed(build) as (store, place):

        def stats() -> str:
            return store.command("stats", text=True).stdout

        consume(store, place, "cat")
        tally.check("consumers  none in " in stats(), "no directory, no consumer", stats())
        seen = store.dir / "consumers"
        seen.mkdir()
        consume(store, place, "cat")
        tally.check("consumer   place: 0 bytes behind" in stats(), "one is seen", stats())
        store.command("import", stdin=None, input=new_plant(900, "one more"))
        consume(store, place, "false")
        tally.check(re.search(r"place: [1-9]\d+ bytes behind", stats()), "a batch that fails is behind", stats())
        consume(store, place, "cat")
        tally.check("place: 0 bytes behind" in stats() and names(seen) == ["place"], "and then it is not", stats())


class Receiver(http.server.BaseHTTPRequestHandler):
    """Refuses every third batch: then nothing of it counts, or all of it."""

    def do_POST(self) -> None:
        server = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.asked.append((self.headers["Authorization"], self.headers["Content-Type"]))
        refused = len(server.asked) % 3 == 0
        if not refused or len(server.asked) % 2 == 0:  # also one that is stored and not confirmed
            for line in body.splitlines():
                server.plants.setdefault(json.loads(line)["id"], line)
        self.send_response(server.refusal if refused else 200)
        self.send_header("Content-Length", "0")
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_http(tally: Tally, build: str) -> None:
    if tally.lacks("into-http", "curl"):
        return
    with consumed(build) as (store, place), \
            http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        server.asked, server.plants, server.refusal = [], {}, 503
        threading.Thread(target=server.serve_forever).start()
        try:
            path = environment_of(store, f"URL=http://127.0.0.1:{server.server_port}/in\n"
                                         "AUTHORIZATION=Bearer marked\nno_proxy=127.0.0.1\n")
            options = ("--limit", 3, "--environment", path)
            ends = []
            while not ends or (ends[-1].returncode and len(ends) < 99):
                server.refusal = (503, 302, 404)[len(ends) % 3]
                ends.append(consume(store, place, FOLDER / "into-http", options=options))
        finally:
            server.shutdown()
            server.server_close()
        tally.check(sorted(server.plants) == list(range(PLANTS)) and len(ends) > 3,
                    "into-http: all plants are there once, though every third batch is refused",
                    (sorted(server.plants), ends))
        said = b"".join(done.stderr for done in ends)
        tally.check(all(f"into-http: status {n}".encode() in said for n in (503, 302, 404)),
                    "a redirect is a refusal, too", said)
        tally.check(set(server.asked) == {("Bearer marked", "application/x-ndjson")},
                    "it sends its header", server.asked[:3])
        store.command("import", stdin=None, input=new_plant(900, "one more"))
        done = consume(store, place, FOLDER / "into-http", options=options)
        tally.check(done.returncode != 0 and names(place) == ["batch", "cursor", "cursor.lock"],
                    "without a receiver the batch stays", (done, names(place)))


def scenario(tally: Tally) -> None:
    build = str(pathlib.Path(sys.argv[1]).resolve().parent)
    for test in test_environment, test_directory, test_batches, test_seen, test_http:
        with tally.part(test.__name__):
            test(tally, build)


if __name__ == "__main__":
    sys.exit(run_scenario(scenario))
