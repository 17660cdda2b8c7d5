#!/usr/bin/env python3
"""Goal: whoever consumes plants, and is killed at any moment, is given every one.

usage: feed.py [--long] BUILD_DIR

Under load, whose service is killed, too: a consumer that polls with a cursor, a
follower, and deploy/consumer with each of its examples.  Each is killed at random 10
times, with --long 200.  In the end each has what the journal has, in its order.  A
plant comes twice only behind a kill.
"""

import contextlib
import functools
import json
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from load import Load, judge, kept, main, mixed_plan  # and the way to the next ones
from lib_postgresql import BIN, Server, clusters
from lib_service import (
    TOP, WAIT_S, Store, Tally, canonical, children_of, responder, temporary_store, wait_until,
)

CONSUMER = TOP / "deploy" / "consumer"
CLIENTS = 4
PAUSE_S = 0.01  # of a client, so that there are not too many plants
LIVES_S = (0.0, 0.4)


class Killed:
    """What runs again and again, in a thread, and is killed at random."""

    def __init__(self, store: Store, name: str, kills: int) -> None:
        self.store = store
        self.name = name
        self.left = kills
        self.dir = store.root / name.replace(" ", "-")
        self.dir.mkdir()
        self.chance = random.Random(name)
        self.wrong: list[object] = []
        self.thread = threading.Thread(target=self.work)

    def work(self) -> None:
        try:
            while self.left > 0:
                self.live(self.chance.uniform(*LIVES_S))
        except Exception as error:  # it shall be reported
            self.wrong.append(error)

    def start(self, command: list[object], **options: object) -> subprocess.Popen:
        # A process group, so that all that it has started dies with it.
        return subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
            start_new_session=True, **({"env": self.store.environment()} | options))

    def kill_after(self, process: subprocess.Popen, seconds: float) -> bool:
        """Whether it was killed; or it has ended by itself."""
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        # SIGTERM ends it before it has a handler.
        killed = process.returncode in (-signal.SIGKILL, -signal.SIGTERM)
        self.left -= killed
        said = process.stderr.read()
        process.stderr.close()
        if process.returncode not in (0, 75) and not killed:
            self.wrong.append((process.returncode, said))
        return killed


