"""Goal: whoever asks a database with a cursor gets every plant, in order, once.

usage: feed.py BUILD_DIR [--long]
"""

import contextlib
import functools
import itertools
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator

from lib_postgresql import (
    AGAIN_S, BIN, DATABASE, OWNER, START_S, TRY_AGAIN, Clusters, Consumer, Server, Session,
    TableStore, add_feed, check_load, clusters, hosts, run, table_store,
)
import lib_faults
from history import Event
from lib_service import Responder, Tally, memory, new_plant, responder, wait_until
from load import Load, half_kept, mixed_plan

OK, DATA, AWAY, CONFIG = 0, 65, 75, 78
COUNT = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
CANCEL = ("SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
          " WHERE wait_event = 'SyncRep' AND query LIKE 'INSERT%'")
BEGUN = ("SELECT 1 FROM pg_stat_activity"
         " WHERE state = 'idle' AND query LIKE 'SELECT system_identifier%'")
LONG_S = 600.0
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"


def put(store: TableStore, *ids: int) -> None:
    """Each in a transaction of its own."""
    for number in ids:
        store.command("import", "--by", "test", input=new_plant(number, f"p{number}"), check=True)


@contextlib.contextmanager
def stored(made: Clusters) -> Iterator[tuple[Server, TableStore]]:
    with made.running(made.new()) as server, table_store(made.build, server) as store:
        yield server, store


# --- One server --------------------------------------------------------------


def check_order(tally: Tally, made: Clusters) -> None:
    with stored(made) as (server, store):
        consumer = Consumer(store)
        put(store, 9, 3)
        consumer.refused(tally, CONFIG, "schema --feed", "without the column")
        follow = store.command("export", "--follow", text=True)
        tally.check(follow.returncode == CONFIG, "no --follow without the column", follow)
        tally.check(store.command("export").stdout.count(b"\n") == 2, "but export goes on")
        add_feed(store, server)
        put(store, 7, 1)
        consumer.gets(tally, [3, 9, 7, 1], "old plants come by id, new ones as they were stored")
        consumer.gets(tally, [], "a second poll has nothing")
        lines = store.command("export", "--since", "2000-01-01T00:00:00Z").stdout.splitlines()
        found = [json.loads(line)["id"] for line in lines]
        tally.check(found == consumer.ids, "an export without a cursor has this order", found)
        put(store, *range(20, 14, -1))
        tally.check(consumer.lag() == 6, "--count prints the lag")
        consumer.poll("--limit", "2")
        consumer.poll("--by", "nobody")
        tally.check(consumer.ids[4:] == [20, 19], "--limit, --by", consumer.ids)
        consumer.gets(tally, [], "what --by left out is behind the cursor")
        body = b"\n".join(new_plant(i, "x") for i in range(-1, -402, -1))
        store.command("import", input=body, check=True)
        consumer.gets(tally, list(range(-401, 0)), "some hundred of one transaction")
        journal = Consumer(store, name="journal")
        store.command("init", store.root / "file", check=True)
        journal.poll("--dir", store.root / "file")
        journal.refused(tally, CONFIG, "journal", "the cursor of a journal")
        server.sql("GRANT SELECT ON plants TO PUBLIC; CREATE ROLE reader LOGIN PASSWORD 'x';"
                   " GRANT SELECT ON plants_schema TO reader")
        store.database = server.conninfo(user="reader", password="x")
        put_by = Consumer(store, name="reader")
        put_by.poll()
        tally.check(len(put_by.ids) == 411, "a role that may only read can take over")


def check_held(tally: Tally, made: Clusters) -> None:
    """Rows that are not yet in order."""
    insert = "INSERT INTO plants SELECT 5, '{\"id\":5,\"name\":\"p\"}', 'x', now()"
    with stored(made) as (server, store):
        add_feed(store, server)
        consumer = Consumer(store)
        for where in DATABASE, OWNER:
            consumer.poll()
            first = len(consumer.ids)
            put(store, 50 + first)
            with Session(**server.superuser(where)) as other:
                begun = insert if where == DATABASE else "SELECT pg_current_xact_id()"
                other.sql(f"BEGIN; {begun}")
                put(store, 100 + first, 10 + first)
                consumer.gets(tally, [50 + first], f"{where}: an older one holds the rest back")
                tally.check(consumer.lag() == 2, f"{where}: the lag says so")
                other.sql("COMMIT")
            more = [5] * (where == DATABASE) + [100 + first, 10 + first]
            consumer.gets(tally, more, f"{where}: then all come, in the order of the store")
        with consumer.following() as process:
            put(store, 1000)
            tally.check(wait_until(lambda: 1000 in consumer.read()), "a follower is told")
        tally.check(process.returncode == OK, "and ends with 0 on SIGTERM", process.returncode)
        consumer.gets(tally, [], "with the cursor behind it")
        consumer.place = None
        with consumer.following():
            numbers = itertools.count(2000)
            wait_until(lambda: put(store, next(numbers)) or consumer.read())
            put(store, 3000)
            wait_until(lambda: 3000 in consumer.read())
            found = consumer.read()
        well = found == list(range(found[0], next(numbers))) + [3000] and found[0] >= 2000
        tally.check(well, "without a cursor it begins at the end, and misses nothing", found)
        with Session(**server.superuser()) as other:
            other.sql(f"BEGIN; {insert.replace('5', '6')}")
            with consumer.following():
                wait_until(lambda: server.sql(BEGUN))
                other.sql("COMMIT")
                wait_until(lambda: consumer.read())
                found = consumer.read()
        tally.check(found == [6], "nor what was open when it began", found)


