#!/usr/bin/env python3
"""Drives `plant-store metrics`, and has promtool judge what it prints and what
deploy/prometheus makes of it.

Usage: test_metrics_command.py build/plant-store
"""

import json
import os
import pathlib
import re
import shutil
import sys
import time

from lib_command import CONFIG, NOINPUT, USAGE, expect
from lib_service import TOP, Store, Tally, new_plant, run, run_scenario, temporary_store

program = pathlib.Path(sys.argv[1]).resolve()
RULES = TOP / "deploy" / "prometheus" / "rules.yml"


def metrics(store, *arguments, **options):
    return store.command("metrics", *arguments, text=True, **options)


def promtool(*arguments, given=""):
    return run("promtool", *arguments, input=given, text=True)


def at_utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def check_ends(tally: Tally, store: Store) -> None:
    expect(tally, metrics(store), "a store that nobody has opened has none", NOINPUT, "",
           f"{store.dir}: cannot open its metrics")
    made = (store.dir / "metrics").exists()
    tally.check(not made, "asking makes none")
    done = store.command("import", "--quiet", input=new_plant(1, "Fern"))
    expect(tally, done, "a plant is imported")
    done = metrics(store)
    line = '\nplant_store_plants_total{result="created"} 1\n'
    expect(tally, done, "it is counted")
    tally.check(line in done.stdout, "as created", done.stdout)
    other = metrics(store, "--dir", store.dir, env=store.environment(
        PLANT_STORE_DIR="/nowhere"))
    expect(tally, other, "the directory can be named", out=done.stdout)
    expect(tally, metrics(store, "x"), "an operand is too many", USAGE, "",
           "name the store with --dir")
    bad = store.environment(PLANT_STORE_TOKENS="/nowhere/tokens")
    expect(tally, metrics(store, env=bad), "without a token file it prints none",
           CONFIG, "", "/nowhere/tokens")
    bad = store.environment(PLANT_STORE_THREADS="0")
    done = metrics(store, "--dir", store.dir, env=bad)
    expect(tally, done, "nor with a wrong setting", CONFIG, "",
           "PLANT_STORE_THREADS")
    check_backup(tally, store)
    (store.dir / "metrics").write_bytes(b"x" * 4096)
    expect(tally, metrics(store), "nor of a file of another kind", CONFIG, "")


def check_backup(tally: Tally, store: Store) -> None:
    """The newest verified backup, where each looks for it; the counters may be lost."""
    def seen() -> tuple[bool, object, str]:
        told = metrics(store).stdout
        (store.dir / "metrics").unlink()
        store.command("import", "--quiet", input=b"")  # as a new version does
        stats = json.loads(store.command("stats", "--json").stdout)["backup"]
        same = re.search(r"^plant_store_backup_timestamp_seconds (\S+)$", told, re.M)
        after = metrics(store).stdout
        checked = store.command("check", text=True)
        return same and same[0] in after and float(same[1]), stats, checked

    at, stats, done = seen()
    tally.check(at is None and stats is None and done.returncode == 0
                and "backup: none verified yet" in done.stdout, "a new store has none", done)
    expect(tally, store.command("backup", store.root / "copy", text=True), "a copy is made")
    tally.check(seen()[0] is None, "that alone verifies nothing")
    began = time.time()
    expect(tally, store.command("backup", "--verify", store.root / "copy", text=True), "verified",
           err="")
    at, stats, done = seen()
    tally.check(at and began - 1 < at < time.time() and stats.startswith(f"{at_utc(at)[:16]}")
                and "backup: 0 hours old: ok" in done.stdout and done.returncode == 0,
                "a verified one is told with its time, also once the counters are lost",
                (at, stats, done))
    (store.dir / "last-backup").write_text(at_utc(began - 49 * 3600) + ".000Z\n")
    done = seen()[2]
    expect(tally, done, "one of two days ago is wrong", CONFIG,
           err="the last verified backup is 2 days old; see: journalctl -u plant-store-backup")
    (store.dir / "last-backup").unlink()
    (store.dir / "last-backup").symlink_to("/etc/hostname")
    done = store.command("backup", "--verify", store.root / "copy", text=True)
    expect(tally, done, "a backup is good also if that cannot be noted", err="cannot note")
    (store.dir / "last-backup").unlink()
    store.command("backup", "--verify", store.root / "copy", check=True)


def check_text(tally: Tally, store: Store) -> None:
    store.command("token", "add", "short", "--expires", "10d", check=True)
    store.command("import", "--quiet", input=new_plant(2, "Moss"))
    text = metrics(store).stdout
    names = set(re.findall(r"plant_store_\w+", RULES.read_text()))
    missing = {name for name in names if f"\n{name}" not in text}
    tally.check(names and not missing, "the rules ask for what there is", missing)
    text = (TOP / "deploy/man/plant-store.fcgi.8").read_text()
    families = set(re.findall(r"^# TYPE (\S+)", metrics(store).stdout, re.M))
    told = set(re.findall(r"\bplant_store_\w+", text))
    tally.check(told == families | {"plant_store_connections"},  # of the service alone
                "the manual has each metric", told ^ families)


def check_with_promtool(tally: Tally, text: str) -> None:
    if shutil.which("promtool") is None:
        tally.skip("promtool's opinion of metrics and rules", "no promtool")
        return
    done = promtool("check", "metrics", given=text)
    expect(tally, done, "promtool has nothing to complain of", out="", err="")
    done = promtool("check", "metrics", given=text.replace("answers_total", "answers"))
    tally.check(done.returncode != 0, "it would complain of a bad name", done)
    for what, path in (("config", RULES.with_name("prometheus.yml")), ("rules", RULES)):
        expect(tally, promtool("check", what, path), f"promtool accepts {path.name}")
    done = promtool("test", "rules", TOP / "tests" / "prometheus_rules.yml")
    expect(tally, done, "each alert fires in its time, and no other")


def scenario(tally: Tally) -> None:
    with temporary_store(str(program.parent)) as store:
        check_ends(tally, store)
        check_text(tally, store)
        check_with_promtool(tally, metrics(store).stdout)


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/bin"
    sys.exit(run_scenario(scenario))
