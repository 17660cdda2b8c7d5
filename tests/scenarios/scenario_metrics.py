"""Goal: after 100,000 requests over two workers, of which one is killed, CGI and an
import, the counters are what the clients saw.

usage: scenario_metrics.py BUILD_DIR
"""

import collections
import os
import re
import resource
import shutil
import signal
import sys

from lib_service import (
    Answer, FastCgiPeer, Responder, Store, Tally, children_of, fcgi_request, is_stopped, main,
    new_plant, parse_cgi, responder, temporary_store, wait_until,
)

REQUESTS = 100_000
PEERS = 200
KILL_AT = REQUESTS // 2
IMPORTED = 5_000
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


def metrics_of(service: Responder) -> Values:
    return read_metrics(page(service, "/metrics").body.decode())


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
    return store.fcgi(body, keep=True, **variables), kind, result


class Seen:
    """What the clients saw."""

    def __init__(self) -> None:
        self.answers: collections.Counter[Kind] = collections.Counter()
        self.plants: collections.Counter[str] = collections.Counter()
        self.swallowed = 0
        self.wrong: list[object] = []

    def take(self, answer: Answer, kind: Kind, result: str) -> None:
        self.answers[kind] += 1
        self.plants[result] += 1
        if (str(answer.status), str(answer.error() or 0)) != kind:
            self.wrong.append((kind, answer))


def send_all(store: Store, service: Responder) -> Seen:
    seen = Seen()
    peers = [FastCgiPeer(service.socket_path) for _ in range(PEERS)]
    for first in range(0, REQUESTS, PEERS):
        sent = [request(store, first + n) for n in range(PEERS)]
        if first == KILL_AT:
            workers = children_of(service.process.pid)
            killed = max(workers, key=lambda pid: len(os.listdir(f"/proc/{pid}/fd")))
            # So that it surely has requests, and answers none of them.
            os.kill(killed, signal.SIGSTOP)
            wait_until(lambda: is_stopped(killed))
        for peer, (data, _, _) in zip(peers, sent):
            peer.send(data)
        if first == KILL_AT:
            os.kill(killed, signal.SIGKILL)
        for number, (data, kind, result) in enumerate(sent):
            while True:
                try:
                    answer = peers[number].answer()
                    break
                except ConnectionError:  # the worker has gone
                    seen.swallowed += 1
                    peers[number].socket.close()
                    peers[number] = FastCgiPeer(service.socket_path)
                    peers[number].send(data)
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
    tally.check(results == seen.plants, "each plant is counted by its result", (results, seen))
    well = values["plant_store_batch_plants_sum"] == seen.plants.total()
    tally.check(well, "the batches have all of these plants", values)


def check_pages(tally: Tally, service: Responder) -> Values:
    answer = page(service, "/metrics")
    well = answer.status == 200 and answer.header("Content-Type") == TEXT
    tally.check(well, "the metrics are Prometheus' text", answer)
    answer = page(service, "/health")
    well = answer.status == 200 and answer.body == b'{"status":"ok"}'
    tally.check(well, "the service is healthy", answer)
    return metrics_of(service)


def is_settled(store: Store) -> bool:
    """Whether the end mark has the end of the last line, which is a closing one."""
    end, mark = len(store.journal.read_bytes().rstrip(b"\n")) + 1, store.dir / "plants.jsonl.end"
    return store.is_closed() and mark.exists() and int(mark.read_text().split()[1]) == end


def by_cgi(store: Store, body: bytes = b"", **variables: str) -> Answer:
    return parse_cgi(store.cgi(body, SETTINGS, **variables).stdout)


