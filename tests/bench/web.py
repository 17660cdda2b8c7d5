"""The run that the parts `ceilings` and `service` share, and their tables.

Behind each web server: what the server answers by itself (`own`), a program
that does nothing (`no-op`), the service, and the service with a sync that does
nothing (`unsynced`), which is measured at 64 connections only.
"""

import contextlib
import dataclasses
import statistics
from collections.abc import Iterable, Sequence

from harness import Bench, preloaded
from report import print_table, spread
from sides import ANSWER, BENCH, Changes, Program, Side, running, spawned
from wrk import Measurement

CONNECTIONS = (1, 16, 64, 256)
# What there are aims for.
QUICK_CONNECTIONS = {"lighttpd": (1, 64), "nginx": (1, 64), "apache": (64,)}
UNSYNCED_AT = 64

# The server gives the answer itself, with all else as in its configuration.
# lighttpd and Apache have no `return 200`; theirs is a file in memory's cache.
OWN_ANSWER: dict[str, Changes] = {
    "lighttpd": [
        (
            'server.modules += ( "mod_fastcgi" )',
            'server.modules += ( "mod_staticfile" )\n'
            'server.document-root := "@root@"\n'
            'mimetype.assign += ( "" => "application/json" )',
        ),
        ("fastcgi.server  = ( var.mount", "var.unused = ( var.mount"),
    ],
    "nginx": [
        ("fastcgi_pass plant_store;", f"return 200 '{ANSWER}'; fastcgi_pass plant_store;")
    ],
    "apache": [
        (
            'ProxyPass "${mount}"',
            'DocumentRoot "@root@"\n'
            '<Location "/">\nForceType application/json\n</Location>\n'
            'ProxyPass "/unused"',
        ),
    ],
}
# A thread for each connection that the server may keep, else enough that it
# always finds one waiting.
NOOP_THREADS = {"lighttpd": "16", "nginx": "512", "apache": "320"}

# Of a server and its connections: the program's measurements.
Results = dict[tuple[str, int], dict[str, list[Measurement]]]


def start(stack: contextlib.ExitStack, bench: Bench, server: str) -> dict[str, Side]:
    """The sides that the chosen parts need."""
    sides = {}
    if "ceilings" in bench.args.parts:
        own = Program("own", changes=OWN_ANSWER[server], files={"plants": ANSWER})
        sides["own"] = stack.enter_context(running(server, own))
        if server == "lighttpd":
            # After a POST to a file it closes the connection.
            sides["own"].method = "GET"
    threads = {"NOOP_THREADS": NOOP_THREADS[server]}
    noop = Program("no-op", spawned(BENCH / "noop"), threads)
    sides["no-op"] = stack.enter_context(running(server, noop))
    if "service" in bench.args.parts:
        sides["service"] = stack.enter_context(bench.service(server))
        unsynced = bench.service(server, "unsynced", **preloaded(FAULT_NO_SYNC="1"))
        sides["unsynced"] = stack.enter_context(unsynced)
    return sides


def measure(bench: Bench) -> Results:
    results: Results = {}
    turns: list[tuple[int, Sequence[Side]]] = []
    names: dict[Side, str] = {}
    with contextlib.ExitStack() as stack:
        for server in bench.servers():
            bench.progress(f"starting {server}")
            sides = start(stack, bench, server)
            names |= {side: name for name, side in sides.items()}
            for conns in QUICK_CONNECTIONS[server] if bench.args.quick else CONNECTIONS:
                compared = [
                    side
                    for name, side in sides.items()
                    if name != "unsynced" or conns == UNSYNCED_AT
                ]
                turns.append((conns, compared))
        parts = [name for name in ("ceilings", "service") if name in bench.args.parts]
        runs = bench.interleave(", ".join(parts), turns)
    for (side, conns), measured in runs.items():
        programs = results.setdefault((side.set_up.server, conns), {})
        programs[names[side]] = measured
    bench.figures["web"] = figures(
        (server, conns, program, measured) for (server, conns), programs in results.items()
        for program, measured in programs.items())
    return results


def once(bench: Bench) -> Results:
    """Measured by the first part that asks."""
    if bench.shared is None:
        bench.shared = measure(bench)
    return bench.shared


HEADER = ("server", "conns", "program", "requests/s", "p50 ms", "p99 ms")
HEADER += ("CPU us", "server's us", "not 200")
# Server, connections, program, a measurement a round.
Measured = tuple[str, int, str, Sequence[Measurement]]


def figures(measured: Iterable[Measured]) -> list[dict]:
    """For --json."""
    return [
        {
            "server": server,
            "connections": conns,
            "program": program,
            "rounds": [dataclasses.asdict(run) for run in runs],
        }
        for server, conns, program, runs in measured
    ]


def row(server: str, conns: int, program: str, runs: Sequence[Measurement]) -> tuple:
    return (
        server,
        conns,
        program,
        spread([run.per_s for run in runs], ".0f"),
        spread([run.p50_ms for run in runs], ".2f"),
        spread([run.p99_ms for run in runs], ".2f"),
        f"{statistics.median(run.program_us for run in runs):.1f}",
        f"{statistics.median(run.server_us for run in runs):.1f}",
        sum(run.bad for run in runs),
    )


def print_programs(title: str, results: Results, programs: Sequence[str]) -> None:
    rows = [
        row(server, conns, program, found[program])
        for (server, conns), found in results.items()
        for program in programs
        if program in found
    ]
    print_table(title, HEADER, rows)
