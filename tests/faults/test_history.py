#!/usr/bin/env python3
"""Goal: the judge of the fault tests sees every fault, and no other.

usage: test_history.py [BUILD_DIR] [--long]

Makes histories of several clients against a store that is a dictionary, checks
that they pass, puts one fault into each and checks that it is found.
"""

import dataclasses
import random
import sys
import time
from collections.abc import Callable

from history import Content, Event, check
from lib_service import Tally, run_scenario

ROUNDS = 300
ROUNDS_LONG = 20_000
CLIENTS = 4
REQUESTS = 40

History = tuple[list[Event], list[dict]]


def content_of(rng: random.Random) -> Content:
    return rng.choice("abc"), rng.choice(("x", "y", None))


def plant_of(plant_id: int, content: Content) -> dict:
    plant: dict[str, object] = {"id": plant_id, "name": content[0]}
    if content[1] is not None:
        plant["tag"] = content[1]
    return plant


def make_history(rng: random.Random) -> History:
    """A history that holds: each request takes effect within its time."""
    planned = []
    for _ in range(CLIENTS):
        now = 0.0
        for _ in range(REQUESTS):
            start = now + rng.random() * 0.1
            effect = start + rng.random()
            now = effect + rng.random()
            planned.append((effect, start, now))
    events = []
    stored: dict[int, Content] = {}
    for _, start, end in sorted(planned):
        plant_id, content = rng.randrange(-30, 30), content_of(rng)
        kind = rng.random()
        if kind < 0.1:
            events.append(Event(start, end, plant_id, content, "refused"))
            continue
        if kind < 0.2:  # it broke off before it took effect
            events.append(Event(start, end, plant_id, content, "maybe"))
            continue
        same = stored.setdefault(plant_id, content) == content
        outcome = "created_or_same" if same else "conflict"
        if kind < 0.3:  # it took effect, and its answer was lost
            outcome = "maybe"
        events.append(Event(start, end, plant_id, content, outcome))
    rng.shuffle(events)
    return events, [plant_of(*item) for item in stored.items()]


# --- Faults: each changes a history, and returns whether it found a place for it


@dataclasses.dataclass
class Changed:
    rng: random.Random
    events: list[Event]
    plants: list[dict]

    def acknowledged(self) -> list[int]:
        known = {e.plant_id for e in self.events if e.outcome == "created_or_same"}
        return sorted(known)

    def end(self) -> float:
        return max(event.end for event in self.events)

    def place_of(self, plant_id: int) -> int:
        return [plant["id"] for plant in self.plants].index(plant_id)

    def add(self, outcome: str, name: str, start: float = 1.0) -> None:
        """A request for a plant that nobody else sends."""
        self.events.append(Event(start, start + 1, 1000, (name, None), outcome))


def lose(it: Changed) -> bool:
    del it.plants[it.place_of(it.rng.choice(it.acknowledged()))]
    return True


def double(it: Changed) -> bool:
    place = it.rng.randrange(len(it.plants) + 1)
    it.plants.insert(place, dict(it.rng.choice(it.plants)))
    return True


def store_id_twice(it: Changed) -> bool:
    """The second content is that of a request whose answer was lost."""
    for event in it.events:
        at = [p for p in it.plants if p["id"] == event.plant_id]
        if event.outcome == "maybe" and at:
            plant = plant_of(event.plant_id, event.content)
            if plant != at[0]:
                it.plants.append(plant)
                return True
    return False


def alter(it: Changed) -> bool:
    plant = it.plants[it.place_of(it.rng.choice(it.acknowledged()))]
    if it.rng.random() < 0.5:
        plant["name"] += "'"
    elif "tag" in plant:
        del plant["tag"]
    else:
        plant["tag"] = ""
    return True


def alter_unacknowledged(it: Changed) -> bool:
    known = set(it.acknowledged())
    others = [plant for plant in it.plants if plant["id"] not in known]
    if others:
        it.rng.choice(others)["name"] += "'"
    return bool(others)


