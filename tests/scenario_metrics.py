"""Goal: after 100,000 requests over two workers, of which one is killed, CGI and an
import, the counters are what the clients saw.

usage: scenario_metrics.py BUILD_DIR
"""

import collections
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys

from lib_service import (
    WAIT_S,
    Answer,
    FastCgiPeer,
    Responder,
    Store,
    Tally,
    children_of,
    fcgi_request,
    main,
    new_plant,
    parse_cgi,
    responder,
    run_cgi,
    temporary_store,
    wait_until,
)

REQUESTS = 100_000
PEERS = 200
KILL_AT = REQUESTS // 2
IMPORTED = 5_000
ANSWER_END = bytes([1, 3])  # of a FastCGI record: version, END_REQUEST
SETTINGS = {
    "PLANT_STORE_METRICS_PATH": "/metrics",
    "PLANT_STORE_HEALTH_PATH": "/health",
    "PLANT_STORE_LOG_LEVEL": "error",
}
TEXT = "text/plain; version=0.0.4; charset=utf-8"

Kind = tuple[str, str]  # the status and the error number of an answer
Values = dict[str, float]


def read_metrics(text: str) -> Values:
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def page(service: Responder, path: str) -> Answer:
    variables = {"REQUEST_METHOD": "GET", "SCRIPT_NAME": path}
    with FastCgiPeer(service.socket_path) as peer:
        return peer.exchange(fcgi_request(variables.items(), b""))


def request(store: Store, number: int) -> tuple[bytes, Kind, str]:
    """A request's bytes, its answer, and what becomes of its plant."""
    earlier = number - number % 10 - PEERS  # it has its answer
    kind, result, name = ("200", "0"), "created", f"plant {number}"
    variables = {}
    if number % 10 == 7 and earlier >= 0:
        body, result = new_plant(earlier, f"plant {earlier}"), "repeated"
    elif number % 10 == 8 and earlier >= 0:
        body, result = new_plant(earlier, "another"), "conflict"
        kind = ("409", "5001")
    elif number % 10 == 9:
        body, kind, result = b"{", ("400", "4001"), ""
        if number % 20 == 19:
            variables, kind = {"HTTP_AUTHORIZATION": ""}, ("401", "1001")
    else:
        body = new_plant(number, name)
    sent = store.request(body, **variables)
    return fcgi_request(sent.items(), body, keep=True), kind, result


