"""Goal: three nodes under Patroni and etcd lose, double and invent no plant.

usage: patroni.py BUILD_DIR [--long]

Made, and got out of trouble, by the page's commands, on machines (lib_machines) whose
links can be cut.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator

from lib_postgresql import (
    DATABASE, OWNER, PASSWORD, START_S, Consumer, Setup, ask, no_password,
    psql, single, table_store,
)
import lib_faults
from documented import block
from lib_machines import Machine, enter_namespaces, ip, machines
from lib_service import TOP, Responder, Tally, responder, wait_until

CONFIG = TOP / "deploy" / "postgresql" / "patroni.yml"
BACK_S = 90.0  # until each client is served again; ttl is 20 s
UNKNOWN = 5009
CONTROL = "patronictl -c /etc/patroni/config.yml "
STRICT = CONTROL + "edit-config --force -s synchronous_mode_strict="


def is_safe() -> bool:
    """Whether this Patroni is one that the page allows for three nodes."""
    with contextlib.suppress(FileNotFoundError):
        words = subprocess.run(["patroni", "--version"], capture_output=True, text=True).stdout
        return tuple(map(int, words.split()[-1].split("."))) >= (3, 1, 2)
    return False


SAFE = is_safe()


class Node(Machine):
    def start_etcd(self) -> None:
        self.page("pg_dropcluster")
        # Patroni's etcd3 of Debian 12 loses plants when a partition has healed.
        self.page("cat >/etc/default/etcd", before=self.known() + "export ETCD_ENABLE_V2=true\n" * (not SAFE))

    def known(self) -> str:
        """What the reader's shell knows."""
        return block("n=1 secret=").replace("1", str(self.number)).replace("CHANGE", PASSWORD)

    def network(self) -> list[str]:
        return ["/usr/bin/nsenter", "-t", self.inside, "-n"]

    def start_patroni(self) -> None:
        self.call("systemctl start patroni")

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

    def kill(self, what: str = "patroni|postgres", signal: str = "KILL") -> None:
        """Patroni and PostgreSQL at once, as if the machine had lost its power."""
        self.call(f"pkill -{signal} -x '{what}'")


class Cluster:
    """Three nodes; as `server`, the leader's SQL for a TableStore."""

    def __init__(self, etc: pathlib.Path, nodes: list[Node]) -> None:
        self.etc, self.nodes = etc, nodes

    def start(self) -> None:
        """As the page has it."""
        first = self.nodes[0]
        for node in self.nodes:
            node.start_etcd()
        first.page("cd /etc/patroni\nmake=")
        packed = first.call("tar -C /etc/patroni -c ca.pem node.pem node.key | base64 -w0").stdout
        config = CONFIG.read_text()
        if not SAFE:
            config = config.replace("\netcd3:\n", "\netcd:\n").replace("postgresql/17", "postgresql/15")
        for node in self.nodes:
            node.call("base64 -d | tar -C /etc/patroni -x", input=packed)
            node.call("cat >/etc/patroni/config.yml", input=config)
            node.page("cd /etc/patroni\nsed", before=node.known())
        (self.etc / "ca.pem").write_text(first.call("cat /etc/patroni/ca.pem").stdout)
        if not self.wait_whole(2 * START_S):
            raise RuntimeError(f"no cluster: {[n.members() for n in self.nodes]}")
        listed = first.page(CONTROL + "list")
        if not all(role in listed for role in ("Leader", "Sync Standby", "Replica")):
            raise RuntimeError(listed)
        self.leader().page("runuser -u postgres -- createdb plants\n", input=f"{PASSWORD}\n{PASSWORD}\n")
        wait_until(self.has_database)

    def wait_whole(self, seconds: float = BACK_S) -> bool:
        """A leader, a standby that may follow it, and one more.

        That a standby confirms is not enough: Patroni promotes the one that it
        has chosen, and a new leader has chosen none for some seconds.
        """
        wanted = ["leader running", "replica running", "sync_standby running"]
        return wait_until(lambda: all(node.members() == wanted for node in self.nodes), seconds)

    def leader(self) -> Node:
        wait_until(lambda: any(n.is_leader() for n in self.nodes))
        return next(node for node in self.nodes if node.is_leader())

    def others(self) -> list[Node]:
        """The standbys; first the one that Patroni may promote."""
        leader = self.leader()
        members = {m["name"]: m["role"] for m in leader.patroni_says("cluster")["members"]}
        return sorted((node for node in self.nodes if node is not leader),
                      key=lambda node: members[node.name], reverse=True)

    def names(self) -> str:
        return self.sql("SHOW synchronous_standby_names")[0][0]

    def sql(self, sql: str, **options: str) -> list[list[str]]:
        """Of the leader, unless another host is given."""
        where = {"host": ",".join(node.address for node in self.nodes), "dbname": DATABASE}
        where |= {"user": OWNER, "password": f"{PASSWORD}-superuser", "connect_timeout": 2}
        where |= {"sslmode": "verify-full", "sslrootcert": f"{self.etc}/ca.pem"}
        return psql(sql, **where | {"target_session_attrs": "read-write"} | options)

    def has_database(self) -> bool:
        """On every node: one that has it not yet would refuse, not pass on."""
        with contextlib.suppress(RuntimeError):
            for node in self.nodes:
                self.sql("SELECT 1", host=node.address, target_session_attrs="any")
            return True
        return False

    def service_string(self) -> str:
        """As the page has it."""
        (self.etc / "pgpass").write_text(f"*:5432:plants:plants:{PASSWORD}\n")
        (self.etc / "pgpass").chmod(0o600)
        string = block("PLANT_STORE_DATABASE=postgresql://plants@").partition("=")[2]
        return "".join(string.split()).replace("/etc/plant-store", str(self.etc))


