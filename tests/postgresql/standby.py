"""Goal: with a synchronous standby, what was acknowledged outlives the primary.

usage: standby.py BUILD_DIR [--long]

Without --long only the first three cases.
"""

import concurrent.futures
import contextlib
import dataclasses
import http.client
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

from lib_postgresql import (
    DATABASE, ROLE, START_S, TRY_AGAIN, Clusters, Server, Session, Setup,
    ask, clusters, get, health, hosts, judge, no_password, run, single, table_store,
)
import lib_faults
from lib_service import (
    Responder, Tally, free_port, memory, responder, start, stop_process, wait_until,
)
from load import Load, Planned

UNKNOWN, FULL = 5009, 5002
DEADLINE_S = 5.0
LATE_S = 3.0  # what an answer may take more, on a busy machine
# Not those of autovacuum.
WAITS = ("SELECT pid FROM pg_stat_activity"
         f" WHERE wait_event = 'SyncRep' AND usename = '{ROLE}'")
PLANT_WAITS = f"{WAITS} AND query LIKE '%ON CONFLICT%'"
UNHEALTHY_S, HEALTHY_S = 10.0, 5.0  # what is promised


@dataclasses.dataclass
class Pair(Setup):
    """A primary, its standby, and a service that knows both."""

    primary: Server
    standby: Server

    def ask(self, *planned: Planned) -> list[tuple]:
        """Each plant at once, over connections of their own."""

        def one(plant: Planned) -> tuple:
            with single(self.store, self.service.socket_path) as exchange:
                return ask(exchange, plant)

        # No processes: they would hold the pipes of a psql that runs meanwhile.
        with concurrent.futures.ThreadPoolExecutor(len(planned)) as pool:
            return list(pool.map(one, planned))

    @contextlib.contextmanager
    def frozen_standby(self) -> Iterator[None]:
        self.standby.send(signal.SIGSTOP)
        try:
            yield
        finally:
            if self.standby.process.poll() is None:
                self.standby.send(signal.SIGCONT)

    def weaken(self) -> None:
        """What settings can do against a commit that waits; for new sessions."""
        self.primary.sql(f"ALTER ROLE {ROLE} SET synchronous_commit = off")
        self.primary.sql(f"ALTER DATABASE {DATABASE} SET client_min_messages = error")
        self.primary.sql("ALTER SYSTEM SET synchronous_commit = local")
        self.primary.sql("SELECT pg_reload_conf()")
        for pid in self.primary.sessions():
            self.primary.sql(f"SELECT pg_terminate_backend({pid}, 10000)")

    def take_over(self) -> None:
        self.standby.promote()
        self.store.server = self.standby

    def is_unknown(self, found: list[tuple], sentence: str) -> None:
        well = [a is not None and a.is_error(503, UNKNOWN) for _, a in found]
        self.tally.check(all(well), f"{sentence}: 503, error {UNKNOWN}", found)

    def is_stored(self, found: list[tuple], sentence: str) -> None:
        well = [a is not None and a.status == 200 for _, a in found]
        self.tally.check(all(well), f"{sentence}: 200", found)


Case = Callable[[Pair], None]


def run_case(tally: Tally, made: Clusters, case: Case, disk=contextlib.nullcontext):
    with contextlib.ExitStack() as stack:
        primary = made.new()
        stack.enter_context(disk(primary))
        _, standby = stack.enter_context(made.pair(primary))
        store = stack.enter_context(table_store(made.build, primary, hosts(primary, standby)))
        settings = {"PLANT_STORE_HEALTH_PATH": "/health", "PLANT_STORE_METRICS_PATH": "/metrics"}
        with responder(store, watched=False, **settings) as service:
            try:
                case(Pair(tally, store, service, primary, standby))
            finally:
                print(re.sub("^", "# ", service.log()[-3000:], flags=re.MULTILINE))
            no_password(tally, [service.log()], "the service's log")
            tally.check(service.worker(), "the service has never ended")
        service.check_end(tally)


# --- The cases ---------------------------------------------------------------


def failover(setup: Pair) -> None:
    """The primary is killed under load, the standby takes over."""

    def kill(load: Load) -> None:
        load.wait_told(1500, START_S)
        setup.primary.send(signal.SIGKILL)
        setup.take_over()

    setup.under_load("failover", setup.mixed(), kill)