class Peer:
    """A web server's connection, with one request at a time."""

    def __init__(self, service: Responder) -> None:
        self.service = service
        self.connect()

    def connect(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(str(self.service.socket_path))

    def answer(self) -> bytes:
        """All of it; b"" if the worker has gone."""
        got = b""
        try:
            # An END_REQUEST record is the last 16 bytes.
            while got[-16:-14] != ANSWER_END:
                piece = self.socket.recv(4096)
                if not piece:
                    return b""
                got += piece
        except ConnectionError:
            return b""
        return got


class Seen:
    """What the clients saw."""

    def __init__(self) -> None:
        self.answers: collections.Counter[Kind] = collections.Counter()
        self.plants: collections.Counter[str] = collections.Counter()
        self.swallowed = 0
        self.wrong: list[object] = []

    def take(self, answer: bytes, kind: Kind, result: str) -> None:
        self.answers[kind] += 1
        self.plants[result] += 1
        if b"Status: " + kind[0].encode() not in answer:
            self.wrong.append((kind, answer))


def is_stopped(pid: int) -> bool:
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return all(") T" in (task / "stat").read_text() for task in tasks)


def send_all(store: Store, service: Responder) -> Seen:
    seen = Seen()
    peers = [Peer(service) for _ in range(PEERS)]
    for first in range(0, REQUESTS, PEERS):
        sent = [request(store, first + n) for n in range(PEERS)]
        if first == KILL_AT:
            workers = children_of(service.process.pid)
            killed = max(workers, key=lambda pid: len(os.listdir(f"/proc/{pid}/fd")))
            # So that it surely has requests, and answers none of them.
            os.kill(killed, signal.SIGSTOP)
            wait_until(lambda: is_stopped(killed))
        for peer, (data, _, _) in zip(peers, sent):
            peer.socket.sendall(data)
        if first == KILL_AT:
            os.kill(killed, signal.SIGKILL)
        for peer, (data, kind, result) in zip(peers, sent):
            while not (answer := peer.answer()):
                seen.swallowed += 1
                peer.socket.close()
                peer.connect()
                peer.socket.sendall(data)
            seen.take(answer, kind, result)
    for peer in peers:
        peer.socket.close()
    return seen


def check_counts(tally: Tally, seen: Seen, values: Values) -> None:
    counted = {
        tuple(re.findall(r'"(.*?)"', name)): n
        for name, n in values.items()
        if "answers_total" in name and n > 0
    }
    well = counted == seen.answers
    tally.check(well, "each answer is counted by status and number", (counted, seen))
    del seen.plants[""]
    results = {
        name.split('"')[1]: n for name, n in values.items() if "plants_total" in name
    }
    well = results == seen.plants
    tally.check(well, "each plant is counted by its result", (results, seen))
    well = values["plant_store_batch_plants_sum"] == seen.plants.total()
    tally.check(well, "the batches have all of these plants", values)


def check_pages(tally: Tally, service: Responder) -> Values:
    answer = page(service, "/metrics")
    well = answer.status == 200 and answer.header("Content-Type") == TEXT
    tally.check(well, "the metrics are Prometheus' text", answer)
    answer = page(service, "/health")
    well = answer.status == 200 and answer.body == b'{"status":"ok"}'
    tally.check(well, "the service is healthy", answer)
    return read_metrics(page(service, "/metrics").body.decode())


def by_cgi(store: Store, variables: dict[str, str], body: bytes = b"") -> Answer:
    environment = store.environment(**SETTINGS) | variables
    return parse_cgi(run_cgi([store.responder], environment, body).stdout)


def command(store: Store, *words: str, given: bytes = b"") -> bytes:
    return subprocess.run(
        [store.build / "plant-store", *words],
        env=store.environment(),
        input=given,
        capture_output=True,
        check=True,
        timeout=WAIT_S,
    ).stdout


def check_sums(tally: Tally, store: Store) -> None:
    with responder(store, workers=2, **SETTINGS) as service:
        both = wait_until(lambda: len(children_of(service.process.pid)) == 2)
        tally.check(both, "two workers serve", service.log())
        seen = send_all(store, service)
        tally.check(not seen.wrong, "each answer is the right one", seen.wrong[:3])
        tally.check(seen.swallowed > 0, "the killed worker had requests")
        lines = b"".join(
            new_plant(REQUESTS + n, "imported") + b"\n" for n in range(IMPORTED)
        )
        command(store, "import", given=lines)
        seen.plants["created"] += IMPORTED
        body = new_plant(2 * REQUESTS, "by CGI")
        answer = by_cgi(store, store.request(body), body)
        seen.take(b"Status: %d" % answer.status, ("200", "0"), "created")
        answer = by_cgi(store, store.request(body, HTTP_AUTHORIZATION=""), body)
        seen.take(b"Status: %d" % answer.status, ("401", "1001"), "")
        # Of one worker or the other: those that were killed are in neither.
        gone = wait_until(
            lambda: check_quietly(service)["plant_store_connections"] == 1
        )
        tally.check(gone, "no connection of the killed worker is left")
        values = check_pages(tally, service)
        check_counts(tally, seen, values)
        plants = len(store.plants())
        well = values["plant_store_store_plants"] == plants
        tally.check(well, "the store has as many plants as is told", (plants, values))
        told = read_metrics(command(store, "metrics").decode())
        wrong = {
            name: (value, told.get(name))
            for name, value in values.items()
            if told.get(name) != value and name != "plant_store_connections"
        }
        tally.check(not wrong, "the command prints the same", wrong)
        same = read_metrics(
            by_cgi(store, {"REQUEST_METHOD": "GET", "SCRIPT_NAME": "/metrics"}).body.decode()
        )
        tally.check(same.keys() == values.keys(), "and so does CGI", same)
    service.check_end(tally)


def check_quietly(service: Responder) -> Values:
    return read_metrics(page(service, "/metrics").body.decode())


def check_health(tally: Tally, store: Store) -> None:
    """It says what a plant that is sent now would be told."""
    get = {"REQUEST_METHOD": "GET", "SCRIPT_NAME": "/health"}
    body = new_plant(1, "Fern")
    with responder(store, watched=False, **SETTINGS) as service:

        def becomes(status: int, number: int | None, sentence: str) -> None:
            well = wait_until(lambda: page(service, "/health").status == status)
            answer = page(service, "/health")
            well = well and answer.error() == number
            tally.check(well, f"{sentence}: health is {status}", answer)

        def send() -> Answer:
            with FastCgiPeer(service.socket_path) as peer:
                return peer.exchange(fcgi_request(store.request(body).items(), body))

        becomes(200, None, "a service that has begun")
        pid = service.worker()
        limits = resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, -1))
        tally.check(send().error() == 5002, "without room a plant is 5002")
        becomes(503, 5002, "without room")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
        becomes(200, None, "with room again")
        tally.check(send().status == 200, "with room again: so is a plant")
        tokens = store.tokens.read_bytes()
        store.tokens.write_bytes(b"")
        becomes(503, 5006, "without tokens")
        answer = by_cgi(store, get)
        tally.check(answer.is_error(503, 5006), "by CGI, too", answer)
        store.tokens.write_bytes(tokens)
        becomes(200, None, "with tokens again")
        answer = by_cgi(store, get)
        tally.check(answer.body == b'{"status":"ok"}', "by CGI, too", answer)
        store.journal.rename(store.journal.with_name("plants.jsonl.failed"))
        becomes(503, 5003, "after a failed sync")
    answer = by_cgi(store, get)
    tally.check(answer.status == 200, "CGI mends it, as for a plant", answer)


def scenario(tally: Tally, build_dir: str) -> None:
    with tally.part("counters"), temporary_store(build_dir) as store:
        check_sums(tally, store)
    with tally.part("health"), temporary_store(build_dir) as store:
        check_health(tally, store)


if __name__ == "__main__":
    sys.exit(main(scenario))
