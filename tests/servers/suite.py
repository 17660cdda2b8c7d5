#!/usr/bin/env python3
"""Goal: behind each web server a client gets what the interface promises.

usage: suite.py BUILD_DIR [SET-UP]

SET-UP: only those whose name begins so, such as "nginx keep".
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import gzip
import hashlib
import http.client
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

from expected import (
    BROKEN, CREATED, CUT, DIFFERENCES, NO_ANSWER, EMPTY_OK, OWN_PAGE, Difference, Plant, Told, at,
)
from lib_servers import MINIMAL, SET_UPS, Running, SetUp, descendants, running, version_of
from lib_service import (
    TOP, WAIT_S, Answer, Tally, held_lock, new_plant, read_errors, read_met, run_scenario,
    wait_until,
)
import lib_place  # which lib_service finds
from lib_wire import CurlError, Wire, chunked, curl, curl_answer, http2_content, in_pieces

AT_ONCE = 4
LIMIT = 65536  # of a body, in bytes
KEPT_CLIENTS = 64
KEPT_ROUNDS = 3
PIPELINED = 8
STREAMS = 16
PIECES = 12
PIECE_S = 0.01
PAUSE_S = 0.6
HALF_S = 2.0  # for the rest of an answer, from when no more of it was sent
AT_ONCE_S = 5.0  # of what would otherwise end by a server's time limit, 8 s at least
LOST_S = 30.0  # for an answer to a request that may be lost
NEVER = 999_999  # the id of plants that must not be stored
EXPIRED = "pst_" + "E" * 43
HALF_ANSWER = pathlib.Path(__file__).resolve().parent / "half_answer.py"

Failure = OSError | http.client.HTTPException | CurlError
FAILURES = (OSError, http.client.HTTPException, CurlError)


def is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


# --- A set-up under trial ----------------------------------------------------


@dataclasses.dataclass
class Result:
    case: str
    well: bool
    shown: str  # in the table
    detail: str = ""


class Trial:
    """A set-up that serves, and what was found of it so far."""

    def __init__(self, server: Running) -> None:
        self.server = server
        self.set_up = server.set_up
        self.client = server.client()
        self.results: list[Result] = []
        self.answers: dict[str, Answer | Failure] = {}  # the last of each case
        self.stored: list[Plant] = []
        self.ids = itertools.count(1)
        self.needed: set[Difference] = set()
        self.met: set[tuple[int, int]] = set()  # errors and their statuses

    # -- what is sent

    def plant(self, name: str = "Fern", tag: str | None = None) -> Plant:
        return Plant(next(self.ids), name, tag)

    def plant_of(self, length: int) -> Plant:
        """One whose body has so many bytes."""
        plant_id = next(self.ids)
        return Plant(plant_id, "f" * (length - len(new_plant(plant_id, ""))))

    def head(
        self, *lines: str, method: str = "POST", path: str | None = None,
        version: str = "HTTP/1.1", token: str | None = None
    ) -> bytes:
        """A request line, token and type, and these lines; Host is not there."""
        path = self.server.path if path is None else path
        head = [
            f"{method} {path} {version}", f"Authorization: Bearer {token or self.server.token}",
            "Content-Type: application/json", *lines, "\r\n",
        ]
        return "\r\n".join(head).encode()

    def request(self, plant: Plant, *lines: str, **how: str) -> bytes:
        body = plant.body()
        lines = ("Host: a", f"Content-Length: {len(body)}", *lines)
        return self.head(*lines, **how) + body

    def wire(self) -> Wire:
        return Wire(self.server.port)

    def raw(self, request: bytes, method: str = "POST") -> Answer:
        """The answer on a connection of its own."""
        with self.wire() as wire:
            wire.send(request)
            return wire.answer(method)

    def answer(self, request: bytes | Callable[[], Answer]) -> Answer | Failure:
        """What comes of a call, or of a request on a connection of its own."""
        try:
            return self.raw(request) if isinstance(request, bytes) else request()
        except FAILURES as error:
            return error

    # -- what is found

    def expect(
        self, case: str, expected: Told | Plant | str, answer: Answer | Failure,
        sent: Plant | None = None
    ) -> None:
        """Judge an answer, or that there was none; `sent` is for differences."""
        sent = expected if isinstance(expected, Plant) else sent
        self.note_server(answer)
        self.answers[case] = answer
        if isinstance(answer, Answer) and (number := answer.error()):
            self.met.add((number, answer.status))
        differences = [d for d in DIFFERENCES if d.concerns(self.set_up, case)]
        allowed = [each for d in differences for each in d.instead] or [expected]
        if not self._fits(expected, answer, sent):
            self.needed.update(differences)
        well = any(self._fits(each, answer, sent) for each in allowed)
        shown = "wait" if isinstance(answer, TimeoutError) else CUT
        shown = str(answer.status) if isinstance(answer, Answer) else shown
        detail = "" if well else f"{answer!r}, and not {allowed}"[:900]
        self.results.append(Result(case, well, shown, detail))
        if sent and self._fits(sent, answer, sent) and sent not in self.stored:
            self.stored.append(sent)

    def note_server(self, answer: Answer | Failure) -> None:
        """What is the server's own: no version number in Server; its Errors are for every page."""
        if isinstance(answer, Answer):
            made = answer.status >= 400 and not answer.header("X-Request-Id")
            made = made and answer.header("Content-Type") == "application/json"
            for_all = answer.header("Access-Control-Allow-Origin") == "*"
            if for_all != (made and self.set_up.server != "lighttpd"):
                self.find("Errors can be read from any page", False, answer)
            server = answer.header("Server") or ""
            if any(letter.isdigit() for letter in server):
                self.find("Server has no version", False, server)

    def _fits(
        self, expected: Told | Plant | str, answer: Answer | Failure, sent: Plant | None
    ) -> bool:
        if isinstance(answer, FAILURES):
            return expected == CUT
        if expected == CREATED:
            expected = sent
        elif expected == BROKEN:
            return answer.status == 200 and not is_json(answer.body)
        elif expected == EMPTY_OK:
            return (answer.status, answer.body) == (200, b"")
        elif expected == OWN_PAGE:
            return answer.status >= 400 and answer.header("Content-Type")[:5] == "text/"
        return not isinstance(expected, str | None) and expected.fits(answer)

    def find(self, case: str, well: bool, detail: object = "", shown: str = "") -> None:
        shown = shown or ("yes" if well else "no")
        self.results.append(Result(case, well, shown, str(detail)[:900]))

    def by_case(self) -> dict[str, list[Result]]:
        found: dict[str, list[Result]] = {}
        for result in self.results:
            found.setdefault(result.case, []).append(result)
        return found

    @contextlib.contextmanager
    def unstored(self, case: str) -> Iterator[None]:
        """What is done here must leave the journal as it is, byte by byte, but for a line that
        closes an earlier batch."""
        before = self.server.store.journal.read_bytes().rstrip()
        yield
        after = self.server.store.journal.read_bytes().rstrip()
        if not after.startswith(before) or b'"plant":' in after[len(before):]:
            self.find(f"{case}: unstored", False, after.rstrip()[-400:])

    def settle(self) -> None:
        """Wait for the line that closes the last batch when all is idle; CGI writes none."""
        if self.server.set_up.cgi:
            return
        if not wait_until(self.server.store.is_closed):
            raise RuntimeError("an idle service writes no closing line")
        with held_lock(self.server.store):  # after the sync of that line
            pass


