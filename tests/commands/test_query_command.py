#!/usr/bin/env python3
"""Goal: stats, get and export tell what is stored, exactly, while others store.

usage: test_query_command.py build/plant-store
"""

import contextlib
import csv
import functools
import io
import itertools
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

from lib_command import (
    CANTCREAT, CONFIG, DATAERR, INTERRUPTED, IOERR, NOINPUT, TEMPFAIL, TIMEOUT_S, USAGE, expect,
    read_to_end, start, through_terminal,
)
from lib_service import (
    JOURNAL_NAME, PIPE_FULL, TOKEN_NAME, FastCgiPeer, Store, Tally, append_plants, canonical,
    catches, held_lock, new_plant, passed_on, responder, run, run_scenario, state_of, stop_process,
    temporary_store, unread, wait_until,
)
from load import Load, kept

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
HOLD_S = 2.0  # more than progress waits for
LOAD_PLANTS = 300

# What a name or a tag may hold, and a reader of CSV may stumble over.
ODD = [
    ("plain", "tag"),
    ("no tag", None),
    ("empty tag", ""),
    ("", None),
    ("", ""),
    ('say "fern"', '"'),
    ("a,b", ","),
    ("one\r\ntwo\nthree\rfour", "\r"),
    (" space ", " "),
    ("\t\b\f\x1f\x7f", "\\"),
    ("Nephrolepis \U0001f33f é \u2028\u2029", "\ufeff"),
    ("=1+1", "@a"),
    ("null", "true"),
]
NULS = [("a\0b", "\0"), ("\0", None)]


def create(store: Store, peer: FastCgiPeer, plant: dict) -> None:
    answer = peer.exchange(store.fcgi(canonical(plant), keep=True))
    if answer.status != 200:
        raise RuntimeError(f"not created: {answer}")


def plant_of(plant_id: int, name: str, tag: str | None) -> dict:
    return json.loads(new_plant(plant_id, name, tag))


def fill(store: Store, plants: list[dict]) -> None:
    """Store the plants in order through a service of its own."""
    with responder(store) as service, FastCgiPeer(service.socket_path) as peer:
        # Refused, but answered only when the store is open.
        peer.exchange(store.fcgi(b"", keep=True))
        for plant in plants:
            create(store, peer, plant)


def lines_of(plants: list[dict]) -> bytes:
    return b"".join(canonical(plant) + b"\n" for plant in plants)


def stats_of(store: Store, *arguments: object) -> dict:
    done = store.command("stats", "--json", *arguments)
    if done.returncode:
        raise RuntimeError(f"stats: {done}")
    return json.loads(done.stdout)


def tree(path: pathlib.Path) -> list[tuple[str, bytes]]:
    """All names and bytes below a directory."""
    files = (file for file in path.rglob("*") if file.is_file())
    return sorted((str(file.relative_to(path)), file.read_bytes()) for file in files)


# --- Arguments ---------------------------------------------------------------


def test_arguments(tally: Tally, store: Store) -> None:
    listed = store.command("--help").stdout
    for name in "stats", "get", "export":
        done = store.command(name, "--help")
        tally.check(
            done.returncode == 0
            and done.stdout.startswith(b"Usage: plant-store " + name.encode())
            and all(len(line) <= 80 for line in done.stdout.splitlines()),
            f"{name} --help tells its usage", done)
        tally.check(f"\n{name} ".encode() in listed, f"plant-store --help has {name}", listed)
    for words in (
        "stats x y", "stats --nothing", "stats --dir", "stats --dir x y", "get", "get x",
        "get 1 2x", "get +1", "get 1.0", f"get {INT64_MAX + 1}", f"get {INT64_MIN - 1}",
        "get -- --dir", "get -x", "get --full=1 3", "export x", "export --format xml",
        "export --since yesterday", "export --since 2026-02-30", "export --since 2026-01-011",
        "export --by a,b", "export --force", "export --dir / --file /x", "export -o",
    ):
        done = store.command(*words.split())
        expect(tally, done, f"'{words}' is a usage error with a hint", USAGE, b"",
               f"plant-store {words.split()[0]} --help".encode())
        tally.check(done.stderr.count(b"\n") == 1, f"'{words}': in one line", done)
    expect(tally, store.command("get", ""), "an empty id is none", USAGE, b"")
    done = store.command("export", "--since", "90d")
    expect(tally, done, "what a time may be is told", USAGE, b"",
           b"invalid time: 90d; use 2027-01-31 or 2027-01-31T12:00:00Z; see:")
    for name, operand in ("stats", []), ("get", ["1"]), ("export", []):
        done = store.command(name, "--dir", store.root / "none", *operand)
        expect(tally, done, f"{name} of a directory that is not there says so", NOINPUT,
               err=f"plant-store: {store.root}/none: cannot open".encode())
    versions = [store.command(option).stdout for option in ("-V", "--version")]
    tally.check(versions[0] == versions[1] != b"", "-V is --version", versions)
    done = store.command("--nothing")
    expect(tally, done, "an unknown option is none of ours", USAGE, b"", b"--nothing; see:")
    done = store.command("stats", "-o", "x")
    expect(tally, done, "nor is one of another subcommand", USAGE, b"", b"unknown option: -o; see:")


