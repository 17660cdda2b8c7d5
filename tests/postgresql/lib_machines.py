"""Machines on which a page's commands are run as they are written.

Each has namespaces of its own, and copies of /etc, /run and /var, with PostgreSQL
as Debian leaves it.  All of them end with the test.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import lib_service
from lib_service import Tally, children_of, wait_until
from documented import block

# $1 is the folder of our programs.
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
mkdir -p /etc/postgresql /mnt/bin
ln -s "$1/plant-store" /mnt/bin
cat >/mnt/bin/systemctl <<'END'
#!/bin/bash
# As the units have it: start or stop UNIT...
for unit in "${@:2}"; do
	file=/lib/systemd/system/$unit.service
	pkill -x "$unit"
	while pgrep -x "$unit" >/dev/null; do sleep 0.1; done
	[[ $1 != stop ]] || continue
	set -a
	eval "$(sed -n 's/^Environment=//p' $file)"
	[[ ! -f /etc/default/$unit ]] || . /etc/default/$unit
	user=$(sed -n 's/^User=//p' $file)
	export HOME=$(getent passwd $user | cut -d: -f6)
	eval "setsid setpriv --reuid=$user --regid=$user --clear-groups $(sed -n 's/^ExecStart=//p' $file)" \
		>>/mnt/$unit.log 2>&1 </dev/null &
done
exit 0
END
chmod 755 /mnt/bin/systemctl
ip link set lo up
ip addr add "$2/24" dev eth0
ip link set eth0 up
install -d -o postgres -m 2775 /run/postgresql
cd /etc/ssl
openssl req -x509 -nodes -newkey rsa:2048 -subj /CN=x \
	-keyout private/ssl-cert-snakeoil.key -out certs/ssl-cert-snakeoil.pem
chown postgres private private/*.key
chmod 600 private/*.key
pg_createcluster --start $(ls /usr/lib/postgresql | sort -n | tail -1) main
touch /mnt/made
sleep infinity & wait  # and reap what is left to the first process
"""
PSQL = "runuser -u postgres -- psql "
INSIDE = "PLANT_STORE_TEST_INSIDE"  # the namespaces


def enter_namespaces() -> None:
    """Begin again with a network of its own, which has a switch."""
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--net", "--", sys.executable, *sys.argv])
    for command in ("link set lo up", "link add switch type bridge",
                    "addr add 10.0.0.254/24 dev switch", "link set switch up"):
        ip(command)


def ip(command: str) -> None:
    lib_service.run("ip", *command.split(), check=True)


class Machine:
    def __init__(self, tally: Tally, build: object, number: int) -> None:
        self.tally, self.number, self.name = tally, number, f"node{number}"
        self.address = f"10.0.0.{number}"
        own = ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--net", "--ipc", "--pid"]
        own += ["--fork", "--kill-child", "--mount-proc", "bash", "-c",
                f"until ip link show eth0; do sleep 0.1; done\n{MACHINE}", "bash"]
        self.holder = subprocess.Popen([*own, str(build), self.address],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        wait_until(lambda: children_of(self.holder.pid))
        self.inside = str(children_of(self.holder.pid)[0])
        here = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{self.inside}/ns/net") != here)
        ip(f"link add link{number} type veth peer name eth0 netns {self.inside}")
        ip(f"link set link{number} master switch up")
        made = wait_until(lambda: self.holder.poll() or not self.call("test -e /mnt/made").returncode)
        if not made or self.holder.poll():
            raise RuntimeError(self.holder.stderr.read())

    def call(self, script: str, **options: object) -> subprocess.CompletedProcess:
        """What root does there."""
        enter = ["nsenter", "-t", self.inside, "--mount", "--net", "--ipc", "--pid"]
        # A new session: psql shall not ask at a terminal.
        options = {"text": True, "start_new_session": True, "timeout": 180} | options
        path = "cd /mnt; export PATH=/mnt/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
        return lib_service.run(*enter, "bash", "-ec", path + script, **options)

    def page(self, beginning: str, *changes: tuple[str, str], before: str = "",
             **options: object) -> str:
        """Run a block of the page, with changes; what it prints."""
        script = block(beginning)
        for old, new in changes:
            if old not in script:
                raise ValueError(f"{beginning}: has no {old}")
            script = script.replace(old, new)
        done = self.call(before + script, **options)
        self.tally.check(done.returncode == 0, f"{self.name}: {beginning}", done)
        return done.stdout

    def end(self) -> None:
        self.holder.kill()  # --kill-child: and all that runs inside
        self.holder.wait()
        self.holder.stderr.close()


@contextlib.contextmanager
def machines(tally: Tally, build: object, count: int, kind: type = Machine) -> Iterator[list]:
    made = []
    try:
        for number in range(1, count + 1):
            made.append(kind(tally, build, number))
        yield made
    finally:
        for machine in made:
            machine.end()
