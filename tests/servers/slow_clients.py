#!/usr/bin/env python3
"""Goal: clients that drip a byte every 10 s hold nobody else up.

usage: slow_clients.py [--long] BUILD_DIR [SERVER]

Behind each web server, as configured in deploy/, 2,200 connections send a byte
every 10 s; one that is closed connects again.  Meanwhile good requests come from
another address, each on a connection of its own, and one honest client is slow.
By default 1,100 drip in the body, from one address, and 1,100 in the header, from
200; with --long all of them do each, for longer.
"""

import argparse
import concurrent.futures
import contextlib
import heapq
import json
import math
import resource
import selectors
import socket
import sys
import threading
import time
from collections.abc import Iterator

from lib_servers import SET_UPS, Running, SetUp, running
from lib_service import Tally, new_plant, run_scenario, wait_until
from lib_wire import Wire

# Connections: more than two processes of 1024 descriptors each can hold.
SLOW = 2200
DRIP_S = 10.0
ONE = ["127.0.0.1"]
MANY = [f"127.0.1.{number}" for number in range(1, 201)]
GOOD = "127.0.0.250"
P99_S = 1.0
GIVE_UP_S = 5.0
PAUSE_S = 0.02  # between good requests
HONEST_BYTES, HONEST_PER_S = 65536, 10_000
MEASURED_S, LONG_S = 13.0, 25.0
# What a server answers to a slow client before it closes: status and error.
TOLD = {"lighttpd": set(), "apache": {(408, 3008)}, "nginx": set()}
TOO_MANY = (503, 5010)  # nginx, to an address with too many bodies
FILES = SLOW + 200  # for the clients of a server


