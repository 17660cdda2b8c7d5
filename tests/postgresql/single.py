"""Goal: on one PostgreSQL the answers are the file engine's, byte for byte, and a
database that cannot be used is refused with its own line.

usage: single.py BUILD_DIR [--long]
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import queue
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from lib_postgresql import (
    OWNER, PASSWORD, ROLE, Server, Session, TableStore, ask, clusters, health, judge, lib_service,
    message, no_password, run, single, table_store, unprivileged,
)
import hostile
import lib_faults
import run_fixtures
import scenario_roundtrip
import test_units
from lib_service import Tally, free_port, memory, responder, wait_until

AWAY = 5008
EQUAL = 3000  # plants of one id in one batch
CONFIG = 78
TEMPFAIL = 75
# Of the directory that the file engine needs.
FILE_ONLY = re.compile(r"settings-store-(missing|empty)")


def database(server: Server, name: str, sql: str = "") -> str:
    """A copy of the table's database, changed by some SQL; it ends with the server."""
    server.sql(f"CREATE DATABASE {name} TEMPLATE plants", dbname=OWNER)
    if sql:
        server.sql(sql, dbname=name)
    return name


# --- The same answers --------------------------------------------------------


def check_fixtures(tally: Tally, build: pathlib.Path, server: Server) -> None:
    """Each of some databases serves one case at a time."""
    cases = [c for c in run_fixtures.all_cases() if not FILE_ONLY.match(c.name)]
    free: queue.Queue[tuple[str, Session]] = queue.Queue()

    @contextlib.contextmanager
    def make_store(root: pathlib.Path) -> Iterator[TableStore]:
        name, session = free.get()
        session.sql("DELETE FROM plants")
        try:
            yield TableStore(
                build, root, run_fixtures.TOKEN, server.conninfo(dbname=name), session)
        finally:
            free.put((name, session))

    with contextlib.ExitStack() as stack:
        for number in range(os.cpu_count() or 1):
            name = database(server, f"fixtures{number}")
            session = Session(**server.superuser(name))
            free.put((name, stack.enter_context(session)))
        well, badly = run_fixtures.run_cases(cases, make_store)
    tally.passed += well
    tally.failed += badly
    print(f"# fixtures: {well} passed, {badly} failed", flush=True)


def check_equal_ids(tally: Tally, build: pathlib.Path, server: Server) -> None:
    """Sixteen clients at once want the same ids, for one of two plants each."""
    name = database(server, "equal")
    with table_store(build, server, "", name) as store:
        with responder(store, watched=False, PLANT_STORE_THREADS="1") as service:

            def one(client: int) -> list:
                with single(store, service.socket_path) as exchange:
                    ids = [-(2**63), 2**63 - 1, *range(10)]
                    plants = [(number, f"plant {client % 2}", None) for number in ids]
                    return [ask(exchange, plant) for plant in plants]

            found = [pair for pairs in lib_faults.side_by_side(one, range(16), 16)
                     for pair in pairs]
        service.check_end(tally)
        told = {answer.status for _, answer in found}
        tally.check(told == {200, 409}, "equal ids at once: 200 or 409, nothing else", told)
        judge(tally, [event for event, _ in found], store, "equal ids at once")
        before = commits(server, name)
        done = store.command("import", input=(lib_service.new_plant(77, "Fern") + b"\n") * EQUAL)
        # One that inserts and one that reads, and those of a session's begin.
        wait_until(lambda: commits(server, name) > before)
        taken = commits(server, name) - before
        tally.check(f"1 created, {EQUAL - 1} already stored".encode() in done.stdout and taken < 20,
                    f"{EQUAL} plants of one id are stored by two statements", (done, taken))


def commits(server: Server, name: str) -> int:
    """They are counted once a session has ended."""
    return int(server.sql("SELECT xact_commit FROM pg_stat_database"
                          f" WHERE datname = '{name}'", dbname=OWNER)[0][0])


