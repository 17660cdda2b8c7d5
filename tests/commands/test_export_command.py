#!/usr/bin/env python3
"""Goal: a consumer that keeps its cursor is given every plant, in order, and none twice.

usage: test_export_command.py build/plant-store
"""

import contextlib
import functools
import json
import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator

from lib_command import (
    CANTCREAT, CONFIG, DATAERR, IOERR, TEMPFAIL, TIMEOUT_S, USAGE, expect, start,
)
from lib_faults import parts_side_by_side
from lib_service import (
    JOURNAL_NAME, PIPE_FULL, TOP, FastCgiPeer, Store, Tally, canonical, held_lock, new_plant,
    passed_on, responder, run, run_scenario, seal, state_of, stop_process, temporary_store, unread,
    wait_until,
)

WITHIN_S = 1.0  # of a plant's 200
IDLE_S = 4.0
SAVED_S = 4.0
IDLE_SHARE = 0.003  # 0.0005 on a quiet machine
BUSY_S = 5.0  # how long a lock is waited for
PIPE_BUF = 4096


def plant_of(number: int) -> dict:
    return json.loads(new_plant(number, f"plant {number}", "tag" if number % 2 else None))


def lines_of(numbers: range) -> bytes:
    return b"".join(canonical(plant_of(number)) + b"\n" for number in numbers)


def add(store: Store, numbers: range, *words: str) -> None:
    store.command("import", *words, stdin=None, input=lines_of(numbers)).check_returncode()


class Feed:
    """A cursor in a directory of its own."""

    def __init__(self, store: Store, name: str = "feed") -> None:
        self.store = store
        self.dir = store.root / name
        self.dir.mkdir()
        self.file = self.dir / "cursor"

    def export(self, *words: object, **options: object) -> subprocess.CompletedProcess:
        return self.store.command("export", "--cursor", self.file, *words, **options)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.dir.iterdir())


@contextlib.contextmanager
def fed(build: str, numbers: range) -> Iterator[tuple[Store, Feed]]:
    with temporary_store(build) as store:
        add(store, numbers)
        yield store, Feed(store)


# --- A cursor ----------------------------------------------------------------


def test_arguments(tally: Tally, build: str) -> None:
    with temporary_store(build) as store:
        feed = Feed(store)
        expect(tally, feed.export(), "of an empty store a cursor names the beginning", 0, b"")
        for words in (
            "--cursor c --since 2026-01-01", "--follow --since 2026-01-01", "--follow -o x",
            "--follow --limit 3", "--follow --count", f"--follow --file {store.journal}",
            "--limit 0", "--limit -1", "--limit x", "--limit 3x", "--limit", "--count -o x",
            "--nothing",
        ):
            expect(tally, store.command("export", *words.split()),
                   f"'export {words}' is a usage error", USAGE, b"", b"; see: plant-store export")
        add(store, range(3))
        expect(tally, feed.export(), "and what comes then is behind it", 0, lines_of(range(3)))