class Slow(threading.Thread):
    """The clients that drip: each row is their count, their addresses and what
    they send at once."""

    def __init__(self, port: int, rows: list[tuple[int, list[str], bytes]]) -> None:
        super().__init__(daemon=True)
        self.server = ("127.0.0.1", port)
        self.clients = [
            (addresses[number % len(addresses)], start)
            for count, addresses, start in rows
            for number in range(count)
        ]
        self.selector = selectors.EpollSelector()
        self.drips: list[tuple[float, int, socket.socket]] = []  # a heap
        self.connected: set[int] = set()  # at any time before
        self.closed = 0
        self.told: set[tuple[int, int]] = set()  # a status and an error
        self.ends = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            for number in range(len(self.clients)):
                self.connect(number)
                if number % 50 == 0:
                    self.step()
            while not self.ends.is_set():
                self.step()
        except Exception as error:  # for the thread that judges
            self.failure = error
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self.selector.close()

    def connect(self, number: int) -> None:
        client = socket.socket()
        client.setblocking(False)
        client.setsockopt(socket.SOL_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        client.bind((self.clients[number][0], 0))
        client.connect_ex(self.server)
        self.selector.register(client, selectors.EVENT_WRITE, number)

    def close(self, client: socket.socket, number: int) -> None:
        self.selector.unregister(client)
        client.close()
        self.closed += 1
        self.connect(number)

    def step(self) -> None:
        """What there is to do, for at most a twentieth of a second."""
        for key, _ in self.selector.select(0.05):
            try:
                self.serve(key.fileobj, key.data, key.events)
            except OSError:
                self.close(key.fileobj, key.data)
        while self.drips and self.drips[0][0] < time.monotonic():
            _, number, client = heapq.heappop(self.drips)
            if client.fileno() >= 0:
                try:
                    client.send(b"x")
                    self.drip_later(number, client)
                except OSError:
                    self.close(client, number)

    def serve(self, client: socket.socket, number: int, events: int) -> None:
        if events == selectors.EVENT_WRITE:
            client.send(self.clients[number][1])
            self.connected.add(number)
            self.selector.modify(client, selectors.EVENT_READ, number)
            self.drip_later(number, client)
        elif answer := client.recv(65536):
            head, _, body = answer.partition(b"\r\n\r\n")
            self.told.add((int(head.split()[1]), json.loads(body)["error"]))
        else:
            self.close(client, number)

    def drip_later(self, number: int, client: socket.socket) -> None:
        heapq.heappush(self.drips, (time.monotonic() + DRIP_S, number, client))


def starts(server: Running) -> dict[str, bytes]:
    """What a slow client sends at once."""
    head = f"POST {server.path} HTTP/1.1\r\nHost: a\r\n"
    body = f"{head}Content-Type: application/json\r\nContent-Length: 65536\r\n\r\n"
    return {"header": f"{head}X-Slow: ".encode(), "body": body.encode()}


def request(server: Running, body: bytes) -> bytes:
    head = f"POST {server.path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    head += f"Authorization: Bearer {server.token}\r\n"
    head += "Content-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def send_good(server: Running, seconds: float) -> tuple[list[float], list[str]]:
    """The seconds that each took, and what was not answered 200."""
    took, wrong = [], []
    end = time.monotonic() + seconds
    while (begun := time.monotonic()) < end:
        try:
            with Wire(server.port, GIVE_UP_S, GOOD) as wire:
                wire.send(request(server, new_plant(len(took), "Fern")))
                if not (answer := wire.answer()).is_plant("Fern"):
                    wrong.append(f"{answer}")
        except OSError as error:
            wrong.append(f"{type(error).__name__}: {error}")
        took.append(time.monotonic() - begun)
        time.sleep(PAUSE_S)
    return took, wrong


class Honest(threading.Thread):
    """A client that needs 6.5 s for its body."""

    def __init__(self, server: Running) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.answer: object = None

    def run(self) -> None:
        body = new_plant(-1, "")
        name = "f" * (HONEST_BYTES - len(body))
        text = request(self.server, new_plant(-1, name))
        pieces = [text[at : at + 1000] for at in range(0, len(text), 1000)]
        try:
            with Wire(self.server.port, 4 * GIVE_UP_S, GOOD) as wire:
                wire.send_slowly(pieces, 1000 / HONEST_PER_S)
                answer = wire.answer()
                self.answer = 200 if answer.is_plant(name) else answer
        except OSError as error:
            self.answer = error


def check(
    server: Running, case: str, rows: list[tuple], seconds: float
) -> Iterator[tuple[bool, str, object]]:
    """For each sentence whether it is so, and the detail."""
    slow = Slow(server.port, rows)
    slow.start()
    try:
        all_there = wait_until(lambda: len(slow.connected) == SLOW)
        honest = Honest(server)
        honest.start()
        took, wrong = send_good(server, seconds)
        honest.join()
        wait_until(lambda: slow.closed >= SLOW)
    finally:
        slow.ends.set()
        slow.join()
    took.sort()
    p99 = took[math.ceil(0.99 * len(took)) - 1]
    detail = f"{p99:.2f} s, the longest {took[-1]:.2f} s, of {len(took)}"
    name = server.set_up.server
    print(f"# {name}, {case}: p99 {detail}; {slow.closed} closed, told {slow.told}")
    well = all_there and not slow.failure
    connected = len(slow.connected), slow.failure
    yield well, f"{SLOW} slow clients connect", connected
    yield p99 <= P99_S, "99 % of good requests take at most 1 s", detail
    yield not wrong, "all of them are answered 200", wrong[:3]
    yield honest.answer == 200, "an honest slow client gets its 200", honest.answer
    yield slow.closed >= SLOW, "slow clients are closed", slow.closed
    told = set(TOLD[name])
    if name == "nginx" and "bodies from one" in case:
        told.add(TOO_MANY)
    yield slow.told == told, "what they are told", (slow.told, told)


def cases(server: Running, long: bool) -> list[tuple[str, list[tuple]]]:
    start = starts(server)
    if not long:
        rows = [(SLOW // 2, ONE, start["body"]), (SLOW // 2, MANY, start["header"])]
        return [("bodies from one address, headers from 200", rows)]
    return [
        ("headers from one address", [(SLOW, ONE, start["header"])]),
        ("bodies from one address", [(SLOW, ONE, start["body"])]),
        ("headers from 200 addresses", [(SLOW, MANY, start["header"])]),
        ("bodies from 200 addresses", [(SLOW, MANY, start["body"])]),
    ]


def try_all(server: Running, long: bool) -> list[tuple[bool, str, object]]:
    seconds = LONG_S if long else MEASURED_S
    return [
        (passed, f"{server.set_up.name}, {case}: {sentence}", detail)
        for case, rows in cases(server, long)
        for passed, sentence, detail in check(server, case, rows, seconds)
    ]


def scenario(tally: Tally, options: argparse.Namespace) -> None:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(running(set_up, options.build_dir))
                   for set_up in recommended(options.server)]
        # Not before: a server sets its own limit.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES * len(servers), hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with concurrent.futures.ThreadPoolExecutor(len(servers)) as pool:
            tried = [pool.submit(try_all, server, options.long) for server in servers]
            for server, one in zip(servers, tried):
                with tally.part(f"{server.set_up.name} is tried to the end"):
                    for passed, sentence, detail in one.result():
                        tally.check(passed, sentence, detail)


def recommended(server: str) -> list[SetUp]:
    return [each for each in SET_UPS if each.mode in ("fastcgi", "proxy_fcgi") and not each.mount
            and each.server.startswith(server)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true")
    parser.add_argument("build_dir")
    parser.add_argument("server", nargs="?", default="")
    options = parser.parse_args()
    return run_scenario(lambda tally: scenario(tally, options))


if __name__ == "__main__":
    sys.exit(main())
