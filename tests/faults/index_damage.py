"""Goal: bytes of the index overwritten while it is in use never hide an id.

usage: index_damage.py BUILD_DIR [--long]

Runs index_damage.c with 300 seeds, with --long 10,000: about 6 seconds, 3 minutes.
"""

import os
import sys
import time

from programs import Programs, run

from lib_service import Tally, run_scenario

SEEDS = 300
TIMEOUT_S = 1800


def scenario(tally: Tally, build_dir: str, long: bool) -> None:
    begun = time.monotonic()
    programs = Programs(build_dir)
    if programs.sanitized():
        tally.skip("no overwritten byte hides an id", "sanitizers end it their way")
        return
    program = programs.make("index_damage", "index_damage.c")
    run(tally, [program, 10_000 if long else SEEDS], TIMEOUT_S)
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
