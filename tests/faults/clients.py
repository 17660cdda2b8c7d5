"""Clients of a running service that keep what they were told as events."""

import itertools
import pathlib
import random
import threading
import time

from load import ask, kept
from history import Event
from lib_service import WAIT_S, Answer, Store

# Of so many requests one repeats a plant, and one contradicts it.
REPEAT_EVERY = 7
CONFLICT_EVERY = 11


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
            threading.Thread(target=self._run, args=(seed,), daemon=True) for seed in range(n)]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_S)
        if any(thread.is_alive() for thread in self._threads):
            raise RuntimeError("a client hangs")

    def stored(self) -> int:
        return len(self.created)

    def _run(self, seed: int) -> None:
        chance = random.Random(seed)
        own: list[int] = []
        with kept(self.store, self.socket_path) as exchange:
            while not self._stop.is_set():
                plant_id, name = self._choose(chance, own)
                event, answer = ask(exchange, (plant_id, name, None))
                self._keep(event, answer, own)
                if answer is None:
                    time.sleep(0.005)

    def _choose(self, chance: random.Random, own: list[int]) -> tuple[int, str]:
        if own and chance.randrange(REPEAT_EVERY) == 0:
            plant_id = chance.choice(own)
            return plant_id, f"plant {plant_id}"
        if own and chance.randrange(CONFLICT_EVERY) == 0:
            return chance.choice(own), "another"
        plant_id = next(self.ids)
        return plant_id, f"plant {plant_id}"

    def _keep(self, event: Event, answer: Answer | None, own: list) -> None:
        with self._lock:
            self.events.append(event)
            if event.outcome == "created_or_same":
                own.append(event.plant_id)
                self.created.append(event.plant_id)
            elif event.outcome != "conflict":
                number = answer.error() if answer is not None else None
                self.errors[number] = self.errors.get(number, 0) + 1