class Handed(Killed):
    """What was handed over: a list of plants, and whether it ended with a kill, for each life."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.lives: list[tuple[list[bytes], bool]] = []
        self.cursor = self.dir / "cursor"

    def judge(self, tally: Tally, stored: list[bytes]) -> None:
        places = {line: number for number, line in enumerate(stored)}
        end, killed_before, repeated = 0, False, 0
        for lines, killed in self.lives:
            if not lines:
                killed_before |= killed
                continue
            first = places[lines[0]]
            whole = lines == stored[first:first + len(lines)]
            if not whole or first > end or (first < end and not killed_before):
                self.wrong.append((first, end, len(lines), killed_before, whole))
            repeated += max(0, end - first)
            end, killed_before = max(end, first + len(lines)), killed
        print(f"# {self.name}: {end} plants, {repeated} repeated, {len(self.lives)} lives")
        tally.check(not self.wrong and end == len(stored),
                    f"{self.name}: every plant, in order, twice only behind a kill",
                    (end, len(stored), self.wrong[:3]))


class Poller(Handed):
    """A file that is there is whole, and taken."""

    def live(self, seconds: float) -> None:
        out = self.dir / "out"
        process = self.start([self.store.build / "plant-store", "export", "--cursor", self.cursor,
                              "--limit", "200", "-o", out])
        killed = self.kill_after(process, seconds / 10)
        lines = out.read_bytes().splitlines() if out.exists() else []
        out.unlink(missing_ok=True)
        self.lives.append((lines, killed))

    def end(self) -> None:
        while not self.lives or self.lives[-1][0] or self.lives[-1][1]:
            self.live(WAIT_S)


class Follower(Handed):
    """A line that is torn was not handed over."""

    def live(self, seconds: float, number: int = signal.SIGKILL) -> None:
        process = self.start([self.store.build / "plant-store", "export", "--follow", "--cursor",
                              self.cursor], stdout=subprocess.PIPE)
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.append(process.stdout.read()))
        reader.start()
        if number != signal.SIGKILL or self.chance.random() < 0.3:
            threading.Timer(seconds, process.terminate).start()
            seconds = WAIT_S
        killed = self.kill_after(process, seconds)
        reader.join()
        process.stdout.close()
        self.lives.append((got[0].split(b"\n")[:-1], killed))

    def end(self) -> None:
        self.live(3.0, signal.SIGTERM)


def kill_below(pid: int) -> None:
    """Kill what a process has started, and what that has."""
    for child in children_of(pid):
        kill_below(child)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


class Consumer(Killed):
    """deploy/consumer as it is written."""

    def __init__(self, *arguments: object, command: list[object],
                 read: Callable[[], list[bytes]], more: dict[str, object]) -> None:
        super().__init__(*arguments)
        self.command = command
        self.read = read
        self.more = more

    def live(self, seconds: float) -> int:
        environment = self.store.environment(
            PATH=os.environ["PATH"], PLANT_STORE=str(self.store.build / "plant-store"))
        own = self.dir / "environment"
        own.touch(0o600)
        own.write_text("".join(f"{name}={value}\n" for name, value in self.more.items()))
        process = self.start([CONSUMER / "plant-store-consume", "--environment", own, self.dir, "-",
                              *self.command], env=environment)
        # The command has a process group of its own: in half of the kills it lives on.
        with_command = self.chance.random() < 0.5
        timer = threading.Timer(seconds, lambda: with_command and kill_below(process.pid))
        timer.start()
        self.kill_after(process, seconds)
        timer.cancel()
        return process.returncode

    def end(self) -> None:
        # As long as a command lives on, the script ends with 75.
        if not wait_until(lambda: self.live(WAIT_S) != 75) or self.live(WAIT_S) != 0:
            self.wrong.append("it does not end")

    def judge(self, tally: Tally, stored: list[bytes]) -> None:
        found = self.read()
        tally.check(not self.wrong and sorted(found) == sorted(stored),
                    f"{self.name}: it has every plant once",
                    (len(found), len(stored), self.wrong[:3]))


def consumers(store: Store, kills: int, server: Server | None) -> list[Killed]:
    database, files = store.root / "plants.db", store.root / "files"
    files.mkdir()

    def in_sqlite() -> list[bytes]:
        rows = sqlite3.connect(database).execute("SELECT id, plant FROM plants").fetchall()
        return [text.encode() for number, text in rows if json.loads(text)["id"] == number]

    def in_files() -> list[bytes]:
        return [path.read_bytes()[:-1] for path in files.glob("*.json")]

    def in_postgresql() -> list[bytes]:
        return [row[0].encode() for row in server.sql("SELECT plant FROM plants", dbname="consumer")]

    found: list[Killed] = [Poller(store, "a poller", kills), Follower(store, "a follower", kills)]
    ways = [("SQLite", [CONSUMER / "into-sqlite", database], in_sqlite, {}),
            ("files", [CONSUMER / "into-files", files], in_files, {})]
    if server:
        variables = {"dbname": "PGDATABASE"}
        more = {variables.get(name, f"PG{name.upper()}"): value
                for name, value in server.superuser("consumer").items()}
        ways.append(("PostgreSQL", [CONSUMER / "into-postgresql"], in_postgresql, more))
    return found + [Consumer(store, f"into {name}", kills, command=command, read=read, more=more)
                    for name, command, read, more in ways]


def check(tally: Tally, store: Store, kills: int, server: Server | None) -> None:
    takers = consumers(store, kills, server)
    chance = random.Random(3)
    with responder(store, workers=2) as service:
        ways = [functools.partial(kept, store, service.socket_path)] * CLIENTS
        with Load(ways, mixed_plan, pause_s=PAUSE_S) as load:
            for taker in takers:
                taker.thread.start()
            killed = 0
            while any(taker.thread.is_alive() for taker in takers):
                time.sleep(chance.uniform(0, 1.0))
                for pid in children_of(service.process.pid)[:chance.randint(0, 2)]:
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            load.stop()
    # Nobody serves now.
    stored = [canonical(plant) for plant in store.plants()]
    print(f"# {killed} kills of the service, {len(stored)} plants")
    judge(tally, load.events, store, "the load")
    for taker in takers:
        taker.end()
        taker.judge(tally, stored)


def scenario(tally: Tally, build: str, long: bool) -> None:
    kills = 200 if long else 10
    with temporary_store(build) as store:
        if not BIN:
            tally.skip("into PostgreSQL", "no PostgreSQL")
            check(tally, store, kills, None)
            return
        with clusters(pathlib.Path(build)) as made, \
                made.running(made.new()) as server:
            server.sql("CREATE DATABASE consumer", dbname="postgres")
            check(tally, store, kills, server)


if __name__ == "__main__":
    sys.exit(main(scenario))
