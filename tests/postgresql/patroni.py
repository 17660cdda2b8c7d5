"""Goal: three nodes under Patroni and etcd lose, double and invent no plant.

usage: patroni.py BUILD_DIR [--long]

With deploy/postgresql/patroni.yml.  Each node has a network namespace of its own,
so that its addresses are those of the file, and a link that can be cut.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator

from lib_postgresql import (
    BIN, DATABASE, OWNER, PASSWORD, ROLE, START_S, Consumer, Setup, give, no_password, psql, run,
    schema, table_store, unprivileged,
)
import lib_faults
from lib_service import TOP, Responder, Tally, responder, start, stop_process, wait_until

CONFIG = TOP / "deploy" / "postgresql" / "patroni.yml"
BACK_S = 90.0  # until each client is served again; ttl is 20 s
INSIDE = "PLANT_STORE_TEST_INSIDE"  # the namespaces


def is_safe() -> bool:
    """Whether this Patroni is one that the page allows for three nodes."""
    with contextlib.suppress(FileNotFoundError):
        words = subprocess.run(["patroni", "--version"], capture_output=True, text=True).stdout
        return tuple(map(int, words.split()[-1].split("."))) >= (3, 1, 2)
    return False


SAFE = is_safe()


def enter_namespaces() -> None:
    """Begin again with a network of its own, and shared memory that ends with the
    last process."""
    if INSIDE in os.environ:
        return
    own = ["unshare", "--net", "--ipc", "--"]
    os.environ[INSIDE] = "1"
    os.execvp(own[0], [*own, sys.executable, *sys.argv])


def make_switch() -> None:
    for command in ("link set lo up", "link add switch type bridge",
                    "addr add 10.0.0.254/24 dev switch", "link set switch up"):
        ip(command)


def ip(command: str) -> None:
    run("ip", *command.split())


class Node:
    """A machine: a network namespace, and what runs in it."""

    def __init__(self, number: int, folder: pathlib.Path) -> None:
        self.number = number
        self.name = f"node{number}"
        self.address = f"10.0.0.{number}"
        self.folder = folder / self.name
        self.folder.mkdir()
        give(self.folder)
        self.etcd: subprocess.Popen | None = None
        self.patroni: subprocess.Popen | None = None
        hold = ["setpriv", "--pdeathsig=KILL", "unshare", "--net", "sleep", "infinity"]
        self.holder = subprocess.Popen(hold)
        here = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{self.holder.pid}/ns/net") != here)
        ip(f"link add link{number} type veth peer name eth0 netns {self.holder.pid}")
        ip(f"link set link{number} master switch up")
        for command in ("link set lo up", f"addr add {self.address}/24 dev eth0",
                        "link set eth0 up"):
            run(*self.inside("ip", *command.split()))

    def inside(self, *command: object) -> list[str]:
        return ["/usr/bin/nsenter", "-t", str(self.holder.pid), "-n", *map(str, command)]

    def start(self, *command: object) -> subprocess.Popen:
        return start(self.inside(*unprivileged(*command)), self.folder / f"{command[0]}.log",
                     cwd="/", env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"})

    def start_etcd(self) -> None:
        others = ",".join(f"node{i}=http://10.0.0.{i}:2380" for i in (1, 2, 3))
        client, peer = f"http://{self.address}:2379", f"http://{self.address}:2380"
        self.etcd = self.start(
            "etcd", "--name", self.name, "--data-dir", self.folder / "etcd",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", others, *["--enable-v2"] * (not SAFE), "--logger", "zap",
            "--log-level", "error")

    def start_patroni(self) -> None:
        self.patroni = self.start("patroni", self.folder / "patroni.yml")

    def write_config(self, etc: pathlib.Path) -> None:
        """The published file, with the values of this node and this place."""
        text = CONFIG.read_text()
        head, tail = text.split("# --- all nodes ---")
        head = head.replace("node1", self.name).replace("10.0.0.1:", f"{self.address}:")
        head = head.replace("/var/lib/postgresql/plants", str(self.folder / "data"))
        head = re.sub(r"bin_dir: .*", f"bin_dir: {BIN}", head)
        # No Unix socket where those of the machine are.
        tail = tail.replace(
            "  parameters:\n    ssl:",
            f"  parameters:\n    unix_socket_directories: {self.folder}\n    ssl:", 1)
        text = (head + tail).replace("/etc/patroni", str(etc))
        if not SAFE:  # its etcd3 loses plants when a partition has healed
            text = text.replace("\netcd3:\n", "\netcd:\n")
        text = text.replace("CHANGE-", PASSWORD)
        path = self.folder / "patroni.yml"
        path.write_text(text)
        path.chmod(0o600)
        give(path)

    def members(self) -> list[str]:
        """The roles and states of all nodes, as this one's Patroni knows them."""
        members = self.patroni_says("cluster").get("members", [])
        # As Patroni 4 calls a standby that runs.
        return sorted(f"{member['role']} {member['state']}".replace("streaming", "running")
                      for member in members)

    def is_leader(self) -> bool:
        said = self.patroni_says("patroni")
        return said.get("role") in ("master", "primary") and said.get("state") == "running"

    def patroni_says(self, what: str) -> dict:
        with contextlib.suppress(OSError, ValueError):
            url = f"http://{self.address}:8008/{what}"
            with urllib.request.urlopen(url, timeout=1) as answer:
                return json.load(answer)
        return {}

    def kill_database(self) -> None:
        """Patroni and PostgreSQL at once, as if the machine had lost its power."""
        self.patroni.send_signal(signal.SIGSTOP)
        with contextlib.suppress(OSError):
            lines = (self.folder / "data" / "postmaster.pid").read_text().split("\n")
            os.kill(int(lines[0]), signal.SIGKILL)
        self.patroni.kill()
        self.patroni.wait()

    def end(self) -> None:
        if self.patroni is not None and self.patroni.poll() is None:
            self.kill_database()
        for process in (self.etcd, self.holder):
            if process is not None:
                stop_process(process)


