"""Goal: whatever a database answers costs a session and a 503, and never a process.

usage: hostile.py BUILD_DIR [--long]

A server that speaks PostgreSQL's protocol answers each statement as it should, but
for one kind of them.  Without --long each kind gets some of the bad answers.
"""

import contextlib
import dataclasses
import itertools
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

from lib_postgresql import ask, health, lib_service, message, no_password, single
import lib_faults
from lib_service import Tally, free_port, responder, wait_until
from lib_postgresql import PASSWORD, TableStore

AWAY, UNKNOWN = 5008, 5009
KEPT_KIB = 900 << 10  # of memory: more than twice what the engine takes of an answer


Bad = bytes | Callable[[socket.socket], None]


def columns(count: int) -> bytes:
    one = b"c\0" + struct.pack("!IHIhih", 0, 0, 25, -1, -1, 0)
    return message(b"T", struct.pack("!H", count) + one * count)


def row(*values: bytes | None) -> bytes:
    parts = [struct.pack("!i", -1) if value is None else
             struct.pack("!i", len(value)) + value for value in values]
    return message(b"D", struct.pack("!H", len(values)) + b"".join(parts))


def error(code: bytes) -> bytes:
    return message(b"E", b"SERROR\0VERROR\0C" + code + b"\0Mbad\0\0")


BOUND = message(b"1", b"") + message(b"2", b"")
DONE, READY = message(b"C", b"X\0"), message(b"Z", b"I")
KNOWN = message(b"R", bytes(4))
WELCOME = KNOWN + b"".join(
    message(b"S", name + b"\0" + value + b"\0") for name, value in (
        (b"in_hot_standby", b"off"), (b"default_transaction_read_only", b"off"),
        (b"client_encoding", b"UTF8"))) + message(b"K", bytes(8)) + READY


def table(count: int, *rows: bytes) -> bytes:
    return BOUND + columns(count) + b"".join(rows) + DONE + READY


# Of each kind of statement: how its SQL is known, and the columns of its rows.
KINDS = {
    "find": (b"to_regclass", 1), "check": (b"set_config('lock_timeout'", 4),
    "prepare": (b"PREPARE", 0), "execute": (b"EXECUTE plants_insert", 1),
    "lock": (b"EXECUTE plants_repeat", 2), "insert": (b"plants_insert", 1),
    "repeat": (b"plants_repeat", 2), "probe": (b"emit_message", 1), "begin": (b"BEGIN", 0),
    "trial": (b"string_agg(md5", 1), "rollback": (b"ROLLBACK", 0),
    "standbys": (b"synchronous_standby_names", 1),
    "declare": (b"DECLARE", 0), "fetch": (b"FETCH", 4),
    "look": (b"pg_control_system", 5), "feed": (b"ORDER BY tx, id LIMIT 100", 6),
    "get": (b"SELECT id, plant, st", 4),
}
COPY = struct.pack("!bH", 0, 0)


def flood(piece: bytes, head: bytes = BOUND, pause_s: float = 0) -> Bad:
    def send(client: socket.socket) -> None:
        client.sendall(head)
        while True:  # so it closes the connection
            client.sendall(piece)
            time.sleep(pause_s)

    return send


NOTICES = message(b"N", b"SNOTICE\0VNOTICE\0Mx\0\0") * 1000
LARGE_NOTICE = message(b"N", b"SNOTICE\0VNOTICE\0M%s\0\0" % (b"x" * (1 << 20)))
PARAMETERS = b"".join(message(b"S", b"n%d\0x\0" % i) for i in range(10_000))
PASSWORDS = message(b"R", struct.pack("!I", 3)) * 1000
BAD_WELCOMES = {
    "parameters without end": flood(PARAMETERS, KNOWN),
    "notices without end": flood(NOTICES, KNOWN),
    "a byte now and then": flood(message(b"S", b"n\0x\0"), KNOWN, 0.05),
    "questions for the password without end": flood(PASSWORDS, b""),
    "nothing": lambda client: client.recv(1),
    "noise": bytes(range(256)),
    "the end": b"",
}


