"""How fast it is: medians of rounds in which all that is compared takes turns.

Parts:
  ceilings   the web servers' own answer, and a libfcgi program that does nothing
  service    the service, durable, next to that program, behind each web server
  slow-disk  the service on a disk whose sync takes 5 ms
  peers      programs that do the same durably: C with SQLite, PHP-FPM with SQLite
  postgresql the store in PostgreSQL with a standby, next to the file, and to a
             program that inserts a row for each request
  cgi        one request by plain CGI, linked dynamically and statically
  commands   verify, export, import
  store      the store alone, next to SQLite
  growth     a store of 1 and of 10 million plants; not with --quick

The stores are on the file system of the checkout, and fresh.  Exit status: 1 if an
answer was not 200 or a plant is missing; a missed aim is only said.
"""

import argparse
import dataclasses
import datetime
import importlib
import json
import pathlib
import re
import signal
import subprocess
import sys
import time

import harness
from lib_disk import machine, scratch
from report import print_verdict
from sides import BENCH

HERE = pathlib.Path(__file__).resolve().parent
PARTS = ("ceilings", "service", "slow-disk", "peers", "postgresql", "cgi")
# Programs of their own, which are run as they would be by hand.
PROGRAMS = ("commands", "store", "growth")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true",
        help="2 minutes: 1 s a measurement, at 1 and 64 connections, no warming up")
    parser.add_argument(
        "--part", action="append", dest="parts", metavar="NAME", choices=PARTS + PROGRAMS,
        help="only this part; may be given several times")
    parser.add_argument("--rounds", type=int, metavar="N", help="default 3")
    parser.add_argument(
        "--seconds", type=int, metavar="N", help="a measurement takes; default 5")
    parser.add_argument("--json", metavar="FILE", help="all figures, to a file")
    args = parser.parse_args()
    # The programs have defaults of their own.
    args.given = {"--rounds": args.rounds, "--seconds": args.seconds}
    if args.rounds is None:
        args.rounds = 3
    if args.seconds is None:
        args.seconds = 1 if args.quick else 5
    if args.rounds < 1 or args.seconds < 1:
        parser.error("--rounds and --seconds take numbers from 1")
    args.parts = args.parts or PARTS + PROGRAMS
    return args


def print_where(bench: harness.Bench) -> None:
    where = (
        f"{datetime.date.today()}: {machine(bench.scratch)}; "
        f"{bench.args.rounds} rounds of {bench.args.seconds} s"
    )
    bench.figures["where"] = where
    print(f"{where}; median (least-greatest)", flush=True)


def run_program(bench: harness.Bench, name: str) -> None:
    """A part that is a program of its own.

    Of our options it is given those that it knows, all but --part.
    Its lines `aim met: SENTENCE` and `aim MISSED: SENTENCE` count here too.
    """
    program = HERE / f"{name}.py"
    if not program.exists():
        bench.skip(name, f"there is no tests/bench/{name}.py")
        return
    command = [sys.executable, "-u", str(program)]
    known = subprocess.run([*command, "--help"], capture_output=True, text=True).stdout
    if bench.args.quick and "--quick" not in known:
        bench.skip(name, "it takes longer than --quick allows; name it with --part")
        return
    figures = bench.scratch / f"{name}.json"
    options = {"--json": figures} | bench.args.given
    for option, value in options.items():
        if option in known and value is not None:
            command += [option, str(value)]
    if bench.args.quick:
        command.append("--quick")
    print(f"\n{name}:", flush=True)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        for line in process.stdout:
            print(line, end="", flush=True)
            if found := re.match(r"aim (met|MISSED): (.*)", line):
                bench.said_aims.append((found[1] == "met", f"{name}: {found[2]}"))
        status = process.wait()
    finally:
        process.terminate()
        process.wait()
    bench.check(status == 0, f"{name} ended with status {status}")
    if figures.exists():
        bench.figures[name] = json.loads(figures.read_text())


def run_part(bench: harness.Bench, name: str) -> None:
    try:
        importlib.import_module(name.replace("-", "_")).run(bench)
    except Exception as error:  # the other parts shall run nevertheless
        bench.progress("")
        bench.check(False, f"{name}: {type(error).__name__}: {error}")


def main() -> int:
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    with scratch(BENCH) as folder:
        bench = harness.Bench(args, folder)
        print_where(bench)
        for name in PARTS + PROGRAMS:
            if name in args.parts:
                (run_program if name in PROGRAMS else run_part)(bench, name)
    print_verdict(bench.aims, bench.said_aims)
    bench.figures["aims"] = [dataclasses.asdict(aim) for aim in bench.aims]
    bench.figures["aims of programs"] = bench.said_aims
    bench.figures["wrong"] = bench.wrong
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(bench.figures, indent=1) + "\n")
    counts = f"{len(bench.wrong)} counts are wrong" if bench.wrong else "all counts are right"
    print(f"\n{counts}; {time.monotonic() - began:.0f} s")
    for sentence in bench.wrong:
        print(f"  {sentence}")
    return 1 if bench.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
