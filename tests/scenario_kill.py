"""Goal: a worker killed at any moment loses, doubles and invents no plant.

usage: scenario_kill.py BUILD_DIR
"""

import collections
import http.client
import os
import random
import signal
import sys
import threading
import time

from lib_service import (
    WAIT_S,
    HttpClient,
    Responder,
    Store,
    Tally,
    lighttpd,
    main,
    responder,
    temporary_store,
    wait_until,
)

CLIENTS = 8
KILLS = 10
BETWEEN_KILLS_S = (0.05, 0.5)
IDS_PER_CLIENT = 1_000_000


class Load(threading.Thread):
    """A client that creates plants until it is told to stop.

    It retries each plant, with the same id, until it is answered 200.
    """

    def __init__(self, number: int, port: int, token: str) -> None:
        super().__init__(daemon=True)
        self.port, self.token = port, token
        self.next_id = number * IDS_PER_CLIENT
        self.sent: dict[int, str] = {}
        self.acknowledged: set[int] = set()
        self.failures: collections.Counter[str] = collections.Counter()
        self.wrong: list[object] = []
        self.stop = threading.Event()

    def run(self) -> None:
        client = HttpClient(self.port, self.token, timeout_s=10)
        while not self.stop.is_set():
            plant_id = self.next_id
            name = f"plant {plant_id} of {self.name}"
            self.sent[plant_id] = name
            try:
                answer = client.create(plant_id, name)
            except (OSError, http.client.HTTPException) as error:
                self.failures[type(error).__name__] += 1
                continue
            if answer.is_plant(name):
                self.acknowledged.add(plant_id)
                self.next_id += 1
            elif answer.status >= 500:
                self.failures[str(answer.status)] += 1
            else:
                self.wrong.append(answer)
                self.next_id += 1
        client.close()


def kill_worker(service: Responder) -> int | None:
    """Kill the worker that runs now; its id, or None if there is none."""
    if not wait_until(lambda: service.worker() is not None):
        return None
    worker = service.worker()
    if worker is not None:
        os.kill(worker, signal.SIGKILL)
    return worker


def check_kills(tally: Tally, service: Responder, loads: list[Load]) -> None:
    def acknowledged() -> int:
        return sum(len(load.acknowledged) for load in loads)

    chance = random.Random(1)  # the same moments each time, as far as can be
    killed = set()
    recovered = 0
    for _ in range(KILLS):
        time.sleep(chance.uniform(*BETWEEN_KILLS_S))
        killed.add(kill_worker(service))
        before = acknowledged()
        # More than the clients can have had on their way when it was killed.
        if wait_until(lambda: acknowledged() > before + CLIENTS):
            recovered += 1
    killed.discard(None)
    sentence = f"{KILLS} workers were killed"
    tally.check(len(killed) == KILLS, sentence, f"{len(killed)} were")
    sentence = "after each kill plants are created again, by itself"
    tally.check(recovered == KILLS, sentence, f"{recovered} of {KILLS} times")


def check_journal(tally: Tally, store: Store, loads: list[Load]) -> None:
    sent = {plant_id: name for load in loads for plant_id, name in load.sent.items()}
    acknowledged = set().union(*(load.acknowledged for load in loads))
    plants = store.plants()
    counts = collections.Counter(plant["id"] for plant in plants)
    lost = sorted(acknowledged - set(counts))
    sentence = f"all {len(acknowledged)} acknowledged plants are in the journal"
    tally.check(bool(acknowledged) and not lost, sentence, f"lost {lost[:5]}")
    doubled = [plant_id for plant_id, count in counts.items() if count > 1]
    tally.check(not doubled, "each is there once", f"doubled {doubled[:5]}")
    invented = [
        plant
        for plant in plants
        if plant != {"id": plant["id"], "name": sent.get(plant["id"])}
    ]
    tally.check(not invented, "none is there that nobody sent", invented[:3])


def scenario(tally: Tally, build_dir: str) -> None:
    with temporary_store(build_dir) as store:
        with responder(store) as service, lighttpd(store, service.socket_path) as port:
            loads = [Load(number, port, store.token) for number in range(CLIENTS)]
            for load in loads:
                load.start()
            try:
                with tally.part("the kills"):
                    check_kills(tally, service, loads)
            finally:
                for load in loads:
                    load.stop.set()
                for load in loads:
                    load.join(WAIT_S)
            wrong = [answer for load in loads for answer in load.wrong]
            failures = sum((load.failures for load in loads), collections.Counter())
            sentence = "the kills were seen as failures to retry, never as a refusal"
            tally.check(not wrong, sentence, wrong[:2])
            print(f"# failures that clients retried: {dict(failures)}")
            client = HttpClient(port, store.token)
            answer = client.create(-1, "afterwards")
            client.close()
            load = loads[0]
            load.sent[-1] = "afterwards"
            load.acknowledged.add(-1)
            tally.check(answer.is_plant("afterwards"), "served at the end", answer)
        service.check_end(tally)
        with tally.part("the journal"):
            check_journal(tally, store, loads)


if __name__ == "__main__":
    sys.exit(main(scenario))
