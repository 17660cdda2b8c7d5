"""Goal: damage below the watermark is refused by name, and left as it is; a damaged
index may end a start, and once its directory is removed every plant is served.

Runs damage.c with a sample of its damages; with --long all.
"""

import os
import pathlib
import random
import shutil
import sys
from collections.abc import Callable

from lib_faults import Tally, parts_side_by_side, run_script
from lib_service import Store, run, temporary_store
from programs import LAB, Programs, run_program

# Of so many damages one is tried.
EVERY = 4
# Sanitizers make it some ten times as dear.
SANITIZED = 11
TIMEOUT_S = 900
BATCH = 64
BATCHES = 10
PAGE = 4096


def garble(path: pathlib.Path, kept: int = 0) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:kept] + random.Random(1).randbytes(len(content) - kept))


DAMAGES: dict[str, Callable[[pathlib.Path], object]] = {
    "cut to half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "zero": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "garbled": garble,
    # The index can be opened, and each page that is read is garbage.
    "garbled all but metas": lambda path: garble(path, 2 * PAGE),
}


def run_driver(driver: pathlib.Path, store: Store, *lines: str) -> tuple[int, list]:
    """Its exit status, and the result of each plant."""
    done = run(driver, store.dir, env=store.environment(), text=True,
               input="".join(f"{line}\n" for line in (*lines, "close")))
    words = [line.split() for line in done.stdout.splitlines()]
    return done.returncode, [found[1] for found in words if len(found) == 2]


def check_index(tally: Tally, driver: pathlib.Path, build: str, name: str) -> None:
    ids = range(1, BATCH * BATCHES, BATCH)
    batches = [f"batch {first} {BATCH}" for first in ids]
    with temporary_store(build) as store:
        _, results = run_driver(driver, store, *batches)
        stored = store.plants()
        well = results == ["created"] * len(stored) and len(stored) == BATCH * BATCHES
        tally.check(well, f"index, {name}: there are plants", results[:3])
        DAMAGES[name](max(store.dir.glob("index/*"), key=lambda file: file.stat().st_size))
        status, _ = run_driver(driver, store)
        print(f"# index, {name}: a start ends with status {status}")
        unharmed = store.plants() == stored
        tally.check(unharmed, f"index, {name}: a start leaves the plants as they are")
        shutil.rmtree(store.dir / "index")
        status, results = run_driver(driver, store, *batches, "put 1 other")
        tally.check(status == 0 and results == ["same"] * len(stored) + ["conflict"],
                    f"index, {name}: with the directory removed every plant is served",
                    (status, results[:3], results[-3:]))


def scenario(tally: Tally, arguments) -> None:
    programs = Programs(arguments.build)
    every = 1 if arguments.long else EVERY
    every *= SANITIZED if programs.sanitized() and not arguments.long else 1
    driver = programs.make("driver", "driver.c")
    command = [programs.make("damage", "damage.c", *LAB), "--every", every]
    parts = [(f"damage {room} runs to its end",
              lambda own, room=room: run_program(own, [*command, *room], TIMEOUT_S))
             for room in ([], ["--room"])]
    build = str(arguments.build)
    parts += [(f"index, {name}: runs to its end",
               lambda own, name=name: check_index(own, driver, build, name)) for name in DAMAGES]
    parts_side_by_side(tally, parts)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, scenario))
