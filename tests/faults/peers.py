"""Goal: no peer can end, spin or hold up a worker, nor flood its log.

usage: peers.py [--long] BUILD_DIR

Peers that say nothing, drip, vanish in the middle or send malformed records,
each beside clients that behave; then the same with no descriptors left.
"""

import concurrent.futures
import contextlib
import functools
import os
import random
import resource
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator

from load import (
    Event, Load, Tally, ask, half_kept, judge, lib_service, main, mixed_plan, own_plant, single,
    store_request,
)
from lib_service import Answer, FastCgiPeer, Store, new_plant, temporary_store, wait_until
from scenario_reactor import Reactor, malformed_requests
from service import Pool, adopt_orphans, cpu_share, pool

WORKERS = 2
CLIENTS = 4
MUTE_PEERS = 200
DRIPPING_PEERS = 20
DEADLINE_S = 10.0  # of a request, from its connection to its last byte
SLACK_S = 3.0  # of a busy machine
ANSWER_S = DEADLINE_S + SLACK_S
CPU_MAX = 0.05
WATCH_S = 3.0
# A line for each kind of trouble, and one each time it begins anew.
LOG_LINES_MAX = 20
DESCRIPTORS = 16
VANISHED_ID = 1 << 52
VANISHED_MIN = 100


@contextlib.contextmanager
def mute_peers(workers: Pool, count: int) -> Iterator[list[FastCgiPeer]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(FastCgiPeer(workers.socket_path)) for _ in range(count)]


@contextlib.contextmanager
def in_background(work, *arguments) -> Iterator[None]:
    """`work(stop, *arguments)` until the block ends; it must not end before."""
    stop = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        working = executor.submit(work, stop, *arguments)
        try:
            yield
        finally:
            stop.set()
        working.result()


def drip(stop: threading.Event, store: Store, workers: Pool, count: int) -> None:
    """A byte a second of a good request, again from the beginning when closed."""
    request = store_request(store, new_plant(VANISHED_ID, "dripped"), keep=False)
    peers: list[tuple[FastCgiPeer, Iterator[int]]] = []
    with contextlib.ExitStack() as stack:
        while not stop.wait(1.0):
            while len(peers) < count:
                peer = stack.enter_context(FastCgiPeer(workers.socket_path))
                peers.append((peer, iter(request[:-1])))
            for item in list(peers):
                try:
                    item[0].send(bytes([next(item[1])]))
                except (OSError, StopIteration):
                    peers.remove(item)


class Vanishers:
    """Peers that go at any place of their request, politely or not."""

    def __init__(self) -> None:
        self.gone = 0

    def work(self, stop: threading.Event, store: Store, workers: Pool) -> None:
        chance = random.Random(3)
        while not stop.wait(0.002):
            self.gone += 1
            name = "v" * chance.choice((3, 3000, 50_000))
            body = new_plant(VANISHED_ID + self.gone, name)
            request = store_request(store, body, keep=chance.random() < 0.5)
            # Without the empty record that ends STDIN no request is whole.
            cut = chance.randrange(len(request) - 8)
            with FastCgiPeer(workers.socket_path) as peer:
                with contextlib.suppress(OSError):
                    peer.send(request[:cut])
                if chance.random() < 0.5:
                    linger = struct.pack("ii", 1, 0)
                    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


class Malformed:
    """Every kind of malformed record, by peers that go and peers that stay."""

    def __init__(self, kinds: dict[str, bytes]) -> None:
        self.kinds = kinds
        self.sent = 0

    def work(self, stop: threading.Event, workers: Pool) -> None:
        staying: list[FastCgiPeer] = []
        while not stop.is_set():
            for data in self.kinds.values():
                for stays in (False, True):
                    peer = FastCgiPeer(workers.socket_path)
                    with contextlib.suppress(OSError):
                        peer.send(data)
                    self.sent += 1
                    if stays:
                        staying.append(peer)
                    else:
                        peer.socket.close()
                while len(staying) > 200:
                    staying.pop(0).socket.close()
                if stop.wait(0.005):
                    break
        for peer in staying:
            peer.socket.close()


class Watch:
    """What a kind of peers must not change, from its beginning to its end."""

    def __init__(self, tally: Tally, workers: Pool, who: str) -> None:
        self.tally, self.pool, self.who = tally, workers, who
        self.pids = sorted(workers.workers())
        self.log_before = workers.log_bytes()

    def check(self) -> None:
        same = sorted(self.pool.workers()) == self.pids and bool(self.pids)
        log = self.pool.log()[self.log_before:]
        lines = log.splitlines()
        self.tally.check(same, f"{self.who}: no worker ends", log[-500:])
        self.tally.check(len(lines) < LOG_LINES_MAX, f"{self.who}: no flood in the log", lines[:3])
        print(f"# {self.who}: {len(lines)} lines of log", flush=True)

    def check_cpu(self) -> None:
        share = cpu_share(self.pids, WATCH_S)
        sentence = f"{self.who}: less than {CPU_MAX:.0%} of a CPU"
        self.tally.check(share < CPU_MAX, sentence, f"{share:.1%}")
        print(f"# {self.who}: {share:.1%} of a CPU", flush=True)

    def check_answers(self, load: Load, among: str = "200") -> None:
        self.tally.check(set(load.answers) <= {among, "409/5001"} and bool(load.answers),
                         f"{self.who}: every good request is answered well", load.answers)
        sentence = f"{self.who}: every answer is the plant sent"
        self.tally.check(not load.wrong, sentence, load.wrong[:2])
        slowest = load.slowest()
        sentence = f"{self.who}: each within {ANSWER_S} s"
        self.tally.check(slowest < ANSWER_S, sentence, f"{slowest:.2f} s")
        print(f"# {self.who}: {load.rate()}, slowest {slowest:.3f} s", flush=True)


