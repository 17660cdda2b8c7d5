"""Goal: the judge of the fault tests sees every fault, and no other.

usage: test_history.py [BUILD_DIR] [--long]

Makes histories of several clients against a store that is a dictionary, checks
that they pass, puts one fault into each and checks that it is found.
"""

import pathlib
import random
import sys
import time
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from history import Content, Event, check  # noqa: E402
from lib_service import Tally, run_scenario  # noqa: E402

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


# Each fault changes a history, and returns whether it found a place for it.


def acknowledged(events: list[Event]) -> list[int]:
    return sorted({e.plant_id for e in events if e.outcome == "created_or_same"})


def place_of(plants: list[dict], plant_id: int) -> int:
    return [plant["id"] for plant in plants].index(plant_id)


def lose(rng: random.Random, events: list[Event], plants: list[dict]) -> bool:
    del plants[place_of(plants, rng.choice(acknowledged(events)))]
    return True


def double(rng: random.Random, events: list[Event], plants: list[dict]) -> bool:
    plants.insert(rng.randrange(len(plants) + 1), dict(rng.choice(plants)))
    return True


def store_id_twice(
    rng: random.Random, events: list[Event], plants: list[dict]
) -> bool:
    """The second content is that of a request whose answer was lost."""
    for event in events:
        at = [p for p in plants if p["id"] == event.plant_id]
        if event.outcome == "maybe" and at:
            plant = plant_of(event.plant_id, event.content)
            if plant != at[0]:
                plants.append(plant)
                return True
    return False


def alter(rng: random.Random, events: list[Event], plants: list[dict]) -> bool:
    plant = plants[place_of(plants, rng.choice(acknowledged(events)))]
    if rng.random() < 0.5:
        plant["name"] += "'"
    elif "tag" in plant:
        del plant["tag"]
    else:
        plant["tag"] = ""
    return True


def alter_unacknowledged(
    rng: random.Random, events: list[Event], plants: list[dict]
) -> bool:
    known = set(acknowledged(events))
    others = [plant for plant in plants if plant["id"] not in known]
    if others:
        rng.choice(others)["name"] += "'"
    return bool(others)


def add_member(rng: random.Random, events: list[Event], plants: list[dict]) -> bool:
    rng.choice(plants)["colour"] = "green"
    return True


def invent(rng: random.Random, events: list[Event], plants: list[dict]) -> bool:
    plants.insert(rng.randrange(len(plants) + 1), plant_of(1000, ("a", None)))
    return True


def store_refused(rng: random.Random, events: list[Event], plants: list[dict]) -> bool:
    """The content that is stored is that of a request that was refused."""
    events.append(Event(1.0, 2.0, 1000, ("a", None), "refused"))
    events.append(Event(1.0, 2.0, 1000, ("b", None), "maybe"))
    plants.append(plant_of(1000, ("a", None)))
    return True


def store_conflicting(
    rng: random.Random, events: list[Event], plants: list[dict]
) -> bool:
    events.append(Event(1.0, 2.0, 1000, ("a", None), "conflict"))
    plants.append(plant_of(1000, ("a", None)))
    return True


def conflict_without_plant(
    rng: random.Random, events: list[Event], plants: list[dict]
) -> bool:
    events.append(Event(1.0, 2.0, 1000, ("a", None), "conflict"))
    return True


def conflict_with_itself(
    rng: random.Random, events: list[Event], plants: list[dict]
) -> bool:
    event = next(e for e in events if e.outcome == "created_or_same")
    late = 1e6 + rng.random()
    events.append(Event(late, late, event.plant_id, event.content, "conflict"))
    return True


def conflict_too_early(
    rng: random.Random, events: list[Event], plants: list[dict]
) -> bool:
    """The plant that it refers to was sent only later."""
    events.append(Event(1.0, 2.0, 1000, ("a", None), "conflict"))
    events.append(Event(1e6, 1e6 + 1, 1000, ("b", None), "created_or_same"))
    plants.append(plant_of(1000, ("b", None)))
    return True


def acknowledge_two(
    rng: random.Random, events: list[Event], plants: list[dict]
) -> bool:
    event = next(e for e in events if e.outcome == "created_or_same")
    other = (event.content[0] + "'", event.content[1])
    events.append(Event(1.0, 2.0, event.plant_id, other, "created_or_same"))
    return True


def move_first_behind(
    rng: random.Random, events: list[Event], plants: list[dict]
) -> bool:
    """A plant stands before one that was acknowledged before it was sent."""
    place = rng.randrange(len(plants))
    before = plants[place]["id"]
    late = max(event.end for event in events) + 1
    if before not in acknowledged(events):
        return False
    events.append(Event(late, late + 1, 1000, ("a", None), "created_or_same"))
    plants.insert(place, plant_of(1000, ("a", None)))
    return True


def move_unanswered_before(
    rng: random.Random, events: list[Event], plants: list[dict]
) -> bool:
    """The same for a plant whose answer was lost, before a conflict's."""
    late = max(event.end for event in events) + 1
    known = [e for e in events if e.outcome == "conflict"]
    if not known:
        return False
    place = place_of(plants, rng.choice(known).plant_id)
    events.append(Event(late, late + 1, 1000, ("a", None), "maybe"))
    plants.insert(place, plant_of(1000, ("a", None)))
    return True


FAULTS: dict[Callable[..., bool], str] = {
    lose: "an acknowledged plant that is lost is found",
    double: "a plant that is stored twice is found",
    store_id_twice: "an id that is stored with two contents is found",
    alter: "an acknowledged plant that is altered is found",
    alter_unacknowledged: "an altered plant that nobody acknowledged is found",
    add_member: "a plant with a member of its own is found",
    invent: "a plant that nobody sent is found",
    store_refused: "a plant that was refused and is stored is found",
    store_conflicting: "a plant that was a conflict and is stored is found",
    conflict_without_plant: "a conflict with no plant is found",
    conflict_with_itself: "a conflict with the very same plant is found",
    conflict_too_early: "a conflict with a plant of the future is found",
    acknowledge_two: "two contents acknowledged for one id are found",
    move_first_behind: "an acknowledged plant out of order is found",
    move_unanswered_before: "an unanswered plant out of order is found",
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
    for fault, sentence in FAULTS.items():
        missed, made = [], 0
        for seed in range(rounds):
            rng = random.Random(seed)
            events, plants = make_history(rng)
            if fault(rng, events, plants):
                made += 1
                if not check(events, plants):
                    missed.append(seed)
        tally.check(
            made > 0 and not missed,
            f"{sentence} ({made} times)",
            f"made {made}, missed with the seeds {missed[:5]}",
        )
    print(f"# took {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    sys.exit(
        run_scenario(
            lambda tally: run(
                tally, ROUNDS_LONG if "--long" in sys.argv[1:] else ROUNDS
            )
        )
    )
