"""Goal: no power cut loses, invents or wrongly refuses anything.

Runs power_cut.c: more than a million crash states with an index in memory, and
some thousands with the real one.  With --long all of them, each with every
state of the index, and a hundred thousand with the real one.
"""

import sys

from lib_faults import Tally, run
from programs import LAB, Programs, run_program

# Of so many states one is tried.
EVERY = 2
EVERY_LMDB = 500
EVERY_LMDB_LONG = 30
# Sanitizers make a state some ten times as dear.
SANITIZED = 20
TIMEOUT_S = 900
TIMEOUT_LONG_S = 3600


def scenario(tally: Tally, arguments) -> None:
    programs = Programs(arguments.build)
    slower = SANITIZED if programs.sanitized() else 1
    timeout_s = TIMEOUT_LONG_S if arguments.long else TIMEOUT_S
    for name, every in (
        ("memory", 1 if arguments.long else EVERY),
        ("files", EVERY_LMDB_LONG if arguments.long else EVERY_LMDB),
    ):
        program = programs.make(
            f"power_cut_{name}", "power_cut.c", *LAB, f"index_{name}.c"
        )
        command: list[object] = [program, "--every", every * slower]
        run_program(tally, command + (["--long"] if arguments.long else []), timeout_s)


if __name__ == "__main__":
    sys.exit(run(__doc__, scenario))
