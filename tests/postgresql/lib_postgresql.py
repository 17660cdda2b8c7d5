"""What the tests of the PostgreSQL engine share: servers, tables as stores.

Servers run as an unprivileged user, since PostgreSQL refuses root, in a folder
of the test.  Each dies with the test, however that ends.
"""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator


import lib_service
from history import Event
from lib_service import Responder, Store, Tally, canonical, free_port, wait_until
from load import Load, ask, half_kept, judge, mixed_plan, single

OWNER = "postgres"  # Debian's; of the servers, if the test is run by root
ROLE, DATABASE, PASSWORD = "plants", "plants", "pa55-never-logged"
START_S = 60.0
UUID = "0b7c3e52-8f4d-4a61-9c0e-5d2f1a6b7c8d"
# A server that has these waits for nobody's disk more than it must.
SETTINGS = """
listen_addresses = '127.0.0.1'
max_connections = 60
shared_buffers = 32MB
wal_keep_size = 64MB
wal_retrieve_retry_interval = 500ms
dynamic_shared_memory_type = mmap
log_line_prefix = '%m [%p] %e '
"""
HBA = f"""
local all all trust
host all all 127.0.0.1/32 scram-sha-256
host replication {OWNER} 127.0.0.1/32 trust
"""


def programs() -> pathlib.Path | None:
    """The folder of the newest PostgreSQL that Debian has installed, if any."""
    found = pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = max(found, key=lambda path: int(path.parts[-3]), default=None)
    return newest and newest.parent


BIN = programs()


def unprivileged(*command: object) -> list[str]:
    """A command of the servers' user, which is killed when its parent dies."""
    user = []
    if os.geteuid() == 0:
        user = [f"--reuid={OWNER}", f"--regid={OWNER}", "--clear-groups"]
    return ["setpriv", *user, "--pdeathsig=KILL", *map(str, command)]


def give(path: pathlib.Path) -> None:
    if os.geteuid() == 0:
        shutil.chown(path, OWNER, OWNER)


def run(*command: object, **more) -> str:
    done = lib_service.run(*command, text=True, timeout=120, **more)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout


def psql_command(**options: object) -> list[object]:
    connection = " ".join(f"{name}='{value}'" for name, value in options.items())
    return [BIN / "psql", "-XqAt", "-F\t", "-v", "ON_ERROR_STOP=1", connection]


def psql(sql: str, **options: object) -> list[list[str]]:
    """Run SQL as libpq's `options` say; the rows that it prints."""
    out = run(*psql_command(**options), input=sql)
    return [line.split("\t") for line in out.split("\n")[:-1]]


class Session:
    """A psql that stays, for thousands of small questions."""

    END = "-- end --\n"

    def __init__(self, **options: object) -> None:
        self.process = subprocess.Popen(
            ["stdbuf", "-oL", *psql_command(**options)], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)

    def sql(self, sql: str, **_: object) -> list[list[str]]:
        self.process.stdin.write(f"{sql};\n\\echo {self.END}")
        self.process.stdin.flush()
        rows = []
        while (line := self.process.stdout.readline()) != self.END:
            if not line:
                raise RuntimeError(f"psql ended at: {sql}")
            rows.append(line[:-1].split("\t"))
        return rows

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


# --- Servers -----------------------------------------------------------------


