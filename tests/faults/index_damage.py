"""Goal: bytes of the index overwritten while it is in use never hide an id.

Runs index_damage.c with 300 seeds, with --long 10,000: about 6 seconds, 3 minutes.
"""

import sys

from lib_faults import Tally, run
from programs import Programs, run_program

SEEDS = 300
TIMEOUT_S = 1800


def scenario(tally: Tally, arguments) -> None:
    programs = Programs(arguments.build)
    if programs.sanitized():
        tally.skip("no overwritten byte hides an id", "sanitizers end it their way")
        return
    program = programs.make("index_damage", "index_damage.c")
    run_program(tally, [program, 10_000 if arguments.long else SEEDS], TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(run(__doc__, scenario))