# --- Good requests, sent in every way ----------------------------------------


def creations(trial: Trial) -> None:
    """On a kept connection, with what may differ between good requests."""

    def create(case: str, plant: Plant, **how) -> None:
        trial.expect(case, plant, trial.client.send(plant.body(), **how))

    mount = trial.server.mount
    create("create", trial.plant("Fern", "indoor"))
    plant = trial.plant("Фикус 🌿 \0 / \\", "é")
    create("any name", plant)
    create("repeat", plant)
    escaped = json.dumps(dataclasses.asdict(plant), indent=2).encode()
    trial.expect("repeat, escaped", plant, trial.client.send(escaped))
    create("empty name", trial.plant("", ""))
    bearer = {"Authorization": f"BEARER {trial.server.token}"}
    create("BEARER", trial.plant(), headers=bearer)
    charset = {"Content-Type": "Application/JSON; charset=utf-8"}
    create("charset", trial.plant(), headers=charset)
    create("identity", trial.plant(), headers={"Content-Encoding": "identity"})
    create("query", trial.plant(), path=f"{mount}/plants?x=1&y=%2F")
    create("query of a word", trial.plant(), path=f"{mount}/plants?--help")
    create("%70lants", trial.plant(), path=f"{mount}/%70lants")
    create("dots", trial.plant(), path=f"{mount}/x/.././plants")
    create("absolute target", trial.plant(), path=f"http://a{mount}/plants")
    create("at the limit", trial.plant_of(LIMIT))
    plant = trial.plant_of(LIMIT)
    trial.expect("at the limit, chunked", plant, trial.client.send(in_pieces(plant.body(), PIECES)))
    # Taken by some of the servers.
    for case, told, lines, how in (
        ("%2F", Told(404, 2001), (), {"path": f"{mount or '/'}%2Fplants"}),
        ("long headers", Told(431, 3010), [f"X-{i}: {'x' * 8_000}" for i in range(90)], {}),
        ("unknown Expect", None, ["Expect: 200-ok"], {}),
        ("HTTP/3.1", Told(400, 3008), (), {"version": "HTTP/3.1"}),
        ("HTTP/1.2", None, (), {"version": "HTTP/1.2"}),
        ("200 headers", None, [f"X-{i}: x" for i in range(200)], {}),
    ):
        plant = trial.plant(case)
        answer = trial.raw(trial.request(plant, *lines, **how))
        trial.expect(case, told or plant, answer, plant)
    plant = trial.plant("half closed")
    with trial.wire() as wire:
        wire.send(trial.request(plant))
        wire.end_sending()
        trial.expect("half closed", plant, trial.answer(wire.answer))


def ways(trial: Trial) -> None:
    """Fast, slow, in one piece or many, and from an older client."""
    host = "Host: a"
    plant = trial.plant("one piece")
    trial.expect("one piece", plant, trial.raw(trial.request(plant)))
    with trial.wire() as wire:
        plant = trial.plant("slow", "slow" * 50)
        wire.send_slowly(in_pieces(trial.request(plant), 2 * PIECES), PIECE_S)
        trial.expect("slow", plant, wire.answer())
        plant = trial.plant_of(LIMIT)
        wire.send_slowly(in_pieces(trial.request(plant), PIECES), PIECE_S)
        trial.expect("slow, at the limit", plant, wire.answer())
    with trial.wire() as wire:
        head = trial.head(host, "Transfer-Encoding: chunked")
        plant = trial.plant("chunked, fast")
        wire.send(head + b"".join(chunked(in_pieces(plant.body(), PIECES))))
        trial.expect("chunked, fast", plant, wire.answer())
        plant = trial.plant("chunked, slow")
        pieces = [head, *chunked(in_pieces(plant.body(), PIECES))]
        wire.send_slowly(pieces, PIECE_S)
        trial.expect("chunked, slow", plant, wire.answer())
        plant = trial.plant("chunked, with an extension and a trailer")
        body = plant.body()
        wire.send(head + b"%X;a=b\r\n%s\r\n0\r\nX: y\r\n\r\n" % (len(body), body))
        trial.expect("chunked, trailer", plant, wire.answer())
    with trial.wire() as wire:
        plant = trial.plant("HTTP/1.0")
        length = f"Content-Length: {len(plant.body())}"
        wire.send(trial.head(length, version="HTTP/1.0") + plant.body())
        trial.expect("HTTP/1.0", plant, wire.answer())
        trial.find("HTTP/1.0: closed", wire.rest() == b"")
    with trial.wire() as wire:
        for case in ("HTTP/1.0, kept", "HTTP/1.0, again"):
            plant = trial.plant(case)
            wire.send(trial.request(plant, "Connection: keep-alive", version="HTTP/1.0"))
            trial.expect(case, plant, wire.answer())
    with trial.wire() as wire:
        plant = trial.plant("Connection: close")
        wire.send(trial.request(plant, "Connection: close"))
        trial.expect("close", plant, wire.answer())
        trial.find("close: closed", wire.rest() == b"")


