#!/usr/bin/env python3
"""Goal: whoever tampers with the store's files makes it refuse, never lie.

ONLY=WORDS in the environment chooses parts by name, SEEDS=N takes more of each.

Under load, the journal is removed, replaced, cut, appended to and overwritten,
the index is removed; between two runs the index is removed or replaced.  Either
the service goes on by itself, or it refuses with a message until the file is put
back; both times nothing that was acknowledged is missing in the end.
"""

import collections
import contextlib
import functools
import os
import pathlib
import random
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator

from lib_faults import Part, parts_side_by_side
from load import Event, Load, Tally, half_kept, judge, main, mixed_plan, single
from lib_service import Store, held_lock, new_plant, temporary_store
from service import Pool, adopt_orphans, pool

START_S = 30.0  # after which a start has refused
WORKERS = 4
CLIENTS = 4
SEEDS_LONG = 10
# A worker's starts after one tampering, before it counts as a crash loop.
STARTS_MAX = 5

Tamper = Callable[[Store, random.Random], object]


def wait_loaded(load: Load, workers: Pool, plants: int) -> None:
    if not load.wait_told(plants):
        raise RuntimeError(f"no load: {workers.log()[-500:]}")


def starts(workers: Pool) -> int:
    return workers.log().count("serving with")


def new_lines(workers: Pool, before: int) -> list[str]:
    return workers.log()[before:].splitlines()


def end_of_records(path: pathlib.Path) -> int:
    """The offset behind the last byte that is not a newline, and its newline."""
    return len(path.read_bytes().rstrip(b"\n")) + 1


# --- What somebody does ------------------------------------------------------


def remove_journal(store: Store, _: random.Random) -> Callable[[], None]:
    saved = store.root / "saved"
    with held_lock(store):
        os.rename(store.journal, saved)
    return lambda: os.rename(saved, store.journal)


def copy_over_journal(store: Store, _: random.Random) -> None:
    copy = store.root / "copy"
    with held_lock(store):
        shutil.copy(store.journal, copy)
        os.rename(copy, store.journal)


def old_copy_over_journal(store: Store, _: random.Random) -> Callable[[], None]:
    copy, saved = store.root / "copy", store.root / "saved"
    shutil.copy(store.journal, copy)
    with held_lock(store):
        if copy.stat().st_size > (end := end_of_records(store.journal) - 500):
            os.truncate(copy, end)
        os.rename(store.journal, saved)
        os.rename(copy, store.journal)
    return lambda: os.rename(saved, store.journal)


@contextlib.contextmanager
def other_store(build: pathlib.Path) -> Iterator[Store]:
    """Another store, with a plant of its own."""
    with temporary_store(str(build)) as other:
        other.cgi(new_plant(1, "another store's"))
        yield other


def others_journal(store: Store, _: random.Random) -> Callable[[], None]:
    saved = store.root / "saved"
    with other_store(store.build) as other, held_lock(store):
        os.rename(store.journal, saved)
        shutil.copy(other.journal, store.journal)
    return lambda: os.rename(saved, store.journal)


def truncate(store: Store, size: int) -> Callable[[], None]:
    """It is put back into the same file."""
    with held_lock(store):
        whole = store.journal.read_bytes()
        os.truncate(store.journal, size)

    def undo() -> None:
        with held_lock(store), open(store.journal, "r+b") as file:
            file.write(whole)

    return undo


def cut_journal(store: Store, chance: random.Random) -> Callable[[], None]:
    return truncate(store, chance.randrange(100, end_of_records(store.journal) - 100))


def empty_journal(store: Store, _: random.Random) -> Callable[[], None]:
    return truncate(store, 0)


def cut_room(store: Store, _: random.Random) -> None:
    with held_lock(store):
        os.truncate(store.journal, end_of_records(store.journal))


def append(data: Callable[[Store], bytes], *, at_end: bool) -> Tamper:
    """`at_end`: behind the last record, else behind the room ahead."""

    def tamper(store: Store, _: random.Random) -> None:
        with held_lock(store), open(store.journal, "r+b") as file:
            if at_end:
                end = end_of_records(store.journal)
                file.truncate(end)
                file.seek(end)
            else:
                file.seek(0, os.SEEK_END)
            file.write(data(store))

    return tamper


def last_line(store: Store) -> bytes:
    return store.journal.read_bytes().rstrip(b"\n").rpartition(b"\n")[2] + b"\n"