# --- An empty store and a small one ------------------------------------------


def test_empty(tally: Tally, store: Store) -> None:
    fill(store, [])
    stats = stats_of(store)
    found = [stats[name] for name in ("plants", "first", "last", "tokens")]
    tally.check(found == [0, None, None, {}],
                "stats of an empty store has no times and no tokens", stats)
    expect(tally, store.command("export"), "an export of an empty store is empty", 0, b"",
           b"exported no plants, up to seq ")
    expect(tally, store.command("export", "--format", "csv"), "as CSV it has its header", 0,
           b"id,name,tag\r\n")


def test_get(tally: Tally, store: Store, plants: list[dict]) -> None:
    expect(tally, store.command("get", *(plant["id"] for plant in plants)),
           "get gives each plant exactly as it was stored", 0, lines_of(plants), b"")
    by_id = {plant["id"]: plant for plant in plants}
    asked = [-5, 3, INT64_MIN, INT64_MAX, 3, 0]
    expected = lines_of([by_id[plant_id] for plant_id in asked])
    for before in [], ["--"], ["--quiet"]:
        expect(tally, store.command("get", *before, *asked),
               f"get {' '.join(before)} answers in the order asked, below 0 and twice too", 0,
               expected)
    expected = lines_of([by_id[3], by_id[0], by_id[-5]])
    for words in ["3", "--dir", store.dir, "0", "-5"], ["3", "0", f"--dir={store.dir}", "-5"]:
        expect(tally, store.command("get", *words), "options may follow ids that are not below 0",
               0, expected)
    expect(tally, store.command("get", "77", "3", "-77"),
           "ids that are not there are named, the others given, status 1", 1,
           lines_of([by_id[3]]), [b"get: 77: no plant", b"get: -77: no plant"])
    full = store.command("get", "--full", "-5").stdout
    line = next(parsed for text in store.journal.read_bytes().splitlines()[1:]
                if (parsed := json.loads(text or b"{}")).get("plant") == by_id[-5])
    expected = {member: line[member] for member in ("at", "by", "plant")}
    tally.check(json.loads(full) == expected, "get --full gives also when and by which token",
                full)
    done = store.command("export", "--full")
    tally.check(full in done.stdout.splitlines(True) and done.stdout.count(b"\n") == len(plants),
                "and export --full gives the same line of each plant", done)
    done = store.command("export", "--full", "--format", "csv")
    expect(tally, done, "which is no form of CSV", USAGE, err=[b"--full needs JSON"])
    done = store.command("get", "--dir", store.dir, "77",
                         env={**passed_on(), "PLANT_STORE_LOG_FORMAT": "json"})
    expect(tally, done, "messages can be JSON also of a store that is named", 1, b"",
           err=[b'"message":"get: 77: no plant has this id'])
    with open("/dev/full", "wb") as output:
        for words in ["get", "3"], ["get", "3", "77"]:
            expect(tally, store.command(*words, stdout=output),
                   f"{' '.join(words)} into a full disk is an error", IOERR, err=b"stdout: ")


def test_export(tally: Tally, store: Store, plants: list[dict]) -> None:
    done = store.command("export")
    stats = stats_of(store)
    said = f"plant-store: exported {len(plants)} plants, up to seq "
    until = f" at byte {stats['bytes']}, {stats['last']}\n"
    tally.check(
        (done.returncode, done.stdout) == (0, lines_of(plants))
        and done.stderr.decode().startswith(said) and done.stderr.decode().endswith(until),
        "an export has all plants in the order stored and says up to where", done)
    path = store.root / "out"
    expect(tally, store.command("export", "-o", path), "-o writes to a file", 0, b"")
    tally.check(path.read_bytes() == lines_of(plants) and path.stat().st_mode & 0o777 == 0o600,
                "of the same plants, for its owner alone", path)
    for name, words, begin in (
        ("x.csv", [], b"id,name,tag\r\n"), ("y.csv", ["--format", "jsonl"], b'{"id":'),
        ("x.jsonl", [], b'{"id":'), ("y.jsonl", ["--format", "csv"], b"id,"),
    ):
        store.command("export", *words, "-o", store.root / name)
        content = (store.root / name).read_bytes()
        tally.check(content.startswith(begin), f"{name} {words} has its format", content[:20])
    for force, status in ([], CANTCREAT), (["--force"], 0):
        path.write_text("mine")
        done = store.command("export", "-o", path, *force)
        expected = lines_of(plants) if force else b"mine"
        tally.check(
            done.returncode == status and path.read_bytes() == expected,
            f"a file that is there {'is replaced' if force else 'stays'} "
            f"with {' '.join(force) or 'no --force'}", done)
    path.unlink()
    path.symlink_to("elsewhere")
    for name in path, store.root, "/dev/null":
        expect(tally, store.command("export", "--force", "-o", name),
               f"{pathlib.Path(name).name}: what is no file is not replaced", CANTCREAT,
               err=b"not a regular file")
    path.unlink()
    os.link(store.journal, path)
    before = store.journal.read_bytes()
    for name in store.journal, path:
        expect(tally, store.command("export", "--force", "-o", name),
               f"a journal is not replaced ({name.name})", CANTCREAT, b"", b"belongs to a store")
    tally.check(store.journal.read_bytes() == before == path.read_bytes(), "and stays as it is")
    path.unlink()
    expect(tally, store.command("export", "-o", store.root / "none" / "out"),
           "-o into a directory that is not there says so", CANTCREAT,
           err=b"none/out: cannot create: ")
    again = sorted(store.root.glob("out*"))
    tally.check(not again, "nothing else is left beside the file", again)


