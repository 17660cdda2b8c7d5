"""Goal: damage below the watermark is refused by name, and left as it is; a damaged
index may end a start, and once its directory is removed every plant is served.

Runs damage.c with a sample of its damages; with --long all.
"""

import os
import pathlib
import random
import shutil
import subprocess
import sys
from collections.abc import Callable

from lib_faults import Tally, parts_side_by_side, run
from lib_service import Store, temporary_store
from programs import LAB, Programs, run_program

# Of so many damages one is tried.
EVERY = 4
# Sanitizers make it some ten times as dear.
SANITIZED = 11
TIMEOUT_S = 900
BATCH = 64
BATCHES = 10
PAGE = 4096
START_S = 60.0


def cut_to_half(path: pathlib.Path, size: int) -> None:
    os.truncate(path, size // 2)


def empty(path: pathlib.Path, size: int) -> None:
    os.truncate(path, 0)


def zero(path: pathlib.Path, size: int) -> None:
    path.write_bytes(bytes(size))


def garble(path: pathlib.Path, size: int) -> None:
    path.write_bytes(random.Random(1).randbytes(size))


def garble_all_but_metas(path: pathlib.Path, size: int) -> None:
    """The index can be opened, and each page that is read is garbage."""
    metas = path.read_bytes()[: 2 * PAGE]
    path.write_bytes(metas + random.Random(1).randbytes(size - len(metas)))


def run_driver(driver: pathlib.Path, store: Store, *lines: str) -> tuple[int, list]:
    """Its exit status, and the result of each plant."""
    done = subprocess.run(
        [driver, store.dir],
        env=store.environment(),
        input="".join(f"{line}\n" for line in (*lines, "close")),
        text=True,
        capture_output=True,
        timeout=START_S,
    )
    words = [line.split() for line in done.stdout.splitlines()]
    return done.returncode, [found[1] for found in words if len(found) == 2]


def check_index(
    tally: Tally, driver: pathlib.Path, build: str, damage: Callable
) -> None:
    name = damage.__name__.replace("_", " ")
    ids = range(1, BATCH * BATCHES, BATCH)
    batches = [f"batch {first} {BATCH}" for first in ids]
    with temporary_store(build) as store:
        _, results = run_driver(driver, store, *batches)
        stored = store.plants()
        well = results == ["created"] * len(stored) and len(stored) == BATCH * BATCHES
        tally.check(well, f"index, {name}: there are plants", results[:3])
        path = max(store.dir.glob("index/*"), key=lambda file: file.stat().st_size)
        damage(path, path.stat().st_size)
        status, _ = run_driver(driver, store)
        print(f"# index, {name}: a start ends with status {status}")
        unharmed = store.plants() == stored
        tally.check(unharmed, f"index, {name}: a start leaves the plants as they are")
        shutil.rmtree(store.dir / "index")
        status, results = run_driver(driver, store, *batches, "put 1 other")
        tally.check(
            status == 0 and results == ["same"] * len(stored) + ["conflict"],
            f"index, {name}: with the directory removed every plant is served",
            (status, results[:3], results[-3:]),
        )


def scenario(tally: Tally, arguments) -> None:
    programs = Programs(arguments.build)
    every = 1 if arguments.long else EVERY
    every *= SANITIZED if programs.sanitized() and not arguments.long else 1
    driver = programs.make("driver", "driver.c")
    command = [programs.make("damage", "damage.c", *LAB), "--every", every]
    parts = [
        (
            f"damage {room} runs to its end",
            lambda own, room=room: run_program(own, [*command, *room], TIMEOUT_S),
        )
        for room in ([], ["--room"])
    ]
    for damage in (cut_to_half, empty, zero, garble, garble_all_but_metas):
        parts.append(
            (
                f"index, {damage.__name__}: runs to its end",
                lambda own, damage=damage: check_index(
                    own, driver, str(arguments.build), damage
                ),
            )
        )
    parts_side_by_side(tally, parts)


if __name__ == "__main__":
    sys.exit(run(__doc__, scenario))
