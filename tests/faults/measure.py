"""Goal: a start is quick at any size, and a lost index is no long outage.

Makes a store of a million plants, with --long also one of ten million, with
measure.c, and measures on a warm cache, the best of three: reading and checking
the whole journal, a start without an index, which builds it, and a start with a
good one; and the memory that these keep.  The yardstick of what reads the journal
is md5sum of it, by turns.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from lib_faults import Tally, run_script
from lib_service import init_store
from programs import Programs

MILLION = 1_000_000
ROUNDS = 3
TIMEOUT_S = 600
# Times as long as md5sum; seconds, for any number of plants.
SCAN = 1.3
REBUILD = 1.8
START_S = 0.02
# Of its own, whatever the start had to do.
MEMORY_KIB = 8 << 10
# A small store is measured beside other tests: what it may take more.
LENIENCE = {MILLION: 2.0, 10 * MILLION: 1.0}
DISK_BYTES_PER_PLANT = 600


def make_program(programs: Programs) -> pathlib.Path:
    return programs.make("measure", "measure.c", "../bench/sample.c")


def output(*command: object) -> tuple[float, str]:
    """The seconds that a program takes, and what it prints."""
    begun = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=True, text=True)
    return time.monotonic() - begun, done.stdout


def start(program: pathlib.Path, store: pathlib.Path) -> tuple[float, int]:
    """The seconds of a start, and the KiB of memory that it keeps."""
    took_s, kib = output(program, "open", store)[1].split()
    return float(took_s), int(kib)


def rebuild(program: pathlib.Path, store: pathlib.Path) -> tuple[float, int]:
    shutil.rmtree(store / "index")
    return start(program, store)


def scan(build: pathlib.Path, journal: pathlib.Path) -> tuple[float, int]:
    """The seconds that `plant-store` takes to check a journal, and its plants."""
    took_s, said = output(build / "plant-store", "verify", "--quiet", journal)
    plants = re.search(r": (\d+) plants, ", said)
    return took_s, int(plants[1]) if plants else -1


def measure(tally: Tally, programs: Programs, plants: int) -> None:
    program = make_program(programs)
    millions = plants // MILLION
    with tempfile.TemporaryDirectory(prefix="plant-store-") as root:
        if shutil.disk_usage(root).free < plants * DISK_BYTES_PER_PLANT:
            tally.skip(f"{millions} M plants are measured", f"no room in {root}")
            return
        store = pathlib.Path(root)
        init_store(programs.build, store)
        subprocess.run([program, "make", store, str(plants)], stdout=subprocess.PIPE,
                       timeout=TIMEOUT_S, check=True)
        journal = store / "plants.jsonl"
        size = journal.stat().st_size
        rounds = [(output("md5sum", journal)[0], scan(programs.build, journal),
                   start(program, store), rebuild(program, store)) for _ in range(ROUNDS)]
        md5_s, (scan_s, scanned), (start_s, start_kib), (rebuild_s, rebuild_kib) = map(
            min, zip(*rounds))
        print(
            f"# {millions} M plants, {size / 1e6:.0f} MB: md5sum {md5_s:.2f} s, verified scan "
            f"{scan_s:.2f} s ({size / scan_s / 1e9:.2f} GB/s), rebuild of the "
            f"index and start {rebuild_s:.2f} s, start with a good index "
            f"{start_s * 1000:.1f} ms"
        )
        tally.check(scanned == plants, f"a scan of {millions} M plants finds all", scanned)
        if programs.sanitized():
            tally.skip("the times are as expected", "built with sanitizers")
            return
        for name, took_s, times in (
            ("verified scan", scan_s, SCAN * LENIENCE[plants]),
            ("rebuild of the index", rebuild_s, REBUILD * LENIENCE[plants]),
        ):
            tally.check(took_s <= times * md5_s,
                        f"{millions} M plants: {name} within {times} times md5sum",
                        f"{took_s:.3f} s, md5sum {md5_s:.3f} s")
        limit_s = START_S * LENIENCE[plants]
        tally.check(start_s <= limit_s, f"{millions} M plants: start with a good index "
                    f"within {limit_s} s", f"{start_s:.3f} s")
        for name, kib in (
            ("a start with a good index", start_kib),
            ("a start that built the index", rebuild_kib),
        ):
            tally.check(0 < kib <= MEMORY_KIB,
                        f"{millions} M plants: {name} keeps at most {MEMORY_KIB >> 10} MiB",
                        f"{kib} KiB")


def scenario(tally: Tally, arguments) -> None:
    programs = Programs(arguments.build)
    for plants in (MILLION, 10 * MILLION) if arguments.long else (MILLION,):
        measure(tally, programs, plants)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, scenario))