def test_terminal(tally: Tally, store: Store) -> None:
    """What a terminal would obey is escaped there, and nowhere else."""
    plants = [
        plant_of(1, "\x1b[31m\x7f \x80\x85\x9f\xa0 \u2029\u202a\u202e\u202f", "\u2065\u2066"),
        plant_of(2, "\u2069\u206a é\r\n", "a\rb\tc"),
    ]
    fill(store, plants)
    escaped = [
        "\\u001b[31m\\u007f \\u0080\\u0085\\u009f\xa0 \u2029\\u202a\\u202e\u202f",
        "\u2065\\u2066", "\\u2069\u206a é",
    ]
    for words, rest, ends in (
        (["get", "1", "2"], ["\\r\\n", "a\\rb\\tc"], '{{"id":{},"name":"{}","tag":"{}"}}\n'),
        (["export"], ["\\r\\n", "a\\rb\\tc"], '{{"id":{},"name":"{}","tag":"{}"}}\n'),
        (["export", "--format", "csv"], ["\r\n", "a\\u000db\tc"], "{},{},{}\r\n"),
    ):
        _, shown = through_terminal(lambda slave: store.command(*words, stdout=slave))
        shown = shown.decode().removeprefix("id,name,tag\r\n").replace('"', "")
        expected = ends.format(1, *escaped[:2]) + ends.format(2, escaped[2] + rest[0], rest[1])
        tally.check(shown == expected.replace('"', ""),
                    f"{' '.join(words)}: a terminal gets no control characters", shown)
    expect(tally, store.command("get", "1", "2"), "a pipe gets them", 0, lines_of(plants))


def parse_csv(data: bytes) -> list[dict]:
    """Plants from CSV, by rules of our own: csv loses what is in quotes."""
    text = data.decode()
    rows, row, field, at, quoted = [], [], "", 0, False
    while at < len(text):
        if text[at] == '"':
            end = at + 1
            while text[end] != '"' or text[end + 1] == '"':
                end += 2 if text[end] == '"' else 1
            field, quoted, at = text[at + 1:end].replace('""', '"'), True, end + 1
        else:
            end = at
            while text[end] not in ",\r":
                end += 1
            field, quoted, at = text[at:end], False, end
        row.append((field, quoted))
        if text.startswith("\r\n", at):
            rows.append(row)
            row, at = [], at + 2
        elif text[at] == ",":
            at += 1
        else:
            raise ValueError(f"{text[at:at + 20]!r} behind a field")
    if [field for field, _ in rows.pop(0)] != ["id", "name", "tag"]:
        raise ValueError("no header")
    plants = []
    for (plant_id, _), (name, _), (tag, quoted) in rows:
        given = tag if tag or quoted else None
        plants.append(plant_of(int(plant_id), name, given))
    return plants


def test_csv(tally: Tally, store: Store, plants: list[dict]) -> None:
    done = store.command("export", "--format=csv")
    tally.check(done.returncode == 0 and parse_csv(done.stdout) == plants,
                "all strings come back from CSV, and no tag differs from an empty one", done)
    rows = (f'id,name,tag\r\n{plants[0]["id"]},plain,tag\r\n{plants[1]["id"]},no tag,\r\n'
            f'{plants[2]["id"]},empty tag,""\r\n')
    tally.check(done.stdout.decode().startswith(rows),
                "a plain value has no quotes, and lines end in CR LF", done.stdout[:200])
    nul = next(plant["id"] for plant in plants if "\0" in plant["name"])
    tally.check(f"U+0000 in 2 plants (the first: {nul})" in done.stderr.decode(),
                "a U+0000 is kept and warned of", done.stderr)
    other = [plant for plant in plants if "\0" not in plant["name"]]
    lines = io.StringIO(done.stdout.decode(), newline="")
    text = "".join(line for line in lines if "\0" not in line)
    read = list(csv.DictReader(io.StringIO(text, newline="")))
    expected = [{"id": str(p["id"]), "name": p["name"], "tag": p.get("tag", "")} for p in other]
    tally.check(read == expected, "Python's reader of CSV agrees", read)


