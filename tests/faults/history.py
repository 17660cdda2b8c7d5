"""What clients were told, compared with what the journal holds.

The one judge of the fault tests: each of them collects an Event for every
request and asks `check` at its end.

The rules:

* a plant that was acknowledged is in the journal, once, as it was sent;
* a plant in the journal was sent by a request that may have stored it;
* a conflict refers to a plant that is in the journal with other content, and
  that somebody had begun to send before the conflict was answered;
* the journal's order is the clients': a plant known to be stored before
  another was first sent stands before it.
"""

import dataclasses
import math
from collections.abc import Iterable

# A name, and a tag or None.
Content = tuple[str, str | None]

OUTCOMES = ("created_or_same", "conflict", "maybe", "refused")


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """A request and how it ended; the times are of time.monotonic().

    created_or_same  answered 200
    conflict         answered 409
    maybe            no answer, or one that leaves it open (5003, 5007, 5009)
    refused          any other answer: this request has stored nothing
    """

    start: float
    end: float
    plant_id: int
    content: Content
    outcome: str

    def __post_init__(self) -> None:
        if self.outcome not in OUTCOMES:
            raise ValueError(f"no outcome: {self.outcome!r}")
        if self.end < self.start:
            raise ValueError(f"ended before it began: {self}")


@dataclasses.dataclass(slots=True)
class _Stored:
    """A plant of the journal and what the events say of it."""

    plant_id: int
    content: Content
    begun: float = math.inf  # when the first that may have stored it began
    known: float = math.inf  # when the first answer said that it is stored


def check(events: Iterable[Event], journal_plants: Iterable[dict]) -> list[str]:
    """The violations, as sentences; none if all that was promised holds."""
    violations: list[str] = []
    stored = _read_plants(journal_plants, violations)
    events = list(events)
    for event in events:
        plant = stored.get(event.plant_id)
        if plant is None:
            continue
        if event.content == plant.content:
            if event.outcome in ("created_or_same", "maybe"):
                plant.begun = min(plant.begun, event.start)
        if event.outcome in ("created_or_same", "conflict"):
            plant.known = min(plant.known, event.end)
    for event in events:
        _check_answer(event, stored.get(event.plant_id), violations)
    for plant in stored.values():
        if plant.begun == math.inf:
            violations.append(
                f"plant {plant.plant_id}: {plant.content} is stored, which no "
                "request sent that may have stored it"
            )
    _check_order(list(stored.values()), violations)
    return violations


def _read_plants(journal_plants: Iterable[dict], violations: list[str]) -> dict[int, _Stored]:
    """By their ids, in the journal's order."""
    stored: dict[int, _Stored] = {}
    for plant in journal_plants:
        unknown = set(plant) - {"id", "name", "tag"}
        if unknown:
            violations.append(f"plant {plant['id']}: stored with {unknown}")
        if plant["id"] in stored:
            violations.append(f"plant {plant['id']}: stored twice")
            continue
        content = (plant["name"], plant.get("tag"))
        stored[plant["id"]] = _Stored(plant["id"], content)
    return stored


def _check_answer(event: Event, plant: _Stored | None, violations: list[str]) -> None:
    """Whether what the client was told is true of the stored plant."""
    where = f"plant {event.plant_id}"
    if event.outcome == "created_or_same":
        if plant is None:
            violations.append(f"{where}: {event.content} was acknowledged, is lost")
        elif plant.content != event.content:
            violations.append(
                f"{where}: {event.content} was acknowledged, {plant.content} is stored")
    elif event.outcome == "conflict":
        if plant is None:
            violations.append(f"{where}: a conflict with a plant that is not stored")
        elif plant.content == event.content:
            violations.append(f"{where}: a conflict with the very same plant")
        elif plant.begun > event.end:
            violations.append(
                f"{where}: a conflict before anybody sent the plant that is stored")


def _check_order(plants: list[_Stored], violations: list[str]) -> None:
    """No plant stands before one that was known before it was first sent."""
    first_known: _Stored | None = None  # of those that stand behind
    for plant in reversed(plants):
        if first_known is not None and first_known.known < plant.begun < math.inf:
            violations.append(
                f"plant {plant.plant_id} stands before plant "
                f"{first_known.plant_id}, which was known "
                f"{plant.begun - first_known.known:.6f} s before it was sent"
            )
        if first_known is None or plant.known < first_known.known:
            first_known = plant
