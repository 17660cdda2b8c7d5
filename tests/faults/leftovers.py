#!/usr/bin/env python3
"""Goal: what other times have left, an index, a copy, another history of the store, a file
or a process of 1.0.0, lets no stored id take another plant, and loses none."""

import collections
import contextlib
import dataclasses
import itertools
import os
import pathlib
import random
import shutil
import sys
from collections.abc import Iterator

from clients import Clients
from lib_faults import (
    Event, Tally, create_by_cgi, judge, mounted, parts_side_by_side, run_script,
)
from lib_service import (
    WAIT_S, Store, init_store, listening, responder, run, start, stop_process, temporary_store,
    wait_until,
)
from load import ask, single

BASE = 20_000  # plants, whose ids are all over the index
ASKED = 150
PAGE = 4096
FULL = 5002
PROMPT_S = 1.0
BUSY_S = 4.0  # what that may take more, on a busy machine; it was 30 s once
RENAMES = 4


def random_ids(chance: random.Random) -> Iterator[int]:
    """Also for threads."""
    return map(lambda _: chance.randrange(1, 1 << 62), itertools.count())


def load(store: Store, chance: random.Random) -> list[Event]:
    """Store the base; what the importer was told."""
    events = [Event(0, 0, plant_id, ("base", None), "created_or_same")
              for plant_id in itertools.islice(random_ids(chance), BASE)]
    text = b"".join(b'{"id":%d,"name":"base"}\n' % told.plant_id for told in events)
    store.command("import", "--quiet", input=text, check=True)
    return events


def copied(store: Store, name: str) -> Store:
    """A copy of the directory, for the same clients."""
    copy = dataclasses.replace(store, root=store.root / name)
    shutil.rmtree(copy.root, ignore_errors=True)
    copy.root.mkdir()
    shutil.copytree(store.dir, copy.dir)
    shutil.copy(store.tokens, copy.tokens)
    return copy


def contradict(store: Store, ids: list[int], chance: random.Random) -> collections.Counter[str]:
    """What clients are told that send another plant with a stored id, "refused" if no start
    serves; nobody may be told that it is created."""
    outcomes: collections.Counter[str] = collections.Counter()
    try:
        with responder(store, watched=False) as service:
            for plant_id in chance.sample(ids, min(ASKED, len(ids))):
                with single(store, service.socket_path) as exchange:
                    outcome = ask(exchange, (plant_id, "another", None))[0].outcome
                outcomes[outcome] += 1
                if outcome != "conflict":
                    break
            service.process.kill()
    except RuntimeError:  # it does not start
        outcomes["refused"] += 1
    return outcomes


# --- An index that is not of its journal ---------------------------------------


def check_copies(tally: Tally, build: pathlib.Path, rounds: int) -> None:
    """Copies of a store in use: files of two times, whose pages may be missing."""
    chance = random.Random(1)
    with temporary_store(str(build)) as store:
        load(store, chance)
        copies, before = [], []
        with responder(store, watched=False) as service:
            with Clients(store, service.socket_path, random_ids(chance)) as clients:
                for name in ("first", "second"):
                    stored = clients.stored()
                    wait_until(lambda: clients.stored() > stored + ASKED)
                    before.append(list(clients.created))
                    store.command("import", "--quiet", input=b"", check=True)  # a checkpoint
                    copies.append(copied(store, name))
                service.process.kill()
        told = {"whole": contradict(copies[0], before[0], chance),
                "of two times": collections.Counter()}
        for _ in range(rounds):
            copy = copied(copies[1], "copy")
            for name in os.listdir(copies[0].dir / "index"):
                if chance.random() < 0.5:
                    shutil.copy(copies[0].dir / "index" / name, copy.dir / "index" / name)
            for run_file in (copy.dir / "index").glob("run-*"):
                pages = bytearray(run_file.read_bytes())
                for at in range(0, len(pages), PAGE):
                    if chance.random() < 0.5:
                        pages[at:at + PAGE] = bytes(len(pages[at:at + PAGE]))
                run_file.write_bytes(pages)
            told["of two times"] += contradict(copy, before[1], chance)
    print(f"# {rounds} copies: {told}")
    for what, outcomes in told.items():
        tally.check(set(outcomes) == {"conflict"},
                    f"the index of a copy, {what}: no stored id takes another plant", outcomes)


# --- Another history -----------------------------------------------------------


def store_some(store: Store, ids: range, *, killed: bool = False) -> None:
    with responder(store, watched=False) as service:
        for plant_id in ids:
            with single(store, service.socket_path) as exchange:
                if ask(exchange, (plant_id, "Fern", None))[0].outcome != "created_or_same":
                    raise RuntimeError(f"plant {plant_id} is not stored")
        if killed:
            service.process.kill()


