"""The load of the fault tests: client processes that record what they are told.

A client is a process of its own that works through a plan, an iterable of
(id, name, tag), over one way to the service; see `kept`, `single` and `http`.
"""

import collections
import contextlib
import functools
import http.client
import multiprocessing
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import lib_faults
import lib_service
from history import Event
from lib_service import WAIT_S, Answer, FastCgiPeer, HttpClient, Store, Tally, new_plant, wait_until

Planned = tuple[int, str, str | None]
Plan = Callable[[int], Iterable[Planned]]
Exchange = Callable[[bytes], Answer]

PROCESSES = multiprocessing.get_context("fork")
IDS_PER_CLIENT = 1 << 32
ERROR_BUSY = 5004
# From a request's first byte to its answer: the responder's own deadlines are
# 10 s to arrive and 5 s for the store's lock, twice if it waits for a turn.


# --- Ways to the service -----------------------------------------------------


@contextlib.contextmanager
def kept(store: Store, socket_path: pathlib.Path) -> Iterator[Exchange]:
    """One FastCGI connection, kept as long as it lasts."""
    with contextlib.ExitStack() as stack:
        peers: list[FastCgiPeer] = []

        def exchange(body: bytes) -> Answer:
            if not peers:
                peers.append(stack.enter_context(FastCgiPeer(socket_path, WAIT_S)))
            try:
                return peers[0].exchange(store_request(store, body, keep=True))
            except BaseException:
                peers.pop().socket.close()
                raise

        yield exchange


@contextlib.contextmanager
def single(store: Store, socket_path: pathlib.Path) -> Iterator[Exchange]:
    """A FastCGI connection for each request."""

    def exchange(body: bytes) -> Answer:
        with FastCgiPeer(socket_path, WAIT_S) as peer:
            return peer.exchange(store_request(store, body, keep=False))

    yield exchange


@contextlib.contextmanager
def over_http(store: Store, port: int) -> Iterator[Exchange]:
    """One HTTP connection to a web server, kept as long as it lasts."""
    client = HttpClient(port, store.token, WAIT_S)
    with contextlib.closing(client):
        yield client.send


@contextlib.contextmanager
def over_cgi(store: Store) -> Iterator[Exchange]:
    """A process for each request."""

    def exchange(body: bytes) -> Answer:
        done = store.cgi(body)
        return lib_service.check_length(lib_service.parse_cgi(done.stdout))

    yield exchange


def store_request(store: Store, body: bytes, *, keep: bool) -> bytes:
    head = _request_head(store.token, len(body), keep)
    return head + lib_service.fcgi_stream(lib_service.FCGI_STDIN, body)


@functools.lru_cache(maxsize=4096)
def _request_head(token: str, length: int, keep: bool) -> bytes:
    """The records before the body: the same for all bodies of a length."""
    store = Store(pathlib.Path(), pathlib.Path(), token)
    variables = store.request(b"", CONTENT_LENGTH=str(length))
    return lib_service.fcgi_head(variables.items(), keep=keep)