def chunks(trial: Trial) -> None:
    """Up to the limit, without a length; and what a server must not take for one."""
    for length in 15_000, 17_000, 40_000, 62_000, LIMIT:
        plant = trial.plant_of(length)
        pieces = chunked(in_pieces(plant.body(), PIECES))
        request = trial.head("Host: a", "Transfer-Encoding: chunked") + b"".join(pieces)
        case = "chunked, at the limit" if length == LIMIT else "chunked, of any length"
        trial.expect(case, plant, trial.answer(request), plant)
    never = Plant(NEVER, "never")
    coded = b"".join(chunked([gzip.compress(never.body())]))
    for case, told, request in (
        ("chunked, empty", Told(400, 3006), trial.head("Host: a", "Transfer-Encoding: chunked")
         + b"0\r\n\r\n"),
        ("gzip, chunked", Told(400, 3008),
         trial.head("Host: a", "Transfer-Encoding: gzip, chunked") + coded),
        *((f"{nul} in path", Told(400, 3008), trial.request(never, path=f"{trial.server.path}{nul}x"))
          for nul in ("%00", "/..%00")),
    ):
        began = time.monotonic()
        with trial.unstored(case):
            trial.expect(case, told, trial.answer(request))
        trial.find(f"{case}, at once", time.monotonic() - began < AT_ONCE_S, request)


def held_back(trial: Trial) -> None:
    """Of a body that has not come whole the service knows nothing."""

    def descriptors() -> int:
        pids = trial.server.worker_pids()
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)

    plant = trial.plant("held back")
    request = trial.request(plant)
    trial.settle()  # which opens a file
    before = descriptors()
    with trial.wire() as wire:
        wire.send(request[:-5])
        time.sleep(PAUSE_S)
        after = descriptors()
        trial.find("held back", after <= before, (before, after))
        wire.send(request[-5:])
        trial.expect("held back", plant, wire.answer())


EXPECT = ("Host: a", "Expect: 100-continue")


def expect_continue(trial: Trial) -> None:
    with trial.wire() as wire:
        for case in ("Expect", "Expect, again"):
            plant = trial.plant(case)
            wire.send(trial.head(*EXPECT, f"Content-Length: {len(plant.body())}"))
            trial.find(f"{case}: go on", wire.is_told_to_go_on())
            wire.send(plant.body())
            trial.expect(case, plant, wire.answer())
    with trial.wire() as wire:
        plant = trial.plant("Expect, chunked")
        wire.send(trial.head(*EXPECT, "Transfer-Encoding: chunked"))
        trial.find("Expect, chunked: go on", wire.is_told_to_go_on())
        wire.send(b"".join(chunked(in_pieces(plant.body(), PIECES))))
        trial.expect("Expect, chunked", plant, wire.answer())
    with trial.wire() as wire:
        # A client that does not wait may be told or not.
        plant = trial.plant("Expect, at once")
        wire.send(trial.request(plant, "Expect: 100-continue"))
        wire.is_told_to_go_on()
        trial.expect("Expect, at once", plant, wire.answer())


def connections(trial: Trial) -> None:
    """Pipelined, good requests between refused ones."""
    with trial.wire() as wire:
        plants = [trial.plant("pipelined", f"p{i}") for i in range(PIPELINED)]
        wire.send(b"".join(trial.request(plant) for plant in plants))
        for plant in plants:
            trial.expect("pipelined", plant, wire.answer())
    with trial.wire() as wire:
        before, after = trial.plant("before"), trial.plant("after")
        refused = trial.request(before, path=f"{trial.server.path}/x")
        wire.send(trial.request(before) + refused + trial.request(after))
        trial.expect("before a refusal", before, wire.answer())
        trial.expect("a refusal between", Told(404, 2001), wire.answer())
        trial.expect("after a refusal", after, wire.answer())


def page(trial: Trial) -> None:
    """The API page is there once it is put there, for GET alone."""
    base, client = trial.server.mount, trial.client
    files = {"docs/": "text/html", "docs/page.js": "text/javascript",
             "docs/page.css": "text/css", "openapi.json": "application/json"}
    nothing = Told(404, 2001)

    def get(path: str) -> Answer:
        return client.send(None, method="GET", path=f"{base}/{path}")

    for path in files:
        trial.expect("no page", nothing, get(path))
    for source in "docs", "www/openapi.json":  # which may be there for reading only
        subprocess.run(["cp", "-rT" if source == "docs" else "-r", "--no-preserve=mode",
                        TOP / "deploy" / source, trial.server.docs], check=True)
    for path, kind in files.items():
        answer = get(path)
        policy = answer.header("Content-Security-Policy") or ""
        well = answer.status == 200 and answer.header("Content-Type") == kind
        well &= policy.startswith("default-src 'none'; script-src 'self'; ")
        well &= answer.header("X-Content-Type-Options") == "nosniff"
        trial.find("page", well and "unsafe" not in policy, answer, str(answer.status))
        with trial.unstored("page, POST"):
            body = trial.plant().body()
            trial.expect("page, POST", nothing, client.send(body, path=f"{base}/{path}"))
    for path in ("docs/nothing", "docs/../docs/x/page.js"):
        trial.expect("page, other files", nothing, get(path))


def many_clients(trial: Trial) -> None:
    """More kept connections than the service has reactors, or a server threads."""
    together = threading.Barrier(KEPT_CLIENTS)
    plants = [trial.plant("of many") for _ in range(KEPT_CLIENTS * KEPT_ROUNDS)]
    last = plants[-KEPT_CLIENTS:]
    resume: list[threading.Timer] = []

    def pause() -> None:
        pids = trial.server.worker_pids()
        signal_all(pids, signal.SIGSTOP)
        resume.append(threading.Timer(PAUSE_S, signal_all, (pids, signal.SIGCONT)))
        resume[0].start()

    def send(number: int) -> list[Answer | Failure]:
        client = trial.server.client()
        answers: list[Answer | Failure] = []
        for plant in plants[number::KEPT_CLIENTS]:
            # All are connected before one goes on.
            together.wait(2 * WAIT_S)
            if plant in last:
                # At last some wait for a service that is busy, while the
                # others' connections are idle; then they send as well.
                if number == 0:
                    pause()
                together.wait(WAIT_S)
                if number % 4 == 0:
                    time.sleep(PAUSE_S / 2)
            answers.append(trial.answer(lambda: client.send(plant.body())))
        client.close()
        return answers

    with concurrent.futures.ThreadPoolExecutor(KEPT_CLIENTS) as pool:
        found = [pool.submit(send, number) for number in range(KEPT_CLIENTS)]
    for timer in resume:
        timer.join()
    for number, client in enumerate(found):
        for plant, answer in zip(plants[number::KEPT_CLIENTS], client.result()):
            trial.expect(f"{KEPT_CLIENTS} kept clients", plant, answer)


def signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


# --- Refusals ----------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A request that is wrong in one thing, and what is told."""

    case: str
    told: Told
    body: bytes | None = new_plant(NEVER, "never")
    method: str = "POST"
    path: str = "/plants"  # below the mount
    headers: dict[str, str | None] = dataclasses.field(default_factory=dict)


def credential(case: str, number: int, value: str | None) -> Refusal:
    return Refusal(case, Told(401, number), headers={"Authorization": value})


def body(case: str, number: int, text: bytes, detail: str = "") -> Refusal:
    return Refusal(case, Told(400, number, detail), text)


NAME = b'"name":"F"'
REFUSALS = [
    credential("no credential", 1001, None),
    credential("empty credential", 1001, ""),
    credential("other scheme", 1002, "Basic dTpw"),
    credential("scheme alone", 1003, "Bearer"),
    credential("two words", 1003, "Bearer a b"),
    credential("a list", 1004, "Bearer a, Bearer b"),
    credential("unknown token", 1005, "Bearer secret"),
    credential("expired token", 1006, f"Bearer {EXPIRED}"),
    dataclasses.replace(credential("401 before 404", 1001, None), path="/plants/x"),
    Refusal("longer path", Told(404, 2001), path="/plantss"),
    Refusal("slash behind", Told(404, 2001), path="/plants/"),
    Refusal("deeper path", Told(404, 2001), path="/plants/1"),
    Refusal("mount alone", Told(404, 2001), path="/"),
    Refusal("capitals", Told(404, 2001), path="/PLANTS"),
    Refusal("404 before 405", Told(404, 2001), None, "GET", "/x"),
    Refusal("GET", Told(405, 2002), None, "GET"),
    Refusal("HEAD", Told(405, 2002, bare=True), None, "HEAD"),
    Refusal("PUT", Told(405, 2002), method="PUT"),
    Refusal("PATCH", Told(405, 2002), method="PATCH"),
    Refusal("DELETE", Told(405, 2002), None, "DELETE"),
    Refusal("OPTIONS", Told(405, 2002), None, "OPTIONS"),
    Refusal("TRACE", Told(405, 2002), None, "TRACE"),
    Refusal("BREW", Told(405, 2002), None, "BREW"),
    Refusal("405 before 400", Told(405, 2002), b"[]", "PUT"),
    Refusal("text", Told(400, 3001), headers={"Content-Type": "text/plain"}),
    Refusal("no type", Told(400, 3001), headers={"Content-Type": None}),
    Refusal("gzip", Told(400, 3002), headers={"Content-Encoding": "gzip"}),
    body("empty body", 3006, b""),
    body("open", 4001, b'{"id":1', at(7, "the text ends before the object does")),
    body("two objects", 4001, b"{}{}", at(2, "bytes after the object")),
    body("NUL", 4001, b'{"id":"\0"}', at(7, "raw control character in a string")),
    body("bad UTF-8", 4002, b'{"id":"\xff"}', at(7, "invalid UTF-8")),
    body("deep", 4003, b'{"x":' * 99, at(320, "nested too deeply")),
    body("array", 4004, b"[]", at(0, "expected an opening brace")),
    body("no id", 4101, b"{%s}" % NAME),
    body("id twice", 4102, b'{"id":1,"i\\u0064":1,%s}' % NAME),
    body("id 1.0", 4103, b'{"id":1.0,%s}' % NAME),
    body("id 2^63", 4104, b'{"id":9223372036854775808,%s}' % NAME),
    body("no name", 4201, b'{"id":1}'),
    body("name twice", 4202, b'{"id":1,%s,%s}' % (NAME, NAME)),
    body("name null", 4203, b'{"id":1,"name":null}'),
    body("tag twice", 4301, b'{"id":1,%s,"tag":"a","tag":"a"}' % NAME),
    body("tag null", 4302, b'{"id":1,%s,"tag":null}' % NAME),
    Refusal("conflict", Told(409, 5001), new_plant(1, "Moss")),
]


def refusals(trial: Trial) -> None:
    """On a kept connection, each wrong in one thing."""
    for row in REFUSALS:
        path = trial.server.mount + row.path
        how = {"method": row.method, "path": path, "headers": row.headers}
        with trial.unstored(row.case):
            trial.expect(row.case, row.told, trial.client.send(row.body, **how))
    text = trial.plant_of(LIMIT + 1).body()
    for case, sent in (("1 over", text), ("1 over, chunked", in_pieces(text, PIECES))):
        with trial.unstored(case):
            trial.expect(case, Told(413, 3007), trial.answer(lambda: trial.client.send(sent)))