class Server:
    """A PostgreSQL of its own: data, socket and log in one folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self.environment: dict[str, str] = {}
        self.process: subprocess.Popen | None = None

    def __getstate__(self) -> dict:
        """For a client in another process, which only asks."""
        return self.__dict__ | {"process": None}

    def write(self, **settings: object) -> None:
        """The configuration: SETTINGS, and these."""
        lines = [f"{name} = '{value}'\n" for name, value in settings.items()]
        lines += [f"port = {self.port}\n"]
        lines += [f"unix_socket_directories = '{self.folder}'\n"]
        (self.data / "postgresql.conf").write_text(SETTINGS + "".join(lines))
        (self.data / "pg_hba.conf").write_text(HBA)

    def start(self) -> None:
        command = unprivileged(BIN / "postgres", "-D", self.data)
        environment = os.environ | self.environment
        self.process = lib_service.start(command, self.folder / "log", cwd="/", env=environment)
        if not wait_until(self.is_ready, START_S):
            raise RuntimeError(f"PostgreSQL does not start: {self.log()[-2000:]}")

    def is_ready(self) -> bool:
        command = [BIN / "pg_isready", "-q", "-h", self.folder, "-p", str(self.port)]
        return subprocess.run(command).returncode == 0

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def sql(self, sql: str, **options: object) -> list[list[str]]:
        """As the superuser; in the table's database, unless `dbname` is given."""
        return psql(sql, **(self.superuser() | options))

    def superuser(self, dbname: str = DATABASE) -> dict[str, object]:
        where = {"host": self.folder, "port": self.port, "user": OWNER}
        return where | {"dbname": dbname}

    def conninfo(self, **options: object) -> str:
        """Of the service."""
        where = {"host": "127.0.0.1", "port": self.port, "dbname": DATABASE}
        where |= {"user": ROLE, "password": PASSWORD} | options
        return " ".join(f"{name}={value}" for name, value in where.items())

    def send(self, number: int) -> None:
        """To all of its processes: what happens to a machine, not to a server."""
        self.process.send_signal(signal.SIGSTOP)  # so that it makes no more
        children = lib_service.children_of(self.process.pid)
        self.process.send_signal(number)
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if number == signal.SIGKILL:
            self.process.wait()

    def stop(self, number: int = signal.SIGINT) -> None:
        """SIGINT ends the connections, SIGQUIT ends at once."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(START_S)
            except subprocess.TimeoutExpired:
                self.send(signal.SIGKILL)

    def end(self) -> None:
        """Whatever state it is in; nothing of it is left."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.stop(signal.SIGQUIT)
        with contextlib.suppress(OSError, IndexError):
            # After a kill its segment of System V's shared memory is left.
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            subprocess.run(["ipcrm", "-m", lines[6].split()[1]], capture_output=True)

    def promote(self) -> None:
        self.sql("SELECT pg_promote()")

    def sessions(self, name: str = "%") -> list[int]:
        """The processes that serve the connections of the service of this name."""
        rows = self.sql("SELECT pid FROM pg_stat_activity WHERE usename = "
                        f"'{ROLE}' AND application_name LIKE '{name}'", dbname=OWNER)
        return [int(row[0]) for row in rows]


def schema(build: pathlib.Path) -> str:
    """The table and the rights, as an administrator makes them."""
    return run(build / "plant-store", "schema") + run(
        build / "plant-store", "schema", "--roles")


class Clusters:
    """Servers that begin as copies of one, which has the table and its role."""

    def __init__(self, build: pathlib.Path, root: pathlib.Path) -> None:
        self.build = build
        self.root = root
        self.count = 0
        self.template = self._folder("template")
        command = [BIN / "initdb", "-D", self.template / "data", "-U", OWNER]
        command += ["-E", "UTF8", "--locale=C.UTF-8", "--wal-segsize=1", "-k", "-N"]
        run(*unprivileged(*command), cwd="/")
        with self.running(Server(self.template)) as server:
            server.sql(f"CREATE DATABASE {DATABASE}", dbname=OWNER)
            server.sql(schema(build))
            server.sql(f"ALTER ROLE {ROLE} PASSWORD '{PASSWORD}'")
            server.stop()

    def _folder(self, name: str) -> pathlib.Path:
        folder = self.root / name
        folder.mkdir()
        give(folder)
        return folder

    def new(self) -> Server:
        """Not started; with a copy of the template's data."""
        self.count += 1
        server = Server(self._folder(f"server-{self.count}"))
        run("cp", "-a", self.template / "data", server.data)
        return server

    @contextlib.contextmanager
    def running(self, server: Server, **settings: object) -> Iterator[Server]:
        server.write(**settings)
        try:
            server.start()
            yield server
        finally:
            server.end()

    @contextlib.contextmanager
    def pair(
        self, primary: Server | None = None, standby_environment: dict | None = None
    ) -> Iterator[tuple[Server, Server]]:
        """A primary, and a standby whose flush each of its commits waits for."""
        primary, standby = primary or self.new(), self.new()
        standby.environment = standby_environment or {}
        (standby.data / "standby.signal").touch()
        give(standby.data / "standby.signal")
        source = f"host=127.0.0.1 port={primary.port} user={OWNER}"
        source += " application_name=standby"
        with self.running(primary, synchronous_standby_names="standby"):
            with self.running(standby, primary_conninfo=source):
                follows = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
                if not wait_until(lambda: primary.sql(follows), START_S):
                    raise RuntimeError(f"no standby: {standby.log()[-2000:]}")
                yield primary, standby


