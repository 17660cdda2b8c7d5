#!/usr/bin/env python3
"""Goal: the page's commands for one standby work as they are written, from the first
copy to a lost primary that comes back, and to another server.

usage: by_hand.py BUILD_DIR [--long]
"""

import sys

from lib_postgresql import lib_service  # noqa: F401 - finds the rest
from documented import block
from lib_machines import PSQL, Machine, enter_namespaces, machines
from lib_service import Tally, wait_until
import lib_faults

VERSION = "V=$(ls /etc/postgresql)\n"  # as the reader's shell has it
NAMED = PSQL + "-c \"ALTER SYSTEM SET synchronous_standby_names = 'standby'\""
NOT_NAMED = PSQL + "-c \"ALTER SYSTEM SET synchronous_standby_names = ''\""
MADE = "primary=10.0.0.1"
SHOWS = PSQL + "-c \"SELECT application_name, state"


class Server(Machine):
    def sql(self, sql: str) -> str:
        return self.call(f"{PSQL} -XAtq -v ON_ERROR_STOP=1 plants <<'END'\n{sql}\nEND\n").stdout.strip()

    def stores(self, number: int, waits: bool = False) -> None:
        """In time, or not: it waits for a standby."""
        script = f"""{PSQL} -XAtqc "INSERT INTO plants VALUES ({number}, '', '', now())" plants"""
        done = self.call(f"timeout {5 if waits else 60} {script}")
        what = "waits" if waits else "is stored"
        self.tally.check((done.returncode == 124) == waits and done.returncode in (0, 124),
                         f"{self.name}: row {number} {what}", done)

    def has(self, rows: str, sentence: str) -> None:
        found = self.sql("SELECT string_agg(id::text, ' ' ORDER BY id) FROM plants")
        self.tally.check(found == rows, sentence, found)

    def has_standby(self) -> None:
        found = wait_until(lambda: self.sql("SELECT sync_state FROM pg_stat_replication") == "sync", 20)
        self.tally.check(found, f"{self.name}: its standby confirms")

    def crash(self) -> None:
        self.call(VERSION + "pg_ctlcluster $V main stop -m immediate")

    def do(self, beginning: str, *changes: tuple[str, str]) -> str:
        return self.page(beginning, *changes, before=VERSION)


def steps(one: Server, two: Server) -> None:
    for beginning in "runuser -u postgres -- createdb", "(plant-store schema;":
        one.do(beginning)
    for server in one, two:
        server.do("V=$(ls")
    one.do(PSQL + "-v ON_ERROR_STOP=1 \\\n    -c \"CREATE ROLE replicator")
    two.do(MADE)
    one.do(NAMED)
    one.has_standby()
    one.stores(1)
    # Lost, and not for long.
    two.crash()
    one.stores(2, waits=True)
    one.do(NOT_NAMED)
    one.stores(3)
    two.call(VERSION + "pg_ctlcluster $V main start")
    back = wait_until(lambda: "streaming" in one.call(block(SHOWS)).stdout, 60)
    one.tally.check(back, "the standby comes back by its slot")
    one.do(NAMED)
    one.has_standby()
    one.stores(4)
    # Away for too long.
    two.crash()
    one.sql("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'; SELECT pg_reload_conf();" + "".join(
        "SELECT pg_logical_emit_message(false, '', 'x'), pg_switch_wal(); CHECKPOINT;" for _ in range(4)))
    one.tally.check("lost" in one.do(SHOWS), "the standby's slot is lost")
    one.do(PSQL + "-v ON_ERROR_STOP=1 -c \"SELECT pg_drop_replication_slot")
    two.do(MADE)
    one.has_standby()
    one.stores(5)
    # The primary is lost; then it becomes the standby.
    one.crash()
    two.do("pg_ctlcluster $V main promote")
    two.stores(6)
    one.do(MADE, ("10.0.0.1", "10.0.0.2"))
    two.do(NAMED)
    two.has_standby()
    two.stores(7)
    one.has("1 2 3 4 5 6 7", "the old primary has what was stored")
    # Another server, as of a later Debian.
    two.do("(umask 077; runuser -u postgres -- pg_dumpall")
    one.call(f"{VERSION} pg_dropcluster --stop $V main; pg_createcluster --start $V main")
    files = two.call("base64 -w0 roles.sql; echo; base64 -w0 plants.dump").stdout.split("\n")
    for name, file in zip(("roles.sql", "plants.dump"), files):
        one.call(f"base64 -d >{name}", input=file)
    one.do("runuser -u postgres -- psql -v ON_ERROR_STOP=1 <roles.sql")
    one.has("1 2 3 4 5 6 7", "the restored server has what was stored")
    one.stores(8)


def scenario(tally: Tally, arguments) -> None:
    if tally.lacks("a standby made by hand", "root", "mounts", "a network of its own", "pg_ctlcluster"):
        return
    enter_namespaces()
    with machines(tally, arguments.build, 2, Server) as (one, two):
        steps(one, two)


if __name__ == "__main__":
    sys.exit(lib_faults.run_script(__doc__, scenario))