def append_too_much(store: Store, chance: random.Random) -> Callable[[], None]:
    with held_lock(store), open(store.journal, "r+b") as file:
        end = end_of_records(store.journal)
        file.truncate(end)
        file.seek(end)
        for _ in range(5):
            file.write(chance.randbytes(1 << 20))

    def undo() -> None:
        with held_lock(store):
            os.truncate(store.journal, end)

    return undo


def remove_index(store: Store, _: random.Random) -> None:
    shutil.rmtree(store.dir / "index", ignore_errors=True)


def remove_index_file(store: Store, _: random.Random) -> None:
    (store.dir / "index" / "manifest").unlink(missing_ok=True)


def others_index(store: Store, _: random.Random) -> Callable[[], None]:
    """Written over it, so that it is the same file; what the service asks for undoes it."""
    with other_store(store.build) as other, held_lock(store):
        source = other.dir / "index" / "manifest"
        shutil.copy(source, store.dir / "index" / "manifest")
    return lambda: remove_index(store, _)


def old_index(store: Store, _: random.Random) -> None:
    """One that knows less, written over it."""
    path = store.dir / "index" / "manifest"
    with held_lock(store):
        shutil.copy(store.root / "early", path)


def keep_early_index(store: Store) -> None:
    with held_lock(store):
        shutil.copy(store.dir / "index" / "manifest", store.root / "early")


# --- Under load --------------------------------------------------------------


def goes_on(tally: Tally, what: str, build: str, tamper: Tamper, seed: int) -> None:
    """It is done under load, and the service goes on by itself."""
    with temporary_store(build) as store, pool(store, WORKERS) as workers:
        chance = random.Random(seed)
        with Load(half_kept(store, workers, CLIENTS), mixed_plan) as load:
            wait_loaded(load, workers, 1300)
            before, log_before = starts(workers), workers.log_bytes()
            tamper(store, chance)
            served = load.all_served()
            # Not only those who have not noticed it yet.
            for pid in workers.workers()[:1]:
                workers.kill(pid)
            served = served and load.all_served()
            time.sleep(0.3)
            load.stop()
        report_run(tally, what, workers, load, served, before, log_before)
        finish(tally, what, store, workers, load)


def report_run(
    tally: Tally, what: str, workers: Pool, load: Load, served: bool, starts_before: int = 0,
    log_before: int = 0
) -> None:
    again = starts(workers) - starts_before
    print(f"# {what}: {again} starts, {dict(load.answers)}")
    for line in messages(new_lines(workers, log_before))[:3]:
        print(f"#   {line}")
    tally.check(served, f"{what}: every client is served again", workers.log()[-1000:])
    tally.check(again <= STARTS_MAX * WORKERS, f"{what}: no crash loop", f"{again} starts")


def refuses(tally: Tally, what: str, build: str, tamper: Tamper, seed: int) -> None:
    """It is done under load; the service refuses until it is undone."""
    with temporary_store(build) as store, pool(store, WORKERS) as workers:
        with Load(half_kept(store, workers, CLIENTS), mixed_plan) as load:
            wait_loaded(load, workers, 1000)
            log_before = workers.log_bytes()
            undo = tamper(store, random.Random(seed))
            tampered = time.monotonic()
            time.sleep(1.0)
            told = load.told()
            time.sleep(0.5)
            quiet = load.told() == told
            begun_before_undo = time.monotonic()
            said = messages(new_lines(workers, log_before))
            undo()
            served = load.all_served()
            load.stop()
        false = [event for event in load.events if event.outcome == "created_or_same"
                 and event.start > tampered + 0.1 and event.end < begun_before_undo]
        tally.check(quiet and not false, f"{what}: nothing is acknowledged", false[:2])
        tally.check(bool(said), f"{what}: a message says why", said)
        for line in said[:4]:
            print(f"#   {line}")
        tally.check(served, f"{what}: put back, every client is served", workers.log()[-1000:])
        finish(tally, what, store, workers, load)


def finish(tally: Tally, what: str, store: Store, workers: Pool, load: Load) -> None:
    tally.check(not load.wrong, f"{what}: every answer is the plant sent", load.wrong)
    workers.stop()
    end(tally, what, store, load.events)


def end(tally: Tally, what: str, store: Store, events: list[Event]) -> None:
    """Start once more, with the whole journal checked, and judge."""
    (store.dir / "index" / "manifest").unlink(missing_ok=True)
    twice = stored_twice(store)
    tally.check(not twice, f"{what}: no plant is stored twice", twice)
    served, lines = serve_once(store, events)
    tally.check(served, f"{what}: it can be started", lines[-3:])
    judge(tally, events, store, what)


