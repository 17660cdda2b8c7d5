#!/usr/bin/env python3
"""Goal: processes killed at any moment lose, double and invent no plant.

usage: kills.py [--long] BUILD_DIR

Eight clients of eight workers, and two that start CGI processes; kill -9 of one
worker, some, all, the supervisor, and everything at once.  A dead supervisor is started
again, as systemd would.  Last, a worker that is stopped in the middle of a commit, holding the lock.
"""

import contextlib
import functools
import os
import pathlib
import random
import re
import signal
import sys
import threading
import time

from load import (
    ERROR_BUSY, Event, Load, Tally, ask, half_kept, judge, main, mixed_plan, over_cgi,
    own_plant, single,
)
from lib_service import Store, is_stopped, temporary_store, wait_until
from service import Pool, adopt_orphans, pool

WORKERS = 8
CLIENTS = 8
CGI_CLIENTS = 2
KILLS = 500
PAUSE_S = (0.0, 0.15)
BACK_S = 10.0  # from a kill to the next answer 200
LOCK_S = 5.0  # STORE_LOCK_TIMEOUT_MS
LATE_S = 3.0  # what an answer may take more, on a busy machine


class Killer:
    """Kills, and counts whom."""

    def __init__(self, workers: Pool, seed: int) -> None:
        self.pool = workers
        self.chance = random.Random(seed)
        self.killed = {"worker": 0, "supervisor": 0}
        self.rounds = {"one": 0, "some": 0, "all": 0, "supervisor": 0, "everything": 0}

    def kills(self) -> int:
        return sum(self.killed.values())

    def kill_workers(self, pids: list[int]) -> None:
        for pid in pids:
            self.killed["worker"] += self.pool.kill(pid)

    def kill_supervisor(self) -> None:
        self.pool.kill_supervisor()
        self.killed["supervisor"] += 1

    def round(self) -> str:
        kind = self.chance.choices(list(self.rounds), weights=(60, 20, 8, 8, 4))[0]
        self.rounds[kind] += 1
        living = self.pool.workers()
        if kind == "one":
            self.kill_workers(living and [self.chance.choice(living)])
        elif kind == "some":
            count = min(len(living), self.chance.randint(2, 4))
            self.kill_workers(self.chance.sample(living, count))
        elif kind == "all":
            self.kill_workers(living)
        elif kind == "supervisor":
            # The workers of the dead one go on beside those of the next.
            self.kill_supervisor()
            self.pool.start()
            time.sleep(self.chance.uniform(0, 0.2))
            self.kill_workers(self.pool.orphans())
        else:
            self.kill_supervisor()
            self.kill_workers(self.pool.workers())
            self.pool.start()
        return kind


def check_kills(tally: Tally, store: Store, workers: Pool, kills: int) -> None:
    killer = Killer(workers, seed=1)
    slowest, stuck = 0.0, []
    began = time.monotonic()
    ways = half_kept(store, workers, CLIENTS)
    ways += [functools.partial(over_cgi, store)] * CGI_CLIENTS
    with Load(ways, mixed_plan) as load:
        load.wait_told(100)
        while killer.kills() < kills:
            time.sleep(killer.chance.uniform(*PAUSE_S))
            kind = killer.round()
            killed = time.monotonic()
            # More than can have been on the way when they were killed.
            if not load.wait_told(len(ways) + 1):
                stuck.append((kind, killer.kills()))
                break
            slowest = max(slowest, time.monotonic() - killed)
        all_again = load.all_served()
        load.stop()
    seconds = time.monotonic() - began
    print(f"# {killer.kills()} kills in {seconds:.0f} s: {killer.killed}", flush=True)
    print(f"# rounds: {killer.rounds}", flush=True)
    print(f"# {load.rate()}, {dict(load.answers)}", flush=True)
    print(f"# slowest return to service: {slowest:.2f} s", flush=True)
    tally.check(killer.kills() >= kills, f"there were {kills} kills", killer.kills())
    sentence = f"after each round of kills plants are stored within {BACK_S:.0f} s"
    tally.check(not stuck and slowest < BACK_S, sentence, (slowest, stuck))
    tally.check(all_again, "at the end every client is served", load.told_each())
    tally.check(not load.wrong, "every answer is the plant sent", load.wrong[:2])
    unknown = set(load.answers) - {"200", "409/5001", "lost"}
    tally.check(not unknown, "kills are seen as lost answers only", load.answers)
    judge(tally, load.events, store, f"{killer.kills()} kills, while they run")
    workers.stop()
    torn = [path.name for path in store.dir.glob("*.torn-*")]
    print(f"# torn tails kept: {len(torn)}", flush=True)
    judge(tally, load.events, store, f"{killer.kills()} kills, after the end")