def raw_refusals(trial: Trial) -> None:
    """What a client library does not send, each on a connection of its own."""
    mount = trial.server.mount
    good = Plant(NEVER, "never")
    text = good.body()
    length = f"Content-Length: {len(text)}"
    over = f"Content-Length: {LIMIT + 1}"

    def head(*lines: str, **how: str) -> bytes:
        return trial.head("Host: a", *lines, **how)

    def to(path: str) -> bytes:
        return trial.request(good, path=path)

    broken, unknown, long = Told(400, 3008), Told(404, 2001), Told(431, 3010)
    requests = {
        "two credentials": (Told(401, 1004), head(length, "Authorization: a") + text),
        "no length": (Told(400, 3006), head()),
        "length 1x": (broken, head("Content-Length: 1x") + text),
        "length -1": (broken, head("Content-Length: -1") + text),
        "two lengths": (broken, head(length, "Content-Length: 9") + text),
        "bad chunk": (broken, head("Transfer-Encoding: chunked") + b"zz\r\n"),
        "coding gzip": (broken, head("Transfer-Encoding: gzip") + text),
        # The first is refused before the second is looked at.
        "coding gzip, 1 over": (broken, head("Transfer-Encoding: gzip", over)),
        "OPTIONS *": (broken, head(method="OPTIONS", path="*")),
        "no Host": (broken, trial.head(length) + text),
        "no colon": (broken, head(length, "no colon") + text),
        "no HTTP": (broken, b"what is this\r\n\r\n"),
        "bad percent": (broken, to(f"{mount}/%zz")),
        "NUL in path": (broken, to(f"{mount}/plants%00")),
        "%2F behind": (unknown, to(f"{mount}/plants%2F")),
        "%3F": (unknown, to(f"{mount}/plants%3Fx=1")),
        "%2570": (unknown, to(f"{mount}/%2570lants")),
        "above the root": (unknown, to("/../../plants/../x")),
        "outside": (unknown, to("/elsewhere/plants")),
        "an error's page": (unknown, to("/plant-store-error/503")),
        "long path": (long, to("/" + "x" * 60_000)),
        "long header": (long, trial.request(good, "X: " + "x" * 60_000)),
        "many headers": (long, trial.request(good, *["X: x"] * 2000)),
    }
    for method in ("GET", "HEAD", "PUT"):
        told = Told(405, 2002, bare=method == "HEAD")
        for how, lines, body in (
            ("a body", (length,), text),
            ("chunks", ("Transfer-Encoding: chunked",), b"".join(chunked([text]))),
        ):
            requests[f"{method} with {how}"] = told, head(*lines, method=method) + body
    for case, (told, request) in requests.items():
        with trial.unstored(case):
            trial.expect(case, told, trial.raw(request, request.split()[0].decode()))
    case = "length and chunked"
    with trial.unstored(case), trial.wire() as wire:
        # Read by its length it has one request, read by its chunks two.
        hidden = b"0\r\n\r\n" + trial.request(good)
        lines = (f"Content-Length: {len(hidden)}", "Transfer-Encoding: chunked")
        wire.send(head(*lines) + hidden)
        trial.expect(case, broken, wire.answer())
        trial.find(f"{case}: closed", wire.rest() == b"")
    with trial.unstored("Expect, 1 over"), trial.wire() as wire:
        wire.send(trial.head(*EXPECT, f"Content-Length: {LIMIT + 1}"))
        trial.find("Expect, 1 over: not to", not wire.is_told_to_go_on())
        trial.expect("Expect, 1 over", Told(413, 3007), wire.answer())
    with trial.unstored("Expect, 401"), trial.wire() as wire:
        wire.send(trial.head(*EXPECT, length, token="secret"))
        wire.is_told_to_go_on()
        wire.send(text)
        trial.expect("Expect, 401", Told(401, 1005), wire.answer())


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW")


def elsewhere(trial: Trial) -> None:
    """Outside the service and below it, by every method: no file, and nobody's page."""
    mount, name, body = trial.server.mount, "x" * 300, new_plant(NEVER, "never")
    paths = ["/elsewhere", "/", "/index.html", f"/{name}", f"{mount or '/'}x/plants", f"{mount}/{name}",
             *[mount] * bool(mount)]
    asked = [(f"{method} elsewhere", method, path) for method in METHODS for path in paths]
    asked += [(f"{method} below", method, f"{trial.server.path}/{name}") for method in METHODS[:-2]]
    asked += [("CONNECT", "CONNECT", trial.server.path), ("CONNECT a host", "CONNECT", "a.example:1")]
    for case, method, path in asked:
        told = Told(404, 2001, bare=method == "HEAD")
        if method == "CONNECT":
            told = Told(400, 3008) if path[0] == "a" else Told(405, 2002)
        request = trial.head("Host: a", f"Content-Length: {len(body)}", method=method, path=path)
        with trial.unstored(case), trial.wire() as wire:
            wire.send(request + body)
            # http.client takes any answer to CONNECT for one without a length.
            answer = trial.answer(lambda: wire.answer("POST" if method == "CONNECT" else method))
            trial.expect(case, told, answer)


def aborts(trial: Trial) -> None:
    """An upload that breaks off at any place stores nothing."""
    plant = Plant(NEVER, "cut" * 300)
    request = trial.request(plant)
    half = len(plant.body()) // 2
    chunks = chunked(in_pieces(plant.body(), 3))
    head = trial.head("Host: a", "Transfer-Encoding: chunked")
    parts = {
        "head": request[:60],
        "head's end": request[: -2 * half],
        "body": request[:-half],
        "last byte": request[:-1],
        "chunk": head + chunks[0][:-9],
        "chunk's end": head + chunks[0],
        # The plant is whole then, the request is not.
        "last chunk": head + b"".join(chunks[:-1]),
    }
    with trial.unstored("uploads that break off"):
        for part, reset in itertools.product(parts.values(), (False, True)):
            wire = trial.wire()
            wire.send(part)
            time.sleep(PIECE_S)  # so that it is read as far as it has come
            wire.close(reset=reset)
        for place in ("last byte", "last chunk"):
            case = f"half closed, {place}"
            with trial.wire() as wire:
                wire.send(parts[place])
                wire.end_sending()
                answer = trial.answer(wire.answer)
                if isinstance(answer, Answer):
                    trial.find(case, answer.error() is not None, answer, str(answer.status))
                else:
                    trial.find(case, True, answer, CUT)
        if trial.set_up.cgi and not wait_until(lambda: not trial.server.worker_pids()):
            raise RuntimeError("an upload that broke off does not end")
    for place in parts:
        plant = trial.plant(f"after an upload without {place}")
        trial.expect("after those", plant, trial.raw(trial.request(plant)))


# --- HTTP/2 ------------------------------------------------------------------


def headers_of(trial: Trial, token: str | None = None) -> list[str]:
    token = token or trial.server.token
    return ["-H", f"Authorization: Bearer {token}", *JSON]


JSON = ("-H", "Content-Type: application/json")


