"""Goal: damage below the watermark is refused by name, and left as it is.

usage: damage.py BUILD_DIR [--long]

Runs damage.c: all damages with an index in memory, and a sample with the real
one; with --long all with both.
"""

import os
import sys
import time

from programs import Programs, run

from lib_service import Tally, run_scenario

# Of so many damages one is tried with the real index.
EVERY_LMDB = 20
# Sanitizers make it some ten times as dear.
SANITIZED = 11
TIMEOUT_S = 900


def scenario(tally: Tally, build_dir: str, long: bool) -> None:
    begun = time.monotonic()
    programs = Programs(build_dir)
    slower = SANITIZED if programs.sanitized() and not long else 1
    for name, every in (("memory", 1), ("files", 1 if long else EVERY_LMDB)):
        program = programs.make(
            f"damage_{name}", "damage.c", "lab.c", f"index_{name}.c"
        )
        run(tally, [program, "--every", every * slower], TIMEOUT_S)
    print(f"# took {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word != "--long"]
    if len(arguments) != 1:
        print(f"usage: {sys.argv[0]} BUILD_DIR [--long]", file=sys.stderr)
        sys.exit(os.EX_USAGE)
    sys.exit(
        run_scenario(
            lambda tally: scenario(tally, arguments[0], "--long" in sys.argv)
        )
    )
