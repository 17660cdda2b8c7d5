"""Clients of a running service that keep what they were told as events."""

import itertools
import pathlib
import random
import threading
import time

from lib_faults import event, outcome_of
from lib_service import Answer, FastCgiPeer, Store, fcgi_request, new_plant

from history import Event

# Of so many requests one repeats a plant, and one contradicts it.
REPEAT_EVERY = 7
CONFLICT_EVERY = 11
TIMEOUT_S = 20.0


class Clients:
    """Create plants over kept connections until they are told to stop.

    A connection that breaks is made anew, after a pause.  Only plants that
    these clients created are repeated, so a plant that is lost stays lost.
    """

    def __init__(
        self, store: Store, socket_path: pathlib.Path, ids: itertools.count, n: int = 4
    ) -> None:
        self.store, self.socket_path, self.ids = store, socket_path, ids
        self.events: list[Event] = []
        self.errors: dict[int | None, int] = {}  # by number; None: no answer
        self.created: list[int] = []  # answered 200, perhaps more than once
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(seed,), daemon=True)
            for seed in range(n)
        ]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * TIMEOUT_S)
        if any(thread.is_alive() for thread in self._threads):
            raise RuntimeError("a client hangs")

    def stored(self) -> int:
        return len(self.created)

    def _run(self, seed: int) -> None:
        chance = random.Random(seed)
        own: list[int] = []
        while not self._stop.is_set():
            try:
                with FastCgiPeer(self.socket_path, TIMEOUT_S) as peer:
                    while not self._stop.is_set():
                        self._request(peer, chance, own)
            except (OSError, ValueError):
                time.sleep(0.005)

    def _request(self, peer: FastCgiPeer, chance: random.Random, own: list) -> None:
        plant_id, name = self._choose(chance, own)
        body = new_plant(plant_id, name)
        variables = self.store.request(body).items()
        start = time.monotonic()
        answer = None
        try:
            answer = peer.exchange(fcgi_request(variables, body, keep=True))
        finally:
            self._keep(start, plant_id, name, answer, own)

    def _choose(self, chance: random.Random, own: list[int]) -> tuple[int, str]:
        if own and chance.randrange(REPEAT_EVERY) == 0:
            plant_id = chance.choice(own)
            return plant_id, f"plant {plant_id}"
        if own and chance.randrange(CONFLICT_EVERY) == 0:
            return chance.choice(own), "another"
        plant_id = next(self.ids)
        return plant_id, f"plant {plant_id}"

    def _keep(
        self, start: float, plant_id: int, name: str, answer: Answer | None, own: list
    ) -> None:
        outcome = outcome_of(answer)
        known = event(start, plant_id, (name, None), outcome)
        with self._lock:
            self.events.append(known)
            if outcome == "created_or_same":
                own.append(plant_id)
                self.created.append(plant_id)
            elif outcome != "conflict":
                number = answer.error() if answer is not None else None
                self.errors[number] = self.errors.get(number, 0) + 1