def test_pieces(tally: Tally, build: str) -> None:
    with fed(build, range(5)) as (store, feed):
        expect(tally, feed.export(), "without its file, all is exported", 0, lines_of(range(5)))
        tally.check(feed.file.stat().st_mode & 0o777 == 0o600 and
                    feed.names() == ["cursor", "cursor.lock"], "and the file is made, mode 0600",
                    feed.names())
        before = feed.file.stat().st_ino
        expect(tally, feed.export(), "then there is nothing", 0, b"", b"exported no plants")
        tally.check(feed.file.stat().st_ino == before, "and the file is not written again")
        expect(tally, feed.export("--quiet"), "with --quiet nothing is said of that", 0, b"", b"")
        # As with a clock that was set back.
        store.command("import", "--full", stdin=None, input=b"".join(
            b'{"at":"2001-01-01T00:00:00.000Z","by":"x","plant":%s}\n' % canonical(plant_of(n))
            for n in range(5, 12)))
        done = feed.export("--count")
        expect(tally, done, "--count tells how many wait", 0, b"7\n")
        for numbers in range(5, 8), range(8, 11), range(11, 12), range(0):
            expect(tally, feed.export("--limit", "3"), f"--limit gives {numbers}", 0,
                   lines_of(numbers))
        add(store, range(12, 14), "--by", "one")
        add(store, range(14, 16), "--by", "two")
        expect(tally, feed.export("--by", "one", "--quiet"), "--by selects", 0,
               lines_of(range(12, 14)))
        expect(tally, feed.export(), "and what it has passed over is passed", 0, b"")
        add(store, range(16, 17))
        done = feed.export("--full")
        tally.check(json.loads(done.stdout)["plant"] == plant_of(16), "--full works", done)
        add(store, range(17, 18))
        expect(tally, feed.export("--format", "csv"), "--format csv works", 0,
               b"id,name,tag\r\n17,plant 17,tag\r\n")
        add(store, range(18, 20))
        out = feed.dir / "out"
        out.write_bytes(b"")
        expect(tally, feed.export("-o", out), "a file that is there is refused", CANTCREAT)
        expect(tally, feed.export("-o", out, "--force"), "-o and --force work", 0, b"")
        tally.check(out.read_bytes() == lines_of(range(18, 20)), "with the right plants")
        add(store, range(20, 21))
        copy = feed.dir / "copy.jsonl"
        shutil.copy(store.journal, copy)
        expect(tally, feed.export("--file", copy), "a journal's file can be read on", 0,
               lines_of(range(20, 21)))
        tally.check(feed.names() == ["copy.jsonl", "cursor", "cursor.lock", "out"],
                    "nothing else is left", feed.names())


def test_cost(tally: Tally, build: str) -> None:
    """What was read is not read again: it may even be damaged."""
    with fed(build, range(100)) as (store, feed):
        feed.export()
        add(store, range(100, 101))
        whole = store.journal.read_bytes()
        store.journal.write_bytes(whole[:200] + b"?" + whole[201:])
        expect(tally, feed.export(), "only what is new is read", 0, lines_of(range(100, 101)))
        expect(tally, store.command("export"), "and all of it without a cursor", DATAERR)
        feed.export("--limit", "1")
        with follower(store, "--cursor", feed.file) as process:
            begun(process)
            shutil.rmtree(store.dir / "index")
            (store.dir / f"{JOURNAL_NAME}.end").unlink()
            header, *_, last = store.journal.read_bytes().splitlines()
            record = (f'{{"seq":{json.loads(last)["seq"] + 1},"safe":82,'
                      f'"prev":"{json.loads(last)["crc"]}","at":"2026-01-01T00:00:00.000Z",'
                      f'"by":"x","plant":{canonical(plant_of(101)).decode()}')
            with store.journal.open("ab") as journal:
                journal.write(seal(record, json.loads(header)["store"]))
            tally.check(gets(process, lines_of(range(101, 102))),
                        "nor by a follower, where no index has seen the journal")
        expect(tally, feed.export(), "without an index all is read first", DATAERR, b"",
               b"damaged at byte")
        with store.journal.open("r+b") as journal:
            journal.seek(200)
            journal.write(whole[200:201])
        expect(tally, feed.export(), "and only what is new is given", 0, b"")


def refused(tally: Tally, feed: Feed, sentence: str, status: int, *words: bytes) -> None:
    before = feed.file.read_bytes()
    out = feed.dir / "out"
    done = feed.export("-o", out)
    expect(tally, done, sentence, status, b"", words)
    tally.check(feed.file.read_bytes() == before and not out.exists()
                and feed.names() == ["cursor", "cursor.lock"], f"{sentence}: all stays",
                feed.names())