def over_http2(
    trial: Trial, text: bytes | None, *options: str, path: str = "/plants"
) -> Answer | CurlError:
    """A request with prior knowledge."""
    if text is not None:
        options += ("--data-binary", "@-")
    options += ("-i", "--http2-prior-knowledge", f"{trial.server.base_url}{path}")
    return trial.answer(lambda: curl_answer(curl(*options, body=text)))


def http2_creations(trial: Trial) -> None:
    """Over HTTP/2, one by one and many at once."""
    good = headers_of(trial)
    plant = trial.plant("h2", "indoor")
    trial.expect("h2", plant, over_http2(trial, plant.body(), *good))
    trial.expect("h2, repeat", plant, over_http2(trial, plant.body(), *good))
    plant = trial.plant_of(LIMIT)
    slow = ("--limit-rate", "400k")
    trial.expect("h2, at the limit", plant, over_http2(trial, plant.body(), *good, *slow))
    # Many on one connection, which an Upgrade made one of HTTP/2: by a GET, since
    # a request with a body is not upgraded.  Those at once begin before it is.
    # Between lighttpd 1.4.79 and its curl the Upgrade hangs; RFC 9113 has none.
    known = version_of("lighttpd") >= (1, 4, 70)
    for case, how, version in (
        ("h2c", [], "HTTP/2"),
        ("h2c, at once", ["--parallel"], "HTTP/"),
    ):
        plants = [trial.plant("stream", f"s{i}") for i in range(STREAMS)]
        folder = trial.server.root / case
        folder.mkdir()
        each = ["--http2-prior-knowledge" if known else "--http2", "--noproxy", "*", "-i", *good]
        url = f"{trial.server.base_url}/plants"
        options = [*how, "--no-progress-meter", *each, "-o", str(folder / "0"), url]
        for plant in plants:
            options += ["--next", *each, "-o", str(folder / str(plant.id))]
            options += ["--data-binary", plant.body().decode(), url]
        curl(*options)
        answer = curl_answer((folder / "0").read_bytes())
        trial.expect(f"{case}, upgrade", Told(405, 2002), answer)
        for plant in plants:
            printed = (folder / str(plant.id)).read_bytes()
            trial.expect(case, plant, curl_answer(printed, version))


def http2_refusals(trial: Trial) -> None:
    """Over HTTP/2, each wrong in one thing."""
    good = headers_of(trial)
    token = good[:2]
    never = new_plant(NEVER, "never")
    array = Told(400, 4004, at(0, "expected an opening brace"))
    head = Told(405, 2002, bare=True)
    over = b" " * (LIMIT + 1)
    broken_off = ("--limit-rate", "50k", "--max-time", "0.2")
    for case, told, text, options in (
        ("h2, no credential", Told(401, 1001), never, JSON),
        ("h2, two credentials", Told(401, 1004), never, (*good, *token)),
        ("h2, unknown token", Told(401, 1005), never, headers_of(trial, "secret")),
        ("h2, GET", Told(405, 2002), None, token),
        ("h2, HEAD", head, None, (*token, "-I")),
        ("h2, text", Told(400, 3001), never, (*token, "-H", "Content-Type: text/x")),
        ("h2, empty body", Told(400, 3006), b"", good),
        ("h2, array", array, b"[]", good),
        ("h2, conflict", Told(409, 5001), new_plant(1, "Moss"), good),
    ):
        with trial.unstored(case):
            trial.expect(case, told, over_http2(trial, text, *options))
    fields = {":method": "POST", ":scheme": "http", ":authority": "a"}
    fields |= {":path": trial.server.path, "content-type": "application/json"}
    fields |= {"authorization": f"Bearer {trial.server.token}"}
    needs_length = version_of("lighttpd") < (1, 4, 78)
    for case, told, length in (
        ("h2, 1 over", Told(413, 3007), {"content-length": str(LIMIT + 1)}),
        ("h2, no length", Told(411, 3006), {}),
    )[:1 + needs_length]:
        with trial.unstored(case):
            content = http2_content(trial.server.port, fields | length, never)
            trial.find(case, content == told.body(), content, str(told.number))
    if not needs_length:
        plant, unset = trial.plant("h2, no length"), ("-H", "Content-Length:")
        trial.expect("h2, no length", plant, over_http2(trial, plant.body(), *good, *unset))
    with trial.unstored("h2, 404"):
        answer = over_http2(trial, never, *good, path="/plants/")
        trial.expect("h2, 404", Told(404, 2001), answer)
    for method in ("GET", "DELETE", "OPTIONS"):
        answer = over_http2(trial, None, *good, "-X", method, path="/elsewhere")
        trial.expect("h2, elsewhere", Told(404, 2001), answer)
    connect = {":method": "CONNECT", ":authority": "a.example:1"}
    content = http2_content(trial.server.port, connect, b"")
    trial.find("h2, CONNECT", content == Told(405, 2002).body(), content)
    with trial.unstored("h2, broken off"):
        found = over_http2(trial, over[1:], *good, *broken_off)
        well = isinstance(found, CurlError) and found.number == 28  # out of time
        trial.find("h2, broken off", well, found, CUT)
    plant = trial.plant("h2, after those")
    trial.expect("h2, after those", plant, over_http2(trial, plant.body(), *good))


# --- When the service ends ---------------------------------------------------


class DeadlySync:
    """While this lasts, the process that begins a sync is killed, by strace."""

    def __init__(self, trial: Trial) -> None:
        if trial.set_up.cgi:
            # It is started by one of these, when the last one has ended.
            wait_until(lambda: not trial.server.worker_pids())
            pids = {pid for pid, _ in descendants(trial.server.server_pid)}
        else:
            pids = set(trial.server.worker_pids())
        self.threads = [set(os.listdir(f"/proc/{pid}/task")) for pid in pids]
        self.log = trial.server.root / "strace.log"
        command = ["strace", "-f", "-o", str(self.log), "-e", "trace=fdatasync"]
        command += ["-e", "inject=fdatasync:signal=SIGKILL"]
        for pid in pids:
            command += ["-p", str(pid)]
        self.strace = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in pids:
            line = self.strace.stderr.readline()
            if "attached" not in line:
                self.end()
                raise RuntimeError(f"strace: {line}")

    def lines(self, text: str) -> set[str]:
        """The threads with such a line, by their ids."""
        log = self.log.read_text().splitlines()
        return {line.split()[0] for line in log if text in line}

    def has_killed(self) -> bool:
        """Whether it has killed one process, with each of its threads."""
        syncing = self.lines("fdatasync(")
        if len(syncing) != 1:
            return False
        known = [threads for threads in self.threads if syncing <= threads]
        return self.lines("killed by SIGKILL") == (known or [syncing])[0]

    def end(self) -> None:
        self.strace.terminate()
        try:
            self.strace.communicate(timeout=2)
        except subprocess.TimeoutExpired:
            # It waits for the first thread of a dying process before the others.
            self.strace.kill()
            self.strace.communicate()


