"""Goal: no peer of the responder's socket can hold up, hang or kill a worker.

usage: scenario_reactor.py BUILD_DIR

The worker is spoken to in FastCGI directly, without a web server before it.
"""

import concurrent.futures
import contextlib
import functools
import json
import os
import pathlib
import resource
import select
import shutil
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator

from lib_service import (
    FCGI_ABORT, FCGI_GET_VALUES, FCGI_PARAMS, FCGI_STDIN, Answer, FastCgiPeer,
    Responder, Store, Tally, fcgi_begin, fcgi_head, fcgi_pairs, fcgi_record, fcgi_request,
    fcgi_stream, is_stopped, main, new_plant, read_stat, responder, temporary_store, unread, wait_until,
)

from lib_faults import parts_side_by_side  # noqa: E402

STRACE = shutil.which("strace")
AT_ONCE = 4  # most of the time is waited
# Of a service under strace, where the leak check does not work.
TRACED = {"PLANT_STORE_THREADS": "1", "ASAN_OPTIONS": "detect_leaks=0"}
MUTE_PEERS = 200
CPU_MAX = 0.05
CPU_WATCH_S = 2.0
# A line for each kind of trouble, and one each time it begins anew.
LOG_LINES_MAX = 20
DESCRIPTORS = 16
WAITING_PEERS = 8  # for a descriptor
DEADLINE_S = 10.0  # of a request, from its connection to its last byte
SLACK_S = 3.0
# Half of the time for which a peer that holds it up would: a disk or a machine
# that is busy may take a second.
PROMPT_S = 5.0
STOP_S = 5.0
LARGE_LIMIT = 1 << 20
LARGE_BODY = 1_000_000
MEANWHILE_MIN = 3  # were they held up, the first would wait for the end
LULL_S = 1.2  # more than until an idle reactor writes its closing line
FEW_PEERS = 20
MANY_PEERS = 300  # more than a reactor takes at a time
SPOOLED_S = 0.3  # until what has begun to arrive is spooled
HALF = 40  # bytes of a request
LATE_S = 0.005  # more than a reactor takes for a prompt client
LATE_REQUESTS = 50
# On a busy machine a prompt client is not always prompt.
PROMPT_ROUNDS = 500
PROMPT_REQUESTS = 50  # of a round
LOG_CLIENTS = 4
LOG_REQUESTS = 60


