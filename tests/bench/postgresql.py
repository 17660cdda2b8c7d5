"""Part `postgresql`: a primary with a synchronous standby, next to the file."""

import contextlib
import pathlib
import statistics
import sys
from collections.abc import Iterator

from harness import Bench, per_s, preloaded, ratios
from report import print_table, spread
from sides import BENCH, BUILD, Program, Side, running, spawned
from web import HEADER, figures, row

sys.path.append(str(pathlib.Path(__file__).parent.parent / "postgresql"))
from lib_postgresql import ROLE, BIN, Server, clusters

SERVER = "nginx"
CONNECTIONS = (64, 256)
FILE_RATIO_AIM = 0.5
PEER_RATIO_AIM = 3
DELAY_MS = 5
MANY = 256
SLOW_RATIO_AIM = 50
PEER_TABLE = "CREATE TABLE peer_plants (id bigint PRIMARY KEY, name text, tag text)"


@contextlib.contextmanager
def counted(bench: Bench, server: Server, program: Program, table: str) -> Iterator[Side]:
    """Start it; the rows of its table are counted at the end."""
    with running(SERVER, program) as side:
        yield side
    stored = int(server.sql(f"SELECT count(*) FROM {table}")[0][0])
    bench.check_stored(side, stored)


def on_database(bench: Bench, server: Server) -> contextlib.AbstractContextManager[Side]:
    settings = {"PLANT_STORE_DATABASE": server.conninfo()}
    program = Program("PostgreSQL", spawned(BUILD / "plant-store.fcgi"), settings)
    return counted(bench, server, program, "plants")


def peer(bench: Bench, server: Server) -> contextlib.AbstractContextManager[Side]:
    """A program that inserts a row a request, over a pool of connections."""
    server.sql(f"{PEER_TABLE}; GRANT SELECT, INSERT ON peer_plants TO {ROLE}")
    settings = {"PEER_DB": server.conninfo(), "PEER_TOKEN": "@token@"}
    # A kept connection would hold one of its threads between requests.
    changes = [("fastcgi_keep_conn on;", "")]
    program = Program("C, libpq", spawned(BENCH / "peer_postgresql"), settings, changes)
    return counted(bench, server, program, "peer_plants")


def compare(bench: Bench, primary: Server) -> None:
    with (
        bench.service(SERVER, "file") as file,
        on_database(bench, primary) as database,
        peer(bench, primary) as rows,
    ):
        sides = [file, database, rows]
        runs = bench.interleave("postgresql", [(conns, sides) for conns in CONNECTIONS])
    measured = [(SERVER, conns, side.label.removeprefix(f"{SERVER} "), runs[side, conns])
                for conns in CONNECTIONS for side in sides]
    bench.figures["postgresql"] = figures(measured)
    print_table("postgresql: each commit waits for a standby's flush", HEADER,
                [row(*each) for each in measured])
    table = []
    for conns in CONNECTIONS:
        for other, aim in ((file, FILE_RATIO_AIM), (rows, PEER_RATIO_AIM)):
            ratio = ratios(runs[database, conns], runs[other, conns], per_s)
            table.append((conns, other.label, spread(ratio, ".2f")))
            what = f"postgresql {conns}: service / {other.label}"
            bench.aim(what, statistics.median(ratio), aim)
    print_table("PostgreSQL / other, round by round", ("conns", "other", "requests/s"),
                table)


def compare_slow(bench: Bench, primary: Server) -> None:
    with on_database(bench, primary) as database, peer(bench, primary) as rows:
        runs = bench.interleave("slow standby", [(1, [rows]), (MANY, [database])])
    one, many = runs[rows, 1], runs[database, MANY]
    ratio = ratios(many, one, per_s)
    print(f"\nEach flush of the standby takes {DELAY_MS} ms longer: "
          f"{MANY} connections / a row at a time: {spread(ratio, '.0f')}")
    bench.figures["postgresql, slow standby"] = figures(
        [(SERVER, 1, "C, libpq", one), (SERVER, MANY, "PostgreSQL", many)])
    what = f"postgresql, slow standby, {MANY}: times a row at a time"
    bench.aim(what, statistics.median(ratio), SLOW_RATIO_AIM)


def run(bench: Bench) -> None:
    if not bench.servers([SERVER]):
        return
    if not (BUILD / "postgresql.so").exists() or not (BENCH / "peer_postgresql").exists():
        bench.skip("postgresql", "libpq-dev is not installed")
        return
    if BIN is None:
        bench.skip("postgresql", "no PostgreSQL server is installed")
        return
    with clusters(BUILD) as servers:
        with servers.pair() as (primary, _):
            compare(bench, primary)
        slow = preloaded(FAULT_SYNC_MS=str(DELAY_MS))
        with servers.pair(standby_environment=slow) as (primary, _):
            compare_slow(bench, primary)