# --- The command --------------------------------------------------------------


def check_moving(tally: Tally, build: pathlib.Path, server: Server) -> None:
    """From a journal to a table and to another journal: the same in each."""
    bodies = [lib_service.new_plant(i, f"\0 {i}", "x" * 60_000 if i % 50 == 0 else None)
              for i in range(-(2**63), -(2**63) + 500)]

    def call(store: lib_service.Store, *words: object, said: str = "") -> str:
        return store.command(*words, input=said, text=True, check=True).stdout

    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(lib_service.temporary_store(str(build)))
                 for _ in range(2)]
        table = stack.enter_context(table_store(build, server, "", database(server, "moved")))
        call(files[0], "import", "--by", "mover", said=b"\n".join(bodies).decode())
        full = call(files[0], "export", "--full")
        for source, target in ((files[0], table), (table, files[1])):
            for _ in range(2):  # a second time changes nothing
                call(target, "import", "--full", said=call(source, "export", "--full"))
            moved = call(target, "export", "--full")
            # Those of one millisecond have no order in a table.
            well = sorted(moved.splitlines()) == sorted(full.splitlines())
            what = "table" if target is table else "journal"
            tally.check(well, f"moved to a {what}: plants, times and names", moved[:500])
        ids = [str(-(2**63)), str(-(2**63) + 499)]
        got = [call(store, "get", *ids) for store in (files[0], table)]
        tally.check(got[0] == got[1] != "", "get prints the same of both", got)
        listed = table.server.sql("SELECT count(*), count(name) FROM plants_list",
                                  dbname=table.dbname)
        tally.check(listed == [["500", "0"]], "the view passes over U+0000", listed)
        since = call(table, "export", "--since", "2100-01-01T00:00:00Z")
        tally.check(since == "", "export --since reads the times", since)
        checked = call(table, "check")
        well = checked.endswith("\ndatabase: ok\nno problems\n")
        tally.check(well, "check opens the database, and asks for no directory", checked)
        print(f"# {call(table, 'stats')}")
        for words in (["verify"], ["backup", "nowhere"]):
            done = table.command(*words)
            well = done.returncode == 64 and b"pg_" in done.stderr
            tally.check(well, f"{words[0]} names what serves a database instead", done)


# What a role may do that can create in schema public, and schemas.
MALLORY = f"""
CREATE FUNCTION public.evil(numeric, integer) RETURNS numeric LANGUAGE plpgsql AS
    'BEGIN RAISE EXCEPTION ''evil''; END';
CREATE OPERATOR public.* (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = public.evil);
CREATE FUNCTION public.unnest(bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql AS
    'BEGIN RAISE EXCEPTION ''evil''; END';
CREATE FUNCTION public.unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql AS
    'BEGIN RAISE EXCEPTION ''evil''; END';
CREATE FUNCTION public.set_config(text, text, boolean) RETURNS text LANGUAGE plpgsql AS
    'BEGIN RAISE EXCEPTION ''evil''; END';
CREATE SCHEMA {ROLE};
CREATE TABLE {ROLE}.plants (LIKE public.plants INCLUDING ALL);
CREATE TABLE {ROLE}.plants_schema AS SELECT 1 AS version;
GRANT USAGE ON SCHEMA {ROLE} TO PUBLIC;
GRANT ALL ON ALL TABLES IN SCHEMA {ROLE} TO PUBLIC;
"""