def check_restores(tally: Tally, made: Clusters, other: Clusters) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(made.running(made.new()))
        store = stack.enter_context(table_store(made.build, server))
        add_feed(store, server)
        server.sql("SELECT pg_current_xact_id();\n" * 3000)
        put(store, 3, 2)
        old, lost = Consumer(store), Consumer(store, name="lost")
        old.poll()
        server.stop()
        backup = made.new()
        shutil.rmtree(backup.data)
        run("cp", "-a", server.data, backup.data)
        server.start()
        put(store, 1)
        lost.poll()
        where = ["-h", server.folder, "-p", server.port, "-U", OWNER, DATABASE]
        dump = run(BIN / "pg_dump", "-O", "-x", *where)
        with made.running(backup):
            store.database, live = backup.conninfo(), store.database
            put(store, 8)
            old.gets(tally, [8], "an older copy: a cursor of what it has goes on")
            lost.refused(tally, DATA, "restored", "an older copy without the cursor's row")
        store.database = live
        lost.gets(tally, [], "the cursor is fine where it was made")
        server.sql("UPDATE plants SET plant = replace(plant, 'p1', 'p0') WHERE id = 1")
        lost.refused(tally, DATA, "restored", "another plant in the cursor's row")
        fresh = stack.enter_context(other.running(other.new()))
        fresh.sql("DROP TABLE plants, plants_schema CASCADE")
        fresh.sql("\n".join(x for x in dump.splitlines() if "restrict" not in x))
        roles = run(made.build / "plant-store", "schema", "--roles")
        fresh.sql(roles.replace("CREATE ROLE", "-- "))
        store.database, store.server = fresh.conninfo(), fresh
        new = Consumer(store, name="new")
        new.refused(tally, CONFIG, "schema --feed", "a dump in a fresh cluster, no cursor")
        add_feed(store, fresh)
        put(store, 0)
        new.gets(tally, [1, 2, 3, 0], "numbered anew, as the message says, all come")
        old.refused(tally, CONFIG, "is from another system", "a cursor of another cluster")
        add_feed(store, fresh)
        new.refused(tally, DATA, "renumbered", "numbered anew once more")


# --- A standby ---------------------------------------------------------------


def check_standby(tally: Tally, made: Clusters) -> None:
    """Its standby is gone for a while; a row can be seen, and be on the primary alone."""
    with made.pair() as (primary, standby), table_store(
            made.build, primary, hosts(primary, standby)) as store:
        add_feed(store, primary)
        put(store, 1)
        consumer = Consumer(store)
        consumer.poll()
        standby.send(signal.SIGSTOP)
        insert = "INSERT INTO plants SELECT 2, '{\"id\":2,\"name\":\"p\"}', 'x', now()"
        with Session(**primary.superuser()) as other:
            other.process.stdin.write(insert + ";\n")
            other.process.stdin.flush()
            wait_until(lambda: primary.sql(COUNT) == [["1"]])
            consumer.gets(tally, [], "a commit that waits is not handed out")
            primary.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
                        " WHERE wait_event = 'SyncRep'")
            wait_until(lambda: primary.sql(COUNT) == [["0"]])
            for _ in range(3):
                consumer.refused(tally, AWAY, "", "nor one whose wait was cancelled")
            waiting = int(primary.sql(COUNT)[0][0])
            tally.check(waiting <= 1, "polls do not take all sessions", waiting)
            tally.check(consumer.lag() == 1, "the lag says so")
            standby.send(signal.SIGCONT)
            wait_until(lambda: primary.sql(COUNT) == [["0"]])
        consumer.gets(tally, [2], "then it comes")
        with consumer.following(), Session(**primary.superuser()) as other:
            wait_until(lambda: primary.sql(BEGUN))
            standby.send(signal.SIGSTOP)
            other.process.stdin.write(insert.replace("2", "3") + ";\n")
            other.process.stdin.flush()
            wait_until(lambda: primary.sql(CANCEL))
            said = store.root / "said"
            wait_until(lambda: said.read_text() or consumer.read())
            found = consumer.read()
            standby.send(signal.SIGCONT)
            wait_until(lambda: consumer.read())
        tally.check(found == [] and consumer.ids[-1] == 3, "a follower waits for it, too", found)


