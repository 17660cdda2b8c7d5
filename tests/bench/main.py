"""How fast it is: medians of rounds in which all that is compared takes turns.

Parts:
  service    the service, durable, next to a libfcgi program that does nothing,
             behind each web server
  slow-disk  the service on disks whose syncs take 0, 1, 5 and 10 ms longer
  peers      programs that do the same durably: C with SQLite, PHP-FPM with SQLite;
             with gnuplot draws plants.svg and p99.svg
  postgresql the store in PostgreSQL with a standby, next to the file, and to a
             program that inserts a row for each request
  cgi        one request by plain CGI, linked dynamically and statically
  store      the store alone, next to SQLite
  growth     a store of 1 and of 10 million plants, and a database: bytes a plant,
             memory, starts, each command; not with --quick

The stores are on the file system of the checkout, and fresh.  Exit status: 1 if an
answer was not 200 or a plant is missing; a missed aim is only reported.
"""

import argparse
import datetime
import importlib
import json
import os
import pathlib
import signal
import sys
import tempfile
import time

from report import Bench, machine
from sides import BENCH

PARTS = {"service": "web", "slow-disk": "web", "peers": "web", "postgresql": "web", "cgi": "cgi",
         "store": "store", "growth": "growth"}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true",
                        help="2 minutes: 1 s a measurement, at 1 and 64 connections, no warming up")
    parser.add_argument("--part", action="append", dest="parts", metavar="NAME", choices=PARTS,
                        help="only this part; may be given several times")
    parser.add_argument("--rounds", type=int, metavar="N", default=3, help="default 3")
    parser.add_argument("--seconds", type=int, metavar="N", help="a measurement takes; default 5")
    parser.add_argument("--millions", type=int, nargs="+", metavar="N", default=[1, 10],
                        help="of growth; default 1 10; each needs 1 GB of disk")
    parser.add_argument("--json", metavar="FILE", help="all figures, to a file")
    parser.add_argument("--svg", type=pathlib.Path, metavar="DIR", default=BENCH,
                        help="for the pictures; default build/bench")
    args = parser.parse_args()
    args.seconds = args.seconds or (1 if args.quick else 5)
    if min(args.rounds, args.seconds, *args.millions) < 1:
        parser.error("all numbers are from 1")
    args.parts = args.parts or [name for name in PARTS if name != "growth" or not args.quick]
    return args


def run_part(bench: Bench, name: str) -> None:
    module = importlib.import_module(PARTS[name])
    try:
        getattr(module, f"run_{name.replace('-', '_')}")(bench)
    except Exception as error:  # the other parts shall run nevertheless
        bench.progress("")
        bench.check(False, f"{name}: {type(error).__name__}: {error}")


def main() -> int:
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="plant-store-", dir=BENCH) as scratch:
        os.chmod(scratch, 0o711)  # PostgreSQL is another user
        bench = Bench(args, pathlib.Path(scratch))
        where = f"{datetime.date.today()}: {machine(bench.scratch)}; {args.rounds} rounds"
        if "tmpfs" in where:
            sys.exit(f"bench: {scratch}: in memory, where a sync costs nothing")
        print(f"{where} of {args.seconds} s; median (least-greatest)", flush=True)
        for name in PARTS:
            if name in args.parts:
                run_part(bench, name)
    bench.print_verdict()
    if args.json:
        figures = {"where": where, **bench.figures}
        pathlib.Path(args.json).write_text(json.dumps(figures, indent=1) + "\n")
    counts = f"{len(bench.wrong)} counts are wrong" if bench.wrong else "all counts are right"
    print(f"\n{counts}; {time.monotonic() - began:.0f} s")
    for sentence in bench.wrong:
        print(f"  {sentence}")
    return 1 if bench.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