def standby_stopped(setup: Pair) -> None:
    """Nothing is acknowledged that only the primary has."""
    plants = [(number, f"only here {number}", None) for number in range(8)]
    with setup.mixed() as load:
        load.wait_told(500, START_S)
        load.stop()
    with setup.frozen_standby():
        first = setup.ask(*plants)
        setup.is_unknown(first, "the standby is stopped")
        slowest = max(event.end - event.start for event, _ in first)
        # Twice for a request that comes while its reactor waits.
        well = DEADLINE_S - 1 < slowest < 2 * DEADLINE_S + LATE_S
        setup.tally.check(well, "the standby is stopped: at the deadline", slowest)
        # Those who still wait hold the ids.
        second = setup.ask(*plants)
        told = [e.outcome for e, _ in second]
        well = not {"created_or_same", "conflict"} & set(told)
        setup.tally.check(well, "the standby is stopped: a repeat is not 200", second)
        setup.primary.send(signal.SIGKILL)
        # With all that has arrived there and that it has not read.
        setup.standby.send(signal.SIGKILL)
    setup.standby.start()
    setup.take_over()
    back = wait_until(lambda: health(setup.service) == 200)
    setup.tally.check(back, "the standby is promoted: the service is healthy")
    stored = {plant["id"] for plant in setup.store.plants()}
    lost = stored.isdisjoint(range(8))
    setup.tally.check(lost, "what was not known is on the primary alone", stored)
    third = setup.ask(*plants)
    setup.is_stored(third, "the standby is promoted: what is sent again")
    load.events += [event for event, _ in first + second + third]
    setup.check(load, "a stopped standby", TRY_AGAIN)


def wait_cancelled(setup: Pair) -> None:
    """COMMIT succeeds then, with a warning; whatever role and server have set."""
    plant = (1, "cancelled", None)
    found: list[tuple] = []
    setup.weaken()
    with setup.frozen_standby():
        asking = threading.Thread(target=lambda: found.extend(setup.ask(plant)))
        asking.start()
        wait_until(lambda: setup.primary.sql(PLANT_WAITS))
        for row in setup.primary.sql(WAITS):
            setup.primary.sql(f"SELECT pg_cancel_backend({row[0]})")
        asking.join()
        setup.is_unknown(found, "the wait for the standby is cancelled")
        seen = setup.primary.sql("SELECT id FROM plants")
        setup.tally.check(seen == [["1"]], "it is seen though, on the primary", seen)
        found += setup.ask(plant, (1, "another", None))
        setup.is_unknown(found, "repeat and conflict of it wait, too")

    def repeat() -> bool:  # nothing is tried before the next probe
        found.extend(setup.ask(plant))
        return found[-1][1].status == 200

    setup.tally.check(wait_until(repeat, HEALTHY_S), "when the standby goes on, the repeat is 200")
    back = wait_until(lambda: health(setup.service) == 200)
    setup.tally.check(back, "and so is health")
    setup.primary.send(signal.SIGKILL)
    setup.take_over()
    found += setup.ask((2, "after it", None))
    judge(setup.tally, [event for event, _ in found], setup.store, "a cancelled wait")


HAPROXY = """
defaults
    mode http
    timeout connect 5s
    timeout server 30s
    timeout client 30s
frontend monitor
    bind 127.0.0.1:{port}
    default_backend services
backend services
    use-fcgi-app service
    option httpchk GET /health
    default-server proto fcgi check inter 500ms fall 1 rise 1
    server first unix@{first}
    server second unix@{second}
fcgi-app service
    docroot /nonexistent
"""


@contextlib.contextmanager
def balancer(setup: Pair, second: Responder) -> Iterator[Callable[[], int]]:
    """HAProxy, which asks both services for their health, and passes it on."""
    config, port = setup.store.root / "haproxy.cfg", free_port()
    config.write_text(HAPROXY.format(
        port=port, first=setup.service.socket_path, second=second.socket_path))

    def ask_health() -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, 10)
        with contextlib.closing(connection), contextlib.suppress(ConnectionError):
            connection.request("GET", "/health")
            return connection.getresponse().status
        return 0

    process = start(["/usr/sbin/haproxy", "-f", config], setup.store.root / "haproxy.log")
    try:
        yield ask_health
    finally:
        stop_process(process)