@contextlib.contextmanager
def cluster(tally: Tally, build: pathlib.Path) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="plant-store-patroni-") as root, \
            machines(tally, build, 3, Node) as nodes:
        os.chmod(root, 0o755)
        made = Cluster(pathlib.Path(root), nodes)
        try:
            made.start()
            yield made
        except BaseException:
            for node in nodes:
                print(f"# {node.name}: ...{node.call('tail -c 1500 /mnt/*.log').stdout}", flush=True)
            raise


# --- The cases ---------------------------------------------------------------


@dataclasses.dataclass
class Nodes(Setup):
    """A cluster, and a service outside of its nodes."""

    BACK_S = BACK_S

    made: Cluster
    numbers: Iterator[int] = dataclasses.field(default_factory=lambda: itertools.count(1 << 54))

    def told(self) -> int:
        """What a new plant is answered."""
        with single(self.store, self.service.socket_path) as exchange:
            event, answer = ask(exchange, (next(self.numbers), "one", None))
        self.events.append(event)
        return answer.error() or answer.status if answer else 0

    def serves(self) -> bool:
        return wait_until(lambda: self.told() == 200, BACK_S)


def leader_changes(setup: Nodes, what: str, first: int, change: Callable[[Node], None]) -> Node:
    """Under load; the old leader."""
    old = setup.made.leader()
    setup.under_load(what, setup.mixed(first), lambda _: change(old))
    setup.tally.check(setup.made.leader() is not old, f"{what}: there is another leader")
    return old


def leader_killed(setup: Nodes) -> None:
    lost = leader_changes(setup, "the leader is killed", 1 << 50, Node.kill)
    lost.start_patroni()
    setup.tally.check(setup.made.wait_whole(), "the lost leader comes back as a standby")


def switchover(setup: Nodes) -> None:
    leader_changes(setup, "a switchover", 1 << 51, lambda old: old.page(CONTROL + "switchover"))
    setup.tally.check(setup.made.wait_whole(), "a switchover: three nodes again")


def partition(setup: Nodes) -> None:
    """The leader alone on one side, with clients; the other nodes on the other."""
    tally, made = setup.tally, setup.made
    cut = made.leader()
    others = [node for node in made.nodes if node is not cut]
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(table_store(setup.store.build, made, made.service_string()))
        home = str(made.etc)
        with responder(store, watched=False, tracer=cut.network(), HOME=home) as inside:
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
    """Patroni alone, on the leader, as for want of memory: the standby stays named.

    Then that standby and soon the leader are lost, and only the first comes back: had
    the third confirmed a plant meanwhile, it would be lost.
    """
    made, leader, check = setup.made, setup.made.leader(), setup.tally.check
    before = made.names()
    with setup.mixed(1 << 53) as load:
        load.wait_told(500, START_S)
        leader.kill("patroni")
        time.sleep(1)
        leader.start_patroni()
        wait_until(leader.is_leader, START_S)
        time.sleep(12)  # two of Patroni's rounds
        after = made.names()
        if SAFE:
            named = made.others()[0]
            named.kill()
            time.sleep(1.5)
            leader.kill()
            named.start_patroni()
            # Perhaps none of the others may be promoted, for then no plant was confirmed.
            wait_until(lambda: any(n.is_leader() for n in made.nodes), 30)
            leader.start_patroni()
            back = load.all_served(BACK_S)
        load.stop()
    if SAFE:
        check(after == before, "Patroni alone is killed: the standby is named", after)
        check(back, "then its standby and the leader: each client is served again")
    else:  # why the page requires another version
        told = "synchronous_standby_names is '*'" in setup.service.log()
        check(told == (after == "*"), "a standby that is not named is logged", after)
        print(f"# this Patroni leaves {after}")
    check(made.wait_whole(), "Patroni alone is killed: three nodes")
    setup.check(load, "Patroni alone is killed")


