#!/usr/bin/env python3
"""Goal: a backup taken while clients create holds every plant acknowledged
before it began, and verifies; so does the store."""

import argparse
import itertools
import pathlib
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from lib_service import (
    JOURNAL_NAME,
    FastCgiPeer,
    Store,
    Tally,
    fcgi_request,
    new_plant,
    read_journal,
    responder,
    temporary_store,
    wait_until,
)

CLIENTS = 4
BACKUPS = 50
VERIFIES = 20
LIMIT_S = 120.0


class Load:
    """Clients that create plants until they are told to stop."""

    def __init__(self, store: Store, socket_path: pathlib.Path) -> None:
        self.store = store
        self.socket_path = socket_path
        self.lock = threading.Lock()
        self.ids = itertools.count(1)
        self.sent: set[int] = set()
        self.acknowledged: set[int] = set()
        self.errors: list[object] = []
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self._run) for _ in range(CLIENTS)]

    def __enter__(self) -> "Load":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def _run(self) -> None:
        try:
            with FastCgiPeer(self.socket_path) as peer:
                while not self.stopped.is_set():
                    self._create(peer)
        except Exception as error:  # told by the scenario
            self.errors.append(error)

    def _create(self, peer: FastCgiPeer) -> None:
        with self.lock:
            plant_id = next(self.ids)
            self.sent.add(plant_id)
        body = new_plant(plant_id, f"plant {plant_id}")
        variables = self.store.request(body).items()
        answer = peer.exchange(fcgi_request(variables, body, keep=True))
        if answer.is_plant(f"plant {plant_id}"):
            with self.lock:
                self.acknowledged.add(plant_id)
        else:
            self.errors.append(answer)

    def snapshot(self) -> set[int]:
        with self.lock:
            return set(self.acknowledged)


def run_command(store: Store, *arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [store.build / "plant-store", *map(str, arguments)],
        env=store.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def check_backup(load: Load, store: Store, dest: pathlib.Path) -> str:
    """What is wrong with a backup that is taken now; empty if nothing is."""
    before = load.snapshot()
    done = run_command(store, "backup", dest)
    if done.returncode:
        return f"backup: {done.returncode}, {done.stderr}"
    with load.lock:
        sent = set(load.sent)
    verified = run_command(store, "verify", dest)
    if verified.returncode:
        return f"verify: {verified.returncode}, {verified.stderr}"
    ids = [plant["id"] for plant in read_journal(dest / JOURNAL_NAME)]
    if len(set(ids)) != len(ids):
        return "an id is there twice"
    if not before <= set(ids):
        return f"lost: {sorted(before - set(ids))[:5]}"
    if not set(ids) <= sent:
        return f"invented: {sorted(set(ids) - sent)[:5]}"
    return ""


def scenario(tally: Tally, build: str, rounds: int) -> None:
    with (
        temporary_store(build) as store,
        responder(store) as service,
        Load(store, service.socket_path) as load,
    ):
        # Before that there may be no store yet.
        wait_until(load.snapshot)
        wrong = []
        for number in range(rounds * BACKUPS):
            # Every fifth is a whole one, the others add to it.
            dest = store.root / f"backup-{number // 5}"
            wrong += filter(None, [check_backup(load, store, dest)])
        unequal = []
        for _ in range(rounds * VERIFIES):
            verified = run_command(store, "verify")
            if f"{store.dir}/index: holds the same plants\n" not in verified.stdout:
                unequal.append(verified)
        done = len(load.snapshot())
        print(f"# {rounds * BACKUPS} backups while {done} plants were created")
        tally.check(not wrong, "each backup verifies and has all from before", wrong)
        tally.check(not load.errors, "no client noticed", load.errors[:3])
        tally.check(done > BACKUPS, "clients were busy meanwhile", done)
        tally.check(
            not unequal, "journal and index hold the same while in use", unequal[:3]
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--long", action="store_true", help="10 times as many")
    arguments = parser.parse_args()
    tally = Tally()
    with tally.part("backups under load"):
        scenario(tally, arguments.build, 10 if arguments.long else 1)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