@contextlib.contextmanager
def clusters(build: pathlib.Path, place: str | None = None) -> Iterator[Clusters]:
    """In a folder of `place`, or of where temporary files are."""
    with tempfile.TemporaryDirectory(prefix="plant-store-pg-", dir=place) as root:
        os.chmod(root, 0o755)
        yield Clusters(build, pathlib.Path(root))


# --- Tables as stores --------------------------------------------------------


@dataclasses.dataclass
class TableStore(Store):
    """A table, read by the server's superuser."""

    database: str = ""
    server: Server | Session | None = None
    dbname: str = DATABASE
    order: str = "stored_at, xmin::text::bigint"  # of the rows

    def environment(self, **settings: str) -> dict[str, str]:
        environment = super().environment()
        del environment["PLANT_STORE_DIR"]
        return environment | {"PLANT_STORE_DATABASE": self.database} | settings

    def rows(self) -> list[list[str]]:
        """id, plant, stored_by, stored_at: in the order in which they were
        stored, since a transaction that began later has a higher number."""
        at = "to_char(stored_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
        rows = self.server.sql(
            f"SELECT id, encode(convert_to(plant, 'UTF8'), 'hex'), stored_by, {at}"
            f" FROM plants ORDER BY {self.order}", dbname=self.dbname,
        )
        # In hexadecimal, as psql leaves out what it cannot measure: U+10FFFF.
        return [
            [number, bytes.fromhex(plant).decode(), *more]
            for number, plant, *more in rows
        ]

    def plants(self) -> list[dict]:
        plants = []
        for number, text, _, _ in self.rows():
            plant = json.loads(text)
            if canonical(plant).decode() != text or str(plant["id"]) != number:
                raise ValueError(f"not the canonical plant {number}: {text[:200]}")
            plants.append(plant)
        return plants

    @property
    def journal(self) -> pathlib.Path:
        """The file engine's journal of the same plants, made anew each time."""
        lines = [lib_service.seal(f'{{"plant-store":1,"store":"{UUID}"', UUID)]
        for seq, (_, plant, by, at) in enumerate(self.rows(), 1):
            previous = lines[-1][-11:-3].decode()
            head = f'{{"seq":{seq},"safe":0,"prev":"{previous}","at":"{at}","by":"{by}"'
            lines.append(lib_service.seal(f'{head},"plant":{plant}', UUID))
        path = self.root / lib_service.JOURNAL_NAME
        path.write_bytes(b"".join(lines))
        return path


@contextlib.contextmanager
def table_store(
    build: pathlib.Path, server: Server, database: str = "", dbname: str = DATABASE
) -> Iterator[TableStore]:
    """A table with a token file; `database` is the service's connection string."""
    with lib_service.temporary_store(str(build)) as plain:
        shutil.rmtree(plain.dir)  # needed by nothing
        database = database or server.conninfo(dbname=dbname)
        yield TableStore(plain.build, plain.root, plain.token, database, server, dbname)


def hosts(*servers: Server) -> str:
    """The connection string of a service that finds the one that is primary."""
    ports = ",".join(str(server.port) for server in servers)
    every = ",".join(["127.0.0.1"] * len(servers))
    return servers[0].conninfo(host=every, port=ports)


def get(service: lib_service.Responder, path: str) -> lib_service.Answer:
    request = {"REQUEST_METHOD": "GET", "SCRIPT_NAME": path}
    with lib_service.FastCgiPeer(service.socket_path) as peer:
        return peer.exchange(lib_service.fcgi_request(request.items(), b""))


