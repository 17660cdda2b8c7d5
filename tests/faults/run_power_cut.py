"""Goal: no power cut loses, invents or wrongly refuses anything.

Runs power_cut.c with a sample of its crash states; with --long each state that is
chosen is tried with every state of the index, and more are chosen.
"""

import sys

from lib_faults import Tally, run_script
from programs import LAB, Programs, run_program

# Of so many states one is tried.
EVERY = 30
EVERY_LONG = 15
# Sanitizers make a state some ten times as dear.
SANITIZED = 20
TIMEOUT_S = 900
TIMEOUT_LONG_S = 3600


def scenario(tally: Tally, arguments) -> None:
    programs = Programs(arguments.build)
    program = programs.make("power_cut", "power_cut.c", *LAB)
    every = EVERY_LONG if arguments.long else EVERY
    command = [program, "--every", every * (SANITIZED if programs.sanitized() else 1)]
    if arguments.long:
        command.append("--long")
    run_program(tally, command, TIMEOUT_LONG_S if arguments.long else TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, scenario))
