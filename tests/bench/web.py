"""The parts behind a web server: programs next to each other, and aims of their ratios.

A part names who takes turns at how many connections.  A ratio is of what was measured
next to each other, round by round; the median of these is what counts.
"""

import contextlib
import dataclasses
import getpass
import json
import os
import pathlib
import shutil
import sqlite3
import statistics
import subprocess
from collections.abc import Callable, Sequence

from report import Bench, draw, print_table, spread
from sides import (
    BENCH, BUILD, SERVERS, SYSTEM_PATH, Changes, Program, Side, preloaded, running, service,
    spawned,
)

from lib_postgresql import BIN, ROLE, Server, clusters

HERE = pathlib.Path(__file__).resolve().parent
# More than wrk can send in a measurement, so that no id comes twice.
IDS_PER_MEASUREMENT = 100_000_000
OURS, NOOP, C_SQLITE, PHP = "Plant Store", "no-op", "C, SQLite", "PHP, SQLite"
UNSYNCED, DATABASE, C_LIBPQ = "unsynced", "PostgreSQL", "C, libpq"
# A thread for each connection that the server may keep, else enough that it
# always finds one waiting.
NOOP_THREADS = {"lighttpd": "16", "nginx": "512", "apache": "320"}
# Of the numbers that were tried the best on 2 CPUs: SQLite has one writer.
SQLITE_WORKERS = 8
DELAYS_MS, STANDBY_DELAY_MS = (0, 1, 5, 10), 5

