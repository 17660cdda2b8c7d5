"""Goal: restarts and changes of tokens lose no request and no plant.

usage: scenario_restart.py [--long] BUILD_DIR

The listening socket is held here, as systemd holds that of a .socket unit, and
handed to workers as descriptor 0.  The web server is lighttpd.
"""

import contextlib
import functools
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from lib_service import (
    BUG_REPORT, JOURNAL_NAME, WAIT_S, Store, Tally, lighttpd, listening, new_plant, start,
    stop_process, temporary_store, wait_until,
)
from load import IDS_PER_CLIENT, Load, judge, main, over_http, own_plant

CLIENTS = 8
SECONDS = 20.0
SECONDS_LONG = 60.0
BETWEEN_RESTARTS_S = 1.0
# The drain takes up to 1 s; a restart must stay far below a web server's limit.
ANSWER_S_MAX = 5.0


class Workers:
    """A socket of ours, and the workers that have it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.socket_path = store.root / "fcgi.sock"
        self.log_path = store.root / "workers.log"
        self.running: list[subprocess.Popen] = []
        self.statuses: list[int] = []
        self.slowest_end_s = 0.0
        self.listener = listening(self.socket_path)
        self.socket_path.chmod(0o660)
        if os.geteuid() == 0:
            # lighttpd.conf has lighttpd give up root for this group.
            shutil.chown(self.socket_path, group="www-data")

    def start(self, **settings: str) -> subprocess.Popen:
        environment = self.store.environment(**settings)
        self.running.append(
            start([self.store.responder], self.log_path, env=environment, stdin=self.listener))
        return self.running[-1]

    def end_oldest(self) -> None:
        began = time.monotonic()
        self.statuses.append(stop_process(self.running.pop(0)))
        self.slowest_end_s = max(self.slowest_end_s, time.monotonic() - began)

    def close(self) -> None:
        while self.running:
            self.end_oldest()
        self.listener.close()

    def check_end(self, tally: Tally, where: str) -> None:
        well = set(self.statuses) == {0}
        tally.check(well, f"{where}: all workers ended with status 0", self.statuses)
        log = self.log_path.read_text(errors="replace")
        found = BUG_REPORT.search(log)
        detail = log[found.start():][:2000] if found else ""
        tally.check(not found, f"{where}: the log holds no report of a bug", detail)


@contextlib.contextmanager
def workers_of(store: Store, count: int, **settings: str) -> Iterator[Workers]:
    workers = Workers(store)
    try:
        for _ in range(count):
            workers.start(**settings)
        yield workers
    finally:
        workers.close()


def plan(number: int) -> Iterator:
    """For ever: plants that nobody else sends, each once."""
    next_id = (number + 1) * IDS_PER_CLIENT
    while True:
        yield own_plant(number, next_id)
        next_id += 1


class Restarts(threading.Thread):
    """Each second the oldest worker is ended and, once it has gone, replaced."""

    def __init__(self, workers: Workers) -> None:
        super().__init__(daemon=True)
        self.workers = workers
        self.count = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(BETWEEN_RESTARTS_S):
            self.workers.end_oldest()
            self.workers.start()
            self.count += 1

    def stop(self) -> None:
        self.stopping.set()
        self.join()


def check_restarts(tally: Tally, build: str, where: str, count: int, s: float) -> None:
    with temporary_store(build) as store, workers_of(store, count) as workers:
        with lighttpd(store, workers.socket_path) as port:
            ways = [functools.partial(over_http, store, port)] * CLIENTS
            # Not to insist: a plant is sent once, and the answer must be 200.
            with Load(ways, plan, insist=False) as load:
                restarts = Restarts(workers)
                restarts.start()
                time.sleep(s)
                restarts.stop()
        workers.close()
        lost = sum(n for label, n in load.answers.items() if label != "200")
        print(
            f"# {where}: {sum(load.answers.values())} requests in {load.seconds:.0f} s, "
            f"{restarts.count} restarts, {lost} lost; slowest answer "
            f"{load.slowest():.2f} s, slowest end {workers.slowest_end_s:.2f} s",
            flush=True,
        )
        wanted = int(s / (BETWEEN_RESTARTS_S + ANSWER_S_MAX))
        tally.check(restarts.count >= wanted, f"{where}: it was restarted", restarts.count)
        only_200 = set(load.answers) == {"200"}
        tally.check(only_200, f"{where}: every request is answered 200", load.answers)
        tally.check(not load.wrong, f"{where}: with its plant", load.wrong[:2])
        tally.check(load.slowest() < ANSWER_S_MAX, f"{where}: no answer is late", load.slowest())
        judge(tally, load.events, store, where)
        stored = len(store.plants())
        told = load.answers["200"]
        tally.check(stored == told, f"{where}: as many plants as answers", (stored, told))
        workers.check_end(tally, where)


def check_at_once(tally: Tally, build: str, seconds: float) -> None:
    """Both kinds of restart at the same time, on two stores."""

    def check(where: str, count: int) -> None:
        with tally.part(f"{where}: to its end"):
            check_restarts(tally, build, where, count, seconds)

    # Clients are forked while neither thread prints: at the start.
    rolling = threading.Thread(target=check, args=("rolling restart of two", 2))
    rolling.start()
    check("restart of the only one", 1)
    rolling.join()


def serves(store: Store, workers: Workers, plant_id: int) -> bool:
    return store.ask(workers.socket_path, new_plant(plant_id, "Fern")).is_plant("Fern")


def check_blocking(tally: Tally, build: str) -> None:
    """O_NONBLOCK is the socket's: systemd clears it for what it starts."""
    with temporary_store(build) as store, workers_of(store, 1) as workers:
        first = serves(store, workers, 1)
        os.set_blocking(workers.listener.fileno(), True)
        well = first and all(serves(store, workers, i) for i in range(2, 6))
        tally.check(well, "a socket that others make blocking stalls nobody")
        began = time.monotonic()
        workers.close()
        taken = time.monotonic() - began
        tally.check(taken < ANSWER_S_MAX, "a socket that others make blocking delays no end", taken)
        workers.check_end(tally, "a blocking socket")