class Reactor:
    """One responder, and the requests that are put to it."""

    def __init__(self, store: Store, service: Responder) -> None:
        self.store = store
        self.service = service
        self.pid = service.process.pid
        self.ids = 0

    def connect(self) -> FastCgiPeer:
        return FastCgiPeer(self.service.socket_path)

    def good(self, name: str = "good", *, keep: bool = False, **variables: str) -> bytes:
        """The bytes of a request with an id of its own."""
        self.ids += 1
        return self.store.fcgi(new_plant(self.ids, name), keep=keep, **variables)

    def exchange(self, data: bytes) -> Answer:
        with self.connect() as peer:
            return peer.exchange(data)

    def good_seconds(self) -> float:
        """Put a good request; how long its answer took."""
        start = time.monotonic()
        answer = self.exchange(self.good())
        if not answer.is_plant("good"):
            raise ValueError(f"a good request is answered {answer}")
        return time.monotonic() - start

    def check_served(self, tally: Tally, sentence: str) -> None:
        seconds = self.good_seconds()
        tally.check(seconds < PROMPT_S, sentence, f"after {seconds:.2f} s")

    def stored_ids(self) -> set[int]:
        """Of a journal that nobody is writing to."""
        return {plant["id"] for plant in self.store.plants()}

    def wait_written(self, plant_id: int) -> None:
        """Until its line is in the journal, maybe a part of it."""
        start = b'"id":%d,' % plant_id
        if not wait_until(lambda: start in self.store.journal.read_bytes()):
            raise RuntimeError(f"the plant {plant_id} is not written")


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = read_stat(pathlib.Path(f"/proc/{pid}/stat"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def check_idle(tally: Tally, reactor: Reactor, who: str) -> None:
    """Peers that do nothing cost next to no CPU, and few lines of log."""
    pid = reactor.service.worker()
    before = cpu_seconds(pid)
    time.sleep(CPU_WATCH_S)
    share = (cpu_seconds(pid) - before) / CPU_WATCH_S
    tally.check(share < CPU_MAX, f"{who}: less than {CPU_MAX:.0%} of a CPU", f"{share:.1%}")
    lines = reactor.service.log().splitlines()
    tally.check(len(lines) < LOG_LINES_MAX, f"{who}: no flood in the log", lines[-3:])


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@contextlib.contextmanager
def reacting(tally: Tally, store: Store, first_id: int = 0, **how) -> Iterator[Reactor]:
    """A responder alone, which ends well; `how` is for responder()."""
    with responder(store, watched=False, **how) as service:
        reactor = Reactor(store, service)
        reactor.ids = first_id
        yield reactor
    service.check_end(tally)


@contextlib.contextmanager
def dripping(peer: FastCgiPeer, data: bytes) -> Iterator[None]:
    """Send `data` a byte at a time, slower than the deadline allows."""
    stop = threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError):
            for byte in data:
                if stop.wait(0.2):
                    return
                peer.send(bytes([byte]))

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def check_slow_peers(tally: Tally, reactor: Reactor) -> None:
    """Mute, dripping and half-way peers, and good requests all the while."""
    with contextlib.ExitStack() as stack:
        request = reactor.good("half")
        half_id = reactor.ids
        start = time.monotonic()
        mute = [stack.enter_context(reactor.connect()) for _ in range(MUTE_PEERS)]
        half = stack.enter_context(reactor.connect())
        half.send(request[:-20])
        drip = stack.enter_context(reactor.connect())
        stack.enter_context(dripping(drip, request))
        check_idle(tally, reactor, "mute and dripping peers")
        slowest = 0.0
        while time.monotonic() < start + DEADLINE_S - 1:
            slowest = max(slowest, reactor.good_seconds())
            time.sleep(0.1)
        sentence = f"good requests are answered among {MUTE_PEERS} slow peers"
        tally.check(slowest < PROMPT_S, sentence, f"one after {slowest:.2f} s")

        def all_closed(peers: list[FastCgiPeer]) -> bool:
            end = start + DEADLINE_S + SLACK_S
            closed = 0
            for peer in peers:
                closed += peer.wait_closed(max(end - time.monotonic(), 0.01))
            return closed == len(peers)

        tally.check(all_closed(mute), "mute peers are closed by the deadline")
        tally.check(all_closed([half]), "a half request is closed by the deadline")
        tally.check(all_closed([drip]), "a dripping peer is closed by the deadline")
    stored = half_id in reactor.stored_ids()
    tally.check(not stored, "neither half nor dripped requests are stored")
    reactor.check_served(tally, "served after slow peers")


def check_connections(tally: Tally, reactor: Reactor) -> None:
    with reactor.connect() as peer:
        answers = [peer.exchange(reactor.good(keep=True)) for _ in range(5)]
        well = all(answer.is_plant("good") for answer in answers)
        tally.check(well, "a kept connection carries several requests", answers)
        refused = peer.exchange(reactor.good(keep=True, SCRIPT_NAME="/nowhere"))
        again = peer.exchange(reactor.good(keep=True))
        well = refused.is_error(404, 2001) and again.is_plant("good")
        tally.check(well, "a refusal keeps a kept connection", (refused, again))
        last = peer.exchange(reactor.good())
        closed = last.is_plant("good") and peer.wait_closed(PROMPT_S)
        tally.check(closed, "the last request's connection is closed", last)
    with reactor.connect() as peer:
        peer.send_slowly(reactor.good("in pieces"), 16, 0.01)
        answer = peer.answer()
        well = answer.is_plant("in pieces")
        tally.check(well, "a request in many small writes is answered", answer)
    with reactor.connect() as peer:
        # No web server does so; the first is answered, the second may be.
        peer.send(reactor.good("first", keep=True) + reactor.good(keep=True))
        answer = peer.answer()
        well = answer.is_plant("first")
        tally.check(well, "a request with another behind it is answered", answer)
    reactor.check_served(tally, "served after a second request came early")


def check_refused(
    tally: Tally, reactor: Reactor, sentence: str, data: bytes, status: int, number: int
) -> None:
    answer = reactor.exchange(data)
    tally.check(answer.is_error(status, number), sentence, answer)


def check_lengths(tally: Tally, reactor: Reactor) -> None:
    body = new_plant(reactor.ids + 1, "measured")
    size = len(body)
    before = reactor.stored_ids()
    for sentence, length, sent, *told in (
        ("STDIN longer than CONTENT_LENGTH is refused", size - 1, body, 400, 3005),
        ("STDIN shorter than CONTENT_LENGTH is refused", size + 1, body, 400, 3004),
        ("a length above the limit is 413", LARGE_LIMIT + 1, body, 413, 3007),
        ("an empty STDIN is no body", "", b"", 400, 3006),
        ("without a length the limit holds", "", b"x" * LARGE_BODY, 413, 3007),
    ):
        request = reactor.store.fcgi(sent, CONTENT_LENGTH=str(length))
        check_refused(tally, reactor, sentence, request, *told)
    tally.check(reactor.stored_ids() == before, "wrong lengths store nothing")
    answer = reactor.exchange(reactor.good("ended", CONTENT_LENGTH=""))
    tally.check(answer.is_plant("ended"), "STDIN's own end is enough", answer)


def large_request(reactor: Reactor) -> tuple[bytes, str]:
    reactor.ids += 1
    name = "l" * (LARGE_BODY - len(new_plant(reactor.ids, "")))
    return reactor.store.fcgi(new_plant(reactor.ids, name)), name


def check_large_bodies(tally: Tally, reactor: Reactor) -> None:
    """Bodies larger than any socket's buffer, with the limit raised."""
    request, name = large_request(reactor)
    tally.check(reactor.exchange(request).is_plant(name), f"a body of {LARGE_BODY} bytes is taken")
    request = reactor.good("many", **{f"HTTP_X_{i}": "x" * 8_000 for i in range(100)})
    well = reactor.exchange(request).is_plant("many")
    tally.check(well, "as many variables as Apache sends are taken")
    request, name = large_request(reactor)
    with reactor.connect() as peer:
        sender = threading.Thread(target=peer.send_slowly, args=(request, 20_000, 0.05))
        sender.start()
        meanwhile = 0
        while sender.is_alive():
            reactor.good_seconds()
            meanwhile += sender.is_alive()
        sender.join()
        well = peer.answer().is_plant(name)
    tally.check(well, "a large body in slow pieces is taken")
    tally.check(meanwhile >= MEANWHILE_MIN, "good requests are answered while it comes", meanwhile)
    with reactor.connect() as peer:
        request, _ = large_request(reactor)
        large_id = reactor.ids
        peer.send(request[: len(request) // 2])
    reactor.check_served(tally, "served after a large body broke off")
    stored = large_id in reactor.stored_ids()
    tally.check(not stored, "a large body that broke off is not stored")


def check_unread_answer(tally: Tally, reactor: Reactor) -> None:
    """An answer larger than the socket's buffer, whose peer goes without reading it."""
    request, _ = large_request(reactor)
    large_id = reactor.ids
    with reactor.connect() as peer:
        peer.send(request)
        select.select([peer.socket], [], [], DEADLINE_S)
    reactor.check_served(tally, "served after a peer that went within its large answer")
    tally.check(large_id in reactor.stored_ids(), "whose plant is stored")


def check_stop_in_a_lull(tally: Tally, reactor: Reactor) -> None:
    """SIGTERM while only a request that does not go on is there."""
    time.sleep(LULL_S)
    with reactor.connect() as peer:
        peer.send(reactor.good()[:-30])
        time.sleep(0.1)
        start = time.monotonic()
        os.kill(reactor.pid, signal.SIGTERM)
        status = reactor.service.process.wait(DEADLINE_S + SLACK_S)
        seconds = time.monotonic() - start
    well = status == 0 and seconds < STOP_S
    tally.check(well, "SIGTERM: half a request holds it up no longer", (status, seconds))


def check_large_refusals(tally: Tally, reactor: Reactor) -> None:
    """The same bodies where the limit is the default."""
    request, _ = large_request(reactor)
    sentence = "a body far above the limit is 413"
    check_refused(tally, reactor, sentence, request, 413, 3007)
    with reactor.connect() as peer:
        first = peer.exchange(reactor.store.fcgi(b"x" * LARGE_BODY, keep=True))
        second = peer.exchange(reactor.store.fcgi(b"{", keep=True))
        well = first.is_error(413, 3007) and second.is_error(400, 4001)
        tally.check(well, "its connection takes the next request", (first, second))


def check_broken_off(tally: Tally, reactor: Reactor) -> None:
    """A peer that goes at any place of its request."""
    before = reactor.stored_ids()
    request = reactor.good("cut")
    # Without the empty record that ends STDIN no request is whole.
    for at in range(0, len(request) - 8, 7):
        with reactor.connect() as peer:
            peer.send(request[:at])
            if at % 2:
                linger = struct.pack("ii", 1, 0)
                peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    reactor.check_served(tally, "served after requests that broke off anywhere")
    stored = reactor.stored_ids() - before - {reactor.ids}
    tally.check(not stored, "requests that broke off store nothing", stored)
    left = descriptors(reactor.service.worker())
    tally.check(left < 40, "no descriptor of theirs is left", left)
    with reactor.connect() as peer:
        peer.send(reactor.good("gone"))
    reactor.check_served(tally, "served after a peer that did not wait")


def malformed_requests(reactor: Reactor) -> dict[str, bytes]:
    """Of test_fcgi_frame's kinds some that a worker has to outlive in different places."""
    body = new_plant(999_999, "malformed")
    variables = list(reactor.store.request(body).items())
    head = fcgi_head(variables)
    stdin = fcgi_stream(FCGI_STDIN, body)
    # Well-formed, but with all its padding longer than a spool may be.
    padded = b"".join(
        struct.pack("!BBHHBx", 1, FCGI_PARAMS, 1, 1, 255) + bytes((byte,)) + bytes(255)
        for byte in fcgi_pairs([*variables, ("HTTP_X", "x" * 1000)]))

    def with_params(raw: bytes) -> bytes:
        return fcgi_begin() + fcgi_stream(FCGI_PARAMS, raw) + stdin

    return {
        "not FastCGI at all": b"GET /plants HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "only bytes 0xff": b"\xff" * 70_000,
        "GET_VALUES": fcgi_record(FCGI_GET_VALUES, fcgi_pairs([("FCGI_MAX_CONNS", "")]), 0),
        "a pair of 1 MiB that does not come": with_params(b"\x80\x10\0\0\x01A"),
        "PARAMS in bytes with padding": fcgi_begin() + padded + with_params(b"")[16:],
        "a NUL in a name": with_params(fcgi_pairs([("A\0B", "c")]) + fcgi_pairs(variables)[:-1]),
        "ABORT_REQUEST in STDIN": head + fcgi_record(FCGI_STDIN, body[:5]) + fcgi_record(FCGI_ABORT, b""),
    }


def check_malformed(tally: Tally, reactor: Reactor) -> None:
    worker = reactor.service.worker()
    for kind, data in malformed_requests(reactor).items():
        sentence = f"served after {kind}"
        with tally.part(sentence), contextlib.ExitStack() as stack:
            # Twice: one goes at once, one stays and waits for its answer.
            for stays in (False, True):
                peer = stack.enter_context(reactor.connect())
                with contextlib.suppress(OSError):
                    peer.send(data)
                if not stays:
                    peer.socket.close()
            reactor.check_served(tally, sentence)
    check_idle(tally, reactor, "malformed records")
    same = worker is not None and reactor.service.worker() == worker
    tally.check(same, "malformed records leave the worker alive", reactor.service.log())
    stored = 999_999 in reactor.stored_ids()
    tally.check(not stored, "malformed requests store nothing")
    usual = [*reactor.store.request(b"{}").items()]
    for sentence, more in (
        ("a variable twice is refused", [("CONTENT_LENGTH", "2")]),
        ("too many variables are refused", [(f"HTTP_X_{i}", "") for i in range(2000)]),
    ):
        request = fcgi_request(usual + more, b"{}")
        check_refused(tally, reactor, sentence, request, 400, 3009)


def check_stop(tally: Tally, reactor: Reactor) -> None:
    """SIGTERM between requests that are in and their answers; scenario_restart has a load."""
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(reactor.connect())
        kept = [stack.enter_context(reactor.connect()) for _ in range(50)]
        for peer in kept:
            peer.exchange(reactor.good(keep=True))
        sent = []
        for peer in kept:
            peer.send(reactor.good("last", keep=True))
            sent.append((reactor.ids, peer))
        os.kill(reactor.pid, signal.SIGTERM)
        start = time.monotonic()
        promised, unanswered = set(), []
        for plant_id, peer in sent:
            try:
                answer = peer.answer()
            except (OSError, ValueError) as error:
                unanswered.append(repr(error))
                continue
            if answer.is_plant("last"):
                promised.add(plant_id)
            elif not answer.is_error(503, 5005):
                unanswered.append(repr(answer))
        sentence = "SIGTERM: every request that was in is answered"
        tally.check(not unanswered, sentence, f"{len(unanswered)}: {unanswered[:2]}")
        status = reactor.service.process.wait(DEADLINE_S + SLACK_S)
        seconds = time.monotonic() - start
        tally.check(status == 0 and seconds < STOP_S, "SIGTERM: exit status 0, in time", (status, seconds))
    lost = promised - reactor.stored_ids()
    sentence = f"SIGTERM: all {len(promised)} acknowledged plants are in the journal"
    tally.check(bool(promised) and not lost, sentence, f"lost {sorted(lost)[:5]}")


PARTS = (
    check_connections, check_lengths, check_large_refusals, check_broken_off, check_malformed,
    check_slow_peers, check_stop,
)
LARGE_PARTS = (check_large_bodies, check_unread_answer, check_stop_in_a_lull)


def check_responder(tally: Tally, store: Store, threads: int) -> None:
    for first_id, parts, settings in (
        (0, PARTS, {}),
        (50_000, LARGE_PARTS, {"PLANT_STORE_BODY_BYTES_MAX": str(LARGE_LIMIT)}),
    ):
        settings["PLANT_STORE_THREADS"] = str(threads)
        with reacting(tally, store, threads * 100_000 + first_id, **settings) as reactor:
            reactor.check_served(tally, "a good request is answered")
            for part in parts:
                with tally.part(part.__name__):
                    part(tally, reactor)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """What is sent meanwhile has come when the process goes on."""

    os.kill(pid, signal.SIGSTOP)
    try:
        if not wait_until(lambda: is_stopped(pid)):
            raise RuntimeError("the process does not stop")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def check_descriptors(tally: Tally, store: Store) -> None:
    """Mute peers hold every descriptor that the process may have."""
    with reacting(tally, store, PLANT_STORE_THREADS="1") as reactor:
        reactor.check_served(tally, "served before there are too many peers")
        pid = reactor.service.worker()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        with contextlib.ExitStack() as stack:
            for _ in range(DESCRIPTORS):
                stack.enter_context(reactor.connect())
            filled = wait_until(lambda: descriptors(pid) == DESCRIPTORS)
            tally.check(filled, "mute peers hold all descriptors", descriptors(pid))
            waiting = [stack.enter_context(reactor.connect()) for _ in range(WAITING_PEERS)]
            for peer in waiting:
                peer.send(reactor.good())
            check_idle(tally, reactor, "without descriptors")
            answered = count_answered(waiting)
            sentence = "who waits for a descriptor is answered"
            tally.check(answered == WAITING_PEERS, sentence, answered)


def check_half_closed(tally: Tally, store: Store) -> None:
    with reacting(tally, store, PLANT_STORE_THREADS="1") as reactor:
        with reactor.connect() as peer:
            peer.exchange(reactor.good(keep=True))
            with stopped(reactor.pid):
                peer.send(reactor.good(keep=True))
                peer.socket.shutdown(socket.SHUT_WR)
            well = peer.answer().is_plant("good") and peer.wait_closed(PROMPT_S)
            tally.check(well, "who hangs up behind a request is answered and closed")


def check_closed_descriptors(tally: Tally, store: Store) -> None:
    """As FastCGI has it, where a program is started with descriptor 0 alone."""
    closing = ["/bin/sh", "-c", 'exec "$@" >&- 2>&-', "sh"]
    for start in "first", "second":
        with responder(store, watched=False, tracer=closing) as service:
            reactor = Reactor(store, service)
            reactor.ids = len(start)
            well = reactor.exchange(reactor.good()).is_plant("good")
            tally.check(well, f"without stdout and stderr the {start} start serves")
        tally.check(service.process.returncode == 0, "and ends well")
    plants = store.plants()  # where a message would be no line
    tally.check(len(plants) == 2, "and its messages go into no file", plants)


def traced(store: Store, calls: str, *faults: str) -> list[str]:
    """What becomes the responder, with these system calls traced or failing.

    strace counts the calls of each thread for itself.
    """
    words = [str(STRACE), "-D", "-f", "-qq", "--seccomp-bpf", "-e", "signal=none"]
    words += ["-o", str(store.root / "trace"), "-e", f"trace={calls}"]
    for fault in faults:
        words += ["-e", f"inject={fault}"]
    return words


def slow_syncs(store: Store, which: str, seconds: float) -> list[str]:
    delay_us = int(seconds * 1e6)
    fault = f"fdatasync:delay_enter={delay_us}:when={which}"
    return traced(store, "fdatasync", fault)


def begin_all(stack: contextlib.ExitStack, reactor: Reactor) -> list:
    """More peers than a reactor takes at a time, their requests half sent."""
    begun = []
    for _ in range(MANY_PEERS):
        peer = stack.enter_context(reactor.connect())
        request = reactor.good(keep=True)
        peer.send(request[:HALF])
        begun.append((peer, request[HALF:]))
    return begun


def count_answered(peers: list[FastCgiPeer]) -> int:
    answered = 0
    for peer in peers:
        with contextlib.suppress(OSError, ValueError):
            answered += peer.answer().is_plant("good")
    return answered


def check_long_sync(tally: Tally, store: Store) -> None:
    """A sync that takes longer than a request may."""
    settings = TRACED | {"PLANT_STORE_BODY_BYTES_MAX": str(LARGE_LIMIT)}
    tracer = slow_syncs(store, "2", DEADLINE_S + 1)
    with (
        responder(store, watched=False, tracer=tracer, **settings) as service,
        contextlib.ExitStack() as stack,
    ):
        reactor = Reactor(store, service)
        deadline = time.monotonic() + DEADLINE_S
        begun = begin_all(stack, reactor)
        # None is only looked at any more, which has a deadline of its own.
        time.sleep(SPOOLED_S)
        reactor.exchange(reactor.good())
        request, name = large_request(reactor)
        large = stack.enter_context(reactor.connect())
        large.send(request)
        reactor.wait_written(reactor.ids)
        for peer, rest in begun:
            with contextlib.suppress(BrokenPipeError):
                peer.send(rest)
        # A machine that is twenty times busier may not send all of it in time.
        in_time = time.monotonic() < deadline
        early = select.select([large.socket], [], [], PROMPT_S)[0]
        tally.check(not early, "nobody is answered before the sync has ended")
        # Not read until some others are answered, far longer than a round; it is
        # given up after DEADLINE_S, within which a busy test cannot read all.
        peers = [peer for peer, _ in begun]
        answered = count_answered(peers[:FEW_PEERS])
        try:
            well, detail = large.answer().is_plant(name), ""
        except OSError as error:
            well, detail = False, str(error)
        tally.check(well, "and an answer of which the socket took a part is not cut",
                    detail)
        answered += count_answered(peers[FEW_PEERS:])
        sentence = "requests that came in time are answered after a long sync"
        tally.check(answered == MANY_PEERS or not in_time, sentence, answered)
    service.check_end(tally)


def check_stop_within_sync(tally: Tally, store: Store) -> None:
    """SIGTERM during a sync, while requests begin on kept connections."""
    with contextlib.ExitStack() as stack:
        # All but the first, which is of the requests that open connections.
        tracer = slow_syncs(store, "2+", LULL_S)
        service = stack.enter_context(responder(store, watched=False, tracer=tracer, **TRACED))
        reactor = Reactor(store, service)
        kept = [stack.enter_context(reactor.connect()) for _ in range(MANY_PEERS)]
        requests = [reactor.good(keep=True) for _ in kept]
        with stopped(service.process.pid):
            for peer, request in zip(kept, requests, strict=True):
                peer.send(request)
        tally.check(count_answered(kept) == MANY_PEERS, "many connections are kept")
        # Of new plants, whose commit needs a sync too.
        requests = [reactor.good(keep=True) for _ in kept]
        slow = stack.enter_context(reactor.connect())
        slow.send(reactor.good("slow"))
        reactor.wait_written(reactor.ids)
        os.kill(service.process.pid, signal.SIGTERM)
        time.sleep(0.1)  # until its own thread has told the reactor
        for peer, request in zip(kept, requests, strict=True):
            peer.send(request[:HALF])
        tally.check(slow.answer().is_plant("slow"), "SIGTERM within a sync: answered")
        # The first begins a sync that takes longer than the others may.
        kept[0].send(requests[0][HALF:])
        time.sleep(0.1)
        for peer, request in zip(kept[1:], requests[1:], strict=True):
            with contextlib.suppress(OSError):
                peer.send(request[HALF:])
        answered = count_answered(kept)
        sentence = "SIGTERM: requests that have begun on kept connections are answered"
        tally.check(answered == MANY_PEERS, sentence, answered)
        status = service.process.wait(DEADLINE_S)
        tally.check(status == 0, "SIGTERM within a sync: exit status 0", status)


def check_early_request(tally: Tally, store: Store) -> None:
    """The next request on a connection whose plant waits for the commit."""
    settings = TRACED | {"PLANT_STORE_THREADS": "2"}
    tracer = slow_syncs(store, "1+", 2 * LULL_S)
    with reacting(tally, store, tracer=tracer, **settings) as reactor:
        reactor.exchange(reactor.good())
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(reactor.connect())
            first.send(reactor.good())
            reactor.wait_written(reactor.ids)
            # One reactor is in its sync; the other reads this and waits for it.
            early = stack.enter_context(reactor.connect())
            request = reactor.good(keep=True)
            read = True
            for part in (request[:HALF], request[HALF:]):
                early.send(part)
                read = read and wait_until(lambda: unread(early.socket, True) == 0)
            early.send(reactor.good(keep=True))
            well = read and early.answer().is_plant("good")
            tally.check(well, "a request is answered although the next came early")
            # If a busy machine has sent that after the answer, it is answered.
            try:
                ended = early.answer().is_plant("good")
            except ConnectionError:
                ended = True
            except TimeoutError:
                ended = False
            tally.check(ended, "and its connection is closed, so that none hangs")
            first.answer()


def check_listener(tally: Tally, store: Store) -> None:
    """A shortage that ends, and no further connection that would show it."""
    # The first accept4 finds out whether there is such a call.
    for error, message in (
        ("EMFILE", "Too many open files; raise the limit on open files"),
        ("ENOBUFS", "No buffer space available"),
    ):
        tracer = traced(store, "accept4", f"accept4:error={error}:when=2..21")
        (store.root / "responder.log").write_bytes(b"")
        # The probe whether it listens is its first connection.
        began = time.monotonic()
        with reacting(tally, store, len(error), tracer=tracer, **TRACED) as reactor:
            seconds = reactor.good_seconds()
            # Twenty attempts, each 50 ms after the one before; else each would be 1 s.
            well = time.monotonic() - began > 0.5 and seconds < 3 * PROMPT_S
            tally.check(well, "it waits between attempts to accept", seconds)
            lines = [line for line in reactor.service.log().splitlines() if "cannot" in line]
            well = len(lines) == 1 and lines[0].endswith(f": {message}")
            tally.check(well, f"{error} is reported once, with its remedy", lines)


def check_abort(tally: Tally, store: Store) -> None:
    """As by assert() or the stack protector, in the middle of a commit."""
    tracer = slow_syncs(store, "2", LULL_S)
    with responder(store, watched=False, tracer=tracer, **TRACED) as service:
        reactor = Reactor(store, service)
        reactor.good_seconds()
        with reactor.connect() as peer:
            peer.send(reactor.good())
            reactor.wait_written(reactor.ids)
            os.kill(service.process.pid, signal.SIGABRT)
            status = service.process.wait(DEADLINE_S)
    tally.check(status == -signal.SIGABRT, "an abort ends it as always", status)
    left = (store.dir / "index" / "manifest").exists()
    tally.check(left, "the index is not blamed for an abort", service.log())


def check_looking(tally: Tally, store: Store) -> None:
    def yields() -> int:
        return (store.root / "trace").read_text().count("sched_yield(")

    tracer = traced(store, "sched_yield")
    with reacting(tally, store, tracer=tracer, **TRACED) as reactor:
        with reactor.connect() as peer:
            for _ in range(LATE_REQUESTS):
                peer.exchange(reactor.good(keep=True))
                time.sleep(LATE_S)
            seen = yields()
            # On a busy machine a reactor may find some of them prompt.
            tally.check(seen < LATE_REQUESTS / 2, "it sleeps where the client takes its time", seen)
            with reactor.connect() as other:
                other.exchange(reactor.good(keep=True))
                with stopped(reactor.pid):
                    before = yields()
                    peer.send(reactor.good(keep=True))
                    other.send(reactor.good())
                stored = [each.answer().is_plant("good") for each in (peer, other)]
            well = all(stored) and yields() > before
            tally.check(well, "it lets others send before it stores two at once")
            before = yields()
            for _ in range(PROMPT_ROUNDS):
                for request in [reactor.good(keep=True) for _ in range(PROMPT_REQUESTS)]:
                    peer.exchange(request)
                if yields() > before:
                    break
            tally.check(yields() > before, "it polls for a prompt client's next request")


def ask_many(reactor: Reactor, numbers: range) -> list[tuple[str | None, int]]:
    """Each third request is refused, each fifth has an id: ids and statuses."""
    found = []
    for number in numbers:
        more = {"HTTP_AUTHORIZATION": "Basic x"} if number % 3 == 0 else {}
        if number % 5 == 0:
            more["HTTP_X_REQUEST_ID"] = f"given-{number}"
        answer = reactor.exchange(reactor.store.fcgi(new_plant(number, "logged"), **more))
        found.append((answer.header("X-Request-Id"), answer.status))
    return found


def ask_side_by_side(reactor: Reactor) -> list[tuple[str | None, int]]:
    with concurrent.futures.ThreadPoolExecutor(LOG_CLIENTS) as pool:
        starts = range(1, LOG_CLIENTS * LOG_REQUESTS, LOG_REQUESTS)
        ranges = [range(start, start + LOG_REQUESTS) for start in starts]
        return sum(pool.map(lambda numbers: ask_many(reactor, numbers), ranges), [])


def check_log(tally: Tally, store: Store) -> None:
    """Each answer has an id of its own and its line; refusals are summed up."""
    settings = {"PLANT_STORE_LOG_FORMAT": "json", "PLANT_STORE_LOG_LEVEL": "debug"}
    with reacting(tally, store, **settings) as reactor:
        asked = ask_side_by_side(reactor)
    service = reactor.service
    lines = [json.loads(line) for line in service.log().splitlines()]
    logged = [(at["request"], at["status"]) for at in lines if "request" in at]
    sentence = "each answer is one line at debug, with its id and status"
    tally.check(sorted(logged) == sorted(asked), sentence, logged[:5])
    ids = {request for request, _ in asked}
    tally.check(None not in ids and len(ids) == len(asked), "no id comes twice")
    fields = {"time", "level", "program", "message"}
    well = all(fields <= at.keys() for at in lines) and len(lines) > len(asked)
    tally.check(well, "each line is a JSON object with all members")
    refused = sum(status == 401 for _, status in asked)
    sums = [at["errors"]["1002"] for at in lines if "errors" in at]
    tally.check(sum(sums) == refused, "and the refusals are summed up", sums)
    service.log_path.unlink()
    with reacting(tally, store) as reactor:
        ask_side_by_side(reactor)
        service = reactor.service
        summed = f"refused requests by error number (1002={refused})"
        service.process.send_signal(signal.SIGHUP)
        well = wait_until(lambda: summed in service.log())
        tally.check(well, "SIGHUP has them logged at once", service.log())
        ask_many(reactor, range(3, 4))
    sums = [line for line in service.log().splitlines() if "1002" in line]
    expected = [f"plant-store.fcgi: {summed}"]
    expected.append("plant-store.fcgi: refused requests by error number (1002=1)")
    sentence = "the end has the rest, and at info there is no other line of them"
    tally.check(sums == expected, sentence, sums)


def check_minute(tally: Tally, store: Store) -> None:
    """The waits for a second end early, as if it had passed."""
    early = "rt_sigtimedwait:error=EAGAIN:delay_enter=60000:when=1..120"
    tracer = traced(store, "rt_sigtimedwait", early)
    with reacting(tally, store, tracer=tracer, **TRACED) as reactor:
        ask_many(reactor, range(3, 4))
        log = reactor.service.log
        summed = "refused requests by error number (1002=1)"
        well = wait_until(lambda: summed in log())
        tally.check(well, "each minute has the refusals in one line", log())
        waits = (store.root / "trace").read_text().count("tv_sec=1, tv_nsec=0")
        tally.check(waits >= 60, "a minute is 60 s", waits)
    tally.check(log().count(summed) == 1, "and no line without any")


UNTRACED = (check_log, check_descriptors, check_half_closed, check_closed_descriptors)


def scenario(tally: Tally, build_dir: str) -> None:
    if tally.lacks("what a reactor does", "a writable /dev/shm"):
        return

    def run(check: Callable, own: Tally) -> None:
        with temporary_store(build_dir) as store:
            check(own, store)

    # What waits longest comes first.
    parts = [(f"the responder with {threads} threads",
              functools.partial(run, functools.partial(check_responder, threads=threads)))
             for threads in (1, 2)]
    for check in (check_log, check_minute, check_descriptors, check_half_closed, check_closed_descriptors,
                  check_looking, check_early_request, check_listener, check_abort,
                  check_long_sync, check_stop_within_sync):
        if check not in UNTRACED and not STRACE:
            tally.skip(check.__name__, "no strace")
        else:
            parts.append((check.__name__, functools.partial(run, check)))
    parts_side_by_side(tally, parts, AT_ONCE)


if __name__ == "__main__":
    sys.exit(main(scenario))
