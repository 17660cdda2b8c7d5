"""Goal: with a synchronous standby, what was acknowledged outlives the primary.

usage: standby.py BUILD_DIR [--long]

Without --long only the first three cases.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

from lib_postgresql import (
    AGAIN_S, BIN, DATABASE, OWNER, ROLE, START_S, TRY_AGAIN, Clusters, Server, TableStore,
    ask, check_load, clusters, hosts, judge, memory, no_password, run, single, table_store,
)
import lib_faults
from lib_service import Responder, Tally, responder, wait_until
from load import Load, Planned, half_kept, mixed_plan

CLIENTS = 16
BUSY, UNKNOWN = 5004, 5009
DEADLINE_S = 5.0
LATE_S = 3.0  # what an answer may take more, on a busy machine
BACK_S = 30.0
# Not those of autovacuum.
WAITS = ("SELECT pid FROM pg_stat_activity"
         f" WHERE wait_event = 'SyncRep' AND usename = '{ROLE}'")


@dataclasses.dataclass
class Setup:
    """A primary, its standby, and a service that knows both."""

    tally: Tally
    primary: Server
    standby: Server
    store: TableStore
    service: Responder

    def load(self) -> Load:
        plan = functools.partial(mixed_plan, contested=1000)
        ways = half_kept(self.store, self.service, CLIENTS)
        return Load(ways, plan, again_s=AGAIN_S)

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

    def take_over(self) -> None:
        self.standby.promote()
        self.store.server = self.standby

    def check(self, load: Load, sentence: str, allowed: set[str] = TRY_AGAIN) -> None:
        socket_path = self.service.socket_path
        check_load(self.tally, load, self.store, socket_path, sentence, allowed)

    def is_unknown(self, found: list[tuple], sentence: str) -> None:
        well = [a is not None and a.is_error(503, UNKNOWN) for _, a in found]
        self.tally.check(all(well), f"{sentence}: 503, error {UNKNOWN}", found)

    def is_stored(self, found: list[tuple], sentence: str) -> None:
        well = [a is not None and a.status == 200 for _, a in found]
        self.tally.check(all(well), f"{sentence}: 200", found)


Case = Callable[[Setup], None]


def run_case(tally: Tally, made: Clusters, case: Case, disk=contextlib.nullcontext):
    with contextlib.ExitStack() as stack:
        primary = made.new()
        stack.enter_context(disk(primary))
        _, standby = stack.enter_context(made.pair(primary))
        store = stack.enter_context(table_store(made.build, primary, hosts(primary, standby)))
        with responder(store, watched=False) as service:
            try:
                case(Setup(tally, primary, standby, store, service))
            finally:
                print(re.sub("^", "# ", service.log()[-3000:], flags=re.MULTILINE))
            no_password(tally, [service.log()], "the service's log")
            tally.check(service.worker(), "the service has never ended")
        service.check_end(tally)


# --- The cases ---------------------------------------------------------------


def failover(setup: Setup) -> None:
    """The primary is killed under load, the standby takes over."""
    with setup.load() as load:
        load.wait_told(2000, START_S)
        setup.primary.send(signal.SIGKILL)
        setup.take_over()
        back = load.all_served(BACK_S)
        load.wait_told(2000, START_S)
        load.stop()
    setup.tally.check(back, "failover: each client is served again", load.told_each())
    setup.check(load, "failover")


def standby_stopped(setup: Setup) -> None:
    """Nothing is acknowledged that only the primary has."""
    plants = [(number, f"only here {number}", None) for number in range(8)]
    with setup.load() as load:
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
    stored = {plant["id"] for plant in setup.store.plants()}
    lost = stored.isdisjoint(range(8))
    setup.tally.check(lost, "what was not known is on the primary alone", stored)
    third = setup.ask(*plants)
    setup.is_stored(third, "the standby is promoted: what is sent again")
    load.events += [event for event, _ in first + second + third]
    setup.check(load, "a stopped standby", TRY_AGAIN)


def wait_cancelled(setup: Setup) -> None:
    """COMMIT succeeds then, with a warning."""
    plant = (1, "cancelled", None)
    found: list[tuple] = []
    with setup.frozen_standby():
        asking = threading.Thread(target=lambda: found.extend(setup.ask(plant)))
        asking.start()
        wait_until(lambda: setup.primary.sql(WAITS))
        for row in setup.primary.sql(WAITS):
            setup.primary.sql(f"SELECT pg_cancel_backend({row[0]})")
        asking.join()
        setup.is_unknown(found, "the wait for the standby is cancelled")
        seen = setup.primary.sql("SELECT id FROM plants")
        setup.tally.check(seen == [["1"]], "it is seen though, on the primary", seen)
        found += setup.ask(plant, (1, "another", None))
        setup.is_unknown(found, "repeat and conflict of it wait, too")
    wait_until(lambda: not setup.primary.sql(WAITS))
    found += setup.ask(plant)
    setup.is_stored(found[-1:], "when the standby goes on, the repeat")
    setup.primary.send(signal.SIGKILL)
    setup.take_over()
    found += setup.ask((2, "after it", None))
    judge(setup.tally, [event for event, _ in found], setup.store, "a cancelled wait")


def stuck_id(setup: Setup) -> None:
    """Another session holds one id of a batch."""
    command = [BIN / "psql", "-Xq", "-h", setup.primary.folder, "-U", OWNER]
    command += ["-p", str(setup.primary.port), DATABASE]
    holds = ("SELECT 1 FROM pg_stat_activity"
             " WHERE state = 'idle in transaction' AND query LIKE 'INSERT%'")
    plants = [(number, f"beside it {number}", None) for number in range(32)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as holder:
        holder.stdin.write("BEGIN; INSERT INTO plants VALUES (7, '{}', 'me', now());\n")
        holder.stdin.flush()
        setup.tally.check(wait_until(lambda: setup.primary.sql(holds)), "a session holds an id")
        found = setup.ask(*plants)
        holder.stdin.close()  # and with it the transaction, which is undone
    alone = [(e.plant_id, a and a.error()) for e, a in found if not a or a.status != 200]
    setup.tally.check(alone == [(7, BUSY)], "the stuck id fails alone, 5004", alone)
    found += setup.ask(plants[7])
    setup.is_stored(found[-1:], "given free, it is stored")
    judge(setup.tally, [event for event, _ in found], setup.store, "a stuck id")


def connections_killed(setup: Setup) -> None:
    killed = 0
    with setup.load() as load:
        load.wait_told(500, START_S)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for pid in setup.primary.sessions()[:1]:
                setup.primary.sql(f"SELECT pg_terminate_backend({pid})")
                killed += 1
        back = load.all_served(BACK_S)
        load.stop()
    print(f"# {killed} connections killed")
    setup.tally.check(killed > 20, "connections were killed one by one", killed)
    setup.tally.check(back, "connections killed: all are served", load.told_each())
    setup.check(load, "connections killed")


def restarts(setup: Setup) -> None:
    """In good order, and killed; the same server comes back."""
    with setup.load() as load:
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            load.wait_told(500, START_S)
            if number == signal.SIGKILL:
                setup.primary.send(number)
            else:
                setup.primary.stop(number)
            setup.primary.start()
            name = signal.Signals(number).name
            back = load.all_served(BACK_S)
            sentence = f"restart by {name}: each client is served again"
            setup.tally.check(back, sentence, load.told_each())
        load.stop()
    setup.check(load, "restarts")


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


def disk_full(setup: Setup) -> None:
    """Full while it is used; there is room again later."""
    filler = setup.primary.data / "filler"

    def large(number: int) -> Iterator[Planned]:
        return ((number << 32 | i, os.urandom(8000).hex(), None) for i in range(10**6))

    ways = half_kept(setup.store, setup.service, CLIENTS)
    with Load(ways, large, again_s=AGAIN_S) as load:
        load.wait_told(100, START_S)
        with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        with contextlib.suppress(FileNotFoundError):
            full = wait_until(lambda: "53100" in setup.primary.log(), START_S)
            setup.tally.check(full, "the server has no room")
            filler.unlink()
        back = load.all_served(BACK_S)
        load.stop()
    setup.tally.check(back, "with room again, all are served", load.told_each())
    full = load.answers["503/5002"]
    setup.tally.check(full > 0, "a full disk: 503, error 5002", load.answers)
    setup.check(load, "a full disk", TRY_AGAIN | {"503/5002"})


def scenario(tally: Tally, arguments) -> None:
    with clusters(arguments.build, memory()) as made:
        cases = [failover, wait_cancelled, stuck_id]
        if arguments.long:
            cases += [standby_stopped, connections_killed, restarts]
        for case in cases:
            with tally.part(case.__name__):
                run_case(tally, made, case)
        if not arguments.long:
            return
        with tally.part("disk_full"):
            if os.geteuid() != 0:
                tally.skip("a full disk", "needs root, to mount one")
            else:
                run_case(tally, made, disk_full, on_small_disk)


if __name__ == "__main__":
    sys.exit(lib_faults.run_script(__doc__, scenario))