# Paths below the mount are a script's here, so lighttpd looks for it.
PHP_CHANGES: Changes = [
    (
        'server.modules += ( "mod_fastcgi" )',
        'server.modules += ( "mod_alias", "mod_fastcgi" )\n'
        'alias.url = ( "/plants" => "@root@/peer.php" )',
    ),
    ('"check-local"  => "disable",\n\t# after', '"check-local" => "enable",\n\t# after'),
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


@dataclasses.dataclass
class Measurement:
    """us: CPU time in microseconds a request, all threads and processes."""

    per_s: float
    p50_ms: float
    p99_ms: float
    program_us: float
    server_us: float
    bad: int


@dataclasses.dataclass(frozen=True)
class Turn:
    """Who is measured one after the other, at so many connections."""

    server: str
    conns: int
    names: Sequence[str]


Runs = dict[tuple[str, int, str], list[Measurement]]  # of a server, connections, a name


# --- Programs --------------------------------------------------------------------


def noop(server: str) -> Program:
    return Program(NOOP, spawned(BENCH / "noop"), {"NOOP_THREADS": NOOP_THREADS[server]})


def sqlite(bench: Bench, name: str, command: Sequence, changes: Changes = (), **files: str) -> Program:
    """A program with a new database."""
    path = bench.folder()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE plants(id INTEGER PRIMARY KEY, name TEXT NOT NULL, tag TEXT)")

    def stored() -> int:
        with contextlib.closing(sqlite3.connect(path)) as db:
            return db.execute("SELECT count(*) FROM plants").fetchone()[0]

    settings = {"PEER_DB": str(path), "PEER_TOKEN": "@token@"}
    return Program(name, command, settings, stored, changes, files)


def php_sqlite(bench: Bench) -> Program | None:
    fpm = next((str(path) for folder in SYSTEM_PATH.split(":")
                for path in sorted(pathlib.Path(folder).glob("php-fpm*"))), None)
    if fpm is None or "pdo_sqlite" not in subprocess.check_output([fpm, "-m"], text=True):
        bench.skip(PHP, "php-fpm or php-sqlite3 is not installed")
        return None
    conf = FPM_CONF.format(
        user=getpass.getuser(), group="www-data" if os.geteuid() == 0 else os.getegid(),
        workers=SQLITE_WORKERS)
    # As whoever started us, like the others, root included.
    command = [fpm, "--nodaemonize", "--allow-to-run-as-root", "-y", "@root@/fpm.conf"]
    files = {"fpm.conf": conf, "peer.php": (HERE / "peer.php").read_text()}
    return sqlite(bench, PHP, command, PHP_CHANGES, **files)


def c_sqlite(bench: Bench) -> Program | None:
    if not (BENCH / "peer_sqlite").exists():
        bench.skip(C_SQLITE, "libsqlite3-dev is not installed")
        return None
    workers = ["/usr/bin/multiwatch", "-f", str(SQLITE_WORKERS), "--"]
    return sqlite(bench, C_SQLITE, spawned(*workers, BENCH / "peer_sqlite"))


def in_database(server: Server, name: str) -> Program:
    """The service with PostgreSQL, or a program that inserts a row a request."""
    def counting(table: str) -> Callable[[], int]:
        return lambda: int(server.sql(f"SELECT count(*) FROM {table}")[0][0])

    if name == DATABASE:
        settings = {"PLANT_STORE_DATABASE": server.conninfo()}
        return Program(name, spawned(BUILD / "plant-store.fcgi"), settings, counting("plants"))
    server.sql("CREATE TABLE peer_plants (id bigint PRIMARY KEY, name text, tag text); "
               f"GRANT SELECT, INSERT ON peer_plants TO {ROLE}")
    settings = {"PEER_DB": server.conninfo(), "PEER_TOKEN": "@token@"}
    # A kept connection would hold one of its threads between requests.
    place = "location /plants {\n\t\t\tfastcgi_pass plant_store;\n\t\t\t"
    changes = [(f"{place}fastcgi_keep_conn on;", place)]
    return Program(name, spawned(BENCH / "peer_postgresql"), settings, counting("peer_plants"),
                   changes)


# --- Measuring -------------------------------------------------------------------


def measure(bench: Bench, side: Side, connections: int, seconds: int) -> Measurement:
    """Every answer that is not 200, and every one that does not come, is bad."""
    measure.next_id += IDS_PER_MEASUREMENT
    before = side.cpu_s()
    done = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s",
         "-s", HERE / "plants.lua", f"{side.base_url}/plants",
         "--", side.token, str(measure.next_id)], capture_output=True, text=True)
    after = side.cpu_s()
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not found or not found[0]["ok"]:
        raise RuntimeError(f"wrk: {done.returncode}: {done.stdout}{done.stderr}{side.logs()}")
    ok, bad, seconds, p50_ms, p99_ms = found[0].values()
    bench.check(bad == 0, f"{side.label}: {bad} requests were not 200")
    side.answered += ok
    program_s, server_s = (late - early for late, early in zip(after, before))
    return Measurement(ok / seconds, p50_ms, p99_ms, program_s * 1e6 / ok, server_s * 1e6 / ok, bad)


measure.next_id = 0


def interleave(bench: Bench, sides: dict[tuple[str, str], Side], turns: Sequence[Turn]) -> Runs:
    """Measure the sides of each turn one after the other, in all rounds.

    A round begins with the other end, for what the first leaves behind.
    """
    if not bench.args.quick:
        for side in sides.values():
            measure(bench, side, 16, 1)  # to warm it up
    runs: Runs = {}
    for number in range(bench.args.rounds):
        for turn in turns:
            for name in turn.names[:: -1 if number % 2 else 1]:
                if (turn.server, name) in sides:
                    bench.progress(f"round {number + 1}: {turn.server} {turn.conns}, {name}")
                    run = measure(bench, sides[turn.server, name], turn.conns, bench.args.seconds)
                    runs.setdefault((turn.server, turn.conns, name), []).append(run)
    bench.progress("")
    return runs


def ratios(runs: Runs, ours: tuple, theirs: tuple, figure: str = "per_s") -> list[float]:
    return [getattr(a, figure) / getattr(b, figure)
            for a, b in zip(runs[ours], runs[theirs], strict=True)]