def stored_twice(store: Store) -> list[int]:
    counts = collections.Counter(plant["id"] for plant in store.plants())
    return [plant_id for plant_id, count in counts.items() if count > 1]


def serve_once(store: Store, events: list[Event]) -> tuple[bool, list[str]]:
    """Whether a start leads to an answer, and what was said."""
    with pool(store, 1) as workers:
        way = functools.partial(single, store, workers.socket_path)
        before = workers.log_bytes()
        with Load([way], lambda _: [(-1, "client 0", None)]) as load:
            served = load.wait_told(1, START_S)
            if not served:
                # Its client waits for an answer that will not come.
                workers.stop()
                workers.listener.close()
        events += load.events
        return served and not load.wrong, messages(new_lines(workers, before))


def messages(lines: list[str]) -> list[str]:
    """Each kind of complaint once."""
    kinds: dict[str, str] = {}
    for line in lines:
        if not re.search(r"serving with|: ended|created a new store|Spawning child", line):
            short = re.sub(r"/tmp/[^/ ]*/", "", line)
            kinds.setdefault(re.sub(r"\d+", "N", short), short)
    return list(kinds.values())


# --- Between two runs --------------------------------------------------------


def while_stopped(tally: Tally, what: str, build: str, tamper: Tamper, seed: int) -> None:
    with temporary_store(build) as store:
        with pool(store, WORKERS) as workers:
            with Load(half_kept(store, workers, CLIENTS), mixed_plan) as load:
                wait_loaded(load, workers, 300)
                keep_early_index(store)
                wait_loaded(load, workers, 1000)
        events, wrong = load.events, load.wrong
        remedy = tamper(store, random.Random(seed))
        if remedy:
            before = store.journal.read_bytes()
            done = store.command("import", input=b"")
            tally.check(
                done.returncode in (os.EX_DATAERR, os.EX_CONFIG) and b"index" in done.stderr
                and store.journal.read_bytes() == before,
                f"{what}: a start refuses, says what to do and changes nothing", done)
            remedy()
        with pool(store, WORKERS) as workers:
            # The same plan again: whatever is stored must be found.
            with Load(half_kept(store, workers, CLIENTS), mixed_plan) as load:
                served = load.wait_told(1300)
            report_run(tally, what, workers, load, served)
        events += load.events
        wrong += load.wrong
        tally.check(not wrong, f"{what}: every answer is the plant sent", wrong)
        end(tally, what, store, events)


GARBAGE = b"\0\1garbage \xff\n{\"seq\":1,"
UNDER_LOAD: list[tuple[Callable, str, Tamper]] = [
    (refuses, "journal removed", remove_journal),
    (goes_on, "journal replaced by its copy", copy_over_journal),
    (refuses, "journal replaced by an old copy", old_copy_over_journal),
    (refuses, "journal replaced by another store's", others_journal),
    (refuses, "journal cut", cut_journal),
    (refuses, "journal emptied", empty_journal),
    (goes_on, "journal's room cut", cut_room),
    (goes_on, "garbage behind the records", append(lambda _: GARBAGE, at_end=True)),
    (goes_on, "garbage behind the room", append(lambda _: GARBAGE, at_end=False)),
    (goes_on, "last line twice", append(last_line, at_end=True)),
    (goes_on, "last line behind the room", append(last_line, at_end=False)),
    (goes_on, "blank lines", append(lambda _: b"\n" * 10_000, at_end=True)),
    (refuses, "5 MiB of garbage", append_too_much),
    (goes_on, "index removed", remove_index),
    (goes_on, "index file removed", remove_index_file),
]
STOPPED: list[tuple[str, Tamper]] = [
    ("stopped, index removed", remove_index),
    ("stopped, another store's index", others_index),
    ("stopped, an older index", old_index),
]


def scenario(tally: Tally, build_dir: str, long: bool) -> None:
    only = os.environ.get("ONLY", "")
    kinds = [*UNDER_LOAD, *((while_stopped, *kind) for kind in STOPPED)]
    seeds = int(os.environ.get("SEEDS", SEEDS_LONG if long else 1))

    def part_of(run: Callable, what: str, tamper: Tamper, seed: int) -> Part:
        def part(own: Tally) -> None:
            # Each is a process, and adopts its own.
            adopt_orphans()
            run(own, what, build_dir, tamper, seed)

        return what, part

    chosen = [kind for kind in kinds if only in kind[1]]
    parts_side_by_side(
        tally, [part_of(*kind, seed) for seed in range(seeds) for kind in chosen])


if __name__ == "__main__":
    sys.exit(main(scenario))
