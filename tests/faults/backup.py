#!/usr/bin/env python3
"""Goal: a backup taken while clients create holds every plant acknowledged
before it began, and verifies; so does the store.  One that would write into the
journal itself is refused, and harms nothing."""

import itertools
import os
import pathlib
import re
import sys
from collections.abc import Callable

from clients import Clients
from lib_faults import Tally, judge, run_script
from lib_service import JOURNAL_NAME, Store, read_journal, responder, temporary_store, wait_until

BACKUPS = 50
VERIFIES = 20
LINKED = 20  # half by a hard link, half by a symbolic one


def check_backup(clients: Clients, store: Store, dest: pathlib.Path) -> str:
    """What is wrong with a backup that is taken now; empty if nothing is."""
    before = set(clients.created)
    done = store.command("backup", dest)
    if done.returncode:
        return f"backup: {done.returncode}, {done.stderr}"
    sent = range(1, next(clients.ids))
    verified = store.command("verify", dest)
    if verified.returncode:
        return f"verify: {verified.returncode}, {verified.stderr}"
    ids = [plant["id"] for plant in read_journal(dest / JOURNAL_NAME)]
    if len(set(ids)) != len(ids):
        return "an id is there twice"
    if not before <= set(ids):
        return f"lost: {sorted(before - set(ids))[:5]}"
    if not all(plant_id in sent for plant_id in ids):
        return f"invented: {sorted(set(ids) - set(sent))[:5]}"
    return ""


def check_linked(store: Store, dest: pathlib.Path, link: Callable) -> str:
    """What is wrong with a backup over a name of the journal itself."""
    dest.mkdir(exist_ok=True)
    there = dest / JOURNAL_NAME
    there.unlink(missing_ok=True)
    link(store.journal, there)
    done = store.command("backup", dest)
    if done.returncode != os.EX_CONFIG:
        return f"{link.__name__}: {done.returncode}, {done.stderr}"
    return "" if there.samefile(store.journal) else f"{link.__name__}: replaced"


def check_round(tally: Tally, arguments) -> None:
    wrong, linked, unequal = [], [], []
    with temporary_store(str(arguments.build)) as store:
        with (
            responder(store) as service,
            Clients(store, service.socket_path, itertools.count(1)) as clients,
        ):
            # Before that there may be no store yet.
            wait_until(lambda: clients.created)
            for number in range(BACKUPS):
                # Every fifth is a whole one, the others add to it.
                dest = store.root / f"backup-{number // 5}"
                wrong += filter(None, [check_backup(clients, store, dest)])
            for number in range(LINKED):
                link = (os.link, os.symlink)[number % 2]
                linked += filter(None, [check_linked(store, store.root / "linked", link)])
            for _ in range(VERIFIES):
                verified = store.command("verify")
                same = re.search(rb"/index: (holds the same plants|behind; .*)\n", verified.stdout)
                if verified.returncode != 0 or not same:
                    unequal.append(verified)
            done = len(clients.created)
        lost = judge(store, clients.events)
    print(f"# {BACKUPS} backups while {done} plants were created")
    tally.check(not wrong, "each backup verifies and has all from before", wrong)
    tally.check(not linked, "a backup over the journal itself is refused", linked)
    tally.check(not lost, "in the end the store has all that was acknowledged", lost)
    tally.check(not clients.errors, "no client noticed", clients.errors)
    tally.check(done > BACKUPS, "clients were busy meanwhile", done)
    tally.check(not unequal, "the index has the journal's plants, but for the last, while in use", unequal[:3])


def scenario(tally: Tally, arguments) -> None:
    # Each with a store of its own: one that grew would take ever longer to read.
    for _ in range(5 if arguments.long else 1):
        check_round(tally, arguments)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, scenario))