def check_names(tally: Tally, build: pathlib.Path, server: Server) -> None:
    """Nothing of ours is found where another role may have put it."""
    name = database(server, "names", MALLORY)
    for path, schema in (("DEFAULT", "public"), ("public, pg_catalog", "public"),
                         ('"$user", pg_catalog, public', "public"), (ROLE, ROLE)):
        server.sql(f"ALTER ROLE {ROLE} IN DATABASE {name} SET search_path = {path}")
        count = f"SELECT count(*) FROM {schema}.plants"
        before = int(server.sql(count, dbname=name)[0][0])
        with table_store(build, server, "", name) as store:
            _, done, answer = lib_faults.create_by_cgi(store, before, "Fern")
            well = answer is not None and answer.status == 200
            after = int(server.sql(count, dbname=name)[0][0])
            tally.check(well and after == before + 1, f"search_path {path}: stored there", done)
            for words in ["export"], ["get", "0"], ["stats"], ["check"]:
                done = store.command(*words, text=True)
                tally.check(done.returncode == 0, f"search_path {path}: {words[0]}", done)


# --- The unit -----------------------------------------------------------------


def check_calls(tally: Tally, build: pathlib.Path, server: Server) -> None:
    """The service's unit allows what the module does: connect, lose, connect."""
    name = database(server, "traced")
    with table_store(build, server, "", name) as store:
        traced = test_units.Traced(store)
        well = []
        with traced.run() as (strace, pid):
            for number in range(2):
                well.append(test_units.send(store, traced.socket_path, number, "Fern"))
                for session in server.sessions():
                    server.sql(f"SELECT pg_terminate_backend({session}, 10000)")
            traced.end(strace, pid)
        traced.listener.close()
        more = traced.calls - test_units.allowed()
        tally.check(all(well) and "connect" in traced.calls and not more,
                    "the unit allows the module's system calls", (well, more))


def check_files(tally: Tally, build: pathlib.Path, server: Server) -> None:
    """In its sandbox it finds the server by name, and a new password at home."""
    if "-DNO_SANDBOX" in (build / "command").read_text():
        return
    name = database(server, "files")
    options = {"host": "localhost", "dbname": name}
    info = server.conninfo(**options).replace(f" password={PASSWORD}", "")
    with (
        table_store(build, server, info, name) as store,
        tempfile.TemporaryDirectory() as home,
    ):
        passfile = pathlib.Path(home, ".pgpass")

        def use(password: str) -> None:
            server.sql(f"ALTER ROLE {ROLE} PASSWORD '{password}'")
            new = passfile.with_suffix(".new")
            new.write_text(f"*:{server.port}:*:*:{password}\n")
            new.chmod(0o600)
            new.rename(passfile)
            for session in server.sessions():
                server.sql(f"SELECT pg_terminate_backend({session}, 10000)")

        def sent(number: int) -> bool:
            return test_units.send(store, service.socket_path, number, "Fern")

        use(PASSWORD)
        with responder(store, watched=False, HOME=home) as service:
            well = sent(1)
            for number, password in ((2, "another"), (3, PASSWORD)):
                use(password)
                well = well and wait_until(lambda: sent(number))
        tally.check(well, "a password file that was replaced is read when it connects "
                    "again", service.log())
        elsewhere = dataclasses.replace(store, database=f"{info} passfile={passfile}")
        with lib_service.listening(store.root / "elsewhere.sock") as listener:
            done = lib_service.run(elsewhere.responder, env=elsewhere.environment(),
                                   stdin=listener, text=True)
        well = done.returncode == CONFIG and "no password supplied" in done.stderr
        tally.check(well, "one outside the sandbox is missed at the start", done)


# --- Databases that cannot be used -------------------------------------------