def kills(trial: Trial) -> None:
    """A worker killed with a request in its hands."""
    client = trial.server.client()
    plant = trial.plant("killed")
    trial.settle()
    deadly = DeadlySync(trial)
    try:
        # The record is written then, and not yet synced.
        found = trial.answer(lambda: client.send(plant.body()))
        trial.find("killed at its sync", wait_until(deadly.has_killed), deadly.log.read_text())
    finally:
        deadly.end()
    trial.expect("killed", Told(503, NO_ANSWER), found, plant)
    retry(trial, "retry after a kill", plant)
    if trial.set_up.streams_body:
        plant = trial.plant("killed early")
        with trial.wire() as wire:
            wire.send(trial.request(plant)[:-5])
            wait_until(trial.server.worker_pids)
            signal_all(trial.server.worker_pids(), signal.SIGKILL)
            wire.send(plant.body()[-5:])
            trial.expect("killed early", Told(500, NO_ANSWER), wire.answer(), plant)
        retry(trial, "retry after that", plant)


def retry(trial: Trial, case: str, plant: Plant) -> None:
    """As a client does that was told 5007: until it is answered otherwise."""
    answers: list[Answer | Failure] = []
    client = trial.server.client()

    def is_answered() -> bool:
        last = trial.answer(lambda: client.send(plant.body()))
        answers.append(last)
        return isinstance(last, Answer) and last.error() != NO_ANSWER

    wait_until(is_answered)
    client.close()
    trial.expect(case, plant, answers[-1])


def half_answers(trial: Trial) -> None:
    """A 200 of which only a part came is no 200 to the client."""
    plant = trial.plant("Fern")
    marker = trial.server.store.dir / "half-answered"
    found: list[Answer | Failure] = []

    def is_half_answered() -> bool:
        with trial.wire() as wire:
            wire.send(trial.request(plant))
            # A server that is just starting again may have lost the request.
            wait_until(lambda: marker.exists() or wire.has_come(), LOST_S)
            # Some servers leave the client waiting for the rest.
            wire.socket.settimeout(HALF_S)
            found.append(trial.answer(wire.answer))
        return marker.exists()

    with trial.server.other_program(HALF_ANSWER):
        # It may not have begun yet.
        well = wait_until(is_half_answered)
    trial.find("half a 200: sent", well)
    trial.expect("half a 200", CUT, found[-1])
    marker.unlink(missing_ok=True)
    retry(trial, "retry after half a 200", plant)


def down(trial: Trial) -> None:
    client = trial.server.client()  # its connection is kept
    plant = trial.plant("before it is down")
    trial.expect("before it is down", plant, client.send(plant.body()))
    trial.server.stop_backend()
    plant = trial.plant("while it is down")
    told = Told(503, NO_ANSWER)
    with trial.unstored("down"):
        trial.expect("down", told, client.send(plant.body()))
        pieces = in_pieces(plant.body(), PIECES)
        trial.expect("down, chunked", told, client.send(pieces))
        trial.expect("down, GET", told, client.send(None, method="GET"))
        bare = dataclasses.replace(told, bare=True)
        trial.expect("down, HEAD", bare, client.send(None, method="HEAD"))
    trial.server.start_backend()
    trial.expect("up again", plant, client.send(plant.body()))
    client.close()


# --- All of it ---------------------------------------------------------------


def add_expired_token(trial: Trial) -> None:
    digest = hashlib.sha256(EXPIRED.encode()).hexdigest()
    with open(trial.server.store.tokens, "a", encoding="ascii") as tokens:
        tokens.write(f"expired {digest} 2026-01-01T00:00:00Z\n")


def wait_for_expired_token(trial: Trial) -> None:
    headers = {"Authorization": f"Bearer {EXPIRED}"}
    trial.client.close()  # a server ends a connection that is idle for long
    wait_until(lambda: trial.client.send(None, headers=headers).error() == 1006)


def first(trial: Trial) -> None:
    """The plant that a refusal is in conflict with, and one behind too large a header."""
    plant = trial.plant()
    trial.expect("create", plant, trial.client.send(plant.body()))
    plant = trial.plant("long header")
    answer = trial.raw(trial.request(plant, "X: " + "x" * 60_000))
    trial.expect("long header", Told(431, 3010), answer, plant)


def end(trial: Trial) -> None:
    """What was answered 200 is there, once, and nothing else."""
    if trial.set_up.cgi and not wait_until(lambda: not trial.server.worker_pids()):
        raise RuntimeError("a request does not end")
    stored = sorted(trial.server.store.plants(), key=lambda plant: plant["id"])
    expected = sorted(trial.stored, key=lambda plant: plant.id)
    well = stored == [plant.stored() for plant in expected]
    counts = f"{len(stored)} stored, {len(expected)} answered 200"
    trial.find("all is stored once", well, counts, str(len(stored)))


# What a part needs of the machine.
NEEDS = {
    http2_creations: "curl",
    http2_refusals: "curl",
    kills: "strace of other processes",
    half_answers: "/usr/bin/python3",
}


def parts(set_up: SetUp) -> list[Callable[[Trial], None]]:
    """In an order in which there is little to wait for."""
    if set_up in MINIMAL:
        found = [add_expired_token, wait_for_expired_token, first, chunks, Trial.settle, refusals,
                 elsewhere, kills, down, end]
        return [part for part in found if lib_place.allows(NEEDS.get(part, "true"))]
    found = [add_expired_token, creations, ways, chunks, expect_continue, connections]
    found += [http2_creations] * set_up.http2
    found += [held_back] * (not set_up.cgi)
    found += [many_clients, wait_for_expired_token, Trial.settle]
    found += [page, refusals, raw_refusals, elsewhere]
    found += [http2_refusals, Trial.settle] * set_up.http2
    found += [aborts, kills]
    found += [half_answers, down, end]
    return [part for part in found if lib_place.allows(NEEDS.get(part, "true"))]


