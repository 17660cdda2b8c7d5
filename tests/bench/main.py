"""How fast it is: medians of rounds in which all that is compared takes turns.

Parts:
  ceilings   the web servers' own answer, and a libfcgi program that does nothing
  service    the service, durable, next to that program, behind each web server
  slow-disk  the service on a disk whose sync takes 5 ms
  peers      programs that do the same durably: C with SQLite, PHP-FPM with SQLite
  cgi        one request by plain CGI, linked dynamically and statically
  commands   verify, export, import
  store      the store alone
  growth     a store of many plants

The stores are on the file system of the checkout, and fresh.  Exit status: 1 if an
answer was not 200 or a plant is missing; a missed aim is only said.
"""

import argparse
import contextlib
import dataclasses
import datetime
import importlib
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import time

import harness
from report import print_verdict

HERE = pathlib.Path(__file__).resolve().parent
PARTS = ("ceilings", "service", "slow-disk", "peers", "cgi")
# Programs of their own, which are run as they would be by hand.
PROGRAMS = ("commands", "store", "growth")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--quick", action="store_true",
        help="2 minutes: 1 s a measurement, at 1 and 64 connections, no warming up",
    )  # fmt: skip
    parser.add_argument(
        "--part", action="append", dest="parts", metavar="NAME",
        choices=PARTS + PROGRAMS, help="only this part; may be given several times",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default 3")
    parser.add_argument(
        "--seconds", type=int, metavar="N", help="a measurement takes; default 5"
    )
    parser.add_argument("--json", metavar="FILE", help="all figures, to a file")
    args = parser.parse_args()
    if args.seconds is None:
        args.seconds = 1 if args.quick else 5
    if args.rounds < 1 or args.seconds < 1:
        parser.error("--rounds and --seconds take numbers from 1")
    args.parts = args.parts or PARTS + PROGRAMS
    return args


def print_machine(bench: harness.Bench) -> None:
    where = subprocess.check_output(
        ["df", "--output=source,fstype", bench.scratch], text=True
    ).split()[-2:]
    machine = {
        "date": datetime.date.today().isoformat(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "store": " ".join(where),
        "rounds": bench.args.rounds,
        "seconds": bench.args.seconds,
    }
    bench.figures["machine"] = machine
    print(
        "{date}, {cpus} CPUs, Linux {kernel}, stores on {store}; "
        "{rounds} rounds of {seconds} s; median (least-greatest)".format(**machine),
        flush=True,
    )


def run_program(bench: harness.Bench, name: str) -> None:
    """A part that is a program of its own.

    Of --quick, --rounds, --seconds and --json it is given those that it knows.
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
    for option, value in (
        ("--quick", None if bench.args.quick else False),
        ("--rounds", bench.args.rounds),
        ("--seconds", bench.args.seconds),
        ("--json", figures),
    ):
        if option in known and value is not False:
            command += [option] if value is None else [option, str(value)]
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
    with contextlib.ExitStack() as stack:
        bench = harness.Bench(args, stack)
        print_machine(bench)
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