def health(service: lib_service.Responder) -> int:
    """200, or the error's number."""
    answer = get(service, "/health")
    return answer.error() or answer.status


def message(kind: bytes, payload: bytes) -> bytes:
    return kind + struct.pack("!I", len(payload) + 4) + payload


# --- Judging -----------------------------------------------------------------

AGAIN_S = 0.05  # a client's pause before it asks again
# What a client may be told while the database fails: to try again.
TRY_AGAIN = {"503/5004", "503/5008", "503/5009"}


def longest_gap(events: Iterable[Event]) -> float:
    """The longest time in which no client at all was told 200."""
    ends = sorted(e.end for e in events if e.outcome == "created_or_same")
    return max((after - before for before, after in zip(ends, ends[1:])), default=0.0)


def resolve(store: Store, socket_path: pathlib.Path, events: list[Event]) -> list[Event]:
    """Ask again for each plant whose last answer left it open, until it is told."""
    last = {(event.plant_id, event.content): event for event in events}
    asked = []
    deadline = time.monotonic() + START_S
    with single(store, socket_path) as exchange:
        for (plant_id, content), event in last.items():
            while event.outcome in ("maybe", "refused") and time.monotonic() < deadline:
                event, _ = ask(exchange, (plant_id, *content))
                asked.append(event)
    return asked


def check_load(
    tally: Tally, load: Load, store: TableStore, socket_path: pathlib.Path,
    sentence: str, allowed: set[str] = TRY_AGAIN, before: Iterable[Event] = (),
) -> list[Event]:
    """After a load's end, with a server that serves: 0 lost, 0 twice, no wrong 409.

    `before`: what the store was told before this load.  Returns all events.
    """
    again = resolve(store, socket_path, load.events)
    print(f"# {sentence}: {load.rate()}, {dict(sorted(load.answers.items()))}")
    print(f"# {sentence}: longest gap {longest_gap(load.events):.1f} s, "
          f"{len(again)} requests to resolve what was open at the end", flush=True)
    tally.check(not load.wrong, f"{sentence}: every answer is right", load.wrong[:2])
    others = set(load.answers) - {"200", "409/5001"} - allowed
    tally.check(not others, f"{sentence}: failures say that one may try again", others)
    open_still = [e for e in again[-1:] if e.outcome in ("maybe", "refused")]
    tally.check(not open_still, f"{sentence}: a retry resolves each", open_still)
    events = [*before, *load.events, *again]
    judge(tally, events, store, sentence)
    return events


@dataclasses.dataclass
class Setup:
    """Servers and a service, under load of clients."""

    CLIENTS, BACK_S = 16, 30.0

    tally: Tally
    store: TableStore
    service: Responder
    events: list[Event] = dataclasses.field(default_factory=list, init=False)

    def load(self, plan=mixed_plan, more=(), **options: object) -> Load:
        """Clients of the service, and of others."""
        services = [(self.store, self.service), *more]
        ways = [way for store, at in services for way in half_kept(store, at, self.CLIENTS)]
        return Load(ways, functools.partial(plan, **options), again_s=AGAIN_S)

    def mixed(self, first: int = 0, *more: tuple[TableStore, Responder]) -> Load:
        """No two loads share ids that one client owns."""
        return self.load(more=more, first=first, contested=1000)

    def under_load(self, sentence: str, load: Load, harm: Callable[[Load], None],
                   allowed: set[str] = TRY_AGAIN) -> None:
        """All clients are served again, and what they were told is so."""
        with load:
            load.wait_told(500, START_S)
            harm(load)
            back = load.all_served(self.BACK_S)
            load.wait_told(500, START_S)
            load.stop()
        self.tally.check(back, f"{sentence}: each client is served again", load.told_each())
        self.check(load, sentence, allowed)

    def check(self, load: Load, sentence: str, allowed: set[str] = TRY_AGAIN) -> None:
        self.events = check_load(self.tally, load, self.store, self.service.socket_path,
                                 sentence, allowed, self.events)