def test_refused(tally: Tally, build: str) -> None:
    remove = b"cursor: remove it to read this store from the beginning"
    with fed(build, range(5)) as (store, feed), fed(build, range(9)) as (_, other):
        old = store.root / "old"
        shutil.copytree(store.dir, old)
        add(store, range(5, 9))
        feed.export()
        good = feed.file.read_bytes()
        other.export()
        feed.file.write_bytes(other.file.read_bytes())
        refused(tally, feed, "another store's cursor is refused", CONFIG, b"belongs to another store", remove)
        feed.file.write_bytes(good)
        wrong = []
        for n in range(len(good)):
            changed = good[:n] + bytes([good[n] ^ 1]) + good[n + 1:]
            for text in [changed] + [good[:n], good + good[:n + 1]] * (n % 10 == 0):
                feed.file.write_bytes(text)
                done = feed.export()
                if (done.returncode, done.stdout) != (DATAERR, b""):
                    wrong.append((text, done))
        tally.check(not wrong, "each cut and each changed byte of a cursor is noticed", wrong[:2])
        refused(tally, feed, "a damaged cursor is refused", DATAERR, b"is damaged", b"remove it")
        feed.file.write_bytes(good)
        store.dir.rename(store.root / "whole")
        run(store.build / "plant-store", "recover", store.root / "whole", store.dir,
            env=passed_on())
        refused(tally, feed, "a store that recover made is another one", CONFIG, b"recover")
        shutil.rmtree(store.dir)
        old.rename(store.dir)
        refused(tally, feed, "an older copy is refused", DATAERR,
                b"does not have the line of seq", remove)
        add(store, range(50, 70))
        refused(tally, feed, "an older copy that went on is refused", DATAERR,
                b"does not have the line of seq", remove)


def test_golden(tally: Tally, build: str) -> None:
    with temporary_store(build) as store:
        feed = Feed(store)
        for name, path in (
            (JOURNAL_NAME, store.journal), ("cursor", feed.file), ("tokens", store.tokens),
        ):
            path.write_bytes((TOP / "tests/golden/1.1.0" / name).read_bytes())
        done = feed.export()
        ids = [json.loads(line)["id"] for line in done.stdout.splitlines()]
        tally.check(ids == [0, -1, 2, 2**53 + 1], "a cursor of 1.1.0 is read", done)
        done = store.command("token", "list")
        names = [line.split()[0] for line in done.stdout.splitlines()]
        tally.check(names.count(b"nursery") == 2 and b"season-2027" in names,
                    "and its token file, with a renewed token", done)


def test_places(tally: Tally, build: str) -> None:
    with fed(build, range(5)) as (store, feed):
        for kind, make in (
            ("link", lambda path: path.symlink_to("elsewhere")), ("FIFO", os.mkfifo),
            ("directory", pathlib.Path.mkdir),
        ):
            make(feed.file)
            expect(tally, feed.export(), f"a {kind} is no cursor",
                   CANTCREAT, b"")
            feed.file.rmdir() if kind == "directory" else feed.file.unlink()
        done = store.command("export", "--cursor", store.root / "none" / "cursor")
        expect(tally, done, "a directory that is not there is noticed before any output",
               CANTCREAT, b"", b"none/cursor: ")
        if tally.lacks("the cursor keeps its owner", "root"):
            return
        feed.export("--limit", "1")
        os.chown(feed.file, 12345, 12346)
        feed.file.chmod(0o640)
        feed.export("--limit", "1")
        now = feed.file.stat()
        tally.check((now.st_uid, now.st_gid, stat.S_IMODE(now.st_mode)) == (12345, 12346, 0o640),
                    "the cursor keeps its owner and mode", now)
        store.root.chmod(0o755)
        feed.dir.chmod(0o755)
        (feed.dir / "cursor.lock").chmod(0o644)
        shutil.copytree(store.dir, store.root / "open")
        for path in [store.root / "open", *(store.root / "open").rglob("*")]:
            path.chmod(0o755)
        done = run(store.installed(), "export", "--dir", store.root / "open", "--cursor",
                   feed.file, env=passed_on(), user=12345)
        expect(tally, done, "a directory without the right to write is noticed before, too",
               CANTCREAT, b"", b"cursor: cannot")
        os.chown(feed.file, 0, 0)
        feed.file.chmod(0o644)
        for path in feed.dir, feed.dir / "cursor.lock":
            os.chown(path, 12345, 12345)
        done = run(store.installed(), "export", "--dir", store.root / "open", "--cursor",
                   feed.file, env=passed_on(), user=12345)
        expect(tally, done, "so is another user's cursor, which could not be replaced",
               CANTCREAT, b"", b"cursor: cannot be replaced")


