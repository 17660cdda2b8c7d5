"""Goal: the page's commands for one standby work as they are written, from the first
copy to a lost primary that comes back.

usage: by_hand.py BUILD_DIR [--long]

Two machines: each has namespaces of its own, and copies of /etc, /run and /var.
"""

import subprocess
import sys

from lib_postgresql import lib_service
from documented import block
from lib_service import Tally, children_of, wait_until
from patroni import enter_namespaces, ip, make_switch
import lib_faults

MACHINE = r"""
set -e
mount -t tmpfs none /mnt
for place in etc var; do
	mkdir -p /mnt/$place/{upper,work}
	mount -t overlay none /$place \
		-o lowerdir=/$place,upperdir=/mnt/$place/upper,workdir=/mnt/$place/work
done
mount -t tmpfs -o mode=755 none /run
mount -t tmpfs -o mode=1777 none /dev/shm
rm -rf /etc/postgresql /var/lib/postgresql/*
mkdir -p /etc/postgresql
touch /mnt/made
exec sleep infinity
"""
VERSION = "V=$(ls /etc/postgresql)\n"  # as the reader's shell has it
PSQL = "runuser -u postgres -- psql "
NAMED = PSQL + "-c \"ALTER SYSTEM SET synchronous_standby_names = 'standby'\""
NOT_NAMED = PSQL + "-c \"ALTER SYSTEM SET synchronous_standby_names = ''\""
MADE = "primary=10.0.0.1"


class Machine:
    """With PostgreSQL installed and empty, as Debian leaves it."""

    def __init__(self, tally: Tally, number: int) -> None:
        self.tally, self.name = tally, f"machine {number}"
        own = ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--net", "--ipc", "--pid"]
        own += ["--fork", "--kill-child", "--mount-proc", "bash", "-c", MACHINE]
        self.holder = subprocess.Popen(own)
        wait_until(lambda: children_of(self.holder.pid) and not self.call("test -e /mnt/made").returncode)
        inside = str(children_of(self.holder.pid)[0])
        ip(f"link add link{number} type veth peer name eth0 netns {inside}")
        ip(f"link set link{number} master switch up")
        done = self.call(f"""ip link set lo up; ip addr add 10.0.0.{number}/24 dev eth0
            ip link set eth0 up; install -d -o postgres -m 2775 /run/postgresql
            cd /etc/ssl; openssl req -x509 -nodes -newkey rsa:2048 -subj /CN=x 2>/dev/null \
                -keyout private/ssl-cert-snakeoil.key -out certs/ssl-cert-snakeoil.pem
            chown postgres private private/*.key; chmod 600 private/*.key
            pg_createcluster --start $(ls /usr/lib/postgresql | sort -n | tail -1) main""")
        if done.returncode:
            raise RuntimeError(done)

    def call(self, script: str, timeout: float = 120) -> subprocess.CompletedProcess:
        inside = children_of(self.holder.pid)[0]
        enter = ["nsenter", "-t", inside, "--mount", "--net", "--ipc", "--pid"]
        return lib_service.run(*enter, "bash", "-ec", script, text=True, cwd="/", timeout=timeout)

    def page(self, beginning: str, old: str = "", new: str = "") -> str:
        """Run a block of the page, perhaps with another address."""
        done = self.call(VERSION + block(beginning).replace(old, new))
        self.tally.check(done.returncode == 0, f"{self.name}: {beginning}", done)
        return done.stdout

    def sql(self, sql: str) -> str:
        return self.call(f"{PSQL} -XAtq -v ON_ERROR_STOP=1 <<'END'\n{sql}\nEND\n").stdout.strip()

    def stores(self, number: int, waits: bool = False) -> None:
        """In time, or not: it waits for a standby."""
        script = f'{PSQL} -XAtqc "INSERT INTO stored VALUES ({number})"'
        done = self.call(f"timeout {5 if waits else 60} {script}")
        what = "waits" if waits else "is stored"
        self.tally.check((done.returncode == 124) == waits and done.returncode in (0, 124),
                         f"{self.name}: row {number} {what}", done)

    def has_standby(self) -> None:
        found = wait_until(lambda: self.sql("SELECT sync_state FROM pg_stat_replication") == "sync", 20)
        self.tally.check(found, f"{self.name}: its standby confirms")

    def crash(self) -> None:
        self.call(VERSION + "pg_ctlcluster $V main stop -m immediate")


def steps(one: Machine, two: Machine) -> None:
    one.sql("CREATE TABLE stored (id int)")
    for machine in one, two:
        machine.page("V=$(ls")
    one.page(PSQL + "-v ON_ERROR_STOP=1 \\\n    -c \"CREATE ROLE replicator")
    two.page(MADE)
    one.page(NAMED)
    one.has_standby()
    one.stores(1)
    # Lost, and not for long.
    two.crash()
    one.stores(2, waits=True)
    one.page(NOT_NAMED)
    one.stores(3)
    two.call(VERSION + "pg_ctlcluster $V main start")
    shows = PSQL + "-c \"SELECT application_name, state"
    back = wait_until(lambda: "streaming" in one.call(block(shows)).stdout, 60)
    one.tally.check(back, "the standby comes back by its slot")
    one.page(NAMED)
    one.has_standby()
    one.stores(4)
    # Away for too long.
    two.crash()
    one.sql("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'; SELECT pg_reload_conf();" + "".join(
        "SELECT pg_logical_emit_message(false, '', 'x'), pg_switch_wal(); CHECKPOINT;" for _ in range(4)))
    one.tally.check("lost" in one.page(shows), "the standby's slot is lost")
    one.page(PSQL + "-v ON_ERROR_STOP=1 -c \"SELECT pg_drop_replication_slot")
    two.page(MADE)
    one.has_standby()
    one.stores(5)
    # The primary is lost; then it becomes the standby.
    one.crash()
    two.page("pg_ctlcluster $V main promote")
    two.stores(6)
    one.page(MADE, "10.0.0.1", "10.0.0.2")
    two.page(NAMED)
    two.has_standby()
    two.stores(7)
    rows = one.sql("SELECT string_agg(id::text, ' ' ORDER BY id) FROM stored")
    one.tally.check(rows == "1 2 3 4 5 6 7", "the old primary has what was stored", rows)


def scenario(tally: Tally, arguments) -> None:
    if tally.lacks("a standby made by hand", "root", "mounts", "a network of its own", "pg_ctlcluster"):
        return
    enter_namespaces()
    make_switch()
    machines = []
    try:
        for number in (1, 2):
            machines.append(Machine(tally, number))
        steps(*machines)
    finally:
        for machine in machines:
            machine.holder.kill()  # --kill-child: and all that runs inside
            machine.holder.wait()


if __name__ == "__main__":
    sys.exit(lib_faults.run_script(__doc__, scenario))