def compare(bench: Bench, part: str, programs: Sequence[tuple[str, Program | None]],
            turns: Sequence[Turn], ours: str = OURS) -> Runs:
    """Start the programs, let them take turns, count what they stored; a table, in which
    `ratio` is how many times what another does `ours` does at as many connections."""
    with contextlib.ExitStack() as stack:
        sides = {(server, program.name): stack.enter_context(running(server, program))
                 for server, program in programs if program is not None}
        runs = interleave(bench, sides, turns)
    for side in sides.values():
        if side.program.stored:  # what wrk no longer waited for may be there, too
            stored = side.program.stored()
            bench.check(stored >= side.answered,
                        f"{side.label}: {side.answered} were answered 200, {stored} are stored")
    rows = []
    for (server, conns, name), found in sorted(runs.items()):
        own = (server, conns, ours)
        other = name != ours and own in runs
        rows.append((
            server, conns, name, spread([run.per_s for run in found]),
            *(spread([getattr(run, figure) for run in found], ".2f")
              for figure in ("p50_ms", "p99_ms")),
            *(f"{statistics.median(getattr(run, figure) for run in found):.1f}"
              for figure in ("program_us", "server_us")),
            *(spread(ratios(runs, own, (server, conns, name), figure), ".2f") if other else ""
              for figure in ("per_s", "p99_ms"))))
    print_table(part, ("server", "conns", "program", "plants/s", "p50 ms", "p99 ms", "CPU us",
                       "server's us", f"{ours} / it", "p99"), rows)
    bench.figures[part] = [
        {"server": server, "connections": conns, "program": name,
         "rounds": [dataclasses.asdict(run) for run in found]}
        for (server, conns, name), found in runs.items()]
    return runs


def aim_ratios(bench: Bench, runs: Runs, server: str, other: str, bounds: dict[int, float],
               figure: str = "per_s", ours: str = OURS) -> None:
    """At so many connections, plants a second at least, p99 at most so many times."""
    for conns, bound in bounds.items():
        pair = (server, conns, ours), (server, conns, other)
        if all(one in runs for one in pair):
            bench.aim(f"{server} {conns}: {figure} of {ours} / {other}",
                      statistics.median(ratios(runs, *pair, figure)), bound, figure == "per_s")


def servers(bench: Bench, *names: str) -> list[str]:
    """Those that are on this machine; of the others it says why not."""
    found = []
    for name in names:
        reason = SERVERS[name].missing() or (not shutil.which("wrk") and "wrk is not installed")
        if reason:
            bench.skip(name, reason)
        else:
            found.append(name)
    return found


# --- Parts -----------------------------------------------------------------------


def run_service(bench: Bench) -> None:
    """Next to a program that stores nothing, and to itself with syncs that do nothing."""
    programs, turns = [], []
    for server in servers(bench, "lighttpd", "nginx", "apache"):
        programs += [(server, noop(server)), (server, service(bench.folder())), (
            server, service(bench.folder(), UNSYNCED, **preloaded(FAULT_NO_SYNC="1")))]
        for conns in (1, 64) if bench.args.quick else (1, 16, 64, 256):
            names = (NOOP, OURS, UNSYNCED) if conns == 64 else (NOOP, OURS)
            turns.append(Turn(server, conns, names))
    runs = compare(bench, "service", programs, turns)
    aim_ratios(bench, runs, "lighttpd", NOOP, {1: 0.45, 16: 0.90, 64: 1.05, 256: 1.30})
    aim_ratios(bench, runs, "nginx", NOOP, {1: 0.45, 16: 0.82, 64: 1.15, 256: 1.38})
    aim_ratios(bench, runs, "apache", NOOP, {16: 0.88, 64: 0.86})
    for server in SERVERS:
        aim_ratios(bench, runs, server, NOOP, {16: 1.35, 64: 1.0}, "p99_ms")
        aim_ratios(bench, runs, server, UNSYNCED, {64: 0.90})
    for server, bound in ("nginx", 11), ("lighttpd", 17):
        if found := runs.get((server, 64, OURS)):
            cpu = statistics.median(run.program_us for run in found)
            bench.aim(f"{server} 64: CPU us a request", cpu, bound, least=False)