def test_output(tally: Tally, build: str) -> None:
    """The plants go into no file of the cursor or of the store, whatever it is called."""
    with fed(build, range(5)) as (store, feed):
        link, inside = store.root / "link", store.root / "inside"
        link.symlink_to(feed.dir)
        inside.symlink_to(store.dir / "index")
        own = [feed.dir / f"cursor{suffix}" for suffix in ("", ".new", ".lock")]
        for there in False, True:
            for out in *own, *(link / path.name for path in own), feed.dir / "../feed/cursor":
                for force in [], ["--force"]:
                    done = feed.export("-o", out, *force)
                    expect(tally, done, f"an output is not {out.name} {force}", CANTCREAT, b"",
                           b"belongs to the cursor; name another file")
                with open(out, "ab") as stdout:
                    done = feed.export(stdout=stdout)
                expect(tally, done, f"nor is stdout {out.name}", CANTCREAT, None, b"to the cursor;")
                if not there:
                    out.unlink()
            tally.check(feed.file.exists() == there, "the cursor stays as it was", feed.names())
            done = store.command("export", "--cursor", feed.dir / "k.unfinished", "-o", feed.dir / "k")
            expect(tally, done, "nor what an output is called until it is complete", CANTCREAT, b"",
                   b"belongs to the cursor; name another file")
            feed.export("--by", "nobody")
            add(store, range(5, 6))
        names = ["plants.jsonl", "plants.jsonl.end", "plants.jsonl.new", "metrics", "last-backup"]
        paths = [store.dir / name for name in names] + [inside / "manifest", inside / "run-1"]
        before = {path: path.read_bytes() for path in paths if path.exists()}
        for out in paths:
            for words in ["-o", out, "--force"], ["-o", store.root / "o", "--cursor", out]:
                expect(tally, store.command("export", *words), f"{out.name} is the store's",
                       CANTCREAT, b"", b"belongs to a store; name another file")
        after = {path: path.read_bytes() for path in paths if path.exists()}
        tally.check(before == after and len(before) > 3 and not (store.root / "o").exists(),
                    "the store's files stay", after.keys())
        (store.dir / "consumers").mkdir()
        for name in "end-of-day", "run-daily", "manifesto":
            done = store.command("export", "--cursor", store.dir / "consumers" / name)
            tally.check(done.returncode == 0, f"a consumer may be called {name}", done)
        expect(tally, store.command("export", "-o", store.dir / "plants.csv"),
               "another file beside them is none of the store's", 0)


def is_blocked(process: subprocess.Popen) -> bool:
    return wait_until(lambda: unread(process.stdout) > PIPE_FULL - 4096
                      and state_of(process.pid) == "S")


def test_two(tally: Tally, build: str) -> None:
    with fed(build, range(10_000)) as (_, feed):
        first = start(feed.store, "export", "--cursor", feed.file)
        blocked = is_blocked(first)
        expect(tally, feed.export(), "a cursor in use is refused", TEMPFAIL, b"",
               b"another process uses this cursor")
        expect(tally, feed.export("--count"), "--count reads it nevertheless", 0, b"10000\n")
        tally.check(blocked and not feed.file.exists(), "before all is written, it has no file")
        first.terminate()
        first.communicate(timeout=TIMEOUT_S)
        tally.check(first.returncode == 128 + signal.SIGTERM and feed.names() == ["cursor.lock"],
                    "nor after SIGTERM", feed.names())
        first = start(feed.store, "export", "--cursor", feed.file)
        is_blocked(first)
        first.kill()
        first.communicate()
        expect(tally, feed.export(), "after SIGKILL all comes again", 0, lines_of(range(10_000)))
        tally.check(feed.names() == ["cursor", "cursor.lock"], "and nothing is left of it")


