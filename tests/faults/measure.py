#!/usr/bin/env python3
"""Goal: a start is quick at any size, and a lost index is no long outage.

Imports a million plants, with --long also ten million, and measures on a warm
cache, the best of three: reading and checking the whole journal, a start without
an index, which builds it, and a start with a good one; and the memory that these
keep.  The yardstick of what reads the journal is md5sum of it, by turns.  Times
are those of the CPU, which other work on the machine changes little.
"""

import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

from lib_faults import (
    Tally, compile_driver, import_samples, is_sanitized, own_kib, run_script,
)
from lib_service import init_store, passed_on

MILLION = 1_000_000
ROUNDS = 3
TIMEOUT_S = 600
# Times as long as md5sum; seconds, for any number of plants.
SCAN = 1.3
REBUILD = 1.8
START_S = 0.02
# Of its own.  A build leaves up to 256 Ki plants in memory, and malloc keeps what it freed.
MEMORY_KIB, BUILT_KIB = 8 << 10, 16 << 10
# A small store is measured beside other tests: what it may take more.
LENIENCE = {MILLION: 2.0, 10 * MILLION: 1.0}
DISK_BYTES_PER_PLANT = 600


def used_s() -> float:
    """The CPU time of all programs that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def output(*command: object) -> tuple[float, str]:
    """The seconds that a program takes, and what it prints."""
    begun_s = used_s()
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=True, text=True)
    return used_s() - begun_s, done.stdout


def start(driver: pathlib.Path, store: pathlib.Path) -> tuple[float, int]:
    """The seconds that a process takes to open the store, and the KiB of memory that it keeps."""
    begun_s = used_s()
    with subprocess.Popen([driver, store], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env=passed_on()) as process:
        opened = process.stdout.readline() == b"open\n"
        kib = own_kib(process.pid)
    if not opened or process.returncode:
        raise RuntimeError(f"the store does not open: {process.returncode}")
    return used_s() - begun_s, kib


def rebuild(driver: pathlib.Path, store: pathlib.Path) -> tuple[float, int]:
    shutil.rmtree(store / "index")
    return start(driver, store)


def scan(build: pathlib.Path, journal: pathlib.Path) -> tuple[float, int]:
    """The seconds that `plant-store` takes to check a journal, and its plants."""
    took_s, said = output(build / "plant-store", "verify", "--quiet", journal)
    plants = re.search(r": (\d+) plants, ", said)
    return took_s, int(plants[1]) if plants else -1


def measure(tally: Tally, build: pathlib.Path, plants: int) -> None:
    driver = compile_driver(build)
    millions = plants // MILLION
    with tempfile.TemporaryDirectory(prefix="plant-store-") as root:
        if shutil.disk_usage(root).free < plants * DISK_BYTES_PER_PLANT:
            tally.skip(f"{millions} M plants are measured", f"no room in {root}")
            return
        store = pathlib.Path(root)
        init_store(build, store)
        import_samples(build / "plant-store", store, plants)
        journal = store / "plants.jsonl"
        size = journal.stat().st_size
        rounds = [(output("md5sum", journal)[0], scan(build, journal),
                   start(driver, store), rebuild(driver, store)) for _ in range(ROUNDS)]
        md5_s, (scan_s, scanned), (start_s, start_kib), (rebuild_s, rebuild_kib) = map(
            min, zip(*rounds))
        print(
            f"# {millions} M plants, {size / 1e6:.0f} MB: md5sum {md5_s:.2f} s, verified scan "
            f"{scan_s:.2f} s ({size / scan_s / 1e9:.2f} GB/s), rebuild of the "
            f"index and start {rebuild_s:.2f} s, start with a good index "
            f"{start_s * 1000:.1f} ms"
        )
        tally.check(scanned == plants, f"a scan of {millions} M plants finds all", scanned)
        if is_sanitized(build):
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
        for name, kib, most in (
            ("a start with a good index", start_kib, MEMORY_KIB),
            ("a start that built the index", rebuild_kib, BUILT_KIB),
        ):
            tally.check(0 < kib <= most,
                        f"{millions} M plants: {name} keeps at most {most >> 10} MiB",
                        f"{kib} KiB")


def scenario(tally: Tally, arguments) -> None:
    for plants in (MILLION, 10 * MILLION) if arguments.long else (MILLION,):
        measure(tally, arguments.build, plants)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, scenario))
