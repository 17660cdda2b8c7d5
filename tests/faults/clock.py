#!/usr/bin/env python3
"""Goal: nothing that is promised depends on the wall clock.

usage: clock.py [--long] BUILD_DIR

The clock is set to 1970 and to 2100 and stepped back and forth under load, with
a preloaded library: creates, repeats, conflicts, order, recovery and tokens
without an expiry go on, and the journal stays valid.
"""

import json
import sys
import time

from lib_faults import compile_shim, preload
from load import Load, Tally, ask, half_kept, judge, main, mixed_plan, single
from lib_service import Store, temporary_store
from service import adopt_orphans, pool

WORKERS = 4
CLIENTS = 4
YEAR_S = 365 * 86400
TAKEN_S = 2.0  # from a token's change until it counts


class Clock:
    """The wall clock of the processes that get its environment."""

    def __init__(self, store: Store) -> None:
        self.library = compile_shim(store.build)
        self.file = store.root / "clock"
        self.shift(0)

    def shift(self, seconds: int) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(f"{seconds}\n")
        new.rename(self.file)

    def set(self, unix_time: int) -> None:
        self.shift(unix_time - int(time.time()))

    def environment(self) -> dict[str, str]:
        return preload(self.library, FAULT_CLOCK=str(self.file))


def times_in(store: Store) -> list[str]:
    """What the records say of when they were made, in the journal's order."""
    lines = store.journal.read_bytes().split(b"\n")
    records = [json.loads(line) for line in lines if line.strip()]
    return [record["at"] for record in records if "plant" in record]


def token_add(store: Store, clock: Clock, name: str, *options: str) -> str:
    environment = store.environment(**clock.environment())
    done = store.command("token", "add", name, *options, env=environment, check=True)
    return done.stdout.decode().split("pst_")[1].split()[0]


def check_steps(tally: Tally, store: Store, clock: Clock) -> None:
    """One run under load, the clock stepped in its middle."""
    moments = {
        "1970": 0,
        "2100": 130 * YEAR_S,
        "before 1970": -YEAR_S,
        "now": int(time.time()),
        "an hour back": int(time.time()) - 3600,
        "1970 again": 5,
    }
    with pool(store, WORKERS, **clock.environment()) as workers:
        with Load(half_kept(store, workers, CLIENTS), mixed_plan) as load:
            for name, moment in moments.items():
                clock.set(moment)
                tally.check(load.all_served(), f"the clock at {name}: every client is served")
                # Recovery, too: a worker dies, another starts.
                workers.kill(workers.workers()[0])
                served = load.all_served() and load.all_served()
                tally.check(served, f"the clock at {name}: after a kill, too")
                time.sleep(0.2)
            load.stop()
        print(f"# {load.rate()}, {dict(load.answers)}", flush=True)
        unknown = set(load.answers) - {"200", "409/5001", "lost"}
        tally.check(not unknown, "no other answers than 200 and 409", load.answers)
        tally.check(not load.wrong, "every answer is the plant sent", load.wrong[:2])
        other = Store(store.build, store.root, "pst_" + token_add(store, clock, "late"))
        added, asked, answer = time.monotonic(), 0.0, None
        with single(other, workers.socket_path) as exchange:
            # Whoever asks then is let in, if not before.
            while (answer is None or answer.status != 200) and asked < TAKEN_S:
                time.sleep(0.01)
                asked = time.monotonic() - added
                _, answer = ask(exchange, (7, "late", None))
        sentence = "a token that is added while it is 1970 is taken within 2 s"
        tally.check(answer is not None and answer.status == 200, sentence, answer)
        tally.check(workers.stop() == 0, "the workers end with status 0")
    load.events.append(ask_again(store, clock, (7, "late", None))[0])
    judge(tally, load.events, store, "steps under load")
    seen = times_in(store)
    steps = sum(b < a for a, b in zip(seen, seen[1:]))
    years = sorted({moment[:4] for moment in seen})
    print(f"# years in the journal: {years}, {steps} steps back", flush=True)
    well = steps > 0 and "1970" in years and years[-1] > "2090"
    tally.check(well, "the clock was really set", (years, steps))


def ask_again(store: Store, clock: Clock, planned: tuple) -> tuple:
    with pool(store, 1, **clock.environment()) as workers:
        with single(store, workers.socket_path) as exchange:
            return ask(exchange, planned)


def check_expiry(tally: Tally, store: Store, clock: Clock) -> None:
    """Only this may look at the clock: a token that says until when."""
    clock.shift(0)
    token = "pst_" + token_add(store, clock, "short", "--expires", "1d")
    short = Store(store.build, store.root, token)
    with pool(store, 1, **clock.environment()) as workers:
        for days, status in ((0, 200), (2, 401), (0, 200)):
            clock.shift(days * 86400)
            with single(short, workers.socket_path) as exchange:
                # The service reads the clock when it wakes up.
                _, answer = ask(exchange, (-8, "short", None))
            well = answer is not None and answer.status == status
            tally.check(well, f"{days} days on, a token for one is {status}", answer)


def scenario(tally: Tally, build_dir: str, long: bool) -> None:
    adopt_orphans()
    for _ in range(5 if long else 1):
        with tally.part("steps"), temporary_store(build_dir) as store:
            clock = Clock(store)
            check_steps(tally, store, clock)
            check_expiry(tally, store, clock)


if __name__ == "__main__":
    sys.exit(main(scenario))