def standbys_lost(setup: Nodes) -> None:
    made, leader, check = setup.made, setup.made.leader(), setup.tally.check
    for node in (others := made.others()):
        node.kill()
    check(setup.told() == UNKNOWN, f"both standbys are lost: a plant is told {UNKNOWN}")
    leader.page(STRICT + "false")
    check(setup.serves(), "without strict mode one is stored")
    for node in others:
        node.start_patroni()
    check(made.wait_whole(), "both standbys are back: three nodes")
    leader.page(STRICT + "true")
    wait_until(lambda: leader.patroni_says("config").get("synchronous_mode_strict"), BACK_S)
    for node in others:
        node.kill()
    check(setup.told() == UNKNOWN, "with strict mode again: not without a standby")
    for node in others:
        node.start_patroni()
    check(made.wait_whole(), "with strict mode again: three nodes")


def copied_anew(setup: Nodes) -> None:
    node, mark = setup.made.others()[0], "/var/lib/postgresql/plants/mark"
    node.call(f"touch {mark}")
    node.page(CONTROL + "reinit", ("node1", node.name))
    gone = wait_until(lambda: node.call(f"test ! -e {mark}").returncode == 0, BACK_S)
    setup.tally.check(gone and setup.made.wait_whole(), "a node is copied anew: three nodes")


def none_to_promote(setup: Nodes) -> None:
    """The leader is lost when any standby confirms, and none may be promoted."""
    made, leader, check = setup.made, setup.made.leader(), setup.tally.check
    for node in (others := made.others()):
        node.kill()
    none = wait_until(lambda: made.names() == "*", BACK_S)
    leader.kill("patroni", "STOP")  # so that it chooses none
    for node in others:
        node.start_patroni()
    check(none and setup.serves(), "without a Sync Standby: any standby confirms")
    told = [setup.told() for _ in range(50)]
    leader.kill()
    time.sleep(30)  # more than the ttl
    check(not any(map(Node.is_leader, others)), f"{told.count(200)} plants later: none is promoted")
    shown = others[0].page("for n in 1 2 3; do\n    curl")
    has = {node: dict(re.findall(rf'{node.name}: "(\w+)": (\d+)', shown)) for node in others}
    best = max(others, key=lambda node: (int(has[node]["timeline"]), int(has[node]["received_location"])))
    print(f"# {best.name} of {shown.split()}")
    others[0].page(CONTROL + "failover", ("node1", best.name))
    check(setup.serves(), "one is promoted by hand: plants are stored")
    leader.start_patroni()
    check(made.wait_whole(), "one is promoted by hand: three nodes")


def print_log(service: Responder, who: str) -> None:
    for line in service.log()[-3000:].splitlines():
        print(f"# {who}: {line}")


def scenario(tally: Tally, arguments) -> None:
    if tally.lacks("three nodes", "a network of its own"):
        return
    enter_namespaces()
    began = time.monotonic()
    with cluster(tally, arguments.build) as made:
        print(f"# three nodes after {time.monotonic() - began:.0f} s", flush=True)
        with table_store(arguments.build, made, made.service_string()) as store:
            # Where the sandbox lets it read the certificate.
            with responder(store, watched=False, HOME=str(made.etc)) as at:
                setup = Nodes(tally, store, at, made)
                consumer, ended = Consumer(store, made), threading.Event()
                thread = threading.Thread(
                    target=consumer.die_at_random, args=(tally, iter(ended.is_set, True)))
                thread.start()
                cases = [leader_killed, switchover, partition, patroni_killed, copied_anew]
                # Without strict mode an older one leaves '*', too.
                for case in cases + [standbys_lost, none_to_promote] * SAFE:
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
