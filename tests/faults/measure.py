"""Goal: a start is quick at any size, and a lost index is no long outage.

Makes a store of a million plants, with --long also one of ten million, with
measure.c, and measures on a warm cache, the best of three: reading and checking
the whole journal, a start without an index, which builds it, and a start with a
good one; and the memory that these keep.
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
# Seconds for a million plants, and for any number.
SCAN_S = 0.3
REBUILD_S = 0.6
START_S = 0.02
# Of its own, whatever the start had to do.
MEMORY_KIB = 8 << 10
# A small store is measured beside other tests: what it may take more.
LENIENCE = {MILLION: 3.0, 10 * MILLION: 1.0}
DISK_BYTES_PER_PLANT = 600


def make_program(programs: Programs) -> pathlib.Path:
    return programs.make("measure", "measure.c", "../bench/sample.c")


def opens(
    program: pathlib.Path, store: pathlib.Path, timeout_s: float, *, rebuild: bool = False
) -> list[tuple[float, int]]:
    """The seconds of some starts, each with the KiB of memory that it keeps."""
    results = []
    for _ in range(ROUNDS):
        if rebuild:
            shutil.rmtree(store / "index")
        out = subprocess.run([program, "open", store], stdout=subprocess.PIPE,
                             timeout=timeout_s, check=True).stdout.split()
        results.append((float(out[0]), int(out[1])))
    return results


def scans(
    build: pathlib.Path, store: pathlib.Path, timeout_s: float, times: int = ROUNDS
) -> list[tuple[float, int]]:
    """The seconds that `plant-store` takes to check a journal, and its plants."""
    results = []
    for _ in range(times):
        begun = time.monotonic()
        out = subprocess.run(
            [build / "plant-store", "verify", "--quiet", store / "plants.jsonl"],
            stdout=subprocess.PIPE, timeout=timeout_s, check=True).stdout.decode()
        plants = re.search(r": (\d+) plants, ", out)
        results.append((time.monotonic() - begun, int(plants[1]) if plants else -1))
    return results


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
        size = (store / "plants.jsonl").stat().st_size
        scan_s, scanned = min(scans(programs.build, store, TIMEOUT_S))
        start_s, start_kib = min(opens(program, store, TIMEOUT_S))
        rebuild_s, rebuild_kib = min(opens(program, store, TIMEOUT_S, rebuild=True))
        print(
            f"# {millions} M plants, {size / 1e6:.0f} MB: verified scan "
            f"{scan_s:.2f} s ({size / scan_s / 1e9:.2f} GB/s), rebuild of the "
            f"index and start {rebuild_s:.2f} s, start with a good index "
            f"{start_s * 1000:.1f} ms"
        )
        tally.check(scanned == plants, f"a scan of {millions} M plants finds all", scanned)
        if programs.sanitized():
            tally.skip("the times are as expected", "built with sanitizers")
            return
        more = LENIENCE[plants]
        for name, took_s, limit_s in (
            ("verified scan", scan_s, SCAN_S * millions * more),
            ("rebuild of the index", rebuild_s, REBUILD_S * millions * more),
            ("start with a good index", start_s, START_S),
        ):
            tally.check(
                took_s <= limit_s, f"{millions} M plants: {name} within {limit_s:.2f} s",
                f"{took_s:.3f} s")
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
