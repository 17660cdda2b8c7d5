"""Part `service`: the service, durable, next to a program that does nothing."""

import statistics

import web
from harness import Bench, p99_ms, per_s, ratios
from report import print_table, spread

# Of a server: the ratio to the no-op at each number of connections.
RATIO_AIMS = {
    "lighttpd": {1: 0.45, 16: 0.90, 64: 1.05, 256: 1.30},
    "nginx": {1: 0.45, 16: 0.82, 64: 1.15, 256: 1.38},
    "apache": {16: 0.88, 64: 0.86},
}
P99_AIMS = {16: 1.35, 64: 1.0}
CPU_US_AIMS = {"nginx": 11, "lighttpd": 17}
CPU_AT = 64
DURABLE_AIM = 0.90


def run(bench: Bench) -> None:
    results = web.once(bench)
    if not results:
        return
    web.print_programs("service: durable, and with a sync that does nothing, next to the no-op",
                       results, ("no-op", "service", "unsynced"))
    rows = []
    for (server, conns), found in results.items():
        ratio = ratios(found["service"], found["no-op"], per_s)
        p99 = ratios(found["service"], found["no-op"], p99_ms)
        durable = []
        if "unsynced" in found:
            durable = ratios(found["service"], found["unsynced"], per_s)
        rows.append((server, conns, spread(ratio, ".2f"), spread(p99, ".2f"),
                     spread(durable, ".2f") if durable else ""))
        where = f"{server} {conns}"
        if (bound := RATIO_AIMS[server].get(conns)) is not None:
            bench.aim(f"{where}: service / no-op", statistics.median(ratio), bound)
        if (bound := P99_AIMS.get(conns)) is not None:
            bench.aim(f"{where}: p99 of service / no-op", statistics.median(p99), bound,
                      at_least=False)
        if durable:
            bench.aim(f"{where}: durable / without sync", statistics.median(durable),
                      DURABLE_AIM)
        if conns == CPU_AT and server in CPU_US_AIMS:
            cpu = statistics.median(run.program_us for run in found["service"])
            bench.aim(f"{where}: CPU of the service a request", cpu,
                      CPU_US_AIMS[server], at_least=False, unit=" us")
    print_table("service / no-op, round by round",
                ("server", "conns", "requests/s", "p99", "durable / without sync"), rows)