def bad_answers(count: int) -> dict[str, Bad]:
    """To a statement whose rows have so many columns."""
    good = row(*[b"1"] * count)
    return {
        "COPY out": BOUND + message(b"H", COPY),
        "an error after the rows": BOUND + columns(count) + good + DONE + error(b"23505") + READY,
        "57P01": error(b"57P01") + READY,
        "NULLs": table(count, row(*[None] * count)),
        "rows without columns": table(0, row(), row()),
        "a column too many": table(count + 1, row(*[b"7"] * (count + 1))),
        "unexpected rows": table(count, row(*[b"999"] * count)),
        "COPY in": BOUND + message(b"G", COPY) + READY,
        "COPY both": BOUND + message(b"W", COPY),
        "COPY with data": BOUND + message(b"H", COPY) + message(b"d", b"x") * 3 + READY,
        "results without end": flood(DONE * 1000),
        "rows without end": flood(row(*[b"1" * (1 << 20)] * count), BOUND + columns(count)),
        "notices without end": flood(NOTICES),
        "no statement": BOUND + message(b"I", b"") + READY,
        "a row of another length": BOUND + columns(count) + b"D" + struct.pack("!IHi", 10, 1, -7),
        "two results": BOUND + columns(count) + good + DONE + columns(0) + row() + DONE + READY,
        "no answer": READY * 5,
        "an empty error": message(b"E", b"\0") + READY,
        "noise": bytes(range(256)),
        "the end": b"",
    }


class Hostile:
    """A server; `kind` and `answer` say which statement it answers badly, and how."""

    def __init__(self) -> None:
        self.kind, self.answer = "", b""
        self.plants: dict[bytes, bytes] = {}
        self.asked: list[str] = []
        self.clients: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", free_port()))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):  # so it ends
            while True:
                client, _ = self.listener.accept()
                self.clients.append(client)
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def end(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for client in self.clients:
            client.close()

    def serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, struct.error), client.makefile("rb") as said:
            code = 0
            while code != 3 << 16:  # first TLS and GSSAPI, which it does not have
                size, code = struct.unpack("!II", said.read(8))
                said.read(size - 8)
                if code != 3 << 16:
                    client.sendall(b"N")
                elif self.kind == "welcome":
                    self.send(client)
                else:
                    client.sendall(WELCOME)
            sql, values = b"", []
            while kind := said.read(1):
                text = said.read(struct.unpack("!I", said.read(4))[0] - 4)
                if kind == b"P":
                    sql = text.split(b"\0")[1]
                elif kind == b"B":
                    sql, values = text.split(b"\0")[1] or sql, bound(text)
                elif kind == b"S":
                    self.reply(client, sql, values)

    def reply(self, client: socket.socket, sql: bytes, values: list[bytes]) -> None:
        kind = next(name for name, (words, _) in KINDS.items() if words in sql)
        self.asked.append(kind)
        if kind != self.kind:
            client.sendall(self.good(kind, values))
        else:
            self.send(client)

    def send(self, client: socket.socket) -> None:
        if isinstance(self.answer, bytes):
            client.sendall(self.answer)
            if not self.answer:
                client.shutdown(socket.SHUT_RDWR)
        else:
            self.answer(client)

    def good(self, kind: str, values: list[bytes]) -> bytes:
        ids = values[0].split(b"\n") if values else []
        if kind == "insert":
            self.plants |= dict(zip(ids, values[1].split(b"\n")))
            return table(1, *(row(number) for number in ids if int(number) % 2))
        if kind == "repeat":
            return table(2, *(row(number, self.plants[number]) for number in ids))
        if kind == "check":
            return table(4, row(b"", b"", b"200ms", b"0"))
        if kind == "find":
            return table(1, row(b""))
        if kind in ("fetch", "get"):
            return table(4)
        if kind == "look":
            return table(5, row(b"7", b"100", b"t", b"", b""))
        if kind == "feed":
            return table(6)
        count = KINDS[kind][1]
        return table(count, row(*[b"x"] * count)) if count else BOUND + DONE + READY


def feed_row(number: int, tx: int, of: bytes = b"0") -> bytes:
    plant = b'{"id":%d,"name":"p"}' % number
    return row(b"%d" % number, plant, b"x", b"0", b"%d" % tx, of * 32)


def then_none(*rows: bytes) -> Bad:
    """A page of the feed, and the end."""
    pages = itertools.chain([table(6, *rows)], itertools.repeat(table(6)))
    return lambda client: client.sendall(next(pages))


def bound(text: bytes) -> list[bytes]:
    """The parameters of a Bind, all of them texts."""
    text = text.split(b"\0", 2)[2]
    at = 2 + 2 * struct.unpack("!H", text[:2])[0]
    count, values = struct.unpack("!H", text[at:at + 2])[0], []
    at += 2
    for _ in range(count):
        size = struct.unpack("!i", text[at:at + 4])[0]
        values.append(text[at + 4:at + 4 + size])
        at += 4 + size
    return values