def harm(services: list[Responder], primary: Server, seconds: float) -> None:
    """Kill services, and now and then the server; each comes back."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(random.uniform(0, 3))
        if random.random() < 0.1:
            primary.send(signal.SIGKILL)
            primary.start()
        elif worker := random.choice(services).worker():
            os.kill(worker, signal.SIGKILL)


def check_load_and_kills(tally: Tally, made: Clusters, long: bool) -> None:
    """Two services and an import, clocks apart; all is killed; a failover."""
    clock = {"LD_PRELOAD": FAKETIME, "FAKETIME": "-0.5s"} if long else {}
    with contextlib.ExitStack() as stack:
        primary, standby = stack.enter_context(made.pair())
        stores = [stack.enter_context(table_store(made.build, primary, hosts(primary, standby)))
                  for _ in range(2)]
        stores[0].order = "tx, id"
        services = [stack.enter_context(responder(store, watched=long, **more))
                    for store, more in zip(stores, ({}, clock))]
        consumer = Consumer(stores[0], primary)
        ways = [way for store, service in zip(stores, services)
                for way in half_kept(store, service, 4)]
        ended = threading.Event()

        def imports() -> None:
            """With times of long ago, as of a clock that is behind."""
            for number in range(10**9, 10**9 + 10**6, 50):
                head = '{"at":"2000-01-01T00:00:00.000Z","by":"i","plant":{"name":"n","id":'
                lines = [f"{head}{i}}}}}" for i in range(number, number + 50)]
                if ended.wait(0.2 if long else 0):
                    return
                began = time.monotonic()
                done = stores[1].command("import", "--full", input="\n".join(lines), text=True)
                outcome = "maybe" if done.returncode else "created_or_same"
                imported.extend(Event(began, time.monotonic(), i, ("n", None), outcome)
                                for i in range(number, number + 50))

        imported: list[Event] = []
        thread = threading.Thread(target=imports)
        with Load(ways, functools.partial(mixed_plan, contested=1000), again_s=AGAIN_S,
                  pause_s=0.02 if long else 0) as load:
            thread.start()
            if long:
                harmed = threading.Event()
                lives = iter(harmed.is_set, True)
                dying = threading.Thread(target=consumer.die_at_random, args=(tally, lives))
                dying.start()
                # Here, as a server ends with the thread that started it (--pdeathsig).
                harm(services, primary, LONG_S)
                harmed.set()
                dying.join()
            else:
                consumer.die_at_random(tally, range(10))
            follower = stack.enter_context(contextlib.ExitStack())
            # One that starts without a server ends with 75.
            served = wait_until(lambda: consumer.poll().returncode == 0)
            tally.check(served, "a poll succeeds after the kills",
                        (primary.process.poll(), primary.log()[-2000:]))
            process = follower.enter_context(consumer.following())
            wait_until(consumer.read)
            load.wait_told(300, START_S)
            primary.send(signal.SIGKILL)
            standby.promote()
            stores[0].server = standby
            load.all_served(START_S)
            load.wait_told(300, START_S)
            load.stop()
            ended.set()
            thread.join()
        events = check_load(tally, load, stores[0], services[0].socket_path, "failover",
                            TRY_AGAIN | ({"lost"} if long else set()), imported)
        consumer.await_all(standby)
        tally.check(process.poll() is None, "the follower goes on after a failover",
                    (stores[0].root / "said").read_text()[-1000:])
        follower.close()
        consumer.check(tally, standby, events)


def scenario(tally: Tally, arguments) -> None:
    place = memory()
    with clusters(arguments.build, place) as made, clusters(arguments.build, place) as other:
        for check in check_order, check_held, check_standby:
            with tally.part(check.__name__):
                check(tally, made)
        with tally.part("restores"):
            check_restores(tally, made, other)
        with tally.part("load"):
            check_load_and_kills(tally, made, arguments.long)


if __name__ == "__main__":
    sys.exit(lib_faults.run_script(__doc__, scenario))