def drained(setup: Pair, hold_s: float = 4.0) -> None:
    """A node without clients knows by itself that nothing could be stored, and when
    that is over; meanwhile it takes two sessions of the server."""
    check = setup.tally.check
    info = setup.store.database + " application_name=second"
    with (
        table_store(setup.store.build, setup.primary, info) as other,
        responder(other, watched=False, PLANT_STORE_HEALTH_PATH="/health") as second,
        balancer(setup, second) as balanced,
    ):
        def states() -> list[int]:
            return [health(setup.service), health(second), balanced()]

        check(wait_until(lambda: states() == [200] * 3), "a standby is there: healthy", states())
        with setup.frozen_standby():
            setup.is_unknown(setup.ask((1, "first", None)), "the standby is stopped")
            well = wait_until(lambda: states() == [UNKNOWN, UNKNOWN, 503], UNHEALTHY_S)
            check(well, f"so is each, after {UNHEALTHY_S:.0f} s, and the balancer", states())
            done = setup.store.command("check", "--socket", setup.service.socket_path, text=True)
            well = done.returncode == 78 and "database: does not confirm" in done.stderr
            well = well and f"a plant: error {UNKNOWN}: The database did" in done.stderr
            check(well, "check tells it of the service and by itself", done)
            counts, until = [], time.monotonic() + hold_s
            while time.monotonic() < until:
                began = time.monotonic()
                found = setup.ask(*((number, "more", None) for number in range(2, 6)))
                quick = time.monotonic() - began < DEADLINE_S
                counts += [len(setup.primary.sessions(name)) for name in ("plant-store", "second")]
                if not quick or max(counts) > 2 or states() != [UNKNOWN, UNKNOWN, 503]:
                    break
                time.sleep(hold_s / 20)
            setup.is_unknown(found, "plants then")
            check(quick, "they are answered at once, and not after the deadline")
            check(max(counts) <= 2, "a service has no more than two sessions", counts)
            check(states() == [UNKNOWN, UNKNOWN, 503], "it stays unhealthy", states())
        well = wait_until(lambda: states() == [200] * 3, HEALTHY_S)
        check(well, f"the standby is back: healthy within {HEALTHY_S:.0f} s", states())
        setup.is_stored(setup.ask((1, "first", None), (2, "more", None)), "and plants")
        well = setup.store.command("check", "--socket", setup.service.socket_path)
        check(well.returncode == 0, "check is content", well)


def drained_for_long(setup: Pair) -> None:
    drained(setup, 120.0)


def several_services(setup: Pair, hold_s: float = 8.0) -> None:
    """Threads that wait when the standby stops are all that ever wait."""
    services, threads = 3, 2
    with contextlib.ExitStack() as stack:
        more = []
        for _ in range(services - 1):
            other = stack.enter_context(
                table_store(setup.store.build, setup.primary, setup.store.database))
            more.append((other, stack.enter_context(responder(other, watched=False))))
        load = setup.load(more=more)
        with load:
            load.wait_told(500, START_S)
            with setup.frozen_standby():
                waiting, until = 0, time.monotonic() + hold_s
                while time.monotonic() < until:
                    waiting = max(waiting, len(setup.primary.sql(WAITS)))
                    time.sleep(0.05)
            back = load.all_served(setup.BACK_S)
            load.stop()
    print(f"# {waiting} commits waited of {services} services with {threads} threads")
    well = 1 < waiting <= services * threads
    setup.tally.check(well, "a thread has one waiting commit at most", waiting)
    setup.tally.check(back, "several services: each client is served again")


def any_standby(setup: Pair) -> None:
    """Whoever confirms may not be whoever is promoted: told, while plants come."""
    check, service = setup.tally.check, setup.service

    def name(names: str) -> None:
        setup.primary.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        setup.primary.sql("SELECT pg_reload_conf()")

    def shown() -> bool:
        return "\nplant_store_any_standby 1\n" in get(service, "/metrics").body.decode()

    with setup.mixed() as load:
        load.wait_told(500, START_S)
        check(not shown(), "a standby is named: the metric is not 1")
        name("*")
        check(wait_until(shown, setup.BACK_S), "any standby confirms: the metric is 1")
        load.stop()
    told = "synchronous_standby_names is '*': any standby confirms"
    check(service.log().count(told) == 1, "it is logged once", service.log()[-1000:])
    done = setup.store.command("check", text=True)
    well = done.returncode == 78 and told in done.stderr
    check(well, "check tells it", done)
    name("standby")
    check(wait_until(lambda: not shown(), setup.BACK_S), "a standby is named again: nor then")
    check("synchronous_standby_names is 'standby'" in service.log().rpartition(told)[2],
          "and its name is logged", service.log()[-1000:])
    check(setup.store.command("check").returncode == 0, "check is content")
    setup.check(load, "any standby")


def refused(setup: Pair) -> None:
    """What refuses each plant refuses the probe, whatever it is."""
    setup.primary.sql("""
        CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN RAISE EXCEPTION USING ERRCODE = ''53100''; END';
        CREATE TRIGGER no_room BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION no_room();
        ALTER TABLE plants DISABLE TRIGGER no_room""")
    ways = {
        "no room": ("ENABLE TRIGGER no_room", "DISABLE TRIGGER no_room", FULL),
        "a constraint": ("ADD CONSTRAINT more CHECK (lock IS NOT NULL)", "DROP CONSTRAINT more", 5008),
    }
    for what, (way, back, number) in ways.items():
        setup.primary.sql(f"ALTER TABLE plants {way}")
        found = setup.ask((1, "refused", None))
        seen = [health(setup.service) for _ in range(15) if not time.sleep(0.2)]
        well = found[0][1].is_error(503, number) and set(seen[5:]) == {number}
        setup.tally.check(well, f"{what}: {number}, and so is health", (found, seen))
        setup.primary.sql(f"ALTER TABLE plants {back}")
        well = wait_until(lambda: health(setup.service) == 200, HEALTHY_S)
        setup.tally.check(well, f"{what} no longer: health is 200, without a plant")
    setup.tally.check(setup.store.plants() == [], "the probe stores nothing")
    setup.primary.sql("ALTER TABLE plants ENABLE TRIGGER no_room")
    seen = {health(setup.service) for _ in range(15) if not time.sleep(0.2)}
    setup.tally.check(seen == {200}, "and is none when nothing was refused", seen)