def peak_kib(service: lib_service.Responder) -> int:
    status = pathlib.Path(f"/proc/{service.worker()}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1])


@contextlib.contextmanager
def hostile_store(build: pathlib.Path) -> Iterator[tuple[Hostile, TableStore]]:
    server = Hostile()
    info = f"host=127.0.0.1 port={server.port} user=plants password={PASSWORD} dbname=plants"
    with lib_service.temporary_store(str(build)) as plain:
        shutil.rmtree(plain.dir)
        yield server, TableStore(plain.build, plain.root, plain.token, info)
    server.end()


def bad_of(kind: str, long: bool, some: int = 7) -> dict[str, Bad]:
    bad = bad_answers(KINDS[kind][1])
    if KINDS[kind][1] == 0:
        del bad["rows without end"]  # they would be tiny
    if kind in ("execute", "lock", "probe", "fetch"):  # any value may be right
        del bad["unexpected rows"]
    if kind == "feed":
        good, above = feed_row(1, 99), feed_row(2, 100)
        bad = {"a row above the bound": then_none(above), "not in order": then_none(good, good),
               "a lower transaction": then_none(good, feed_row(2, 98)),
               "a sum that is none": table(6, feed_row(1, 99, b"'")), **bad}
    return bad if long else dict(itertools.islice(bad.items(), some))


def check_start(tally: Tally, server: Hostile, store: TableStore, long: bool) -> None:
    """A process that starts: CGI."""
    numbers = itertools.count(1, 2)
    for kind in ("find", "check", "prepare", "execute", "lock", "insert"):
        for what, server.answer in bad_of(kind, long).items():
            server.kind = kind
            _, done, answer = lib_faults.create_by_cgi(store, next(numbers), "by CGI")
            well = done.returncode in (0, 75, 78) and answer and answer.status == 503
            tally.check(bool(well), f"{kind}: {what}: a CGI process answers 503", (done, answer))
    server.kind, server.answer = "prepare", error(b"42P05") + READY
    _, done, _ = lib_faults.create_by_cgi(store, 1, "by CGI")
    well = done.returncode == 78 and b"pool_mode" in done.stderr
    tally.check(well, "a name that another session has: pgbouncer's mode is named", done)
    server.kind = ""
    _, done, answer = lib_faults.create_by_cgi(store, 1, "by CGI")
    tally.check(answer is not None and answer.status == 200, "and 200 else", done)


def check_welcome(tally: Tally, server: Hostile, store: TableStore, long: bool) -> None:
    """Before the first statement."""
    with hostile_store(store.build) as (other, _):
        info = store.database.replace("host=127.0.0.1", "host=127.0.0.1,127.0.0.1")
        both = dataclasses.replace(
            store, database=info.replace(f"port={server.port}", f"port={server.port},{other.port}"))
        server.kind = "welcome"
        for what, server.answer in BAD_WELCOMES.items():
            done = store.command("stats", text=True, timeout=120)
            tally.check(done.returncode == 75 and done.stderr.count("\n") == 1,
                        f"welcome: {what}: refused in one line", done)
            done = both.command("stats", text=True, timeout=120)
            tally.check(done.returncode == 0, f"welcome: {what}: the next host is used", done)
            if not long and what.startswith("a byte"):
                break
    for what, server.answer in list(BAD_WELCOMES.items())[:4 if long else 1]:
        with responder(store, watched=False, PLANT_STORE_THREADS="1") as service:
            with single(store, service.socket_path) as exchange:
                _, answer = ask(exchange, (1, "welcomed", None))
            tally.check(answer is not None and answer.is_error(503, 5008),
                        f"welcome: {what}: error 5008", answer)
            peak = peak_kib(service)
            tally.check(peak < KEPT_KIB / 10, f"welcome: {what}: in little memory", peak)
        service.check_end(tally)


def check_served(tally: Tally, server: Hostile, store: TableStore, long: bool) -> None:
    settings = {"PLANT_STORE_HEALTH_PATH": "/health", "PLANT_STORE_THREADS": "1"}
    with responder(store, watched=False, **settings) as service:
        with single(store, service.socket_path) as exchange:
            numbers = itertools.count(1)

            def told(kind: str) -> int:
                """Those with even ids are there already."""
                number = 2 * next(numbers) + (kind == "insert")
                _, answer = ask(exchange, (number, "served", None))
                return answer and (answer.error() or answer.status)

            for kind in ("insert", "repeat"):
                for what, server.answer in bad_of(kind, long).items():
                    server.kind = kind
                    found = told(kind)
                    tally.check(found == UNKNOWN, f"{kind}: {what}: 503, error {UNKNOWN}", found)
                    server.kind = ""
                    tally.check(wait_until(lambda: told(kind) == 200), f"{kind}: then 200")
        for what, server.answer in bad_of("probe", long, 2).items():
            server.kind = "probe"
            sick = wait_until(lambda: health(service) == UNKNOWN)
            tally.check(sick, f"probe: {what}: unhealthy", service.log()[-500:])
            server.kind = ""
            tally.check(wait_until(lambda: health(service) == 200), "probe: then healthy")
        with single(store, service.socket_path) as exchange:
            server.kind, server.answer = "insert", lambda client: client.recv(1)
            found = told("insert")
            tally.check(found == UNKNOWN, "a commit without an answer: unknown", found)
            server.kind, server.answer = "welcome", error(b"53300")
            sick = wait_until(lambda: health(service) == AWAY and told("insert") == AWAY)
            tally.check(sick, "then no session is left: away", service.log()[-500:])
            server.kind, server.answer = "probe", table(1)  # a commit is waiting
            server.asked.clear()
            sick = wait_until(lambda: told("insert") == UNKNOWN == health(service))
            well = sick and "insert" not in server.asked
            tally.check(well, "then no other commit is sent to wait", server.asked)
            server.kind = ""
            tally.check(wait_until(lambda: told("insert") == 200), "until a probe is confirmed")
        peak = peak_kib(service)
        tally.check(peak < KEPT_KIB, "an answer without end does not take all memory", peak)
        no_password(tally, [service.log()], "the log")
    service.check_end(tally)


def check_follower(tally: Tally, server: Hostile, store: TableStore, words: list) -> None:
    asked = []

    def away(client: socket.socket) -> None:
        asked.append(client)
        client.sendall(error(b"57P01") + READY)

    server.kind, server.answer = "feed", away
    command = [store.build / "plant-store", *words]
    process = subprocess.Popen(command, env=store.environment(), stderr=subprocess.PIPE)
    well = wait_until(lambda: len(asked) > 3)
    server.kind, before = "welcome", len(asked)  # it cannot even connect
    well = well and wait_until(lambda: len(asked) > before + 3) and process.poll() is None
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(60)
    status = process.poll()
    process.kill()
    said = process.communicate()[1]
    tally.check(well and said.count(b"\n") == 2,
                "a follower outlives a server that goes away, and says so once", said)
    tally.check(status == 0, "a signal ends it, with 0", status)


def check_read(tally: Tally, server: Hostile, store: TableStore, long: bool) -> None:
    place = store.root / "place"
    feed = ["export", "--cursor", place]
    words = {kind: feed for kind in ("look", "probe", "feed")}
    words |= {kind: ["export"] for kind in ("begin", "declare", "fetch")}
    words |= {"get": ["get", "1"], "check": ["stats"], "find": ["stats"]}
    for kind, command in words.items():
        for what, server.answer in bad_of(kind, long).items():
            server.kind = kind
            began = time.monotonic()
            done = store.command(*command, text=True, timeout=80)
            well = done.returncode in (65, 75, 78) and done.stderr and not done.stdout
            well = well and not place.exists()
            tally.check(bool(well), f"{command[0]}, {kind}: {what}: refused", done)
            print(f"# {time.monotonic() - began:.1f} s: {done.stderr[:200].strip()}")
    server.kind, server.answer = "fetch", flood(LARGE_NOTICE)
    done = store.command("export", text=True, timeout=80)
    tally.check("a reply that is too large" in done.stderr,
                "export, fetch: an answer without end is refused for its size", done)
    check_follower(tally, server, store, [*feed, "--follow"])
    server.kind = ""
    for command, status in (["export"], 0), (feed, 0), (["get", "1"], 1), (["stats"], 0):
        done = store.command(*command, text=True)
        tally.check(done.returncode == status, f"{command[0]} of a good one", done)


def scenario(tally: Tally, arguments) -> None:
    for check in check_start, check_welcome, check_served, check_read:
        with tally.part(check.__name__), hostile_store(arguments.build) as (server, store):
            check(tally, server, store, arguments.long)


if __name__ == "__main__":
    sys.exit(lib_faults.run_script(__doc__, scenario))
