"""Goal: no power cut loses, invents or wrongly refuses anything.

usage: run_power_cut.py BUILD_DIR [--long]

Runs power_cut.c: more than a million crash states with an index in memory, and
some thousands with the real one.  With --long all of them, each with every
state of the index, and a hundred thousand with the real one.
"""

import os
import sys
import time

from programs import Programs, run

from lib_service import Tally, run_scenario

# Of so many states one is tried.
EVERY = 2
EVERY_LMDB = 500
EVERY_LMDB_LONG = 30
# Sanitizers make a state some ten times as dear.
SANITIZED = 20
TIMEOUT_S = 900
TIMEOUT_LONG_S = 3600


def scenario(tally: Tally, build_dir: str, long: bool) -> None:
    begun = time.monotonic()
    programs = Programs(build_dir)
    slower = SANITIZED if programs.sanitized() else 1
    timeout_s = TIMEOUT_LONG_S if long else TIMEOUT_S
    for name, every in (
        ("memory", 1 if long else EVERY),
        ("files", EVERY_LMDB_LONG if long else EVERY_LMDB),
    ):
        program = programs.make(
            f"power_cut_{name}", "power_cut.c", "lab.c", f"index_{name}.c"
        )
        command: list[object] = [program, "--every", every * slower]
        run(tally, command + (["--long"] if long else []), timeout_s)
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
