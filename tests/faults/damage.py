"""Goal: damage below the watermark is refused by name, and left as it is.

Runs damage.c: all damages with an index in memory, and a sample with the real
one; with --long all with both.
"""

import sys

from lib_faults import Tally, parts_side_by_side, run
from programs import LAB, Programs, run_program

# Of so many damages one is tried with the real index.
EVERY_LMDB = 20
# Sanitizers make it some ten times as dear.
SANITIZED = 11
TIMEOUT_S = 900


def scenario(tally: Tally, arguments) -> None:
    programs = Programs(arguments.build)
    slower = SANITIZED if programs.sanitized() and not arguments.long else 1
    parts = []
    for name, every in (("memory", 1), ("files", 1 if arguments.long else EVERY_LMDB)):
        program = programs.make(
            f"damage_{name}", "damage.c", *LAB, f"index_{name}.c"
        )
        for room in ([], ["--room"]):
            command = [program, "--every", every * slower, *room]
            parts.append(
                (
                    f"damage with an index in {name} runs to its end",
                    lambda own, command=command: run_program(own, command, TIMEOUT_S),
                )
            )
    parts_side_by_side(tally, parts)


if __name__ == "__main__":
    sys.exit(run(__doc__, scenario))
