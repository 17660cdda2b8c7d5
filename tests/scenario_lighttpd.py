"""Goal: a client behind the real web server gets what the interface promises.

usage: scenario_lighttpd.py BUILD_DIR [--concurrent-only]
"""

import argparse
import collections
import concurrent.futures
import json
import socket
import struct
import sys

from lib_service import (
    WAIT_S,
    Answer,
    HttpClient,
    Store,
    Tally,
    lighttpd,
    new_plant,
    responder,
    run_scenario,
    temporary_store,
    wait_until,
)

LIMIT = 65536
CLIENTS = 32
REQUESTS = 1000
RACERS_NAMES = 50
FIRST_CONCURRENT_ID = 10_000
RACED_ID = 5_000


def body_of(length: int, plant_id: int) -> bytes:
    """A NewPlant of exactly `length` bytes."""
    empty = new_plant(plant_id, "")
    return new_plant(plant_id, "f" * (length - len(empty)))


def check_creation(tally: Tally, client: HttpClient, store: Store) -> None:
    answer = client.create(1, "Fern", "indoor")
    tally.check(answer.is_plant("Fern", "indoor"), "a plant is created", answer)
    answer = client.create(1, "Fern", "indoor")
    tally.check(answer.is_plant("Fern", "indoor"), "a repeat is answered alike", answer)
    answer = client.create(1, "Moss")
    tally.check(answer.is_error(409, 5001), "a conflict is refused", answer)
    name = "Фикус 🌿 \0 / \\"
    answer = client.create(-2, name)
    tally.check(answer.is_plant(name), "any name comes back as it was sent", answer)
    expected = [{"id": 1, "name": "Fern", "tag": "indoor"}, {"id": -2, "name": name}]
    plants = store.plants()
    tally.check(plants == expected, "each is stored once, in order", plants)


def check_refusals(tally: Tally, client: HttpClient, store: Store) -> None:
    good = new_plant(77, "never")
    plain = 'Bearer realm="plant-store"'
    invalid = plain + ', error="invalid_token"'

    def refused(
        sentence: str, status: int, number: int, body: bytes | None = good, **how
    ) -> Answer:
        answer = client.send(body, **how)
        tally.check(answer.is_error(status, number), sentence, answer)
        return answer

    def refused_401(sentence: str, number: int, wants: str, value: str | None) -> None:
        how = {"headers": {"Authorization": value}}
        found = refused(sentence, 401, number, **how).header("WWW-Authenticate")
        tally.check(found == wants, f"{sentence}: with a challenge", found)

    before = store.plants()
    refused_401("a missing credential is refused", 1001, plain, None)
    refused_401("another scheme is refused", 1002, plain, "Basic dXNlcjpwYXNz")
    refused_401("a malformed credential is refused", 1003, invalid, "Bearer a b")
    refused_401("an unknown token is refused", 1005, invalid, "Bearer secret")
    refused("another path is refused", 404, 2001, path="/animals")
    refused("a trailing slash is refused", 404, 2001, path="/plants/")
    answer = refused("GET is refused", 405, 2002, None, method="GET")
    tally.check(answer.header("Allow") == "POST", "405 tells the method", answer)
    answer = client.send(None, method="HEAD")
    told = answer.header("Content-Length")
    well = answer.status == 405 and not answer.body and told not in (None, "0")
    tally.check(well, "HEAD is refused without a body", answer)
    text = {"Content-Type": "text/plain"}
    refused("another type is refused", 400, 3001, headers=text)
    gzip = {"Content-Encoding": "gzip"}
    refused("an encoded body is refused", 400, 3002, headers=gzip)
    refused("a missing body is refused", 400, 3006, b"")
    refused("broken JSON is refused", 400, 4001, b'{"id":1')
    refused("wrong UTF-8 is refused", 400, 4002, b'{"id":1,"name":"\xff"}')
    refused("an array is refused", 400, 4004, b"[]")
    refused("a fraction as id is refused", 400, 4103, b'{"id":1.0,"name":"F"}')
    refused("an id beyond int64 is refused", 400, 4104, b'{"id":1%s}' % (b"0" * 19))
    refused("a missing name is refused", 400, 4201, b'{"id":1}')
    refused("null as tag is refused", 400, 4302, b'{"id":1,"name":"F","tag":null}')
    tally.check(store.plants() == before, "refusals store nothing", store.plants())
    answer = client.send(good, path="/plants?x=1")
    tally.check(answer.is_plant("never"), "a query string does not matter", answer)


def check_framing(tally: Tally, client: HttpClient, port: int, store: Store) -> None:
    pieces = [b'{"id":3,', b'"name":"in ', b'pieces"}']
    answer = client.send(pieces)
    tally.check(answer.is_plant("in pieces"), "a chunked body is taken", answer)
    body = body_of(LIMIT, 4)
    answer = client.send(body)
    well = answer.is_plant(json.loads(body)["name"])
    tally.check(well, "a body at the limit is taken", answer.status)
    over = HttpClient(port, client.token)
    answer = over.send(body_of(LIMIT + 1, 5))
    over.close()
    # The web server has a limit of its own, which may answer first.
    tally.check(answer.status == 413, "a body one byte longer is refused", answer)
    for plant_id, reset in ((6, False), (7, True)):
        how = "reset" if reset else "closed"
        abort_upload(port, client.token, new_plant(plant_id, "cut" * 300), reset)
        answer = client.create(plant_id + 10, "next")
        well = answer.is_plant("next")
        tally.check(well, f"served after an upload was {how}", answer)
    stored = {plant["id"] for plant in store.plants()}
    tally.check(not stored & {5, 6, 7}, "broken and long bodies store nothing", stored)


def abort_upload(port: int, token: str, body: bytes, reset: bool) -> None:
    """Send half of a request's body and go."""
    head = (
        "POST /plants HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as peer:
        peer.sendall(head.encode() + body[: len(body) // 2])
        if reset:
            linger = struct.pack("ii", 1, 0)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


def concurrently(port: int, token: str, bodies: list[bytes]) -> list[Answer]:
    """Send the bodies from CLIENTS clients at once; the answers in order."""

    def client(first: int) -> list[Answer]:
        connection = HttpClient(port, token, timeout_s=60)
        answers = [connection.send(body) for body in bodies[first::CLIENTS]]
        connection.close()
        return answers

    answers: list[Answer | None] = [None] * len(bodies)
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        for first, share in enumerate(pool.map(client, range(CLIENTS))):
            answers[first::CLIENTS] = share
    return answers


def check_concurrent_creates(tally: Tally, store: Store, port: int) -> None:
    sent = {
        FIRST_CONCURRENT_ID + i: f"plant {FIRST_CONCURRENT_ID + i}"
        for i in range(REQUESTS)
    }
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


def scenario(tally: Tally, build_dir: str, concurrent_only: bool) -> None:
    with temporary_store(build_dir) as store:
        with responder(store) as service, lighttpd(store, service.socket_path) as port:
            tally.check(wait_until(service.worker), "a worker runs", service.log())
            worker = service.worker()
            if not concurrent_only:
                client = HttpClient(port, store.token)
                with tally.part("creation"):
                    check_creation(tally, client, store)
                with tally.part("refusals"):
                    check_refusals(tally, client, store)
                with tally.part("framing"):
                    check_framing(tally, client, port, store)
                client.close()
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build_dir")
    parser.add_argument("--concurrent-only", action="store_true")
    options = parser.parse_args()
    return run_scenario(
        lambda tally: scenario(tally, options.build_dir, options.concurrent_only)
    )


if __name__ == "__main__":
    sys.exit(main())
