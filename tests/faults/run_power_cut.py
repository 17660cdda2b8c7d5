#!/usr/bin/env python3
"""Goal: no power cut loses, invents or wrongly refuses anything.

Runs power_cut.c with a sample of its crash states; with --long each state that is
chosen is tried with every state of the index, and more are chosen.
"""

import sys
import tempfile

from lib_faults import (
    WORKERS, Tally, compile_program, is_sanitized, run_script, side_by_side,
)
from lib_service import memory, passed_on, run

# Of so many states one is tried.
EVERY = 30
EVERY_LONG = 15
# Sanitizers make a state some ten times as dear.
SANITIZED = 20
TIMEOUT_S = 3600
WRONG = {
    "no acknowledged plant is lost by a power cut": 4,
    "no plant is invented by a power cut": 5,
    "no power cut makes the store refuse to start": 6,
    "after a power cut the store goes on, and kept the torn end": 7,
}


def scenario(tally: Tally, arguments) -> None:
    program = compile_program(arguments.build, "power_cut", "power_cut.c", "../unit/store_parts.c")
    every = EVERY_LONG if arguments.long else EVERY
    every *= SANITIZED if is_sanitized(arguments.build) else 1
    with tempfile.TemporaryDirectory(dir=memory()) as folder:

        def part(number: int) -> tuple[list[int], str]:
            done = run(program, every, number, WORKERS, *["long"] * arguments.long, text=True,
                       env=passed_on() | {"TMPDIR": folder}, timeout=TIMEOUT_S)
            return [int(word) for word in done.stdout.split()], f"{done.returncode} {done.stderr}"

        parts = list(side_by_side(part, range(WORKERS)))
    said = "".join(text for _, text in parts)
    if not tally.check(all(text == "0 " or counts for counts, text in parts), "it runs to its end", said):
        return
    sectors, *_ = (max(column) for column in zip(*(counts for counts, _ in parts)))
    sums = [sum(column) for column in zip(*(counts for counts, _ in parts))]
    print(f"# {sums[1]} crash states (all subsets of up to {sectors} sectors), {sums[2]} recoveries "
          f"with the index absent, behind or current; {sums[3]} times all plants were sent again")
    tally.check(sums[2] > 0, "crash states are tried")
    for sentence, place in WRONG.items():
        tally.check(sums[place] == 0, sentence, (sums[place], said))


if __name__ == "__main__":
    sys.exit(run_script(__doc__, scenario))