def check_hangup(tally: Tally, build: str) -> None:
    """HUP, which systemd sends for a reload, ends nothing."""
    one = {"PLANT_STORE_THREADS": "1"}
    with temporary_store(build) as store, workers_of(store, 1, **one) as workers:
        first = serves(store, workers, 1)
        worker = workers.running[0]
        worker.send_signal(1)
        well = first and serves(store, workers, 2)
        tally.check(well and worker.poll() is None, "a hangup ends no worker")
        # The last that its one thread does before it is idle is to write the end mark.
        mark = store.dir / f"{JOURNAL_NAME}.end"
        idle = wait_until(lambda: mark.exists() and mark.stat().st_size > 0)
        store.tokens.write_text("")
        worker.send_signal(1)
        logged = wait_until(lambda: "tokens in use: 0" in workers.log_path.read_text())
        sentence = "an idle worker reads the token file at a hangup, and logs it"
        tally.check(idle and logged, sentence, (idle, workers.log_path.read_text()))


def check_ready(tally: Tally, build: str) -> None:
    """It tells systemd that it serves and that it ends, in this order."""
    with temporary_store(build) as store:
        path = store.root / "notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(str(path))
            notify.settimeout(WAIT_S)
            workers = Workers(store)
            workers.start(NOTIFY_SOCKET=str(path))
            try:
                ready = notify.recv(64)
                served = serves(store, workers, 1)
            finally:
                workers.close()
            told = (ready, notify.recv(64))
            well = told == (b"READY=1", b"STOPPING=1") and served
            tally.check(well, "systemd is told when it serves and when it ends", told)


def scenario(tally: Tally, build: str, long: bool) -> None:
    for check in (check_blocking, check_hangup, check_ready):
        with tally.part(check.__name__):
            check(tally, build)
    if not tally.lacks("restarts under load", "a writable /dev/shm"):
        check_at_once(tally, build, SECONDS_LONG if long else SECONDS)


if __name__ == "__main__":
    sys.exit(main(scenario))
