#!/usr/bin/env python3
"""Drives `plant-store metrics`, has promtool judge what it prints and what
deploy/prometheus makes of it, and asks a Prometheus beside a service for all that
alerts and dashboard show.

Usage: test_metrics_command.py build/plant-store
"""

import contextlib
import json
import math
import os
import pathlib
import re
import shutil
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator

from lib_command import CONFIG, NOINPUT, USAGE, expect
from lib_service import (
    TOP, WAIT_S, Store, Tally, await_start, free_port, new_plant, run, run_scenario, start,
    stop_process, temporary_store, wait_until,
)

from lib_servers import Running, SetUp, running

program = pathlib.Path(sys.argv[1]).resolve()
RULES = TOP / "deploy" / "prometheus" / "rules.yml"
DASHBOARD = RULES.with_name("dashboard.json")
# What Grafana puts there, where all instances are chosen and each scrape takes 1 s.
VARIABLES = {"$job": "plant-store", "$instance": ".*", "$__rate_interval": "4s"}


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
    other, told = (one.stdout.rpartition("plant_store_free_bytes ")[0] for one in (other, done))
    tally.check(told and other == told, "the directory can be named", other)
    expect(tally, metrics(store, "x"), "an operand is too many", USAGE, "",
           "too many arguments")
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
    """The newest backups, where each looks for them; the counters may be lost."""
    def seen() -> tuple[object, list, str]:
        told = metrics(store).stdout
        (store.dir / "metrics").unlink()
        store.command("import", "--quiet", input=b"")  # as a new version does
        stats = json.loads(store.command("stats", "--json").stdout)
        stats = [stats["backup"], stats["backup_verified"]]
        same = re.search(r"^plant_store_backup_timestamp_seconds (\S+)$", told, re.M)
        after = metrics(store).stdout
        checked = store.command("check", text=True)
        return same and same[0] in after and float(same[1]), stats, checked

    at, stats, done = seen()
    tally.check(at is None and stats == [None, None] and done.returncode == 0
                and "backup: none yet" in done.stdout, "a new store has none", done)
    expect(tally, store.command("backup", store.root / "copy", text=True), "a copy is made")
    at, stats, done = seen()
    tally.check(at and stats[0] and stats[1] is None and done.returncode == 0
                and " old, none verified yet: ok" in done.stdout, "that alone verifies nothing",
                (at, stats, done))
    began = time.time()
    expect(tally, store.command("backup", "--verify", store.root / "copy", text=True), "verified",
           err="")
    at, stats, done = seen()
    tally.check(at and began - 1 < at < time.time()
                and re.fullmatch(rf"{at_utc(at)[:16]}:\d\d\.\d{{3}}Z", stats[0])
                and stats[0] == stats[1]
                and re.search(r"backup: (no|\d+) (second|minute)s? old, "
                              r"verified (no|\d+) (second|minute)s? ago: ok", done.stdout) and done.returncode == 0,
                "a verified one is told with its time, also once the counters are lost",
                (at, stats, done))
    (store.dir / "last-verified").write_text(at_utc(began - 9 * 86400) + ".000Z\n")
    done = seen()[2]
    expect(tally, done, "one that none has verified for a week is wrong", CONFIG,
           err="verified 9 days ago; see: journalctl -u plant-store-backup")
    (store.dir / "last-verified").unlink()
    (store.dir / "last-backup").write_text(at_utc(began - 49 * 3600) + ".000Z\n")
    done = seen()[2]
    expect(tally, done, "one of two days ago is wrong", CONFIG,
           err="backup: 2 days old, none verified yet; see: journalctl -u plant-store-backup")
    (store.dir / "last-backup").unlink()
    (store.dir / "last-backup").symlink_to("/etc/hostname")
    for options in [], ["--verify"]:
        done = store.command("backup", *options, store.root / "copy", text=True)
        expect(tally, done, "a backup is good also if that cannot be noted", err="cannot record")
    (store.dir / "last-backup").unlink()
    store.command("backup", "--verify", store.root / "copy", check=True)