# What is wrong, options of the connection string, SQL, words of the log's line.
REFUSED = [
    ("a wrong password", {"password": f"not-{PASSWORD}"}, "", ["password"]),
    ("an unknown role", {"user": "nobody_known"}, "", ["nobody_known"]),
    ("no such database", {"dbname": "nowhere"}, "", ["nowhere"]),
    ("no table", {}, "DROP TABLE plants CASCADE", ["plant-store schema"]),
    ("a table of another shape", {},
     "DROP TABLE plants CASCADE; CREATE TABLE plants (id int, plant jsonb);"
     f"GRANT ALL ON plants TO {ROLE}", ["plants"]),
    ("a wrong schema version", {}, "UPDATE plants_schema SET version = 99",
     ["plants_schema has version 99, not 1"]),
    ("no right to insert", {}, f"REVOKE INSERT ON plants FROM {ROLE}",
     ["plant-store schema --roles"]),
    ("no right to select", {}, f"REVOKE SELECT ON plants FROM {ROLE}",
     ["plant-store schema --roles"]),
    ("no right to lock", {}, f"REVOKE UPDATE (lock) ON plants FROM {ROLE}",
     ["plant-store schema --roles"]),
]
SYSTEM_REFUSED = [("fsync", "off"), ("full_page_writes", "off")]
AWAY_AND_BACK = [
    ("too many connections", f"ALTER ROLE {ROLE} CONNECTION LIMIT 0",
     f"ALTER ROLE {ROLE} CONNECTION LIMIT -1"),
    ("read-only", f"ALTER ROLE {ROLE} SET default_transaction_read_only = on",
     f"ALTER ROLE {ROLE} RESET default_transaction_read_only"),
]


def check_refused(tally: Tally, store: TableStore, what: str, words: list[str]) -> None:
    """Both ways to start: the service ends with 78, a CGI process answers so."""
    with lib_service.listening(store.root / "refused.sock") as listener:
        try:
            done = lib_service.run(store.responder, env=store.environment(), stdin=listener,
                                   text=True)
        except subprocess.TimeoutExpired as error:
            tally.check(False, f"{what}: refused", f"it serves: {error.stderr}")
            return
    said = done.stderr
    well = done.returncode == CONFIG and all(word in said for word in words)
    tally.check(well, f"{what}: status 78, and the line names it", (done.returncode, said))
    print(f"# {what}: {said.strip()}", flush=True)
    done = store.command("check", text=True)
    said += done.stderr
    well = done.returncode == CONFIG and all(word in done.stderr for word in words)
    tally.check(well, f"{what}: check names it, too", done)
    _, done, answer = lib_faults.create_by_cgi(store, 1, "refused")
    said += done.stderr.decode()
    well = answer is not None and answer.is_error(503, 5006) and done.returncode == CONFIG
    tally.check(well, f"{what}: a CGI process answers 503, error 5006", done)
    no_password(tally, [said], f"the log of {what}")