def half_kept(store: Store, workers, clients: int) -> list[Callable]:
    """Ways to a service.Pool for clients, half of which keep their connections."""
    ways = (kept, single) * (clients // 2)
    return [functools.partial(way, store, workers.socket_path) for way in ways]


# --- Requests ----------------------------------------------------------------


LOST = (OSError, http.client.HTTPException, subprocess.SubprocessError)


def ask(exchange: Exchange, planned: Planned) -> tuple[Event, Answer | None]:
    """ValueError if what came is no answer, or one of another plant."""
    plant_id, name, tag = planned
    start = time.monotonic()
    try:
        answer = exchange(new_plant(plant_id, name, tag))
    except LOST:
        answer = None
    outcome = lib_faults.outcome_of(answer)
    event = Event(start, time.monotonic(), plant_id, (name, tag), outcome)
    if event.outcome == "created_or_same" and not answer.is_plant(name, tag):
        raise ValueError(f"a 200 says another plant: {planned}, {answer}")
    return event, answer


# --- Clients -----------------------------------------------------------------


class Load:
    """Client processes; `with Load(...) as load`, then `load.events`.

    `insist`: ask again, after `again_s`, until the answer is 200 or 409.
    """

    def __init__(
        self, ways: list[Callable[[], contextlib.AbstractContextManager[Exchange]]], plan: Plan,
        *, insist: bool = True, pause_s: float = 0.0, again_s: float = 0.005
    ) -> None:
        self.ways = ways
        self.plan = plan
        self.insist = insist
        self.pause_s = pause_s
        self.again_s = again_s
        self.events: list[Event] = []
        self.answers: collections.Counter[str] = collections.Counter()
        self.seconds = 0.0
        self.wrong: list[str] = []
        self._told = PROCESSES.Array("q", len(ways), lock=False)
        self._stop = PROCESSES.Event()
        self._clients: list[tuple] = []

    def __enter__(self) -> "Load":
        self._begun = time.monotonic()
        for number in range(len(self.ways)):
            ours, theirs = PROCESSES.Pipe(duplex=False)
            process = PROCESSES.Process(target=self._run, args=(number, theirs))
            process.start()
            theirs.close()
            self._clients.append((process, ours))
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.join()

    def told(self) -> int:
        """How many answers 200 and 409 there were so far."""
        return sum(self._told)

    def told_each(self) -> list[int]:
        return list(self._told)

    def all_served(self, seconds: float = WAIT_S) -> bool:
        """Whether every client is told something more in that time."""
        before = self.told_each()
        return wait_until(lambda: all(b > a for a, b in zip(before, self.told_each())), seconds)

    def wait_told(self, more: int, seconds: float = WAIT_S) -> bool:
        wanted = self.told() + more
        return wait_until(lambda: self.told() >= wanted, seconds)

    def stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        """Wait for the ends of the plans, or of the last requests."""
        for process, pipe in self._clients:
            with contextlib.suppress(EOFError):
                events, answers, wrong = pipe.recv()
                self.events += events
                self.answers += answers
                self.wrong += wrong
            process.join()
            if process.exitcode:
                self.wrong.append(f"a client ended with {process.exitcode}")
        if self._clients:
            self.seconds = time.monotonic() - self._begun
        self._clients = []

    def rate(self) -> str:
        done = sum(e.outcome in ("created_or_same", "conflict") for e in self.events)
        return f"{done} answers in {self.seconds:.1f} s, {done / self.seconds:.0f}/s"

    def slowest(self) -> float:
        return max((e.end - e.start for e in self.events), default=0.0)

    def _run(self, number: int, pipe) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        events: list[Event] = []
        answers: collections.Counter[str] = collections.Counter()
        wrong: list[str] = []
        parent = os.getppid()
        with self.ways[number]() as exchange:
            for planned in self.plan(number):
                while not self._stop.is_set() and os.getppid() == parent:
                    try:
                        event, answer = ask(exchange, planned)
                    except ValueError as error:
                        wrong.append(str(error))
                        break
                    events.append(event)
                    answers[label(answer)] += 1
                    if event.outcome in ("created_or_same", "conflict"):
                        self._told[number] += 1
                        break
                    if not self.insist:
                        break
                    time.sleep(self.again_s)
                if self._stop.is_set() or os.getppid() != parent:
                    break
                if self.pause_s:
                    time.sleep(self.pause_s)
        pipe.send((events, answers, wrong))
        pipe.close()


def label(answer: Answer | None) -> str:
    if answer is None:
        return "lost"
    number = answer.error()
    return str(answer.status) if number is None else f"{answer.status}/{number}"


def mixed_plan(number: int, *, first: int = 0, contested: int = 100_000) -> Iterator:
    """For ever: own plants, some of them again, and ids that others want too."""
    chance = random.Random(number)
    next_id = first + (number + 1) * IDS_PER_CLIENT
    begin = next_id
    while True:
        luck = chance.random()
        if luck < 0.15:
            plant_id = -1 - first - chance.randrange(contested)
            yield plant_id, f"client {number}", None
        elif luck < 0.3 and next_id > begin:
            yield own_plant(number, chance.randrange(begin, next_id))
        else:
            yield own_plant(number, next_id)
            next_id += 1


def own_plant(number: int, plant_id: int) -> Planned:
    return plant_id, f"plant {plant_id} of {number}", "tag" if plant_id % 2 else None


# --- Judging -----------------------------------------------------------------


def judge(tally: Tally, events: Iterable[Event], store: Store, sentence: str) -> bool:
    """The history against the journal as it is now."""
    events = list(events)
    violations = lib_faults.judge(store, events)
    told = sum(event.outcome == "created_or_same" for event in events)
    detail = f"{len(violations)} violations: {violations[:3]}"
    print(f"# {sentence}: {len(events)} events, {told} answered 200", flush=True)
    return tally.check(told > 0 and not violations, f"{sentence}: history", detail)


def main(scenario: Callable[[Tally, str, bool], None]) -> int:
    """Run a fault test: BUILD_DIR and perhaps --long."""
    return lib_faults.run_script(sys.modules["__main__"].__doc__ or "", lambda tally,
                          arguments: scenario(tally, str(arguments.build), arguments.long))