# --- A holder of the lock that stands still ------------------------------------


def holds_lock(pid: int) -> bool:
    """Whether the process holds the store: another lock of its is for reading."""
    with contextlib.suppress(OSError):
        for entry in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
            with contextlib.suppress(OSError):
                if re.search("OFDLCK.* WRITE ", entry.read_text()):
                    return True
    return False


def stop_holder(workers: Pool, seconds: float) -> int | None:
    """Stop workers until one stands still with the lock."""
    chance = random.Random(2)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pid = chance.choice(workers.workers())
        os.kill(pid, signal.SIGSTOP)
        if wait_until(lambda: is_stopped(pid), 1) and holds_lock(pid):
            return pid
        os.kill(pid, signal.SIGCONT)
    return None


def ask_all(store: Store, workers: Pool, first_id: int, count: int) -> tuple:
    """As many requests at once, each on a connection of its own."""
    results: list[tuple] = []

    def one(number: int) -> None:
        with single(store, workers.socket_path) as exchange:
            results.append(ask(exchange, own_plant(number, first_id + number)))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [event for event, _ in results], [answer for _, answer in results]


def report_busy(tally: Tally, events: list[Event], answers: list, who: str) -> None:
    busy = [a is not None and a.is_error(503, ERROR_BUSY) for a in answers]
    sentence = f"{who}: the others answer 503, error {ERROR_BUSY}"
    tally.check(len(busy) == WORKERS and all(busy), sentence, answers)
    slowest = max(event.end - event.start for event in events)
    print(f"# {who}: the slowest 503 after {slowest:.2f} s", flush=True)
    # Twice for a request that comes while its worker waits for the lock.
    limit_s = 2 * LOCK_S + LATE_S
    tally.check(slowest < limit_s, f"{who}: within {limit_s:.1f} s", f"{slowest:.2f} s")


def check_stopped_worker(tally: Tally, store: Store) -> None:
    with pool(store, WORKERS) as workers:
        plan = functools.partial(mixed_plan, first=1 << 50)
        with Load(half_kept(store, workers, CLIENTS), plan) as load:
            load.wait_told(100)
            pid = stop_holder(workers, 20)
            if not tally.check(pid is not None, "a worker is stopped in a commit"):
                return
            try:
                events, answers = ask_all(store, workers, 1 << 40, WORKERS)
                report_busy(tally, events, answers, "a worker stopped in a commit")
            finally:
                os.kill(pid, signal.SIGCONT)
            again = load.all_served(20)
            tally.check(again, "when it goes on, every client is served", load.told_each())
            load.stop()
        print(f"# {load.rate()}, {dict(load.answers)}", flush=True)
        tally.check(not load.wrong, "every answer is the plant sent", load.wrong[:2])
        tally.check(pid in workers.workers(), "the stopped worker lives on")
        events += load.events
        judge(tally, events, store, "a worker stopped in a commit")


def scenario(tally: Tally, build_dir: str, long: bool) -> None:
    adopt_orphans()
    with tally.part("kills"), temporary_store(build_dir) as store:
        with pool(store, WORKERS) as workers:
            check_kills(tally, store, workers, KILLS * (10 if long else 1))
    with tally.part("a stopped worker"), temporary_store(build_dir) as store:
        check_stopped_worker(tally, store)


if __name__ == "__main__":
    sys.exit(main(scenario))