def check_text(tally: Tally, store: Store) -> None:
    store.command("token", "add", "short", "--expires", "10d", check=True)
    store.command("import", "--quiet", input=new_plant(2, "Moss"))
    (store.dir / "consumers").mkdir()
    store.command("export", "--cursor", store.dir / "consumers" / "mine", check=True)
    text = metrics(store).stdout
    told = store.command("--version", text=True, check=True).stdout.split()[1]
    tally.check(f'\nplant_store_build_info{{version="{told}"}} 1\n' in text,
                "the version is that of the program", told)
    names = set(re.findall(r"plant_store_\w+", RULES.read_text()))
    names.remove("plant_store_healthy")  # of the service alone, like the connections
    missing = {name for name in names if f"\n{name}" not in text}
    tally.check(names and not missing, "the rules ask for what there is", missing)
    text = (TOP / "deploy/man/plant-store.fcgi.8").read_text()
    families = set(re.findall(r"^# TYPE (\S+)", metrics(store).stdout, re.M))
    told = set(re.findall(r"\bplant_store_\w+", text))
    tally.check(told == families | {"plant_store_connections", "plant_store_healthy"},
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
    done = promtool("test", "rules", TOP / "tests" / "commands" / "prometheus_rules.yml")
    expect(tally, done, "each alert fires in its time, and no other")


def expressions() -> dict[str, str]:
    """Of the dashboard, with its variables replaced."""
    found = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            found[f"{panel['title']}, {target['refId']}"] = expression
    return found


@contextlib.contextmanager
def prometheus(server: Running) -> Iterator[Callable[..., list]]:
    """One with the configuration that is shipped; how it is asked."""
    port, root = free_port(), server.root / "prometheus"
    root.mkdir()
    shutil.copy(RULES, root)
    text = (RULES.with_name("prometheus.yml").read_text()
            .replace("127.0.0.1:80", f"127.0.0.1:{server.port}").replace("15s", "1s"))
    (root / "prometheus.yml").write_text(f"global: {{evaluation_interval: 1s}}\n{text}")
    process = start(
        ["prometheus", f"--config.file={root}/prometheus.yml", f"--storage.tsdb.path={root}/data",
         f"--web.listen-address=127.0.0.1:{port}"], root / "log")

    def ask(path: str, **query: str) -> dict:
        url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return json.load(answer)["data"]

    def is_ready() -> bool:
        try:
            return bool(ask("rules")["groups"])
        except OSError:  # until then 503
            return False

    try:
        await_start(process, is_ready, root / "log")
        yield ask
    finally:
        stop_process(process)


def check_with_prometheus(tally: Tally) -> None:
    """Each expression has data, and a rule no error, where a service has had plants,
    a refusal, a backup and a token that expires."""
    set_up = SetUp("lighttpd", "fastcgi", "", own_socket=True)
    if reason := set_up.missing() or (not shutil.which("prometheus") and "no prometheus"):
        tally.skip("what Prometheus makes of alerts and dashboard", reason)
        return
    paths = {"PLANT_STORE_METRICS_PATH": "/metrics", "PLANT_STORE_HEALTH_PATH": "/health"}
    with running(set_up, str(program.parent), **paths) as server:
        server.store.command("token", "add", "short", "--expires", "10d", check=True)
        server.store.command("backup", "--verify", server.root / "copy", check=True)
        place = server.store.dir / "consumers" / "mine"
        place.parent.mkdir()
        server.store.command("export", "--cursor", place, check=True)
        place.chmod(0o644)
        client = server.client()
        missing, number = expressions(), 0
        count = len(missing)

        def all_have_data() -> bool:
            nonlocal number
            number += 1
            client.create(number, "Fern")
            client.create(1, "Moss")
            for name, expression in list(missing.items()):
                found = ask("query", query=expression)["result"]
                if any(math.isfinite(float(sample["value"][1])) for sample in found):
                    del missing[name]
            return not missing

        with prometheus(server) as ask:
            wait_until(all_have_data)
            tally.check(count > 12 and not missing, "the dashboard has data everywhere", missing)

            def alerts() -> dict[str, tuple[str, str]]:
                rules = ask("rules")["groups"][0]["rules"]
                return {rule["name"]: (rule["health"], rule["state"]) for rule in rules}

            expected = dict.fromkeys(alerts(), ("ok", "inactive"))
            expected["PlantStoreTokenExpires"] = ("ok", "firing")
            well = len(expected) == 9 and wait_until(lambda: alerts() == expected)
            tally.check(well, "Prometheus takes each rule, and one fires", alerts())
        client.close()


def scenario(tally: Tally) -> None:
    check_with_prometheus(tally)
    with temporary_store(str(program.parent)) as store:
        check_ends(tally, store)
        check_text(tally, store)
        check_with_promtool(tally, metrics(store).stdout)


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/bin"
    sys.exit(run_scenario(scenario))
