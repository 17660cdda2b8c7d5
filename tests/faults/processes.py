"""Goal: any number of processes share one store, in one order.

usage: processes.py [--long] BUILD_DIR

Eight workers and CGI processes: each with ids of its own, then all of them
racing for the same ids with different contents.
"""

import collections
import functools
import random
import sys

from load import Event, Load, Tally, half_kept, judge, main, over_cgi, own_plant
from lib_service import Store, temporary_store
from service import Pool, adopt_orphans, pool

WORKERS = 8
CLIENTS = 8
CGI_CLIENTS = 2
DISTINCT = 3_000  # plants of each client
RACED = 10_000  # ids
WINDOW = 200
# A CGI process takes 100 times as long as a request to a worker.
CGI_STEP = 50


def ways(store: Store, workers: Pool) -> list:
    """Half of the clients keep their connections."""
    found = half_kept(store, workers, CLIENTS)
    return found + [functools.partial(over_cgi, store)] * CGI_CLIENTS


def is_cgi(number: int) -> bool:
    return number >= CLIENTS


def check_distinct(tally: Tally, store: Store, workers: Pool, plants: int) -> list[Event]:
    def plan(number: int):
        first = (number + 1) * 1_000_000
        count = plants // CGI_STEP if is_cgi(number) else plants
        return (own_plant(number, first + i) for i in range(count))

    with Load(ways(store, workers), plan) as load:
        load.join()
    print(f"# distinct ids: {load.rate()}, {dict(load.answers)}", flush=True)
    only_200 = set(load.answers) == {"200"}
    tally.check(only_200, "every plant with its own id is created", load.answers)
    tally.check(not load.wrong, "every answer is the plant sent", load.wrong[:2])
    return load.events


def check_race(tally: Tally, store: Store, workers: Pool, raced: int) -> list[Event]:
    def plan(number: int):
        # Near each other, but not in step: else the first stays the first.
        chance = random.Random(number)
        step = CGI_STEP if is_cgi(number) else 1
        for begin in range(0, raced, WINDOW):
            window = list(range(begin, begin + WINDOW, step))
            chance.shuffle(window)
            for plant_id in window:
                yield plant_id, f"racer {number}", None

    with Load(ways(store, workers), plan) as load:
        load.join()
    print(f"# the same ids: {load.rate()}, {dict(load.answers)}", flush=True)
    only = set(load.answers) == {"200", "409/5001"}
    tally.check(only, "who wants them is answered 200 or 409", load.answers)
    tally.check(not load.wrong, "every answer is the plant sent", load.wrong[:2])
    winners = collections.defaultdict(set)
    answered = collections.Counter()
    for event in load.events:
        answered[event.plant_id] += 1
        if event.outcome == "created_or_same":
            winners[event.plant_id].add(event.content)
    one = all(len(winners[plant_id]) == 1 for plant_id in range(raced))
    several = [i for i in winners if len(winners[i]) != 1][:3]
    tally.check(one, "each id that many want gets exactly one content", several)
    well = all(count >= CLIENTS for count in answered.values())
    tally.check(well, f"each id was wanted by at least {CLIENTS} clients")
    shares = collections.Counter(name for w in winners.values() for name, _ in w)
    print(f"# won: {dict(shares)}", flush=True)
    tally.check(len(shares) > 1, "more than one racer wins", shares)
    return load.events


def scenario(tally: Tally, build_dir: str, long: bool) -> None:
    adopt_orphans()
    times = 5 if long else 1
    with temporary_store(build_dir) as store:
        with pool(store, WORKERS) as workers:
            events = check_distinct(tally, store, workers, DISTINCT * times)
            judge(tally, events, store, "distinct ids, while they run")
            events += check_race(tally, store, workers, RACED * times)
            tally.check(workers.stop() == 0, "the workers end with status 0")
            judge(tally, events, store, "both, after they ended")


if __name__ == "__main__":
    sys.exit(main(scenario))