def test_failures(tally: Tally, build: str) -> None:
    """Each call that saves fails, and ends the process; the file has the old or the new position."""
    with fed(build, range(5)) as (store, feed):
        with open("/dev/full", "wb") as full:
            done = feed.export(stdout=full)
        expect(tally, done, "output that cannot be written is an error", IOERR)
        tally.check(not feed.file.exists(), "and the position stays")
        if tally.lacks("each failing call", "strace"):
            return
        options = passed_on().get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        with open(feed.dir / "stdout", "wb") as stdout:
            done = run("strace", "-qq", "-o", "/dev/null", "-e", "inject=fsync:error=EIO:when=1",
                       store.build / "plant-store", "export", "--cursor", feed.file,
                       env=store.environment(ASAN_OPTIONS=options), stdout=stdout)
        expect(tally, done, "a file on stdout is on the disk before the position", IOERR, None,
               b"stdout: cannot sync")
        tally.check(not feed.file.exists(), "or the position stays")
        first, out = feed.export("--limit", "2"), feed.dir / "out"
        old = feed.file.read_bytes()
        tries, wrong = 0, []
        for call in "fsync", "rename,renameat2", "linkat", "fchmod", "pwrite64":
            for how in "error=EIO", "signal=SIGKILL":
                for number in range(1, 7):
                    out.unlink(missing_ok=True)
                    feed.file.write_bytes(old)
                    done = run("strace", "-qq", "-o", "/dev/null", "-e",
                               f"inject={call}:{how}:when={number}", store.build / "plant-store",
                               "export", "--cursor", feed.file, "-o", out,
                               env=store.environment(ASAN_OPTIONS=options))
                    if done.returncode == 0:
                        break
                    tries += 1
                    place = feed.file.read_bytes()
                    if place != old and not out.exists():
                        wrong.append((call, how, number, done))
                tally.check(done.returncode == 0, f"{call}, {how}: then it succeeds", done)
        tally.check(first.returncode == 0 and tries > 10 and not wrong,
                    "the position is never before what was written", (tries, wrong))
        tally.check(out.read_bytes() == lines_of(range(2, 5)), "and none is skipped")


# --- Followed ----------------------------------------------------------------


@contextlib.contextmanager
def follower(store: Store, *words: object) -> Iterator[subprocess.Popen]:
    process = start(store, "export", "--follow", *words)
    os.set_blocking(process.stdout.fileno(), False)
    try:
        yield process
    finally:
        stop_process(process)


def gets(process: subprocess.Popen, wanted: bytes) -> bool:
    """Whether it prints this, and nothing else."""
    got = b""

    def arrived() -> bool:
        nonlocal got
        got += process.stdout.read() or b""
        return len(got) >= len(wanted) or process.poll() is not None

    wait_until(arrived)
    return got == wanted


def ends(process: subprocess.Popen, number: int = signal.SIGTERM) -> tuple[int, bytes]:
    process.send_signal(number)
    process.wait(TIMEOUT_S)
    return process.returncode, process.stderr.read()


def begun(process: subprocess.Popen) -> bool:
    """It waits for plants."""
    wchan = pathlib.Path(f"/proc/{process.pid}/syscall")
    return wait_until(lambda: state_of(process.pid) == "S" and wchan.exists()) and (
        time.sleep(0.3) is None)


def test_followed(tally: Tally, build: str) -> None:
    with fed(build, range(5)) as (store, feed):
        with responder(store, watched=False) as service, follower(store) as last, \
                follower(store, "--cursor", feed.file) as whole:
            whole_before = gets(whole, lines_of(range(5)))
            begun(last)
            waits = []
            with FastCgiPeer(service.socket_path) as peer:
                for number in range(5, 15):
                    peer.exchange(store.fcgi(canonical(plant_of(number)), keep=True))
                    told = time.monotonic()
                    right = gets(last, lines_of(range(number, number + 1)))
                    waits.append(time.monotonic() - told)
            tally.check(right and sorted(waits)[5] < WITHIN_S,
                        f"a plant is printed within {WITHIN_S} s of its 200", waits)
            tally.check(whole_before and gets(whole, lines_of(range(5, 15))),
                        "with a cursor all is printed, without one what is new")
            saved = wait_until(lambda: feed.export("--count").stdout == b"0\n")
            tally.check(saved, "the cursor goes on meanwhile")
            tally.check(ends(last, signal.SIGINT)[0] == 0, "SIGINT ends it with status 0")
            os.kill(service.process.pid, signal.SIGKILL)
            service.process.wait()
            tally.check(ends(whole)[0] == 0, "SIGTERM, too")
        expect(tally, feed.export(), "with the right position", 0, b"")


