#!/usr/bin/env python3
"""Goal: each configuration of deploy/ serves what the interface promises.

usage: smoke.py BUILD_DIR
"""

import concurrent.futures
import pathlib
import socket
import sys
from collections.abc import Iterator
from http.client import HTTPResponse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from lib_servers import SET_UPS, Running, SetUp, running
from lib_service import WAIT_S, Answer, Tally, main, new_plant

LIMIT = 65536
AT_ONCE = 4
UNKNOWN = "Bearer pst_" + "A" * 43
INVALID = 'Bearer realm="plant-store", error="invalid_token"'
NO_ANSWER = 5007
Check = tuple[str, bool, object]  # a column's name, whether it holds, the detail


def is_told(answer: Answer, status: int, number: int) -> bool:
    """An Error of ours, framed by a Content-Length."""
    length = answer.header("Content-Length")
    return answer.is_error(status, number) and length == str(len(answer.body))


def checks(server: Running) -> Iterator[Check]:
    client = server.client()

    def send(body: bytes | None, **how) -> Answer:
        return client.send(body, **how)

    answer = client.create(1, "Fern", "indoor")
    yield "create", answer.is_plant("Fern", "indoor"), answer
    answer = client.create(1, "Fern", "indoor")
    yield "repeat", answer.is_plant("Fern", "indoor"), answer
    answer = client.create(1, "Moss")
    yield "409", is_told(answer, 409, 5001), answer
    body = new_plant(2, "Moss")
    answer = send(body, headers={"Authorization": UNKNOWN})
    well = is_told(answer, 401, 1005) and answer.header("WWW-Authenticate") == INVALID
    yield "401", well, answer
    answer = send(body, path=server.path + "s")
    yield "404", is_told(answer, 404, 2001), answer
    if server.mount:
        answer = send(body, path="/elsewhere/plants")
        yield "404 outside", is_told(answer, 404, 2001), answer
    answer = send(None, method="GET")
    well = is_told(answer, 405, 2002) and answer.header("Allow") == "POST"
    yield "405", well, answer
    answer = send(body.replace(b"}", b""))
    yield "400", is_told(answer, 400, 4001), answer
    answer = send([body[:9], body[9:]])
    yield "chunked", answer.is_plant("Moss"), answer
    empty = len(new_plant(3, ""))
    answer = send(new_plant(3, "f" * (LIMIT - empty)))
    yield "at limit", answer.is_plant("f" * (LIMIT - empty)), answer
    answer = server.client().send(new_plant(4, "f" * (LIMIT + 1 - empty)))
    yield "413", is_told(answer, 413, 3007), answer
    over = new_plant(5, "f" * LIMIT)
    answer = server.client().send([over[:40_000], over[40_000:]])
    # Apache's refusal of a chunked body ends with the connection.
    yield "413 chunked", answer.is_error(413, 3007), answer
    answer = raw(server, b"POST %s HTTP/1.1\r\nHost: a\r\n%s\r\n" % (
        server.path.encode(), b"Authorization: Bearer %s\r\n"
        b"Content-Type: application/json\r\n" % server.token.encode()))
    yield "no length", answer.status in (400, 411) and answer.error() == 3006, answer
    answer = raw(server, b"POST %s HTTP/1.1\r\nno colon\r\n\r\n" % server.path.encode())
    yield "bad head", is_told(answer, 400, 3008), answer
    answer = raw(server, b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n")
    # lighttpd takes it for a path, which is not ours.
    told = (400, 3008), (404, 2001), (401, 1001)
    yield "bad path", any(is_told(answer, *each) for each in told), answer
    answer = server.client().send(None, method="GET", headers={"X": "x" * 60_000})
    well = answer.status in (400, 431) and is_told(answer, answer.status, 3010)
    # Apache has no status of its own for it.
    well = well or is_told(answer, 400, 3008)
    yield "large head", well, answer
    names = [plant["name"] for plant in server.store.plants()]
    well = names == ["Fern", "Moss", "f" * (LIMIT - empty)]
    yield "stored", well, [name[:9] for name in names]
    server.stop_backend()
    answer = server.client().create(6, "Ivy")
    # Only the server that starts the program knows that it failed: 500.
    statuses = (502, 503, 504) if server.set_up.own_socket else (500, 502, 503, 504)
    well = answer.status in statuses and is_told(answer, answer.status, NO_ANSWER)
    yield "down", well, answer
    server.start_backend()
    answer = server.client().create(6, "Ivy")
    yield "up again", answer.is_plant("Ivy"), answer


def raw(server: Running, request: bytes) -> Answer:
    """Send bytes as they are; the answer."""
    with socket.create_connection((server.host, server.port), WAIT_S) as peer:
        peer.sendall(request)
        response = HTTPResponse(peer)
        response.begin()
        return Answer(response.status, response.getheaders(), response.read())


def smoke(set_up: SetUp, build_dir: str) -> list[Check]:
    with running(set_up, build_dir) as server:
        return list(checks(server))


def scenario(tally: Tally, build_dir: str) -> None:
    present = []
    for set_up in SET_UPS:
        if reason := set_up.missing():
            tally.skip(f"{set_up.name} serves", reason)
        else:
            present.append(set_up)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        results = {
            set_up: pool.submit(smoke, set_up, build_dir) for set_up in present
        }
    table = ["the statuses of all requests, in order:"]
    for set_up, result in results.items():
        with tally.part(f"{set_up.name} is tried to the end"):
            found = result.result()
            for column, well, detail in found:
                tally.check(well, f"{set_up.name}: {column}", detail)
            answers = [detail for _, _, detail in found if isinstance(detail, Answer)]
            statuses = " ".join(str(answer.status) for answer in answers)
            table.append(f"{set_up.name:27}{statuses}")
    print("\n".join(table))


if __name__ == "__main__":
    sys.exit(main(scenario))
