"""Part `peers`: programs that do the same job durably, as one would write them."""

import contextlib
import getpass
import os
import pathlib
import sqlite3
import statistics
import subprocess
from collections.abc import Iterator

from harness import Bench, per_s, ratios
from report import print_table, spread
from sides import BENCH, SYSTEM_PATH, Changes, Program, Side, running, spawned
from web import HEADER, figures, row

SERVER = "lighttpd"
CONNECTIONS = (1, 16, 64)
QUICK_CONNECTIONS = (1, 64)
# Of the numbers that were tried the best of each on 2 CPUs: SQLite has one
# writer, and those that wait sleep longer and longer.
C_WORKERS = 8
PHP_WORKERS = 8
RATIO_AIMS = {"C, SQLite": {1: 1, 64: 6}, "PHP, SQLite": {1: 1, 64: 9}}

TABLE = "CREATE TABLE plants(id INTEGER PRIMARY KEY, name TEXT NOT NULL, tag TEXT)"

# Paths below the mount are a script's here, so lighttpd looks for it.
PHP_CHANGES: Changes = [
    (
        'server.modules += ( "mod_fastcgi" )',
        'server.modules += ( "mod_alias", "mod_fastcgi" )\n'
        'alias.url = ( "/plants" => "@root@/peer.php" )',
    ),
    ('"check-local"  => "disable"', '"check-local"  => "enable"'),
]
FPM_CONF = """[global]
daemonize = no
error_log = /dev/stderr
[plants]
user = {user}
listen = @socket@
listen.group = {group}
listen.mode = 0660
listen.backlog = 1024
pm = static
pm.max_children = {workers}
clear_env = no
php_admin_value[opcache.validate_timestamps] = 0
"""


def new_database(bench: Bench) -> pathlib.Path:
    path = bench.folder() / "plants.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(TABLE)
    return path


@contextlib.contextmanager
def peer(bench: Bench, program: Program) -> Iterator[Side]:
    """Start it with a new database; its rows are counted at the end."""
    path = new_database(bench)
    program.settings.update(PEER_DB=str(path), PEER_TOKEN="@token@")
    with running(SERVER, program) as side:
        yield side
    with contextlib.closing(sqlite3.connect(path)) as db:
        (stored,) = db.execute("SELECT count(*) FROM plants").fetchone()
    bench.check_stored(side, stored)


def c_sqlite() -> Program | str:
    """The program, or why there is none."""
    program = BENCH / "peer_sqlite"
    if not program.exists():
        return "libsqlite3-dev is not installed"
    workers = ["/usr/bin/multiwatch", "-f", str(C_WORKERS), "--"]
    return Program("C, SQLite", spawned(*workers, program))


def php_sqlite() -> Program | str:
    fpm = next(
        (str(path) for folder in SYSTEM_PATH.split(":")
         for path in sorted(pathlib.Path(folder).glob("php-fpm*"))),
        None,
    )
    if fpm is None:
        return "php-fpm is not installed"
    modules = subprocess.check_output([fpm, "-m"], text=True).split()
    if "pdo_sqlite" not in modules:
        return "php-sqlite3 is not installed"
    conf = FPM_CONF.format(
        user=getpass.getuser(), group="www-data" if os.geteuid() == 0 else os.getegid(),
        workers=PHP_WORKERS)
    script = pathlib.Path(__file__).with_name("peer.php").read_text()
    # As whoever started us, like the others, root included.
    command = [fpm, "--nodaemonize", "--allow-to-run-as-root", "-y", "@root@/fpm.conf"]
    files = {"fpm.conf": conf, "peer.php": script}
    return Program("PHP, SQLite", command, {}, PHP_CHANGES, files)


def run(bench: Bench) -> None:
    if not bench.servers([SERVER]):
        return
    with contextlib.ExitStack() as stack:
        sides = {"service": stack.enter_context(bench.service(SERVER))}
        for name, program in (("C, SQLite", c_sqlite()), ("PHP, SQLite", php_sqlite())):
            if isinstance(program, str):
                bench.skip(f"peers: {name}", program)
            else:
                sides[name] = stack.enter_context(peer(bench, program))
        if len(sides) == 1:
            return
        connections = QUICK_CONNECTIONS if bench.args.quick else CONNECTIONS
        turns = [(conns, list(sides.values())) for conns in connections]
        runs = bench.interleave("peers", turns)
    measured = [
        (SERVER, conns, name, runs[side, conns])
        for conns in connections
        for name, side in sides.items()
    ]
    bench.figures["peers"] = figures(measured)
    print_table(f"peers: the same job, durable; {C_WORKERS} C, {PHP_WORKERS} PHP workers",
                HEADER, [row(*each) for each in measured])
    rows = []
    for conns in connections:
        for name in list(sides)[1:]:
            ours, theirs = runs[sides["service"], conns], runs[sides[name], conns]
            ratio = ratios(ours, theirs, per_s)
            rows.append((conns, name, spread(ratio, ".1f")))
            if (bound := RATIO_AIMS[name].get(conns)) is not None:
                what = f"{SERVER} {conns}: service / {name}"
                bench.aim(what, statistics.median(ratio), bound)
    print_table("service / peer, round by round", ("conns", "peer", "requests/s"), rows)
