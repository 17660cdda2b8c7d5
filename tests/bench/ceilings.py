"""Part `ceilings`: what the web servers and libfcgi allow at most."""

import web
from harness import Bench, ratios
from report import print_table, spread


def run(bench: Bench) -> None:
    results = web.once(bench)
    web.print_programs(
        "ceilings: the server's own answer, and a libfcgi program that does nothing",
        results,
        ("own", "no-op"),
    )
    rows = [
        (server, conns, spread(ratios(found["no-op"], found["own"],
                                      lambda run: run.per_s), ".2f"))
        for (server, conns), found in results.items()
    ]  # fmt: skip
    print_table(
        "no-op / the server's own answer, requests/s", ("server", "conns", "ratio"), rows
    )