def test_writes(tally: Tally, build: str) -> None:
    """The messages of such a socket are what was written at a time."""
    with fed(build, range(1000)) as (store, feed):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(TIMEOUT_S)
        with ours, theirs:
            process = start(store, "export", "--follow", "--cursor", feed.file, stdout=theirs)
            writes, wanted = [], lines_of(range(1000))
            try:
                while sum(map(len, writes)) < len(wanted):
                    writes.append(ours.recv(1 << 16))
            finally:
                stop_process(process)
        well = b"".join(writes) == wanted and all(write.endswith(b"\n") for write in writes)
        tally.check(well and max(map(len, writes)) <= PIPE_BUF,
                    "a follower writes whole lines, which a pipe takes as one", writes[:2])
        tally.check(len(writes) < 2 * len(wanted) / PIPE_BUF + 2, "and as many as fit", len(writes))


def test_saved(tally: Tally, build: str) -> None:
    with fed(build, range(3)) as (store, feed), responder(store, watched=False) as service, \
            follower(store, "--cursor", feed.file) as process, \
            FastCgiPeer(service.socket_path) as peer:
        gets(process, lines_of(range(3)))
        wait_until(feed.file.exists)
        began, saved, number = time.monotonic(), set(), 3
        while (seconds := time.monotonic() - began) < SAVED_S:
            peer.exchange(store.fcgi(canonical(plant_of(number)), keep=True))
            number += 1
            saved.add(feed.file.stat().st_mtime_ns)
        tally.check(gets(process, lines_of(range(3, number))), "all is printed under load", number)
        # Half of it, since two syncs may take long on a busy machine.
        tally.check(seconds / 2 <= len(saved) <= 10 * seconds,
                    "the position is saved once to ten times a second", (len(saved), seconds))


def test_service_ends(tally: Tally, build: str) -> None:
    """Nobody but the follower is left to find out what is durable."""
    with fed(build, range(3)) as (store, feed), \
            follower(store, "--cursor", feed.file) as process:
        gets(process, lines_of(range(3)))
        for number in range(3, 6):
            os.kill(process.pid, signal.SIGSTOP)
            with responder(store, watched=False) as service:
                store.ask(service.socket_path, canonical(plant_of(number)))
                service.process.kill()
                service.process.wait()
            os.kill(process.pid, signal.SIGCONT)
            tally.check(gets(process, lines_of(range(number, number + 1))),
                        "what a killed service has acknowledged is printed")
        shutil.rmtree(store.dir / "index")
        add(store, range(6, 8))
        tally.check(gets(process, lines_of(range(6, 8))), "an index that is made anew is none less")
        store.command("backup", store.root / "backup")
        add(store, range(8, 9))
        tally.check(gets(process, lines_of(range(8, 9))), "nor is a backup")
        with store.journal.open("ab") as journal:
            journal.write(b"torn")
        time.sleep(2 * WITHIN_S)
        add(store, range(9, 10))
        tally.check(gets(process, lines_of(range(9, 10))), "what is torn is not printed")
        status, said = ends(process)
        tally.check(status == 0 and said.count(b"a batch is torn") == 1,
                    "and is reported once", (status, said))