def no_password(tally: Tally, texts: Iterable[str], sentence: str) -> None:
    found = [text for text in texts if re.search(re.escape(PASSWORD), text)]
    tally.check(not found, f"no password in {sentence}", found[:1])


# --- Consumers ---------------------------------------------------------------


def add_feed(store: TableStore, server: Server) -> None:
    server.sql(store.command("schema", "--feed", text=True, check=True).stdout)


class Consumer:
    """A cursor, and what it was given."""

    def __init__(self, store: TableStore, server: Server | None = None, name: str = "place") -> None:
        """With `server`: of a table that has no feed yet."""
        self.store, self.place = store, store.root / name
        self.ids: list[int] = []
        if server:
            add_feed(store, server)

    def poll(self, *options: object) -> subprocess.CompletedProcess:
        words = ["export", "--cursor", self.place, "--quiet", *options]
        done = self.store.command(*words, text=True, timeout=60)
        if not done.returncode and "--count" not in options:
            self.ids += [json.loads(line)["id"] for line in done.stdout.splitlines()]
        return done

    def refused(self, tally: Tally, status: int, words: str, sentence: str) -> None:
        before = self.place.read_bytes() if self.place.exists() else None
        done = self.poll()
        after = self.place.read_bytes() if self.place.exists() else None
        well = done.returncode == status and words in done.stderr and not done.stdout
        tally.check(well and before == after, f"{sentence}: {status}, the cursor stays", done)

    def gets(self, tally: Tally, ids: list[int], sentence: str) -> None:
        before = len(self.ids)
        done = self.poll()
        tally.check(self.ids[before:] == ids, sentence, (done.stderr, self.ids[before:][:20]))

    def lag(self) -> int:
        return int(self.poll("--count").stdout)

    def read(self) -> list[int]:
        """What the follower has written; a torn line comes again."""
        text = (self.store.root / "followed").read_bytes().rpartition(b"\n")[0]
        return [json.loads(line)["id"] for line in text.splitlines()]

    @contextlib.contextmanager
    def following(self, kill: int = signal.SIGTERM) -> Iterator[subprocess.Popen]:
        command = [self.store.build / "plant-store", "export", "--follow"]
        command += ["--cursor", self.place] if self.place else []
        root = self.store.root
        with open(root / "followed", "wb") as out, open(root / "said", "ab") as said:
            process = subprocess.Popen(
                command, env=self.store.environment(), stdout=out, stderr=said)
            try:
                yield process
            finally:
                process.send_signal(kill)
                process.wait()
        self.ids += self.read()

    def die_at_random(self, tally: Tally, lives: Iterable) -> None:
        """Follow, once for each life."""
        kill, twice, last, count = signal.SIGKILL, [], [], 0
        for count, _ in enumerate(lives, 1):
            before, last_kill = len(self.ids), kill
            kill = random.choice([signal.SIGKILL, signal.SIGTERM])
            with self.following(kill):
                time.sleep(random.uniform(0, 1.5))
            if last_kill == signal.SIGTERM:
                twice += set(last) & set(self.ids[before:])
            last = self.ids[before:]
        print(f"# {count} followers killed")
        tally.check(not twice, "SIGTERM repeats nothing", twice[:5])

    def rows(self, server) -> list[int]:
        return [int(row[0]) for row in server.sql("SELECT id FROM plants ORDER BY tx, id")]

    def await_all(self, server) -> None:
        rows = set(self.rows(server))
        wait_until(lambda: rows <= {*self.ids, *self.read()}, START_S)

    def check(self, tally: Tally, server, events: Iterable[Event]) -> None:
        found, rows = dict.fromkeys(self.ids), self.rows(server)
        told = {e.plant_id for e in events if e.outcome == "created_or_same"}
        tally.check(told <= {*found}, "every acknowledged plant", sorted(told - {*found})[:5])
        tally.check(list(found) == rows, "in the order of the store, none that a failover lost",
                    (sorted({*found} - {*rows})[:5], sorted({*rows} - {*found})[:5]))
        again = len(self.ids) - len(found)
        print(f"# {len(told)} acknowledged, {len(self.ids)} handed over, {again} again")
