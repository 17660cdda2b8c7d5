"""Part `ceilings`: what the web servers and libfcgi allow at most."""

import web
from harness import Bench, per_s, ratios
from report import print_table, spread


def run(bench: Bench) -> None:
    results = web.once(bench)
    if not results:
        return
    web.print_programs(
        "ceilings: the server's own answer, and a libfcgi program that does nothing", results,
        ("own", "no-op"))
    rows = []
    for (server, conns), found in results.items():
        ratio = ratios(found["no-op"], found["own"], per_s)
        rows.append((server, conns, spread(ratio, ".2f")))
    print_table(
        "no-op / the server's own answer, requests/s", ("server", "conns", "ratio"), rows)