def add_member(it: Changed) -> bool:
    it.rng.choice(it.plants)["colour"] = "green"
    return True


def requests(stored: str | None, *sent: tuple) -> Callable[[Changed], bool]:
    """Requests for one plant, and the name with which it is stored, if it is."""

    def fault(it: Changed) -> bool:
        for request in sent:
            it.add(*request)
        if stored is not None:
            it.plants.append(plant_of(1000, (stored, None)))
        return True

    return fault


def conflict_with_itself(it: Changed) -> bool:
    event = next(e for e in it.events if e.outcome == "created_or_same")
    late = 1e6 + it.rng.random()
    it.events.append(Event(late, late, event.plant_id, event.content, "conflict"))
    return True


def acknowledge_two(it: Changed) -> bool:
    event = next(e for e in it.events if e.outcome == "created_or_same")
    other = (event.content[0] + "'", event.content[1])
    it.events.append(Event(1.0, 2.0, event.plant_id, other, "created_or_same"))
    return True


def move_first_behind(it: Changed) -> bool:
    """A plant stands before one that was acknowledged before it was sent."""
    place = it.rng.randrange(len(it.plants))
    if it.plants[place]["id"] not in it.acknowledged():
        return False
    it.add("created_or_same", "a", it.end() + 1)
    it.plants.insert(place, plant_of(1000, ("a", None)))
    return True


def move_unanswered_before(it: Changed) -> bool:
    """The same for a plant whose answer was lost, before a conflict's."""
    known = [e for e in it.events if e.outcome == "conflict"]
    if not known:
        return False
    place = it.place_of(it.rng.choice(known).plant_id)
    it.add("maybe", "a", it.end() + 1)
    it.plants.insert(place, plant_of(1000, ("a", None)))
    return True


FAULTS: dict[str, Callable[[Changed], bool]] = {
    "an acknowledged plant that is lost is found": lose,
    "a plant that is stored twice is found": double,
    "an id that is stored with two contents is found": store_id_twice,
    "an acknowledged plant that is altered is found": alter,
    "an altered plant that nobody acknowledged is found": alter_unacknowledged,
    "a plant with a member of its own is found": add_member,
    "a plant that nobody sent is found": requests("a"),
    "a plant that was refused and is stored is found": requests(
        "a", ("refused", "a"), ("maybe", "b")),
    "a plant that was a conflict and is stored is found": requests("a", ("conflict", "a")),
    "a conflict with no plant is found": requests(None, ("conflict", "a")),
    "a conflict with the very same plant is found": conflict_with_itself,
    "a conflict with a plant of the future is found": requests(
        "b", ("conflict", "a"), ("created_or_same", "b", 1e6)),
    "two contents acknowledged for one id are found": acknowledge_two,
    "an acknowledged plant out of order is found": move_first_behind,
    "an unanswered plant out of order is found": move_unanswered_before,
}


def run(tally: Tally, rounds: int) -> None:
    begun = time.monotonic()
    wrong = {}
    for seed in range(rounds):
        violations = check(*make_history(random.Random(seed)))
        if violations:
            wrong[seed] = violations
    tally.check(not wrong, f"{rounds} histories that hold pass", list(wrong.items())[:1])
    tally.check(check([], []) == [], "the empty history holds")
    for sentence, fault in FAULTS.items():
        missed, made = [], 0
        for seed in range(rounds):
            rng = random.Random(seed)
            changed = Changed(rng, *make_history(rng))
            if fault(changed):
                made += 1
                if not check(changed.events, changed.plants):
                    missed.append(seed)
        tally.check(made > 0 and not missed, f"{sentence} ({made} times)",
                    f"made {made}, missed with the seeds {missed[:5]}")
    print(f"# took {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    sys.exit(
        run_scenario(
            lambda tally: run(tally, ROUNDS_LONG if "--long" in sys.argv[1:] else ROUNDS))
    )