def stuck_id(setup: Pair) -> None:
    """Another session holds one id of a batch."""
    plants = [(number, f"beside it {number}", None) for number in range(32)]
    with Session(**setup.primary.superuser()) as holder:
        holder.sql("BEGIN; INSERT INTO plants VALUES (7, '{}', 'me', now())")
        found = setup.ask(*plants)
    alone = [(e.plant_id, a and a.error()) for e, a in found if not a or a.status != 200]
    setup.tally.check(alone == [(7, UNKNOWN)], "the stuck id fails alone, 5009: who holds it "
                      "may store the plant", alone)
    found += setup.ask(plants[7])
    setup.is_stored(found[-1:], "given free, it is stored")
    judge(setup.tally, [event for event, _ in found], setup.store, "a stuck id")


def connections_killed(setup: Pair) -> None:
    def kill(_: Load) -> None:
        killed, deadline = 0, time.monotonic() + 10
        while time.monotonic() < deadline:
            for pid in setup.primary.sessions()[:1]:
                setup.primary.sql(f"SELECT pg_terminate_backend({pid})")
                killed += 1
        setup.tally.check(killed > 20, "connections were killed one by one", killed)

    setup.under_load("connections killed", setup.mixed(), kill)


def restarts(setup: Pair) -> None:
    """In good order, and killed; the same server comes back."""

    def restart(load: Load) -> None:
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            load.wait_told(500, START_S)
            if number == signal.SIGKILL:
                setup.primary.send(number)
            else:
                setup.primary.stop(number)
            setup.primary.start()
            back = load.all_served(setup.BACK_S)
            setup.tally.check(back, f"{number.name}: each client is served again")

    setup.under_load("restarts", setup.mixed(), restart)


FULL_BYTES = 96 << 20


@contextlib.contextmanager
def on_small_disk(server: Server) -> Iterator[None]:
    """The data on a file system of its own, the write-ahead log not."""
    kept = server.folder / "kept"
    server.data.rename(kept)
    server.data.mkdir()
    options = ("-t", "tmpfs", "-o", f"size={FULL_BYTES}")
    with lib_faults.mounted("tmpfs", server.data, *options):
        run("cp", "-aT", kept, server.data)
        shutil.rmtree(server.data / "pg_wal")
        (server.data / "pg_wal").symlink_to(kept / "pg_wal")
        yield


def disk_full(setup: Pair) -> None:
    """Full while it is used; there is room again later."""
    check, filler = setup.tally.check, setup.primary.data / "filler"

    def large(number: int) -> Iterator[Planned]:
        return ((number << 32 | i, os.urandom(8000).hex(), None) for i in range(10**6))

    def states() -> set[int]:
        return {health(setup.service) for _ in range(20) if not time.sleep(0.1)}

    with setup.load(large) as load:
        load.wait_told(500, START_S)
        with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        check(wait_until(lambda: "53100" in setup.primary.log(), START_S), "the server is full")
        well = wait_until(lambda: health(setup.service) == FULL)
        check(well and states() == {FULL}, f"a full disk: health is 503, error {FULL}")
        load.stop()
    check(load.answers["503/5002"] > 0, f"a full disk: 503, error {FULL}", load.answers)
    check(states() == {FULL}, "so is health when no plant comes")
    filler.unlink()
    well = wait_until(lambda: health(setup.service) == 200, HEALTHY_S)
    check(well, "there is room: health is 200, before a plant comes")
    setup.check(load, "a full disk", TRY_AGAIN | {"503/5002"})
    setup.under_load("there is room", setup.mixed(1 << 50), lambda _: None)


def scenario(tally: Tally, arguments) -> None:
    with clusters(arguments.build, memory()) as made:
        cases = [failover, wait_cancelled, stuck_id, drained, several_services, any_standby, refused]
        if arguments.long:
            cases += [drained_for_long, standby_stopped, connections_killed, restarts]
        for case in cases:
            with tally.part(case.__name__):
                run_case(tally, made, case)
        if not arguments.long:
            return
        with tally.part("disk_full"):
            if not tally.lacks("a full disk", "mounts"):
                run_case(tally, made, disk_full, on_small_disk)


if __name__ == "__main__":
    sys.exit(lib_faults.run_script(__doc__, scenario))