def make_certificates(etc: pathlib.Path) -> None:
    """An authority, and one certificate for all nodes' addresses."""
    make = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-days", "2"]
    make += ["-pkeyopt", "ec_paramgen_curve:prime256v1"]
    run(*make, "-subj", "/CN=plants", "-keyout", etc / "ca.key", "-out", etc / "ca.pem")
    names = ",".join(f"IP:10.0.0.{number}" for number in (1, 2, 3))
    run(*make, "-subj", "/CN=node", "-addext", f"subjectAltName={names}",
        "-addext", "basicConstraints=critical,CA:FALSE",
        "-CA", etc / "ca.pem", "-CAkey", etc / "ca.key",
        "-keyout", etc / "node.key", "-out", etc / "node.pem")
    give(etc / "node.key")


class Cluster:
    """Three nodes; as `server`, the leader's SQL for a TableStore."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.etc = folder / "etc"
        self.etc.mkdir()
        make_certificates(self.etc)
        self.nodes = [Node(number, folder) for number in (1, 2, 3)]

    def start(self) -> None:
        for node in self.nodes:
            node.write_config(self.etc)
            node.start_etcd()
        for node in self.nodes:
            node.start_patroni()
        if not self.wait_whole(2 * START_S):
            raise RuntimeError(f"no cluster: {[n.members() for n in self.nodes]}")

    def wait_whole(self, seconds: float = BACK_S) -> bool:
        """A leader, a standby that may follow it, and one more.

        That a standby confirms is not enough: Patroni promotes the one that it
        has chosen, and a new leader has chosen none for some seconds.
        """
        wanted = ["leader running", "replica running", "sync_standby running"]

        def is_whole() -> bool:
            if any(node.patroni.poll() is not None for node in self.nodes):
                return True  # for good
            return all(node.members() == wanted for node in self.nodes)

        return wait_until(is_whole, seconds) and self.nodes[0].members() == wanted

    def leader(self) -> Node:
        wait_until(lambda: any(n.is_leader() for n in self.nodes))
        return next(node for node in self.nodes if node.is_leader())

    def conninfo(self, user: str, password: str, *nodes: Node, **options: str) -> dict:
        where = {"host": ",".join(node.address for node in nodes or self.nodes)}
        where |= {"user": user, "password": password, "dbname": DATABASE}
        where |= {"sslmode": "verify-full", "sslrootcert": f"{self.etc}/ca.pem"}
        return where | {"target_session_attrs": "read-write"} | options

    def sql(self, sql: str, **options: str) -> list[list[str]]:
        where = self.conninfo(OWNER, f"{PASSWORD}superuser", **options)
        return psql(sql, connect_timeout=2, **where)

    def has_database(self) -> bool:
        """On every node: one that has it not yet would refuse, not pass on."""
        with contextlib.suppress(RuntimeError):
            for node in self.nodes:
                self.sql("SELECT 1", host=node.address, target_session_attrs="any")
            return True
        return False

    def service_string(self, *nodes: Node) -> str:
        where = self.conninfo(ROLE, PASSWORD, *nodes)
        return " ".join(f"{name}={value}" for name, value in where.items())


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="plant-store-patroni-") as root:
        os.chmod(root, 0o755)
        made = Cluster(pathlib.Path(root))
        try:
            made.start()
            yield made
        except BaseException:
            for node in made.nodes:
                log = (node.folder / "patroni.log").read_text(errors="replace")
                print(f"# {node.name}: ...{log[-1500:]}", flush=True)
            raise
        finally:
            for node in made.nodes:
                node.end()


# --- The cases ---------------------------------------------------------------


@dataclasses.dataclass
class Nodes(Setup):
    """A cluster, and a service outside of its nodes."""

    BACK_S = BACK_S

    made: Cluster


def leader_changes(setup: Nodes, what: str, first: int, change: Callable[[Node], None]) -> Node:
    """Under load; the old leader."""
    old = setup.made.leader()
    setup.under_load(what, setup.mixed(first), lambda _: change(old))
    setup.tally.check(setup.made.leader() is not old, f"{what}: there is another leader")
    return old


def leader_killed(setup: Nodes) -> None:
    lost = leader_changes(setup, "the leader is killed", 1 << 50, Node.kill_database)
    lost.start_patroni()
    setup.tally.check(setup.made.wait_whole(), "the lost leader comes back as a standby")


def switchover(setup: Nodes) -> None:
    def switch(old: Node) -> None:
        request = urllib.request.Request(
            f"http://{old.address}:8008/switchover", json.dumps({"leader": old.name}).encode(),
            {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=START_S) as answer:
            print(f"# {answer.read().decode()}")

    leader_changes(setup, "a switchover", 1 << 51, switch)
    setup.tally.check(setup.made.wait_whole(), "a switchover: three nodes again")


def partition(setup: Nodes) -> None:
    """The leader alone on one side, with clients; the other nodes on the other."""
    tally, made = setup.tally, setup.made
    cut = made.leader()
    others = [node for node in made.nodes if node is not cut]
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(table_store(setup.store.build, made, made.service_string()))
        home = str(made.etc)
        with responder(store, watched=False, tracer=cut.inside(), HOME=home) as inside:
            with setup.mixed(1 << 52, (store, inside)) as load:
                load.wait_told(2000, START_S)
                ip(f"link set link{cut.number} down")
                began = time.monotonic()
                new = wait_until(lambda: any(n.is_leader() for n in others), BACK_S)
                before = load.told_each()
                outside = slice(setup.CLIENTS)
                served = wait_until(
                    lambda: all(map(int.__gt__, load.told_each()[outside],
                                    before[outside])), BACK_S,
                )
                after = load.told_each()
                ip(f"link set link{cut.number} up")
                healed = time.monotonic()
                back = load.all_served(BACK_S)
                load.stop()
            print_log(inside, "the cut side's service")
            no_password(tally, [inside.log()], "the log of the cut side's service")
        inside.check_end(tally)
    tally.check(new, "a partition: the other side has a new leader")
    tally.check(served, "a partition: the other side's clients are served", after)
    well = before[setup.CLIENTS:] == after[setup.CLIENTS:]
    tally.check(well, "a partition: the old leader confirms nothing", after)
    tally.check(back, "healed: each client on both sides is served again")
    told = sum(began < e.end < healed and e.outcome == "created_or_same" for e in load.events)
    print(f"# cut for {healed - began:.0f} s: {told} answers 200 on the other side")
    setup.check(load, "a partition")
    tally.check(made.wait_whole(), "healed: three nodes again")


def patroni_killed(setup: Nodes) -> None:
    """Patroni alone, on the leader, as for want of memory: the standby stays named."""
    made, leader, check = setup.made, setup.made.leader(), setup.tally.check

    def names() -> str:
        return made.sql("SHOW synchronous_standby_names")[0][0]

    before = names()
    with setup.mixed(1 << 53) as load:
        load.wait_told(500, START_S)
        leader.patroni.kill()
        leader.patroni.wait()
        time.sleep(1)
        leader.start_patroni()
        wait_until(leader.is_leader, START_S)
        time.sleep(12)  # two of Patroni's rounds
        after = names()
        load.stop()
    setup.check(load, "Patroni alone is killed")
    if SAFE:
        check(after == before, "Patroni alone is killed: the standby is named", after)
    else:  # why the page requires another version
        told = "synchronous_standby_names is '*'" in setup.service.log()
        check(told == (after == "*"), "a standby that is not named is logged", after)
        print(f"# this Patroni leaves {after}")
    check(made.wait_whole(), "Patroni alone is killed: three nodes")


def print_log(service: Responder, who: str) -> None:
    for line in service.log()[-3000:].splitlines():
        print(f"# {who}: {line}")


def scenario(tally: Tally, arguments) -> None:
    if tally.lacks("three nodes", "a network of its own"):
        return
    enter_namespaces()
    make_switch()
    began = time.monotonic()
    with cluster() as made:
        print(f"# three nodes after {time.monotonic() - began:.0f} s", flush=True)
        made.sql(f"CREATE DATABASE {DATABASE}", dbname=OWNER)
        wait_until(made.has_database)
        made.sql(schema(arguments.build))
        made.sql(f"ALTER ROLE {ROLE} PASSWORD '{PASSWORD}'")
        with table_store(arguments.build, made, made.service_string()) as store:
            # Where the sandbox lets it read the certificate.
            with responder(store, watched=False, HOME=str(made.etc)) as at:
                setup = Nodes(tally, store, at, made)
                consumer, ended = Consumer(store, made), threading.Event()
                thread = threading.Thread(
                    target=consumer.die_at_random, args=(tally, iter(ended.is_set, True)))
                thread.start()
                for case in (leader_killed, switchover, partition, patroni_killed):
                    with tally.part(case.__name__):
                        case(setup)
                ended.set()
                thread.join()
                with consumer.following():
                    consumer.await_all(made)
                consumer.check(tally, made, setup.events)
                print_log(at, "the service")
                tally.check(at.worker(), "the service has never ended")
                no_password(tally, [at.log()], "the service's log")
            at.check_end(tally)


if __name__ == "__main__":
    sys.exit(lib_faults.run_script(__doc__, scenario))