def check_sums(tally: Tally, store: Store) -> None:
    with responder(store, workers=2, **SETTINGS) as service:
        both = wait_until(lambda: len(children_of(service.process.pid)) == 2)
        tally.check(both, "two workers serve", service.log())
        seen = send_all(store, service)
        tally.check(not seen.wrong, "each answer is the right one", seen.wrong[:3])
        tally.check(seen.swallowed > 0, "the killed worker had requests")
        lines = [new_plant(REQUESTS + n, "imported") for n in range(IMPORTED)]
        store.command("import", input=b"\n".join(lines), check=True)
        seen.plants["created"] += IMPORTED
        body = new_plant(2 * REQUESTS, "by CGI")
        seen.take(by_cgi(store, body), ("200", "0"), "created")
        seen.take(by_cgi(store, body, HTTP_AUTHORIZATION=""), ("401", "1001"), "")
        tally.check(not seen.wrong, "and so by CGI", seen.wrong[:3])
        # A service that was idle when others stored does not close their batch.
        last = store.ask(service.socket_path, new_plant(2 * REQUESTS + 1, "last"))
        seen.take(last, ("200", "0"), "created")
        # Of one worker or the other: those that were killed are in neither.
        gone = wait_until(lambda: metrics_of(service)["plant_store_connections"] == 1)
        tally.check(gone, "no connection of the killed worker is left")
        # The idle service has written its closing line, and noted its end.
        settled = wait_until(lambda: is_settled(store))
        tally.check(settled, "the last batch is closed", service.log())
        values = check_pages(tally, service)
        check_counts(tally, seen, values)
        plants = len(store.plants())
        well = values["plant_store_store_plants"] == plants
        tally.check(well, "the store has as many plants as is told", (plants, values))
        told = read_metrics(store.command("metrics", check=True).stdout.decode())
        for name in ("connections", "healthy"):  # of the process that answers
            del values[f"plant_store_{name}"]
        room = told["plant_store_free_bytes"] = values["plant_store_free_bytes"]
        disk = shutil.disk_usage(store.dir)
        tally.check(0 < room < disk.total, "the room on its disk is told", (room, disk))
        tally.check(told == values, "the command prints the same", (told, values))
        same = by_cgi(store, REQUEST_METHOD="GET", SCRIPT_NAME="/metrics").body.decode()
        tally.check(read_metrics(same).keys() == values.keys(), "and so does CGI", same)
    service.check_end(tally)


def check_health(tally: Tally, store: Store) -> None:
    """It says what a plant that is sent now would be told."""
    get = {"REQUEST_METHOD": "GET", "SCRIPT_NAME": "/health"}
    with responder(store, watched=False, **SETTINGS) as service:

        def becomes(status: int, number: int | None, sentence: str) -> None:
            well = wait_until(lambda: page(service, "/health").status == status)
            answer = page(service, "/health")
            well = well and answer.error() == number
            well = well and metrics_of(service)["plant_store_healthy"] == (status == 200)
            tally.check(well, f"{sentence}: health is {status}, also in the metrics", answer)

        def send() -> Answer:
            return store.ask(service.socket_path, new_plant(1, "Fern"))

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
        answer = by_cgi(store, **get)
        tally.check(answer.is_error(503, 5006), "by CGI, too", answer)
        store.tokens.write_bytes(tokens)
        becomes(200, None, "with tokens again")
        # It does not wait for the service, which may be writing a closing line.
        well = wait_until(lambda: by_cgi(store, **get).body == b'{"status":"ok"}')
        tally.check(well, "by CGI, too")
        store.journal.rename(store.journal.with_name("plants.jsonl.failed"))
        becomes(503, 5003, "after 1.0.0 renamed the journal")
    mended = wait_until(lambda: by_cgi(store, **get).status == 200)
    tally.check(mended, "CGI renames it back, as for a plant")


def scenario(tally: Tally, build_dir: str) -> None:
    with tally.part("counters"), temporary_store(build_dir) as store:
        check_sums(tally, store)
    with tally.part("health"), temporary_store(build_dir) as store:
        check_health(tally, store)


if __name__ == "__main__":
    sys.exit(main(scenario))