def refused(store: Store, sentence: str, tally: Tally) -> None:
    done = create_by_cgi(store, 99, "Moss")[1]
    tally.check(done.returncode != 0 and b"Status: 503" in done.stdout,
                f"{sentence}: the start refuses", done)
    done = store.command("verify", "--quiet")
    tally.check(done.returncode in (os.EX_CONFIG, os.EX_DATAERR), f"{sentence}: verify fails", done)


def check_histories(tally: Tally, build: pathlib.Path) -> None:
    with temporary_store(str(build)) as store, temporary_store(str(build)) as other:
        for killed in (False, True):
            where = "killed" if killed else "ended"
            store_some(store, range(20))
            branch = copied(store, where)
            first = 5000 if killed else 2000
            store_some(store, range(first, first + 10), killed=killed)
            own = store.journal.read_bytes()
            store_some(branch, range(first + 1000, first + 1040))
            shutil.copy(branch.journal, store.journal)
            refused(store, f"a longer journal of another history, {where}", tally)
            store.journal.write_bytes(own)
            store_some(store, range(first, first + 12))
        store_some(other, range(5))
        for names in (("index",), ("plants.jsonl", "plants.jsonl.end")):
            saved = store.root / "saved"
            shutil.rmtree(saved, ignore_errors=True)
            shutil.copytree(store.dir, saved)
            run("rm", "-r", *(store.dir / name for name in names), check=True)
            run("cp", "-a", *(other.dir / name for name in names), store.dir, check=True)
            refused(store, f"{' and '.join(names)} of another store", tally)
            shutil.rmtree(store.dir)
            saved.rename(store.dir)


# --- What 1.0.0 has left --------------------------------------------------------


def check_upgrade(tally: Tally, build: pathlib.Path) -> None:
    with temporary_store(str(build)) as store:
        with responder(store, workers=2) as pair:
            with Clients(store, pair.socket_path, itertools.count(1)) as clients:
                for _ in range(RENAMES):
                    stored = clients.stored()
                    wait_until(lambda: clients.stored() > stored + 50)
                    # As a process of 1.0.0 whose sync has failed.
                    store.journal.rename(store.dir / "plants.jsonl.failed")
                    wait_until(store.journal.exists)
                stored = clients.stored()
                again = wait_until(lambda: clients.stored() > stored + 50)
        wrong = judge(store, clients.events)
        tally.check(again and not wrong, "renamed by a process of 1.0.0 beside ours: served again",
                    (clients.errors, wrong[:3]))


# --- A full disk -----------------------------------------------------------------


def check_full(tally: Tally, build: pathlib.Path) -> None:
    """No room for the index that is to be built."""
    with temporary_store(str(build)) as store, \
            mounted("none", store.dir, "-t", "tmpfs", "-o", "size=8m,mode=0700"):
        init_store(store.build, store.dir)
        load(store, random.Random(3))
        shutil.rmtree(store.dir / "index")
        with contextlib.suppress(OSError), open(store.dir / "filler", "wb", 0) as filler:
            while True:
                filler.write(bytes(PAGE))
        with contextlib.closing(listening(store.root / "full.sock")) as listener:
            process = start(["/usr/bin/multiwatch", "--forks=1", "--retry=1000", "--",
                             store.responder], store.root / "service.log", stdin=listener,
                            env=store.environment(PATH="/usr/bin:/bin"))
            try:
                with single(store, store.root / "full.sock") as exchange:
                    told, answer = ask(exchange, (3, "x" * 2 * PAGE, None))
                took = told.end - told.start
                tally.check(answer is not None and answer.is_error(503, FULL)
                            and took < PROMPT_S + BUSY_S,
                            "full, and an index to build: 503 within a second", (took, answer))
                (store.dir / "filler").unlink()

                def stored() -> bool:
                    with single(store, store.root / "full.sock") as exchange:
                        return ask(exchange, (3, "Fern", None))[0].outcome == "created_or_same"

                tally.check(wait_until(stored, WAIT_S), "when there is room it is stored")
            finally:
                stop_process(process)


def scenario(tally: Tally, arguments) -> None:
    build, long = arguments.build, arguments.long
    parts = [
        ("copies", lambda own: check_copies(own, build, 50 if long else 4)),
        ("histories", lambda own: check_histories(own, build)),
        ("upgrade", lambda own: check_upgrade(own, build)),
    ]
    if not tally.lacks("a full disk and an index to build", "mounts"):
        parts.append(("full", lambda own: check_full(own, build)))
    parts_side_by_side(tally, parts)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, scenario))