def test_filters(tally: Tally, store: Store, plants: list[dict]) -> None:
    lines = store.journal.read_bytes().splitlines()
    records = [json.loads(line) for line in lines if b'"plant":' in line]
    middle = records[len(records) // 2]["at"]
    expected = [r["plant"] for r in records if r["at"] >= middle]
    for text in middle, middle.replace("Z", "+00:00"):
        done = store.command("export", "--since", text)
        tally.check(done.stdout == lines_of(expected) and len(expected) < len(plants),
                    "--since takes what was stored then and later", (text, done))
    for option, value, count in (
        ("--since", "9999-12-31T23:59:59Z", 0),
        ("--since", "0000-01-01T00:00:00Z", len(plants)),
        ("--since", "9999-12-31", 0),
        ("--since", "2026-01-01", len(plants)),
        ("--by", TOKEN_NAME, len(plants) - 1),
        ("--by", "second", 1),
        ("--by", "secon", 0),
    ):
        done = store.command("export", option, value)
        tally.check(
            done.stdout.count(b"\n") == count
            and f"exported {count or 'no'} plant{'s' * (count != 1)},".encode() in done.stderr,
            f"{option} {value} takes {count}", done)


def test_stats(tally: Tally, store: Store, plants: list[dict]) -> None:
    stats = stats_of(store)
    lines = store.journal.read_bytes().rstrip(b"\n").split(b"\n")
    records = [json.loads(line) for line in lines]
    stored = [record for record in records if "plant" in record]
    size = len(b"\n".join(lines)) + 1
    index_bytes = stats.pop("index_bytes")
    expected = {
        "store": records[0]["store"],
        "plants": len(plants),
        "bytes": size,
        "first": stored[0]["at"],
        "last": stored[-1]["at"],
        "watermark": records[-1]["safe"],
        "above_watermark": size - records[-1]["safe"],
        "index": "current",
        "index_behind": 0,
        "kept_files": 0,
        "kept_bytes": 0,
        "directory": str(store.dir),
        "backup": None,
        "backup_verified": None,
        "tokens": {TOKEN_NAME: len(plants) - 1, "second": 1},
        "consumers": {},
    }
    tally.check(stats == expected, "stats --json tells what the journal says", stats)
    tally.check(list(stats["tokens"]) == sorted(stats["tokens"]), "tokens are sorted", stats)
    used = sum(f.stat().st_blocks * 512 for f in (store.dir / "index").iterdir())
    tally.check(index_bytes == used > 0, "and the index's room", (index_bytes, used))
    lines = {name: "-" if value is None else value for name, value in stats_of(store).items()}
    groups = lines, lines.pop("tokens"), lines.pop("consumers")
    text = ["".join(f"{name:15}  {value}\n" for name, value in group.items()) for group in groups]
    expect(tally, store.command("stats", "--all", text=True), "as text it has the same", 0,
           "{}\ntokens\n{}\nconsumers\n{}".format(*text))
    whole = store.journal.read_bytes()
    store.journal.write_bytes(whole.rstrip(b"\n") + b'\n{"seq":')
    torn = store.command("stats", "--json")
    store.journal.write_bytes(whole)
    told = f"a batch is torn at byte {size}, before it was acknowledged; the service will cut it"
    tally.check(json.loads(torn.stdout) == stats | {"index_bytes": index_bytes}
                and told.encode() in torn.stderr,
                "a torn end is reported, and the rest is as before", torn)


# --- Stores that are not well ------------------------------------------------


def test_index_states(tally: Tally, store: Store, plants: list[dict]) -> None:
    """What stats says of an index, and get finds all whatever it is."""
    index, kept = store.dir / "index", store.root / "index-kept"
    asked = [plant["id"] for plant in plants]

    def check(state: str) -> None:
        before = tree(store.dir)
        stats = stats_of(store)
        tally.check(
            stats["index"] == state and (stats["index_behind"] > 0) == (state == "behind"),
            f"stats tells that the index is {state}", stats)
        done = store.command("get", *asked, "77")
        tally.check(
            (done.returncode, done.stdout) == (1, lines_of(plants))
            and done.stderr.count(b"\n") == 1, f"get finds all when the index is {state}", done)
        tally.check(tree(store.dir) == before, f"nothing was changed ({state})")

    newer = [plant_of(1000 + number, "newer", None) for number in range(3)]
    append_plants(store.journal, newer)
    plants, asked = plants + newer, asked + [plant["id"] for plant in newer]
    check("behind")
    index.rename(kept)
    check("missing")
    shutil.copytree(kept, index)
    check("stale")
    fill(store, [])
    check("current")
    (index / "manifest").write_bytes(b"?" * 65536)
    check("unreadable")
    with temporary_store(str(store.build)) as other:
        fill(other, plants[:1])
        shutil.rmtree(index)
        shutil.copytree(other.dir / "index", index)
    for words in ["stats"], ["get", *asked], ["export"], ["verify"]:
        expect(tally, store.command(*words), f"{words[0]} refuses an index of another store",
               CONFIG, b"", [b"belongs to a different store from the index beside it", b"/index first\n"])
    shutil.rmtree(index)
    fill(store, [])
    check("current")


def test_backup(tally: Tally, store: Store, plants: list[dict]) -> None:
    dest = store.root / "backup"
    store.command("backup", dest)
    before = tree(dest)
    done = store.command("get", "--dir", dest, plants[0]["id"])
    expect(tally, done, "get reads a backup", 0, lines_of(plants[:1]))
    for words in ["--dir", dest], [dest]:
        stats = stats_of(store, *words)
        tally.check(stats["plants"] == len(plants) and stats["index"] == "missing",
                    "stats reads a backup", stats)
    done = store.command("export", "--file", dest / JOURNAL_NAME)
    expect(tally, done, "export reads a journal by its name", 0, lines_of(plants))
    tally.check(tree(dest) == before, "a backup is not changed")


def test_failed_and_kept(tally: Tally, store: Store, plants: list[dict]) -> None:
    (store.dir / f"{JOURNAL_NAME}.torn-123.1").write_bytes(b"x" * 10)
    (store.dir / f"{JOURNAL_NAME}.failed-456.2").write_bytes(b"y" * 32)
    stats = stats_of(store)
    tally.check((stats["kept_files"], stats["kept_bytes"]) == (2, 42),
                "stats counts the files that were kept", stats)
    failed = store.journal.rename(f"{store.journal}.failed")
    for words in (
        ["stats"], ["get", plants[0]["id"]], ["export", "-o", store.root / "out"], ["verify"],
        ["backup", store.root / "out"],
    ):
        done = store.command(*words)
        expect(tally, done, f"{words[0]} of a store whose sync has failed is refused", IOERR, b"",
               [b"a sync had failed in version 1.0.0", b"start the service"])
    tally.check(not list(store.root.glob("out*")), "and leaves no file")
    done = store.command("export", "--file", failed)
    expect(tally, done, "its journal can be exported by its name", 0, lines_of(plants))
    fill(store, [])
    expect(tally, store.command("export"), "the service recovers it", 0, lines_of(plants))


def test_damage(tally: Tally, store: Store, plants: list[dict]) -> None:
    good = store.journal.read_bytes()
    at = good.index(b'"name":"empty tag"')
    store.journal.write_bytes(good[:at] + b'"name":"Empty tag"' + good[at + 18:])
    for words in ["stats"], ["export"], ["export", "-o", store.root / "out"]:
        done = store.command(*words)
        expect(tally, done, f"{' '.join(map(str, words[:2]))} of a damaged journal says where",
               DATAERR, err=b"damaged at byte")
        tally.check(not list(store.root.glob("out*")), "and leaves no file")
    done = store.command("get", plants[0]["id"], plants[3]["id"])
    expect(tally, done, "get finds what is not damaged", 0, lines_of([plants[0], plants[3]]))
    done = store.command("get", plants[0]["id"], plants[2]["id"], plants[3]["id"])
    expect(tally, done, "get finds that a plant is damaged, and goes on", DATAERR,
           lines_of([plants[0], plants[3]]))
    tally.check(b"no plant has" not in done.stderr, "and never says that it is not there", done)
    store.journal.write_bytes(good)


# --- The output --------------------------------------------------------------


def test_output(tally: Tally, store: Store) -> None:
    with open("/dev/full", "wb") as full:
        done = store.command("export", stdout=full)
    expect(tally, done, "an export into a full disk is an error", IOERR,
           err=b"stdout: cannot write: ")
    read_end, write_end = os.pipe()
    os.close(read_end)
    for words in ["export"], ["get", "1"]:
        expect(tally, store.command(*words, stdout=write_end),
               f"a reader that went away ends {words[0]} silently", -signal.SIGPIPE, err=b"")
    os.close(write_end)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    # Not to end by the signal that comes with it.
    done = store.command("export", "-o", store.root / "out", preexec_fn=limit)
    expect(tally, done, "a file that cannot be written to its end is an error", IOERR,
           err=b"out: cannot write: File too large")
    tally.check(not list(store.root.glob("out*")), "and is removed")
    sentence = "a file that cannot be synced is an error"
    if tally.lacks(sentence, "strace"):
        return
    # What looks for leaks cannot be traced itself.
    options = passed_on().get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    out = store.root / "out"
    for number, text in (2, b"out: cannot sync its directory: "), (1, b"out: cannot sync: "):
        out.unlink(missing_ok=True)
        done = run("strace", "-qq", "-o", "/dev/null", "-e",
                   f"inject=fsync:error=EIO:when={number}", store.build / "plant-store", "export",
                   "-o", out, env=store.environment(ASAN_OPTIONS=options))
        expect(tally, done, f"{sentence}: {text.decode()}", IOERR, err=text)
    tally.check(not list(store.root.glob("out*")), "and is removed, if its name is not there yet")


def has_begun(process: subprocess.Popen) -> bool:
    """Whether it has opened its output, out.unfinished."""
    files = []
    for fd in pathlib.Path(f"/proc/{process.pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            files.append(os.readlink(fd))
    return any(name.endswith("/out.unfinished") for name in files)


def test_interrupted_file(tally: Tally, store: Store) -> None:
    out, unfinished = store.root / "out", store.root / "out.unfinished"
    for number, force in (signal.SIGINT, []), (signal.SIGTERM, ["--force"]):
        with held_lock(store):
            process = start(store, "export", "-o", out, *force)
            begun = wait_until(lambda: has_begun(process), 60)
            # As timeout(1) does, twice.
            process.send_signal(number)
            process.send_signal(number)
        _, said = process.communicate(timeout=TIMEOUT_S)
        tally.check(
            begun
            and process.returncode == 128 + number
            and b"export: stopped after " in said
            and b"out was not made" in said
            and not list(store.root.glob("out*")),
            f"{number.name} ends an export to a file, of which nothing is left",
            (begun, process.returncode, said))
    with held_lock(store):
        process = start(store, "export", "-o", out)
        begun = wait_until(lambda: has_begun(process), 60)
        expect(tally, store.command("export", "-o", out, "--force"),
               "two do not write a file at a time", TEMPFAIL, err=b"try again")
        process.kill()
        process.communicate(timeout=TIMEOUT_S)
    left = list(store.root.glob("out*"))
    tally.check(begun and left == [unfinished], "SIGKILL leaves one unfinished file", left)
    unfinished.write_bytes(bytes(10_000_000))
    store.command("export", "-o", out)
    tally.check(list(store.root.glob("out*")) == [out] and out.stat().st_size < 10_000_000,
                "and the next export overwrites it", list(store.root.glob("out*")))
    out.unlink()
    os.link(store.tokens, unfinished)
    expect(tally, store.command("export", "-o", out, "--force"),
           "a link in the place of the unfinished file is not written to", CANTCREAT,
           err=b"out: cannot create: File exists")
    tally.check(unfinished.read_bytes().startswith(b"scenario "), "and stays")
    unfinished.unlink()


def test_unblocked_pipe(tally: Tally, store: Store, plants: list[dict]) -> None:
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    process = start(store, "export", stdout=theirs)
    os.close(theirs)
    waits = wait_until(lambda: unread(ours) > PIPE_FULL and state_of(process.pid) == "S")
    got = read_to_end(ours)
    _, said = process.communicate(timeout=TIMEOUT_S)
    tally.check(waits and process.returncode == 0 and got == lines_of(plants),
                "a pipe that does not block is waited for", (waits, process.returncode, said))


def test_interrupted_pipe(tally: Tally, store: Store, plants: list[dict]) -> None:
    process = start(store, "export")
    try:
        # Nobody reads more than this, so it waits in the middle.
        got = os.read(process.stdout.fileno(), 1)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=TIMEOUT_S)
    finally:
        stop_process(process)
    tally.check(
        process.returncode == INTERRUPTED
        and lines_of(plants).startswith(got + out)
        and b"export: stopped after " in said
        and b"incomplete" in said,
        "SIGINT ends an export whose reader does not read, and says so",
        (process.returncode, said))


def test_progress(tally: Tally, store: Store) -> None:
    done = store.command("export", "--progress", "-o", store.root / "out")
    tally.check(b"MB/s" in done.stderr, "--progress shows it anywhere", done.stderr)
    (store.root / "out").unlink()
    process, said = through_terminal(lambda slave: start(
        store, "export", "--since", "9999-01-01", stdout=slave, stderr=slave))
    process.wait(TIMEOUT_S)
    tally.check(b"exported no plants" in said and b"MB/s" not in said,
                "there is no progress where the plants go", said)


def behind_pipe(store: Store, *arguments: str) -> tuple[int, bytes]:
    """The status, and what a terminal was told while nobody read the output for a while."""

    def hold(slave: int) -> subprocess.Popen:
        process = start(store, *arguments, stderr=slave)
        wait_until(lambda: unread(process.stdout) > PIPE_FULL and state_of(process.pid) == "S")
        time.sleep(HOLD_S)
        process.stdout.read()
        return process

    process, said = through_terminal(hold)
    return process.wait(TIMEOUT_S), said


def on_terminal(store: Store, *arguments: str, stop: bool = False) -> tuple[int, bytes]:
    """The status, and what a terminal was told while the lock was held
    long enough for progress, which is counted from when signals are caught."""

    def hold(slave: int) -> subprocess.Popen:
        with held_lock(store):
            process = start(store, *arguments, stdout=subprocess.DEVNULL, stderr=slave)
            wait_until(lambda: catches(process.pid, signal.SIGINT))
            time.sleep(HOLD_S)
            if stop:
                process.send_signal(signal.SIGINT)
        return process

    process, said = through_terminal(hold)
    return process.wait(TIMEOUT_S), said


def test_terminal_line(tally: Tally, store: Store) -> None:
    """`store` is of some mebibytes, so that there is progress behind a full pipe."""
    status, said = behind_pipe(store, "export")
    tally.check(
        status == 0
        and re.search(rb"\rexport +\d+ %  [\d.]+ MB/s  \d+:\d\d left\x1b\[K", said)
        and b"\r\x1b[Kplant-store: exported 60 plants" in said,
        "a terminal has a line with the time that is left, and at the end none", said)


def test_interrupted_search(tally: Tally, store: Store) -> None:
    index, kept = store.dir / "index", store.root / "index-kept"
    index.rename(kept)
    status, said = on_terminal(store, "get", "1", stop=True)
    checked = on_terminal(store, "check", stop=True)
    kept.rename(index)
    tally.check(status == INTERRUPTED and b"no plant has this id" not in said,
                "SIGINT ends a search, of which nothing is said to be missing", (status, said))
    well = checked[0] == INTERRUPTED and re.search(rb"\rcheck +\d+ %", checked[1])
    tally.check(well, "and what check reads, which shows progress, too", checked)


# --- While others store ------------------------------------------------------


def look_once(store: Store, load: Load) -> str:
    """What is wrong with what the commands say now; empty if nothing is."""
    before = load.told()
    got = store.command("get", -before)
    if got.stdout != lines_of([plant_of(-before, "busy", "b")]):
        return f"get {-before}: {got}"
    exported = store.command("export")
    ids = [-json.loads(line)["id"] for line in exported.stdout.splitlines()]
    # One more may be on its way.
    if ids != list(range(1, len(ids) + 1)) or not before <= len(ids) <= load.told() + 1:
        return f"export: {before}, {len(ids)}, {load.told()}"
    stats = stats_of(store)
    if not len(ids) <= stats["plants"] <= load.told() + 1:
        return f"stats: {len(ids)}, {stats}, {load.told()}"
    return "" if stats["index"] in ("current", "behind") else f"stats: {stats}"


def test_while_stored(tally: Tally, build: str) -> None:
    if tally.lacks("readers while plants are stored", "a writable /dev/shm"):
        return
    with temporary_store(build) as store, responder(store) as service:
        way = functools.partial(kept, store, service.socket_path)
        wrong: list[str] = []
        rounds = 0
        deadline = time.monotonic() + TIMEOUT_S
        with Load([way], lambda _: ((-i, "busy", "b") for i in itertools.count(1))) as load:
            load.wait_told(1, TIMEOUT_S)
            while load.told() < LOAD_PLANTS or rounds < 10:
                if wrong or time.monotonic() > deadline:
                    break
                wrong += filter(None, [look_once(store, load)])
                rounds += 1
        print(f"# {rounds} rounds while {load.told()} plants were stored")
        tally.check(not wrong and rounds >= 10,
                    "get, export and stats are right while plants are stored", wrong)
        well = set(load.answers) == {"200"} and not load.wrong
        tally.check(well, "the client did not notice", (load.answers, load.wrong))
        tally.check(len(store.plants()) >= load.told(), "and the journal is whole")


# --- All ---------------------------------------------------------------------


def make_plants() -> list[dict]:
    """In the order stored; the ids are of both signs and out of order."""
    plants = [
        plant_of((-1) ** number * (200 + 7 * number), name, tag)
        for number, (name, tag) in enumerate(ODD + NULS)
    ]
    for plant_id in 3, -5, 0, INT64_MAX, INT64_MIN:
        plants.append(plant_of(plant_id, f"plant {plant_id}", None))
    return plants


def store_with_second_token(store: Store, plant: dict) -> None:
    done = store.command("token", "add", "second")
    first, store.token = store.token, done.stdout.decode().strip()
    fill(store, [plant])
    store.token = first


def test_small(tally: Tally, build: str) -> None:
    plants = make_plants()
    with temporary_store(build) as store:
        test_arguments(tally, store)
        test_empty(tally, store)
        fill(store, plants)
        plants.append(plant_of(400, "by another", "x"))
        store_with_second_token(store, plants[-1])
        before = tree(store.dir)
        for test in test_get, test_export, test_csv, test_filters, test_stats:
            test(tally, store, plants)
        test_progress(tally, store)
        test_interrupted_file(tally, store)
        tally.check(tree(store.dir) == before, "none of this changed the store")
        test_backup(tally, store, plants)
        (store.dir / "last-backup").unlink()
        tally.check(tree(store.dir) == before, "a backup only leaves its time")
        test_damage(tally, store, plants)
        test_failed_and_kept(tally, store, plants)
        test_index_states(tally, store, plants)
    with temporary_store(build) as store:
        test_terminal(tally, store)


def test_large(tally: Tally, build: str) -> None:
    plants = [plant_of(n, f"{n} " + "é" * 30_000, None) for n in range(60)]
    with temporary_store(build) as store:
        fill(store, plants)
        expect(tally, store.command("export"), "plants of 60 kB each are exported", 0,
               lines_of(plants))
        test_output(tally, store)
        test_interrupted_file(tally, store)
        test_interrupted_pipe(tally, store, plants)
        test_unblocked_pipe(tally, store, plants)
        test_terminal_line(tally, store)
        test_interrupted_search(tally, store)


# --- The summary, and the consumers ------------------------------------------


def test_summary(tally: Tally, build: str) -> None:
    with temporary_store(build) as store:

        def summary() -> str:
            return store.command("stats", text=True, check=True).stdout

        def shows(sentence: str, *lines: str) -> None:
            text = summary()
            tally.check(re.fullmatch("\n".join(lines) + "\n", text) is not None, sentence, text)

        def add(number: int) -> None:
            store.command("import", "--quiet", input=new_plant(number, "Fern"), check=True)

        size = r"size       \d+\.\d kB; [\d.]+ [kMGT]B free.*"
        nobody = rf"consumers  none in {store.dir}/consumers"
        token = "tokens     1 token; none expires"
        shows("an empty store in six lines", "plants     0", "rate       no plants in the last minute",
              size.replace(r"\d+\.\d kB", r"\d+ bytes"), "backup     none yet", nobody, token)
        old = '{"at":"2026-01-02T03:04:05.006Z","by":"a","plant":{"id":1,"name":"Ivy"}}\n'
        store.command("import", "--quiet", "--full", input=old.encode(), check=True)
        shows("an old plant is not in the rate", r"plants     1; the last one \d+ days ago",
              "rate       no plants in .*", "size .*", "backup .*", nobody, token)
        for name in "last-backup", "last-verified":
            (store.dir / name).write_text("2026-01-02T03:04:05.006Z\n")
        line = store.tokens.read_text().split()
        soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3 * 86400 + 60))
        store.tokens.write_text(f"{line[0]} {line[1]} {soon}\nother {line[1][::-1]}\n")
        add(2)
        shows("what there is has its age", r"plants     2; the last one \d+ seconds? ago",
              "rate       1 plant in the last minute", "size .*", r"backup     \d+ days old, verified \d+ days ago", nobody,
              "tokens     2 tokens; the next one expires in 3 days")
        place = store.dir / "consumers" / "mine"
        place.parent.mkdir()
        poll = "export", "--quiet", "--cursor", place
        store.command(*poll, check=True)
        (place.parent / "notes.txt").write_text("no cursor")
        reads = r"consumer   mine: {} behind, last read \d+ {}s? ago"
        tally.check(re.search(reads.format("0 bytes", "second"), summary()), "a consumer is seen", summary())
        add(3)
        os.utime(place, (0, time.time() - 7300))
        tally.check(re.search(reads.format(r"\d{2,} bytes", "hour"), summary()), "and how far it is behind, and since when", summary())
        tally.check(stats_of(store)["consumers"]["mine"] > 99, "in JSON, too", stats_of(store))
        done = store.command("check", text=True)
        expect(tally, done, "a consumer that fails for an hour is a problem", CONFIG,
               err=["the consumer mine: ", " behind, last read 2 hours ago; see its log"])
        told = store.command("metrics", text=True).stdout
        told = dict(re.findall(r'(?m)^plant_store_consumer_(\w+){consumer="mine"} (\S+)$', told))
        tally.check(float(told["behind_bytes"]) > 99 and 7200 < time.time() - float(told["timestamp_seconds"]) < 7400,
                    "the metrics have both", told)
        store.command(*poll, check=True)
        done = store.command("check", text=True)
        tally.check(re.search(r"the consumer mine: 0 bytes behind, last read \d+ seconds? ago: ok", done.stdout),
                    "one that reads again is well", done)
        master, slave = os.openpty()
        with start(store, "stats", "--watch", stdout=slave) as process:
            text = ""
            for count in 3, 4:
                while f"plants     {count};" not in text:
                    text += os.read(master, 4096).decode()
                add(4)
            process.send_signal(signal.SIGINT)
            status = process.wait(TIMEOUT_S)
        os.close(slave)
        os.close(master)
        tally.check(status == 0, "--watch shows what is stored meanwhile, until Ctrl-C", status)
        expect(tally, store.command("stats", "--watch", text=True), "it needs a terminal", USAGE)


def scenario(tally: Tally) -> None:
    build = str(pathlib.Path(sys.argv[1]).resolve().parent)
    for test in test_small, test_large, test_while_stored, test_summary:
        with tally.part(test.__name__):
            test(tally, build)


if __name__ == "__main__":
    sys.exit(run_scenario(scenario))