def test_lock_held(tally: Tally, build: str) -> None:
    """From the end of a store whose journal no index has seen, too."""
    with fed(build, range(3)) as (store, _), contextlib.ExitStack() as stack:
        shutil.rmtree(store.dir / "index")
        (store.dir / f"{JOURNAL_NAME}.end").unlink()
        process = stack.enter_context(follower(store))
        begun(process)
        with held_lock(store), store.journal.open("ab") as journal:
            size = journal.tell()
            journal.write(b"x")
            journal.flush()
            time.sleep(BUSY_S + 1)
            journal.truncate(size)
        add(store, range(3, 4))
        tally.check(gets(process, lines_of(range(3, 4))), "a lock that is held long is waited for",
                    process.poll())


def test_replaced(tally: Tally, build: str) -> None:
    def remove(store: Store) -> None:
        store.journal.unlink()

    def replace(store: Store) -> None:
        copy = store.root / "copy"
        shutil.copy(store.journal, copy)
        copy.rename(store.journal)

    def cut(store: Store) -> None:
        os.truncate(store.journal, 100)

    def overwrite(store: Store) -> None:
        store.journal.write_bytes(store.journal.read_bytes()[:-20] + b"0" * 40)

    for change, words in (
        (remove, b"was removed"), (replace, b"was replaced"), (cut, b"shorter"),
        (overwrite, b"line"),
    ):
        with fed(build, range(3)) as (store, feed), \
                follower(store, "--cursor", feed.file) as process:
            gets(process, lines_of(range(3)))
            change(store)
            ended = wait_until(lambda: process.poll() is not None)
            said = process.stderr.read() if ended else b""
            tally.check(process.returncode == DATAERR and words in said,
                        f"a journal with another content ends it: {change.__name__}",
                        (process.returncode, said))


def test_full_pipe(tally: Tally, build: str) -> None:
    """What the pipe has, and what comes from the cursor on, is all, once."""
    everything = lines_of(range(30_000))
    for number, words in (signal.SIGTERM, []), (signal.SIGINT, ["--quiet"]):
        with fed(build, range(30_000)) as (store, feed):
            process = start(store, "export", "--follow", "--cursor", feed.file, *words)
            got = os.read(process.stdout.fileno(), 10_000)
            blocked = is_blocked(process)
            process.send_signal(number)
            process.wait(TIMEOUT_S)
            got += process.stdout.read()
            rest = feed.export().stdout
            said = process.stderr.read()
            tally.check(blocked and process.returncode == 0 and 0 < len(rest) < len(everything)
                        and got + rest == everything,
                        f"{number.name} while the pipe is full: whole lines, and a true cursor",
                        (process.returncode, len(got), len(rest), said))
    with fed(build, range(3)) as (store, _), follower(store) as process:
        begun(process)
        process.stdout.close()
        wait_until(lambda: process.poll() is not None)
        tally.check(process.returncode == -signal.SIGPIPE, "without a reader it ends",
                    process.returncode)


def run_ns(process: subprocess.Popen) -> int:
    return int(pathlib.Path(f"/proc/{process.pid}/schedstat").read_text().split()[0])


def test_idle(tally: Tally, build: str) -> None:
    with fed(build, range(3)) as (store, feed), responder(store), \
            follower(store, "--cursor", feed.file) as process:
        gets(process, lines_of(range(3)))
        time.sleep(2)  # the service's closing line
        before, place = run_ns(process), feed.file.stat().st_ino
        time.sleep(IDLE_S)
        used = (run_ns(process) - before) / 1e9 / IDLE_S
        print(f"# idle: {100 * used:.4f} % of a CPU")
        tally.check(used < IDLE_SHARE, "idle it uses nearly nothing", used)
        tally.check(feed.file.stat().st_ino == place, "and writes nothing")


def scenario(tally: Tally) -> None:
    build = str(pathlib.Path(sys.argv[1]).resolve().parent)
    tests = (
        test_output, test_refused, test_lock_held, test_idle, test_full_pipe, test_service_ends, test_saved, test_writes, test_followed,
        test_replaced, test_failures, test_arguments, test_pieces, test_cost, test_places, test_two,
        test_golden,
    )
    # Most of the time is waited.
    parts_side_by_side(
        tally, [(test.__name__, functools.partial(test, build=build)) for test in tests], 4)



if __name__ == "__main__":
    sys.exit(run_scenario(scenario))