STARTING_UP = message(b"E", b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0")


def check_setups(tally: Tally, build: pathlib.Path, server: Server) -> None:
    refuse = functools.partial(check_refused, tally)
    for number, (what, options, sql, words) in enumerate(REFUSED):
        name = database(server, f"refused{number}", sql)
        conninfo = server.conninfo(**({"dbname": name} | options))
        with table_store(build, server, conninfo, name) as store:
            refuse(store, what, words)
    for password in (f"{PASSWORD}@[", f"pa@{PASSWORD}", f"pa/{PASSWORD}", f"12/{PASSWORD}",
                     f"pa@x/{PASSWORD}", f"pa?{PASSWORD}@b", f"pa%{PASSWORD}",
                     f"pa@[?]:{PASSWORD}", f"pa@[?{PASSWORD}]:1/x", f"{PASSWORD}/"):
        url = f"postgresql://plants:{password}@127.0.0.1/plants".replace("/@127.0.0.1", "")
        with table_store(build, server, url) as store:
            refuse(store, "a connection string with an unescaped character",
                   ["PLANT_STORE_DATABASE", "%40 for @"])
    sql = "CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'"
    server.sql(sql, dbname=OWNER)
    sql = run(build / "plant-store", "schema")
    server.sql(sql + f"GRANT SELECT ON plants_schema TO {ROLE}", dbname="ascii")
    with table_store(build, server, "", "ascii") as store:
        refuse(store, "an encoding other than UTF-8", ["UTF8"])
    with table_store(build, server) as store:
        for name, value in SYSTEM_REFUSED:
            server.sql(f"ALTER SYSTEM SET {name} = {value}")
            server.sql("SELECT pg_reload_conf()")
            off = functools.partial(server.sql, f"SHOW {name}")
            wait_until(lambda: off() == [[value]])
            refuse(store, f"{name}={value}", [name])
            server.sql(f"ALTER SYSTEM RESET {name}")
            server.sql("SELECT pg_reload_conf()")
            wait_until(lambda: off() == [["on"]])


# --- Databases that are away -------------------------------------------------


def check_away(tally: Tally, server: Server, store: TableStore, what: str, undo: str = "") -> None:
    """The service starts and answers 503, until what is wrong is undone."""
    plant = (1, f"while {what}", None)

    with responder(store, watched=False, PLANT_STORE_HEALTH_PATH="/health") as service:
        with single(store, service.socket_path) as exchange:
            event, answer = ask(exchange, plant)
            well = answer is not None and answer.is_error(503, AWAY)
            well = well and answer.header("Retry-After") is not None
            tally.check(well, f"{what}: 503, error {AWAY}, Retry-After", answer)
            tally.check(wait_until(lambda: health(service) == AWAY), f"{what}: health is the same")
            if undo:
                server.sql(undo)
                healthy = wait_until(lambda: health(service) == 200)
                tally.check(healthy, f"{what}: health is 200 once that is over")
                served = wait_until(lambda: ask(exchange, plant)[1].status == 200)
                tally.check(served, f"{what}: served once that is over")
        command = pathlib.Path(f"/proc/{service.process.pid}/cmdline").read_bytes()
    service.check_end(tally)
    log = service.log()
    once = log.count("cannot use the database") == 1
    tally.check(once and log.count("is back") == bool(undo), f"{what}: logged once", log)
    print(f"# {what}: {log.splitlines()[0]}", flush=True)
    no_password(tally, [log, command.decode()], f"log and ps, {what}")
    _, done, answer = lib_faults.create_by_cgi(store, 2, "by CGI")
    if not undo:
        well = answer is not None and answer.is_error(503, AWAY)
        well = well and done.returncode == TEMPFAIL
        tally.check(well, f"{what}: a CGI process answers 503, and ends with 75", done)


def check_aways(tally: Tally, build: pathlib.Path, server: Server) -> None:
    for number, (what, sql, undo) in enumerate(AWAY_AND_BACK):
        name = database(server, f"away{number}", sql)
        with table_store(build, server, "", name) as store:
            check_away(tally, server, store, what, undo)
    with table_store(build, server, server.conninfo(port=free_port())) as store:
        check_away(tally, server, store, "nobody listens")
    with table_store(build, server, server.conninfo(host="nowhere.invalid")) as store:
        check_away(tally, server, store, "a host that has no address")
    with table_store(build, server) as store:  # as in a unit without its drop-in
        no_network = ["-e", "trace=socket", "-e", "inject=socket:error=EAFNOSUPPORT"]
        done = run("sh", "-c", 'strace -fqqo /dev/null "$@" 2>&1 || true', "strace", *no_network,
                   build / "plant-store", "stats", env=os.environ | store.environment())
        tally.check("database.conf" in done, "no network: the drop-in is named", done)
    with hostile.hostile_store(build) as (other, store):
        other.kind, other.answer = "welcome", STARTING_UP
        check_away(tally, server, store, "a server that is starting up")


# --- A pooler ----------------------------------------------------------------

POOLER = """
[databases]
{name} = host=127.0.0.1 port={server.port} user={role} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = {mode}
default_pool_size = 8
"""


@contextlib.contextmanager
def pooler(server: Server, name: str, mode: str) -> Iterator[int]:
    """The port of a pgbouncer."""
    port = free_port()
    config = server.folder / f"{mode}.ini"
    config.write_text(POOLER.format(name=name, server=server, role=ROLE, password=PASSWORD,
                                    port=port, folder=server.folder, mode=mode))
    (server.folder / "users").write_text(f'"{ROLE}" "{PASSWORD}"\n')
    command = unprivileged("/usr/sbin/pgbouncer", config)
    process = lib_service.start(command, server.folder / f"{mode}.log", cwd="/")
    try:
        wait_until(lambda: lib_service.listens(port))
        yield port
    finally:
        lib_service.stop_process(process)


def check_pooler(tally: Tally, build: pathlib.Path, server: Server) -> None:
    """One that gives each transaction any session of the server."""
    for mode in "session", "transaction":
        name = database(server, f"pooled_{mode}")
        with contextlib.ExitStack() as stack:
            port = stack.enter_context(pooler(server, name, mode))
            info = server.conninfo(port=port, dbname=name)
            store = stack.enter_context(table_store(build, server, info, name))
            service = stack.enter_context(responder(store, watched=False))
            exchange = stack.enter_context(single(store, service.socket_path))
            _, answer = ask(exchange, (1, "first", None))
            tally.check(answer is not None and answer.status == 200, f"{mode}: a service", answer)
            done = store.command("import", input=lib_service.new_plant(2, "second"))
            _, answer = ask(exchange, (3, "third", None))
            if mode == "session":
                well = done.returncode == 0 and answer is not None and answer.status == 200
                tally.check(well, "session: and a second process", (done, answer))
                continue
            well = done.returncode == CONFIG and b"already exists; sessions are" in done.stderr
            tally.check(well, "transaction: a second process is told of pool_mode", done)
            # The service's statements are in the session that another one has now.
            with Session(**server.superuser(name) | {
                    "host": "127.0.0.1", "user": ROLE, "port": port}) as other:
                other.sql("BEGIN; SELECT 1")
                _, answer = ask(exchange, (4, "fourth", None))
            well = answer is not None and answer.is_error(503, AWAY)
            well = well and "does not exist; sessions are mixed up" in service.log()
            tally.check(well, "transaction: so is a service whose statements are elsewhere",
                        (answer, service.log()))


# Longer than the pause between two looks at the health.
SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_sleep(1.5); RETURN NULL; END';
CREATE TRIGGER slow BEFORE INSERT ON plants EXECUTE FUNCTION slow();
"""


def check_limit(tally: Tally, build: pathlib.Path, server: Server) -> None:
    """A connection for each thread, and one to probe, are enough."""
    name = database(server, "slow", SLOW)
    wait_until(lambda: not server.sessions())
    server.sql(f"ALTER ROLE {ROLE} CONNECTION LIMIT 2")
    settings = {"PLANT_STORE_HEALTH_PATH": "/health", "PLANT_STORE_THREADS": "1"}
    with table_store(build, server, "", name) as store:
        with responder(store, watched=False, **settings) as service:
            with single(store, service.socket_path) as exchange:
                _, answer = ask(exchange, (1, "slow", None))
            states = (answer and answer.status, health(service))
            tally.check(states == (200, 200), "the health is 200 after a slow commit", states)
        service.check_end(tally)
        log = service.log()
        tally.check("cannot use the database" not in log, "no third session for it", log)
    server.sql(f"ALTER ROLE {ROLE} CONNECTION LIMIT -1")


def scenario(tally: Tally, arguments) -> None:
    build = arguments.build
    checks = [check_fixtures, check_equal_ids, check_moving, check_names, check_calls, check_files,
              check_setups, check_aways, check_limit]
    if arguments.long:
        checks.append(check_pooler)
    with clusters(build, memory()) as made, made.running(made.new()) as server:
        with tally.part("round trips"):
            with table_store(build, server, "", database(server, "trips")) as store:
                scenario_roundtrip.check(tally, store, 20_000 if arguments.long else 4_000)
        for check in checks:
            with tally.part(check.__name__):
                check(tally, build, server)


if __name__ == "__main__":
    sys.exit(lib_faults.run_script(__doc__, scenario))
