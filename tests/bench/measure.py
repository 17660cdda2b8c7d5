"""Measure the service and a no-op responder by turns, and print the ratio.

Each has a lighttpd of its own with the configuration of deploy/lighttpd/fastcgi.conf,
and is idle while the other is measured.  The store is a fresh one on the file
system of the checkout.  Fails if any answer was not 200, or if the journal has
fewer plants than were answered.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = TOP / "build"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
IDS_PER_MEASUREMENT = 100_000_000
START_S = 10.0


@dataclasses.dataclass
class Side:
    """A responder and the web server before it."""

    name: str
    responder: subprocess.Popen[bytes]
    lighttpd: subprocess.Popen[bytes]
    url: str


@dataclasses.dataclass
class Measurement:
    per_s: float
    p50_ms: float
    p99_ms: float
    responder_us: float
    lighttpd_us: float
    ok: int
    bad: int


def start(
    stack: contextlib.ExitStack, log: pathlib.Path, *command: str, **env: str
) -> subprocess.Popen[bytes]:
    with open(log, "ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | env,
        )

    def stop() -> None:
        process.terminate()
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(stop)
    return process


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_side(
    stack: contextlib.ExitStack,
    scratch: pathlib.Path,
    name: str,
    program: pathlib.Path,
    **env: str,
) -> Side:
    port = free_port()
    log = scratch / f"{name}.log"
    path = scratch / f"{name}.socket"
    conf = scratch / f"{name}.conf"
    conf.write_bytes(
        subprocess.check_output([TOP / "scripts/lighttpd-conf", str(port), str(path)])
    )
    # Without a fork its process is the responder itself.
    spawn = ["spawn-fcgi", "-n", "-s", str(path), "-b", "1024", "--", str(program)]
    responder = start(stack, log, *spawn, **env)
    lighttpd = start(stack, log, "lighttpd", "-D", "-f", str(conf))
    side = Side(name, responder, lighttpd, f"http://127.0.0.1:{port}/plants")
    deadline = time.monotonic() + START_S
    while not answers(side.url):
        if responder.poll() is not None or lighttpd.poll() is not None:
            sys.exit(f"bench: {name} did not start:\n{log.read_text()}")
        if time.monotonic() > deadline:
            sys.exit(f"bench: {name}: no answer within {START_S:.0f} s")
        time.sleep(0.05)
    return side


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, data=b"", timeout=1):
            return True
    except urllib.error.HTTPError as error:
        return error.code == 401
    except OSError:
        return False


def cpu_s(pid: int) -> float:
    """Seconds of CPU that the process has used, all threads together."""
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / TICKS_PER_S


def measure(
    side: Side, connections: int, seconds: float, token: str, first_id: int
) -> Measurement:
    before = cpu_s(side.responder.pid), cpu_s(side.lighttpd.pid)
    output = subprocess.check_output(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "10s",
         "-s", str(TOP / "tests/bench/plants.lua"), side.url, "--", token, str(first_id)],
        text=True,
    )  # fmt: skip
    after = cpu_s(side.responder.pid), cpu_s(side.lighttpd.pid)
    lines = output.splitlines()
    result = json.loads(next(line for line in lines if line.startswith("{")))
    for line in lines:
        if line.startswith("the last answer"):
            print(f"{side.name}: {line}", file=sys.stderr)
    ok = result["ok"]
    if ok == 0:
        sys.exit(f"bench: {side.name}: no request was answered 200")
    return Measurement(
        ok / result["seconds"],
        result["p50_ms"],
        result["p99_ms"],
        (after[0] - before[0]) * 1e6 / ok,
        (after[1] - before[1]) * 1e6 / ok,
        ok,
        result["other"] + result["broken"],
    )


def spread(values: list[float], form: str) -> str:
    """The median, and the least and greatest."""
    return "{:{f}} ({:{f}}-{:{f}})".format(
        statistics.median(values), min(values), max(values), f=form
    )


def report(results: dict[int, dict[str, list[Measurement]]]) -> None:
    header = "{:>5} {:8} {:>22} {:>22} {:>24} {:>10} {:>9} {:>7}"
    print(header.format("conns", "program", "requests/s", "p50 ms", "p99 ms",
                        "CPU us", "lighttpd", "not 200"))  # fmt: skip
    for connections, sides in results.items():
        for name, runs in sides.items():
            print(header.format(
                connections,
                name,
                spread([run.per_s for run in runs], ".0f"),
                spread([run.p50_ms for run in runs], ".2f"),
                spread([run.p99_ms for run in runs], ".2f"),
                f"{statistics.median(run.responder_us for run in runs):.0f}",
                f"{statistics.median(run.lighttpd_us for run in runs):.0f}",
                sum(run.bad for run in runs),
            ))  # fmt: skip
        ratios = [
            service.per_s / noop.per_s
            for noop, service in zip(sides["noop"], sides["service"], strict=True)
        ]
        print(f"{connections:>5} ratio    {spread(ratios, '.2f'):>22}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2 s a measurement")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--seconds", type=float, help="a measurement; default 5")
    parser.add_argument(
        "--connections", default="1 16 64 256", help="default '1 16 64 256'"
    )
    args = parser.parse_args()
    args.seconds = args.seconds or (2.0 if args.quick else 5.0)
    try:
        args.connections = [int(word) for word in args.connections.split()]
    except ValueError:
        parser.error("--connections takes numbers")
    if args.rounds < 1 or not args.connections or min(args.connections) < 1:
        parser.error("--rounds and --connections take numbers from 1")
    return args


def main() -> int:
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(tempfile.mkdtemp(dir=BUILD / "bench"))
        stack.callback(shutil.rmtree, scratch)
        store = scratch / "store"
        store.mkdir(mode=0o700)
        settings = {
            "PLANT_STORE_DIR": str(store),
            "PLANT_STORE_TOKENS": str(scratch / "tokens"),
            "PLANT_STORE_BASE_PATH": "",
        }
        token = next(
            word
            for word in subprocess.check_output(
                [BUILD / "plant-store", "token", "add", "bench"],
                env=os.environ | settings,
                text=True,
            ).split()
            if word.startswith("pst_")
        )
        sides = [
            start_side(stack, scratch, "noop", BUILD / "bench/noop"),
            start_side(
                stack, scratch, "service", BUILD / "plant-store.fcgi", **settings
            ),
        ]
        where = subprocess.check_output(
            ["df", "--output=source,fstype", str(store)], text=True
        ).split()[-2:]
        print(
            f"{args.rounds} rounds of {args.seconds:g} s; median (least-greatest); "
            f"{os.cpu_count()} CPUs, Linux {platform.release()}, store on "
            f"{' '.join(where)}",
            flush=True,
        )
        first_id = stored = bad = 0
        results: dict[int, dict[str, list[Measurement]]] = {
            connections: {side.name: [] for side in sides}
            for connections in args.connections
        }
        for number in range(args.rounds + 1):
            # Round 0 warms up, briefly; its figures are not kept.
            for connections in args.connections:
                # Who goes first changes, for what the first leaves behind.
                for side in sides[:: 1 if number % 2 else -1]:
                    seconds = args.seconds if number else 1.0
                    run = measure(side, connections, seconds, token, first_id)
                    first_id += IDS_PER_MEASUREMENT
                    if side.name == "service":
                        stored += run.ok
                    bad += run.bad
                    if number:
                        results[connections][side.name].append(run)
        report(results)
        with open(store / "plants.jsonl", "rb") as journal:
            plants = sum(b'"plant":' in line for line in journal)
        print(f"{stored} plants were answered 200; {plants} are in the journal")
        if bad:
            print(f"bench: {bad} requests were not answered 200", file=sys.stderr)
        if plants < stored:
            print("bench: plants are missing from the journal", file=sys.stderr)
        return 1 if bad or plants < stored else 0


if __name__ == "__main__":
    sys.exit(main())