def run_peers(bench: Bench) -> None:
    """Next to programs that do the same job durably, as one would write them."""
    if not (found := servers(bench, "lighttpd")):
        return
    server = found[0]
    programs = [noop(server), service(bench.folder()), c_sqlite(bench), php_sqlite(bench)]
    names = (OURS, C_SQLITE, PHP, NOOP)
    runs = compare(bench, "peers", [(server, program) for program in programs],
                   [Turn(server, conns, names) for conns in
                    ((1, 64) if bench.args.quick else (1, 4, 16, 64, 256))])
    aim_ratios(bench, runs, server, C_SQLITE, {1: 1, 64: 6})
    aim_ratios(bench, runs, server, PHP, {1: 1, 64: 9})
    if not shutil.which("gnuplot"):
        return bench.skip("pictures", "gnuplot-nox is not installed")
    bench.args.svg.mkdir(parents=True, exist_ok=True)
    for file, figure, title in (("plants.svg", "per_s", "plants a second"),
                                ("p99.svg", "p99_ms", "99 % are answered within, ms")):
        draw(bench.args.svg / file, title, {
            name: {conns: statistics.median(getattr(run, figure) for run in found)
                   for (_, conns, of), found in runs.items() if of == name} for name in names})
    print(f"pictures: {bench.args.svg}/plants.svg, p99.svg")


def run_slow_disk(bench: Bench) -> None:
    """On disks whose syncs take longer: one connection is a commit for each plant."""
    if not (found := servers(bench, "nginx")):
        return
    server, delays = found[0], (5,) if bench.args.quick else DELAYS_MS
    programs = [(server, service(bench.folder(), f"{ms} ms", **preloaded(FAULT_SYNC_MS=str(ms))))
                for ms in delays]
    names = [program.name for _, program in programs]
    runs = compare(bench, "slow-disk: each sync takes longer", programs,
                   [Turn(server, conns, names)
                    for conns in ((1, 256) if bench.args.quick else (1, 16, 64, 256))])
    one, many = (server, 1, "5 ms"), (server, 256, "5 ms")
    bench.aim("slow disk, 256: times one by one", statistics.median(ratios(runs, many, one)), 100)
    p99_ms = statistics.median(run.p99_ms for run in runs[many])
    bench.aim("slow disk, 256: p99, ms", p99_ms, 30, least=False)


def run_postgresql(bench: Bench) -> None:
    """A primary with a synchronous standby, next to the file and to rows of their own."""
    if BIN is None or not (BENCH / "peer_postgresql").exists():
        return bench.skip("postgresql", "no PostgreSQL or libpq-dev is installed")
    if not (found := servers(bench, "nginx")):
        return
    server = found[0]
    with clusters(BUILD) as made:
        with made.pair() as (primary, _):
            programs = [service(bench.folder(), "file"), in_database(primary, DATABASE),
                        in_database(primary, C_LIBPQ)]
            runs = compare(bench, "postgresql: a commit waits for a standby's flush",
                           [(server, program) for program in programs],
                           [Turn(server, conns, ("file", DATABASE, C_LIBPQ))
                            for conns in (64, 256)], DATABASE)
            for other, bound in ("file", 0.5), (C_LIBPQ, 3):
                aim_ratios(bench, runs, server, other, {64: bound, 256: bound}, ours=DATABASE)
        slow = preloaded(FAULT_SYNC_MS=str(STANDBY_DELAY_MS))
        with made.pair(standby_environment=slow) as (primary, _):
            programs = [in_database(primary, name) for name in (DATABASE, C_LIBPQ)]
            runs = compare(bench, f"postgresql: the standby's flush takes {STANDBY_DELAY_MS} ms more",
                           [(server, program) for program in programs],
                           [Turn(server, 1, (C_LIBPQ,)), Turn(server, 256, (DATABASE,))], DATABASE)
            ratio = ratios(runs, (server, 256, DATABASE), (server, 1, C_LIBPQ))
            bench.aim("slow standby, 256: times a row at a time", statistics.median(ratio), 50)
