"""Goal: many clients at once behind a web server: each plant is stored once.

usage: scenario_lighttpd.py BUILD_DIR

tests/servers/suite.py has what one client is told, behind each web server.
"""

import collections
import concurrent.futures
import sys

from lib_service import (
    Answer, HttpClient, Store, Tally, lighttpd, main, new_plant, responder, temporary_store,
    wait_until,
)

CLIENTS = 32
REQUESTS = 1000
RACERS_NAMES = 50
FIRST_CONCURRENT_ID = 10_000
RACED_ID = 5_000


def concurrently(port: int, token: str, bodies: list[bytes]) -> list[Answer]:
    """Send the bodies from CLIENTS clients at once; the answers in order."""

    def client(first: int) -> list[Answer]:
        connection = HttpClient(port, token)
        answers = [connection.send(body) for body in bodies[first::CLIENTS]]
        connection.close()
        return answers

    answers: list[Answer | None] = [None] * len(bodies)
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        for first, share in enumerate(pool.map(client, range(CLIENTS))):
            answers[first::CLIENTS] = share
    return answers


def check_concurrent_creates(tally: Tally, store: Store, port: int) -> None:
    sent = {FIRST_CONCURRENT_ID + i: f"plant {FIRST_CONCURRENT_ID + i}" for i in range(REQUESTS)}
    bodies = [new_plant(plant_id, name) for plant_id, name in sent.items()]
    answers = concurrently(port, store.token, bodies)
    wrong = [a for a, name in zip(answers, sent.values()) if not a.is_plant(name)]
    sentence = f"{REQUESTS} concurrent creates are answered 200"
    tally.check(not wrong, sentence, f"{len(wrong)} were not, as {wrong[:1]}")
    stored = [plant for plant in store.plants() if plant["id"] >= FIRST_CONCURRENT_ID]
    counts = collections.Counter(plant["id"] for plant in stored)
    well = len(stored) == REQUESTS and set(counts) == set(sent)
    tally.check(well, "each of them is stored once", counts.most_common(3))
    well = all(sent.get(plant["id"]) == plant["name"] for plant in stored)
    tally.check(well, "each of them has its own content")


def check_race(tally: Tally, store: Store, port: int) -> None:
    """Many contents for one id: one wins, and its senders are answered 200."""
    names = [f"racer {i % RACERS_NAMES}" for i in range(REQUESTS)]
    bodies = [new_plant(RACED_ID, name) for name in names]
    answers = concurrently(port, store.token, bodies)
    stored = [plant["name"] for plant in store.plants() if plant["id"] == RACED_ID]
    if not tally.check(len(stored) == 1, "a raced id is stored once", stored):
        return
    wrong = [
        (name, answer)
        for name, answer in zip(names, answers)
        if not (
            answer.is_plant(name) if name == stored[0] else answer.is_error(409, 5001)
        )
    ]
    sentence = "in a race the winner's content is answered 200, any other 409"
    tally.check(not wrong, sentence, f"{len(wrong)} were not, as {wrong[:1]}")


def scenario(tally: Tally, build_dir: str) -> None:
    with temporary_store(build_dir) as store:
        with responder(store) as service, lighttpd(store, service.socket_path) as port:
            tally.check(wait_until(service.worker), "a worker runs", service.log())
            worker = service.worker()
            with tally.part("concurrent creates"):
                check_concurrent_creates(tally, store, port)
            with tally.part("the race"):
                check_race(tally, store, port)
            same = service.worker() == worker
            tally.check(same, "the same worker has served all of it", service.log())
        service.check_end(tally)
        with tally.part("the journal at the end"):
            ids = [plant["id"] for plant in store.plants()]
            tally.check(len(ids) == len(set(ids)), "no id is stored twice at the end")


if __name__ == "__main__":
    sys.exit(main(scenario))