def good_load(store: Store, workers: Pool, seconds: float, first: int) -> Load:
    plan = functools.partial(mixed_plan, first=first, contested=1000)
    with Load(half_kept(store, workers, CLIENTS), plan, pause_s=0.002) as load:
        time.sleep(seconds)
        load.stop()
    return load


def check_slow(tally: Tally, store: Store, workers: Pool) -> list[Event]:
    watch = Watch(tally, workers, "mute and dripping peers")
    with mute_peers(workers, MUTE_PEERS) as peers:
        with in_background(drip, store, workers, DRIPPING_PEERS):
            began = time.monotonic()
            watch.check_cpu()
            load = good_load(store, workers, 6, 1 << 44)
            watch.check_answers(load)
            end = began + ANSWER_S
            closed = [peer.wait_closed(max(end - time.monotonic(), 0.01)) for peer in peers]
            sentence = "mute peers are closed by the deadline"
            tally.check(all(closed), sentence, f"{closed.count(False)} are not")
            watch.check_cpu()
    watch.check()
    return load.events


def check_vanishing(tally: Tally, store: Store, workers: Pool) -> list[Event]:
    watch = Watch(tally, workers, "vanishing peers")
    vanishers = Vanishers()
    with in_background(vanishers.work, store, workers):
        load = good_load(store, workers, 4, 1 << 45)
    watch.check_answers(load)
    print(f"# {vanishers.gone} peers vanished", flush=True)
    tally.check(vanishers.gone >= VANISHED_MIN, "vanishing peers: there were many", vanishers.gone)
    watch.check_cpu()
    watch.check()
    left = [descriptors(pid) for pid in watch.pids]
    tally.check(max(left) < 40, "no descriptor of theirs is left", left)
    return load.events


def check_malformed(tally: Tally, store: Store, workers: Pool) -> list[Event]:
    watch = Watch(tally, workers, "malformed records")
    service = lib_service.Responder(
        workers.supervisor, workers.socket_path, workers.log_path, True)
    malformed = Malformed(malformed_requests(Reactor(store, service)))
    with in_background(malformed.work, workers):
        load = good_load(store, workers, 4, 1 << 46)
    watch.check_answers(load)
    print(f"# {malformed.sent} of {len(malformed.kinds)} kinds sent", flush=True)
    tally.check(malformed.sent >= 2 * len(malformed.kinds), "every kind was sent", malformed.sent)
    watch.check_cpu()
    watch.check()
    return load.events


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def check_descriptors(tally: Tally, build_dir: str) -> None:
    """Mute peers hold every descriptor that a worker may have."""
    with temporary_store(build_dir) as store, pool(store, 1) as workers:
        with FastCgiPeer(workers.socket_path) as peer:

            def exchange(body: bytes) -> Answer:
                answer = peer.exchange(store_request(store, body, keep=False))
                # Until then it has a descriptor.
                peer.wait_closed(DEADLINE_S)
                return answer

            events = [ask(exchange, own_plant(0, 2))[0]]
        pid = workers.workers()[0]
        limits = (DESCRIPTORS, DESCRIPTORS)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        watch = Watch(tally, workers, f"{DESCRIPTORS} descriptors")
        free = DESCRIPTORS - descriptors(pid)
        print(f"# {free} of {DESCRIPTORS} descriptors are free", flush=True)
        with mute_peers(workers, free):
            filled = wait_until(lambda: descriptors(pid) == DESCRIPTORS, 5)
            tally.check(filled, "mute peers hold all descriptors", descriptors(pid))
            plan = lambda number: [own_plant(number, (number + 1) << 33)]  # noqa: E731
            with Load(half_kept(store, workers, CLIENTS), plan, insist=False) as load:
                watch.check_cpu()
                load.join()
            watch.check_answers(load)
            events += load.events
        watch.check_cpu()
        # As many clients as would need more descriptors than there are.
        many = [functools.partial(single, store, workers.socket_path)] * (2 * free)
        plan = functools.partial(mixed_plan, first=1 << 47)
        with Load(many, plan) as load:
            time.sleep(2)
            load.stop()
        watch.check_answers(load)
        watch.check()
        events += load.events
        judge(tally, events, store, f"{DESCRIPTORS} descriptors")


def scenario(tally: Tally, build_dir: str, long: bool) -> None:
    adopt_orphans()
    for _ in range(5 if long else 1):
        with temporary_store(build_dir) as store, pool(store, WORKERS) as workers:
            with single(store, workers.socket_path) as exchange:
                events = [ask(exchange, own_plant(0, 1))[0]]
            wait_until(lambda: len(workers.workers()) == WORKERS)
            for part in (check_slow, check_vanishing, check_malformed):
                with tally.part(part.__name__):
                    events += part(tally, store, workers)
            stored = {plant["id"] for plant in store.plants()}
            bad = {i for i in stored if VANISHED_ID <= i < VANISHED_ID << 1}
            sentence = "nothing of a vanished, dripping or malformed peer is stored"
            tally.check(not bad and 999_999 not in stored, sentence, sorted(bad)[:3])
            judge(tally, events, store, "peers")
        with tally.part("descriptors"):
            check_descriptors(tally, build_dir)


if __name__ == "__main__":
    sys.exit(main(scenario))