def run(set_up: SetUp, build_dir: str) -> Trial:
    settings = {"PLANT_STORE_THREADS": "2" if set_up.mount else "1"}
    with running(set_up, build_dir, **settings) as server:
        trial = Trial(server)
        for part in parts(set_up):
            try:
                part(trial)
            except Exception as error:  # the other parts shall run nevertheless
                detail = f"{type(error).__name__}: {error}"
                trial.find(f"{part.__name__} runs to its end", False, detail)
        trial.client.close()
    return trial


# Of the table in deploy/servers.md: how a row begins, and the case that shows it.
ROWS = {
    "the service is down": "down",
    "a worker dies while": "killed",
    "a POST without a length": "no length",
    "a header that is too large": "long header",
    "headers above 64 KiB": "long headers",
    "more than 100 header fields": "200 headers",
    "a path that is too long": "long path",
    "two Authorization headers": "two credentials",
    "an `Expect` other than": "unknown Expect",
    "an unknown method": "BREW",
    "an unknown Transfer-Encoding": "coding gzip",
    "TRACE": "TRACE",
    "CONNECT with": "CONNECT",
    "`OPTIONS *`": "OPTIONS *",
    "HTTP/1.2": "HTTP/1.2",
    "HTTP/3.1": "HTTP/3.1",
    "`%2F` in the path": "%2F",
}
TAKEN = ("accepted", "ignored", "a slash")


def check_table(tally: Tally, trial: Trial) -> None:
    """What the document says of the recommended way behind a server is so."""
    text = (TOP / "deploy" / "servers.md").read_text()
    lines = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("|")]
    server = trial.set_up.server
    heads = next(line for line in lines if "lighttpd" in line and "nginx" in line[-1])
    column = [head.strip().lower() for head in heads].index(server)
    for row, case in ROWS.items():
        if case == "killed" and not lib_place.allows(NEEDS[kills]):
            continue
        cell = next(line for line in lines if line[0].strip().startswith(row))[column]
        cell, _, before = cell.partition("; before 1.4.77 ")
        if before and version_of("lighttpd") < (1, 4, 77):
            cell = before
        told = re.match(r"(\d{3})(?:, error (\d+))?", cell.strip())
        answer = trial.answers[case]
        found = isinstance(answer, Answer) and (answer.status, answer.error())
        well = found and ((answer.status == int(told[1]) and told[2] in (None, f"{answer.error()}"))
                          if told else cell.startswith(TAKEN) and answer.status == 200)
        tally.check(well, f"the table on {server}: {row}", (cell, found))


# What takes a server's patience, which slow_clients.py has in part: a stuck service, a
# slow header, many requests of an address; and what limits.py switches on.
SLOW = {"408", "504"}
ELSEWHERE = {"1007", "5010", "5011"}
OF_SERVERS = {3010, 3011, NO_ANSWER}  # the service never sends these


def check_statuses(tally: Tally, trials: list[Trial]) -> None:
    """The documents' statuses of each error are those that clients met."""
    own = {row.number: row.status for row in read_errors()}
    told = {each for each in read_met() if each[1] not in SLOW and each[0] not in ELSEWHERE}
    if version_of("lighttpd") >= (1, 4, 77):  # it answers 400 to the versions of HTTP
        told.discard(("3011", "505", "lighttpd"))
    met = {(f"{number}", f"{status}", trial.set_up.server)
           for trial in trials for number, status in trial.met
           if own[number] != status or number in OF_SERVERS}
    tally.check(met == told, "every status is documented, and met", met ^ told)


def table(trials: list[Trial]) -> str:
    """A line for each case, a column for each set-up; "!" marks a failure."""
    lines = ["", "columns:"]
    lines += [f"{n:4} {trial.set_up.name}" for n, trial in enumerate(trials, 1)]
    lines.append(f"\n{'':26}" + "".join(f"{n:5}" for n in range(1, len(trials) + 1)))
    for case in dict.fromkeys(case for trial in trials for case in trial.by_case()):
        line = f"{case:26}"
        for trial in trials:
            found = trial.by_case().get(case, [])
            shown = "/".join(sorted({result.shown for result in found})) or "-"
            line += f"{shown:>4}" + " !"[any(not result.well for result in found)]
        lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


def scenario(tally: Tally, build_dir: str, beginning: str) -> None:
    present = []
    for set_up in SET_UPS + MINIMAL:
        if not set_up.name.startswith(beginning):
            continue
        if reason := set_up.missing():
            tally.skip(f"{set_up.name} serves", reason)
        else:
            present.append(set_up)
    for part, need in NEEDS.items():
        tally.lacks(part.__doc__.splitlines()[0], need)
    trials = []
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        running_ = [pool.submit(run, set_up, build_dir) for set_up in present]
        for set_up, one in zip(present, running_):
            with tally.part(f"{set_up.name} is tried to the end"):
                trial = one.result()
                trials.append(trial)
                for case, found in trial.by_case().items():
                    wrong = [result.detail for result in found if not result.well]
                    tally.check(not wrong, f"{set_up.name}: {case}", wrong[:2])
                if set_up.mode in ("fastcgi", "proxy_fcgi") and not set_up.mount:
                    check_table(tally, trial)
    if not beginning and len(present) == len(SET_UPS + MINIMAL):
        check_statuses(tally, trials)
        needed = {difference for trial in trials for difference in trial.needed}
        for difference in DIFFERENCES:
            if len(difference.instead) == 1:
                who = "/".join(difference.who)
                tally.check(difference in needed, f"{who} differs in {'/'.join(difference.cases)}")
    print(table(trials))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build_dir")
    parser.add_argument("set_up", nargs="?", default="")
    options = parser.parse_args()
    return run_scenario(lambda tally: scenario(tally, options.build_dir, options.set_up))


if __name__ == "__main__":
    sys.exit(main())
