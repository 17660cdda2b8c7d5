"""Part `slow-disk`: what sharing a sync is worth where a sync takes long."""

import statistics

from harness import Bench, per_s, preloaded, ratios
from report import print_table, spread
from web import HEADER, figures, row

DELAY_MS = 5
MANY = 256
RATIO_AIM = 100
P99_MS_AIM = 30


def run(bench: Bench) -> None:
    """One connection is a commit for each plant; many share theirs."""
    servers = bench.servers(["nginx"]) or bench.servers(["lighttpd"])
    if not servers:
        return
    with bench.service(servers[0], **preloaded(FAULT_SYNC_MS=str(DELAY_MS))) as side:
        runs = bench.interleave("slow-disk", [(1, [side]), (MANY, [side])])
    one, many = runs[side, 1], runs[side, MANY]
    print_table(
        f"slow disk: each sync takes {DELAY_MS} ms longer", HEADER,
        [row(servers[0], conns, "service", found) for (_, conns), found in runs.items()])
    ratio = ratios(many, one, per_s)
    print(f"{MANY} connections / one by one: {spread(ratio, '.0f')}")
    bench.figures["slow-disk"] = figures(
        (servers[0], conns, "service", found) for (_, conns), found in runs.items())
    where = f"slow disk, {MANY}"
    bench.aim(f"{where}: times one by one", statistics.median(ratio), RATIO_AIM)
    p99_ms = statistics.median(run.p99_ms for run in many)
    bench.aim(f"{where}: p99", p99_ms, P99_MS_AIM, at_least=False, unit=" ms")
