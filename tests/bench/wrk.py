"""One measurement: wrk against a side, and what it cost."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

from sides import Side

HERE = pathlib.Path(__file__).resolve().parent
# More than wrk can send in a measurement, so that no id comes twice.
IDS_PER_MEASUREMENT = 100_000_000

next_id = 0


@dataclasses.dataclass
class Measurement:
    """us: CPU time in microseconds a request, all threads and processes."""

    per_s: float
    p50_ms: float
    p99_ms: float
    program_us: float
    server_us: float
    ok: int
    bad: int


def measure(side: Side, connections: int, seconds: int) -> Measurement:
    """Every answer that is not 200, and every one that does not come, is bad."""
    global next_id
    first_id = next_id
    next_id += IDS_PER_MEASUREMENT
    before = side.cpu_s()
    done = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s",
         "-s", HERE / "plants.lua", f"{side.base_url}/plants",
         "--", side.token, str(first_id), side.method],
        env=os.environ,
        capture_output=True,
        text=True,
    )
    after = side.cpu_s()
    result = None
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            result = json.loads(line)
        elif line.startswith("not 200"):
            print(f"bench: {side.label}: {line}", file=sys.stderr)
    if done.returncode or result is None:
        raise RuntimeError(f"wrk: {done.returncode}: {done.stdout}{done.stderr}")
    ok = result["ok"]
    if ok == 0:
        raise RuntimeError(f"{side.label}: no request was answered 200: {side.logs()}")
    side.answered += ok
    return Measurement(ok / result["seconds"], result["p50_ms"], result["p99_ms"],
                       (after[0] - before[0]) * 1e6 / ok, (after[1] - before[1]) * 1e6 / ok, ok,
                       result["other"] + result["broken"])
