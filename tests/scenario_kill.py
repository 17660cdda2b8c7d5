"""Goal: a worker killed at any moment loses, doubles and invents no plant.

usage: scenario_kill.py BUILD_DIR

Behind lighttpd; tests/faults/kills.py kills more, without a web server.
"""

import functools
import os
import pathlib
import random
import signal
import sys
import time

from lib_service import (
    HttpClient,
    Responder,
    Tally,
    lighttpd,
    main,
    responder,
    temporary_store,
    wait_until,
)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "faults"))

from load import Load, ask, judge, own_plant, over_http  # noqa: E402

CLIENTS = 8
KILLS = 10
BETWEEN_KILLS_S = (0.05, 0.5)
BACK_S = 15.0
IDS_PER_CLIENT = 1_000_000


def kill_worker(service: Responder) -> int | None:
    """Kill the worker that runs now; its id, or None if there is none."""
    if not wait_until(lambda: service.worker() is not None):
        return None
    worker = service.worker()
    if worker is not None:
        os.kill(worker, signal.SIGKILL)
    return worker


def check_kills(tally: Tally, service: Responder, load: Load) -> None:
    chance = random.Random(1)  # the same moments each time, as far as can be
    killed = set()
    recovered = 0
    for _ in range(KILLS):
        time.sleep(chance.uniform(*BETWEEN_KILLS_S))
        killed.add(kill_worker(service))
        # More than the clients can have had on their way when it was killed.
        recovered += load.wait_told(CLIENTS + 1, BACK_S)
    killed.discard(None)
    sentence = f"{KILLS} workers were killed"
    tally.check(len(killed) == KILLS, sentence, f"{len(killed)} were")
    sentence = "after each kill plants are created again, by itself"
    tally.check(recovered == KILLS, sentence, f"{recovered} of {KILLS} times")


def plan(number: int):
    """Each plant is sent again until it is answered 200."""
    first = (number + 1) * IDS_PER_CLIENT
    return (own_plant(number, first + i) for i in range(IDS_PER_CLIENT))


def scenario(tally: Tally, build_dir: str) -> None:
    with temporary_store(build_dir) as store:
        with responder(store) as service, lighttpd(store, service.socket_path) as port:
            ways = [functools.partial(over_http, store, port)] * CLIENTS
            with Load(ways, plan) as load:
                load.wait_told(CLIENTS, BACK_S)
                with tally.part("the kills"):
                    check_kills(tally, service, load)
                load.stop()
            print(f"# {load.rate()}, {dict(load.answers)}")
            seen = {label for label in load.answers if not label.startswith("5")}
            sentence = "the kills were seen as failures to retry, never as a refusal"
            tally.check(seen <= {"200", "lost"}, sentence, load.answers)
            sentence = "every answer is the plant sent"
            tally.check(not load.wrong, sentence, load.wrong[:2])
            client = HttpClient(port, store.token)
            event, answer = ask(client.send, own_plant(0, -1))
            client.close()
            well = event.outcome == "created_or_same"
            tally.check(well, "served at the end", answer)
        service.check_end(tally)
        judge(tally, [event, *load.events], store, "workers killed behind lighttpd")


if __name__ == "__main__":
    sys.exit(main(scenario))
