"""What the parts share: arguments, scratch, sides, interleaved rounds, results."""

import argparse
import contextlib
import itertools
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence

from report import Aim
from sides import BENCH, BUILD, SERVERS, Program, Side, running, spawned
from wrk import Measurement, measure

from lib_service import init_store

WARM_UP_S = 1
BETWEEN_S = 0.1  # wrk's own start and end

# Of a side and its connections: one measurement a round.
Runs = dict[tuple[Side, int], list[Measurement]]


class Bench:
    """A run of scripts/bench.

    args      quick, seconds, rounds, parts
    scratch   a folder on the file system of the checkout
    aims      what the parts found, for the verdict
    said_aims the same of programs that judge themselves: whether met, a sentence
    wrong     sentences about counts that are not right; none in a good run
    figures   of each part, for --json
    shared    what one part measured for another too; see web.py
    """

    def __init__(self, args: argparse.Namespace, scratch: pathlib.Path) -> None:
        self.args = args
        self.aims: list[Aim] = []
        self.said_aims: list[tuple[bool, str]] = []
        self.wrong: list[str] = []
        self.figures: dict[str, object] = {}
        self.shared: object = None
        self.scratch = scratch
        self._numbers = itertools.count()

    def aim(self, what: str, value: float, bound: float, **more: object) -> None:
        self.aims.append(Aim(what, value, bound, **more))

    def skip(self, what: str, reason: str) -> None:
        skipped = self.figures.setdefault("skipped", {})
        if what not in skipped:
            self.progress("")
            print(f"\nskipped: {what}: {reason}", flush=True)
        skipped[what] = reason

    def check(self, right: bool, wrong: str) -> None:
        if not right:
            self.wrong.append(wrong)
            print(f"bench: {wrong}", file=sys.stderr)

    def progress(self, text: str) -> None:
        """One line that the next one overwrites; "" takes it away."""
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\033[K{text[:width]}", end="", file=sys.stderr, flush=True)

    def servers(self, names: Sequence[str] = tuple(SERVERS)) -> list[str]:
        """Those that are on this machine; of the others it says why not."""
        if not shutil.which("wrk"):
            self.skip("all behind a web server", "wrk is not installed")
            return []
        found = []
        for name in names:
            if reason := SERVERS[name].missing():
                self.skip(name, reason)
            else:
                found.append(name)
        return found

    def folder(self) -> pathlib.Path:
        """A new folder on the file system of the checkout."""
        path = self.scratch / str(next(self._numbers))
        path.mkdir(mode=0o700)
        return path

    @contextlib.contextmanager
    def service(self, server: str, name: str = "service", **settings: str) -> Iterator[Side]:
        """plant-store.fcgi with a new store; its plants are counted at the end."""
        store = self.folder()
        init_store(BUILD, store)
        settings["PLANT_STORE_DIR"] = str(store)
        program = Program(name, spawned(BUILD / "plant-store.fcgi"), settings)
        with running(server, program) as side:
            yield side
        with open(store / "plants.jsonl", "rb") as journal:
            stored = sum(b'"plant":' in line for line in journal)
        self.check_stored(side, stored)
        shutil.rmtree(store)

    def check_stored(self, side: Side, stored: int) -> None:
        """What was answered is there; what wrk no longer waited for may be."""
        self.check(stored >= side.answered,
                   f"{side.label}: {side.answered} were answered 200, {stored} are stored")

    def interleave(self, part: str, turns: Sequence[tuple[int, Sequence[Side]]]) -> Runs:
        """Measure the sides of each turn one after the other, in all rounds.

        A turn is a number of connections and who is compared at it.  A round
        begins with the other end, for what the first leaves behind.
        """
        runs: Runs = {(side, conns): [] for conns, sides in turns for side in sides}
        sides = list(dict.fromkeys(side for side, _ in runs))
        for number, side in enumerate([] if self.args.quick else sides, 1):
            self.progress(f"{part}: warming up, {number} of {len(sides)}")
            # Its figures are not kept, its errors are.
            self._check_answers(side, measure(side, 16, WARM_UP_S))
        number, total = 0, len(runs) * self.args.rounds
        for round_ in range(self.args.rounds):
            for conns, compared in turns:
                for side in compared[:: -1 if round_ % 2 else 1]:
                    left_s = (total - number) * (self.args.seconds + BETWEEN_S)
                    number += 1
                    self.progress(
                        f"{part}: {number} of {total}, {left_s:.0f} s left: "
                        f"{side.label}, {conns} connections"
                    )
                    run = measure(side, conns, self.args.seconds)
                    self._check_answers(side, run)
                    runs[side, conns].append(run)
        self.progress("")
        return runs

    def _check_answers(self, side: Side, run: Measurement) -> None:
        self.check(run.bad == 0, f"{side.label}: {run.bad} requests were not 200")


def preloaded(**settings: str) -> dict[str, str]:
    """The environment of a program whose syncs are others."""
    return {"LD_PRELOAD": str(BENCH / "preload.so"), **settings}


def per_s(run: Measurement) -> float:
    return run.per_s


def p99_ms(run: Measurement) -> float:
    return run.p99_ms


def ratios(
    ours: Sequence[Measurement], theirs: Sequence[Measurement],
    figure: Callable[[Measurement], float]
) -> list[float]:
    """Round by round, of measurements that were made next to each other."""
    return [figure(a) / figure(b) for a, b in zip(ours, theirs, strict=True)]
