#!/usr/bin/env python3
"""Drives `plant-store verify`, `backup` and `recover` as an operator does.

usage: test_store_command.py PATH_OF_plant-store
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator

from lib_service import (
    JOURNAL_NAME,
    Tally,
    catches,
    new_plant,
    passed_on,
    read_journal,
    run_cgi,
    run_scenario,
    seal,
    temporary_store,
    wait_until,
)

USAGE, DATAERR, NOINPUT, CANTCREAT, CONFIG = 64, 65, 66, 73, 78
PLANTS = 300
LIMIT_S = 60.0
SMALL_DISK = "size=64k"
AT = "2026-01-02T03:04:05.006Z"
BY = "nursery"

program = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None


def run(*words: object, **options: object) -> subprocess.CompletedProcess:
    options.setdefault("env", passed_on())
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run(
        [program, *map(str, words)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=False,
        **options,
    )


def plants_of(path: pathlib.Path) -> list[int]:
    return [plant["id"] for plant in read_journal(path / JOURNAL_NAME)]


class Journal:
    """A journal that is made here, line by line."""

    def __init__(self, plants: int = 0) -> None:
        self.uuid = str(uuid.uuid4())
        self.lines = [seal(f'{{"plant-store":1,"store":"{self.uuid}"', self.uuid)]
        for number in range(1, plants + 1):
            self.add(number, f"plant {number}")

    def add(self, plant_id: int, name: str) -> None:
        prev = self.lines[-1][-11:-3].decode()
        text = new_plant(plant_id, name).decode()
        line = f'{{"seq":{len(self.lines)},"safe":0,"prev":"{prev}","at":"{AT}"'
        self.lines.append(seal(f'{line},"by":"{BY}","plant":{text}', self.uuid))

    def offset(self, line: int) -> int:
        return sum(map(len, self.lines[:line]))

    def content(self) -> bytearray:
        return bytearray(b"".join(self.lines))


def put(path: pathlib.Path, content: bytes) -> pathlib.Path:
    path.mkdir()
    (path / JOURNAL_NAME).write_bytes(content)
    return path


def files(path: pathlib.Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file()
    }


def serve(path: pathlib.Path, *ids: int) -> bool:
    """Let plain CGI open the store and create these, or find them there."""
    with temporary_store(str(program.parent)) as store:
        for plant_id in ids:
            body = new_plant(plant_id, f"plant {plant_id}")
            variables = store.environment(PLANT_STORE_DIR=str(path))
            variables.update(store.request(body))
            answer = run_cgi([store.responder], variables, body)
            if not answer.stdout.startswith(b"Status: 200"):
                print("#", answer)
                return False
    return True


def test_words(tally: Tally, root: pathlib.Path) -> None:
    """Help, and what is wrong in the arguments."""
    for name in "verify", "backup", "recover":
        done = run(name, "--help")
        tally.check(
            done.returncode == 0
            and done.stdout.startswith(f"Usage: plant-store {name} ")
            and "--progress" in done.stdout
            and done.stderr == "",
            f"{name} --help tells its usage",
            done,
        )
        same = run("help", name)
        tally.check(same.stdout == done.stdout, f"and so does help {name}", same)
    for words in (
        ["verify", "a", "b"],
        ["verify", "--nothing"],
        ["backup"],
        ["backup", "a", "b"],
        ["backup", "--dir"],
        ["recover"],
        ["recover", "a"],
        ["recover", "a", "b", "c"],
        ["recover", "--store"],
        ["recover", "--dir", "a", "b"],
    ):
        done = run(*words, cwd=root)
        tally.check(
            done.returncode == USAGE
            and done.stdout == ""
            and done.stderr.count("\n") == 1
            and f"plant-store {words[0]} --help" in done.stderr,
            f"'{' '.join(words)}' is a usage error with a hint",
            done,
        )
    done = run("verify", env={**passed_on(), "PLANT_STORE_DIR": "relative"})
    tally.check(
        done.returncode == CONFIG and "PLANT_STORE_DIR" in done.stderr,
        "a relative PLANT_STORE_DIR is refused",
        done,
    )
    store = put(root / "store", Journal(1).content())
    done = run("verify", env={**passed_on(), "PLANT_STORE_DIR": str(store)})
    tally.check(
        done.returncode == 0 and ": 1 plants, " in done.stdout,
        "verify takes the directory from the settings",
        done,
    )
    environment = {**passed_on(), "PLANT_STORE_THREADS": "none"}
    done = run("backup", root / "copy", env=environment)
    tally.check(
        done.returncode == CONFIG and "PLANT_STORE_THREADS" in done.stderr,
        "a setting that is wrong is told, where the store's directory is one",
        done,
    )


def test_verify(tally: Tally, root: pathlib.Path) -> None:
    journal = Journal(PLANTS)
    store = put(root / "store", journal.content())
    size = len(journal.content())
    whole = f"store {journal.uuid}: {PLANTS} plants, {size} bytes, all valid\n"
    for path in store, store / JOURNAL_NAME:
        done = run("verify", path)
        tally.check(
            done.returncode == 0
            and done.stdout == f"{path}: {whole}"
            and done.stderr == "",
            f"verify of a {'store' if path == store else 'file'} counts",
            done,
        )
    tally.check(
        list(files(store)) == [JOURNAL_NAME], "verify leaves nothing", files(store)
    )
    done = run("verify", root / "none")
    tally.check(
        done.returncode == NOINPUT and "No such file" in done.stderr,
        "verify without a store is told",
        done,
    )
    done = run("verify", root)
    tally.check(
        done.returncode == NOINPUT and "holds no store" in done.stderr,
        "verify of another directory is told",
        done,
    )
    for line in 1, PLANTS // 2, PLANTS:
        content = journal.content()
        content[journal.offset(line) + 20] ^= 1
        # A closing line says that all before it was durable.
        prev = journal.lines[-1][-11:-3].decode()
        closing = f'{{"seq":{PLANTS + 1},"safe":{size},"prev":"{prev}","at":"{AT}"'
        content += seal(closing, journal.uuid)
        (store / JOURNAL_NAME).write_bytes(content)
        done = run("verify", store)
        tally.check(
            done.returncode == DATAERR
            and f"damaged at byte {journal.offset(line)}: wrong checksum"
            in done.stderr
            and done.stdout == "",
            f"damage in line {line} is told with its offset",
            done,
        )
    (store / JOURNAL_NAME).write_bytes(journal.content()[:-10])
    done = run("verify", store)
    tally.check(
        done.returncode == 0
        and f": {PLANTS - 1} plants, " in done.stdout
        and "a batch was torn" in done.stderr,
        "a torn end is told and is no damage",
        done,
    )
    (store / JOURNAL_NAME).write_bytes(b"x" + journal.content()[1:])
    done = run("verify", store)
    tally.check(
        done.returncode == DATAERR and "damaged at byte 0" in done.stderr,
        "a header that is damaged is told",
        done,
    )


def test_index(tally: Tally, root: pathlib.Path) -> None:
    store = put(root / "store", Journal(PLANTS).content())
    if not tally.check(serve(store, PLANTS + 1), "the store is served"):
        return

    def verified(words: str, sentence: str) -> None:
        done = run("verify", store)
        tally.check(
            done.returncode == 0
            and f"\n{store}/index: {words}" in done.stdout
            and done.stderr == "",
            sentence,
            done,
        )

    verified("holds the same plants\n", "verify says that the index holds")
    early = root / "early"
    shutil.copytree(store / "index", early)
    tally.check(serve(store, PLANTS + 2), "the store goes on")
    late = root / "late"
    (store / "index").rename(late)
    verified("missing; the index is built anew at the next start\n", "a lost index")
    shutil.copytree(early, store / "index")
    verified("lacks the last plants;", "an index that is behind")
    shutil.rmtree(store / "index")
    other = put(root / "other", Journal(5).content())
    tally.check(serve(other, 6), "another store is served")
    shutil.copytree(other / "index", store / "index")
    verified("of another store, ", "an index of another store")
    shutil.rmtree(store / "index")
    late.rename(store / "index")
    verified("holds the same plants\n", "the index put back")
    os.truncate(store / JOURNAL_NAME, os.path.getsize(store / JOURNAL_NAME) // 2)
    for words in (
        ["verify", store],
        ["stats", "--dir", store],
        ["get", "--dir", store, PLANTS + 2],
        ["export", "--dir", store],
        ["backup", "--dir", store, root / "copy"],
    ):
        done = run(*words)
        tally.check(
            done.returncode == DATAERR
            and done.stdout == ""
            and "damaged at byte" in done.stderr
            and "restore it" in done.stderr,
            f"{words[0]}: a journal shorter than the index knows is damaged",
            done,
        )
    tally.check(
        not (root / "copy" / JOURNAL_NAME).exists(), "no copy is made of it"
    )


def test_backup(tally: Tally, root: pathlib.Path) -> None:
    journal = Journal(PLANTS)
    store = put(root / "store", journal.content())
    size = len(journal.content())
    for round_, new in (1, size), (2, 0):
        done = run("backup", "--dir", store, root / "copy")
        tally.check(
            done.returncode == 0
            and done.stdout == f"{root}/copy: store {journal.uuid}: {PLANTS} "
            f"plants, {size} bytes, {new} of them new\n",
            f"backup {round_} counts what is new",
            done,
        )
    tally.check(files(root / "copy") == files(store), "the copy equals the store")
    done = run("backup", "--dir", root / "none", root / "other")
    tally.check(
        done.returncode == NOINPUT and not (root / "other").exists(),
        "backup without a store is told",
        done,
    )
    (root / "file").touch()
    done = run("backup", "--dir", store, root / "file")
    tally.check(
        done.returncode != 0 and "file: cannot open" in done.stderr,
        "backup to a file is refused",
        done,
    )
    serve(store, 1)
    before = files(store)
    done = run("backup", "--dir", store, store)
    tally.check(
        done.returncode == CANTCREAT
        and "was served" in done.stderr
        and files(store)[JOURNAL_NAME] == before[JOURNAL_NAME],
        "backup to the store itself is refused",
        done,
    )


Damage = Callable[[Journal], tuple[bytes, list[int], str]]


def damages() -> Iterator[tuple[str, Damage]]:
    """What happens to a journal: its bytes then, the lost ids, what is told."""
    everything = list(range(1, PLANTS + 1))

    def flipped(line: int) -> Damage:
        def damage(journal: Journal) -> tuple[bytes, list[int], str]:
            content = journal.content()
            content[journal.offset(line) + 60] ^= 1
            begin, end = journal.offset(line), journal.offset(line + 1)
            last = "" if line == PLANTS else f"; line {line} is missing"
            return (
                content,
                [line],
                f"{begin}-{end - (line == PLANTS)} "
                f"({end - begin - (line == PLANTS)} bytes): wrong checksum{last}\n",
            )

        return damage

    def header(journal: Journal) -> tuple[bytes, list[int], str]:
        content = journal.content()
        content[20] ^= 1
        return content, [], "0-82 (82 bytes): not a journal's header\n"

    def zeroed(journal: Journal) -> tuple[bytes, list[int], str]:
        content = journal.content()
        begin, end = journal.offset(11), journal.offset(14)
        content[begin:end] = bytes(end - begin)
        return (
            content,
            [11, 12, 13],
            f"{begin}-{end} ({end - begin} bytes): NUL bytes in place of a "
            "record; lines 11 to 13 are missing\n",
        )

    def torn(journal: Journal) -> tuple[bytes, list[int], str]:
        begin = journal.offset(PLANTS)
        end = len(journal.content()) - 20
        return (
            journal.content()[:-20],
            [PLANTS],
            f"{begin}-{end} ({end - begin} bytes): incomplete line\n",
        )

    def removed(journal: Journal) -> tuple[bytes, list[int], str]:
        at = journal.offset(7)
        content = journal.content()
        del content[at : journal.offset(9)]
        return (
            content,
            [7, 8],
            f"{at}-{at} (0 bytes): nothing stands here; lines 7 to 8 are missing\n",
        )

    def newline(journal: Journal) -> tuple[bytes, list[int], str]:
        at = journal.offset(5) - 1
        content = journal.content()
        content[at] = ord("x")
        return content, [], f"{at}-{at + 1} (1 bytes): not a record\n"

    def doubled(journal: Journal) -> tuple[bytes, list[int], str]:
        at = journal.offset(9)
        content = journal.content()
        content[at:at] = journal.lines[8]
        return content, [], ""

    def differing(journal: Journal) -> tuple[bytes, list[int], str]:
        at = len(journal.content())
        first = journal.offset(3)
        journal.add(3, "another")
        return (
            journal.content(),
            [],
            f"the plant 3 at byte {at} differs from that at byte {first}\n",
        )

    def room(journal: Journal) -> tuple[bytes, list[int], str]:
        return journal.content() + b"\n" * 9999, [], ""

    def emptied(journal: Journal) -> tuple[bytes, list[int], str]:
        return (
            journal.lines[0] + b"?" * 9,
            everything,
            "82-91 (9 bytes): not a record\n",
        )

    yield "the first record damaged", flipped(1)
    yield "one in the middle damaged", flipped(PLANTS // 2)
    yield "the last damaged", flipped(PLANTS)
    yield "the header damaged", header
    yield "NUL bytes", zeroed
    yield "a torn end", torn
    yield "lines removed", removed
    yield "a newline damaged", newline
    yield "a line doubled", doubled
    yield "two plants with one id", differing
    yield "room ahead", room
    yield "nothing readable", emptied


def test_recover(tally: Tally, root: pathlib.Path) -> None:
    for number, (name, damage) in enumerate(damages()):
        journal = Journal(PLANTS)
        content, lost, told = damage(journal)
        source = put(root / f"source-{number}", content)
        (source / "lock").write_text(f"ok      {journal.uuid}\n")
        before = files(source)
        dest = root / f"dest-{number}"
        done = run("recover", source, dest)
        *lines, summary = done.stdout.splitlines(keepends=True) or [""]
        tally.check(
            done.returncode == (DATAERR if told else 0)
            and "".join(lines) == told
            and f" {PLANTS - len(lost)} plants of store {journal.uuid}" in summary
            and ("; lost: " in summary) == bool(told)
            and done.stderr == "",
            f"recover, {name}: what is lost is told",
            done,
        )
        kept = [plant_id for plant_id in range(1, PLANTS + 1) if plant_id not in lost]
        tally.check(plants_of(dest) == kept, f"recover, {name}: the rest is there")
        tally.check(
            files(source) == before and list(files(dest)) == [JOURNAL_NAME],
            f"recover, {name}: the source is as before, and no other file is made",
            list(files(dest)),
        )
        verified = run("verify", dest)
        tally.check(verified.returncode == 0, f"recover, {name}: valid", verified)


def test_recovered_store(tally: Tally, root: pathlib.Path) -> None:
    """What recover makes is a store of its own, and keeps at and by."""
    journal = Journal(20)
    content = journal.content()
    content[journal.offset(4) + 9] ^= 1
    source = put(root / "source", content)
    dest = root / "dest"
    dest.mkdir(mode=0o755)
    done = run("recover", source / JOURNAL_NAME, dest)
    text = (dest / JOURNAL_NAME).read_text()
    tally.check(
        done.returncode == DATAERR
        and text.count(f'"at":"{AT}","by":"{BY}"') == 19
        and journal.uuid not in text,
        "recover of a file into an empty directory keeps time and name",
        done,
    )
    tally.check(
        dest.stat().st_mode & 0o777 == 0o755, "the directory keeps its rights"
    )
    tally.check(
        serve(dest, *range(1, 23)) and plants_of(dest)[-3:] == [4, 21, 22],
        "the service goes on with it",
        plants_of(dest),
    )
    whole = put(root / "whole", journal.content())
    for words, status, hint in (
        ((source, dest), CANTCREAT, "was served"),
        ((source, source), CANTCREAT, "holds a store"),
        ((root / "none", root / "new"), NOINPUT, "No such file"),
        ((root, root / "new"), NOINPUT, "cannot open its plants.jsonl"),
        (("/dev/null", root / "new"), NOINPUT, "is no file"),
        (("--store", "ABC", source, root / "new"), USAGE, "uuid"),
        (("--store", uuid.uuid4(), whole, root / "new"), USAGE, f"store {journal.uuid}"),
    ):
        before = files(source)
        done = run("recover", *words)
        tally.check(
            done.returncode == status
            and hint in done.stderr
            and done.stdout == ""
            and not (root / "new").exists()
            and files(source) == before,
            f"recover is refused: {hint}",
            done,
        )


def test_recovered_end(tally: Tally, root: pathlib.Path) -> None:
    """What is gone at the end is told where an index knows of it."""
    journal = Journal(20)
    store = put(root / "store", journal.content())
    tally.check(serve(store, 21, 22), "the store is served")
    os.truncate(store / JOURNAL_NAME, journal.offset(20))
    before = files(store)
    done = run("recover", store, root / "told")
    at = journal.offset(20)
    tally.check(
        done.returncode == DATAERR
        and f"{at}-{at} (0 bytes): nothing stands here; lines 20 to " in done.stdout
        and "; lost: 0 of " in done.stdout
        and done.stderr == ""
        and plants_of(root / "told") == list(range(1, 20)),
        "recover tells what is missing at the end",
        done,
    )
    tally.check(files(store) == before, "the source and its index are as before")
    data = store / "index" / "data.mdb"
    whole = data.read_bytes()
    for number, content in enumerate(
        (whole[:8192] + b"\xff" * (len(whole) - 8192), b"?" * len(whole), whole[:9000])
    ):
        data.write_bytes(content)
        done = run("recover", store, root / f"dest-{number}")
        tally.check(
            done.returncode == 0
            and "everything was readable" in done.stdout
            and done.stderr == ""
            and plants_of(root / f"dest-{number}") == list(range(1, 20)),
            "recover goes on where the index is damaged",
            done,
        )


def test_lost_uuid(tally: Tally, root: pathlib.Path) -> None:
    journal = Journal(3)
    source = put(root / "source", b"?" + journal.content()[1:])
    done = run("recover", source, root / "dest")
    tally.check(
        done.returncode == DATAERR
        and "--store" in done.stderr
        and not (root / "dest").exists(),
        "without the uuid recover says where it stands",
        done,
    )
    done = run("recover", "--store", journal.uuid, source, root / "dest")
    tally.check(
        done.returncode == DATAERR and plants_of(root / "dest") == [1, 2, 3],
        "with the uuid it finds all",
        done,
    )
    later = put(root / "later", b'{"plant-store":2,' + journal.content()[17:])
    done = run("recover", later, root / "other")
    tally.check(
        done.returncode == CONFIG and "version" in done.stderr,
        "a journal of another version is refused",
        done,
    )


def test_read_only(tally: Tally, root: pathlib.Path) -> None:
    """A store that was served, in a snapshot that is mounted for reading."""
    store = put(root / "store", Journal(3).content())
    if not tally.check(serve(store, 4), "the store is served"):
        return
    (root / "mounted").mkdir()
    mounted = False
    sentence = "a read-only mount can be read, its index too"
    try:
        for words in (
            ["mount", "--bind", store, root / "mounted"],
            ["mount", "-o", "remount,ro,bind", root / "mounted"],
        ):
            done = subprocess.run(words, capture_output=True, check=False)
            mounted = done.returncode == 0
        if not mounted:
            tally.skip(sentence, "it cannot be mounted")
            return
        done = run("verify", root / "mounted")
        well = done.returncode == 0 and "/index: holds the same" in done.stdout
        tally.check(well, sentence, done)
    finally:
        subprocess.run(["umount", root / "mounted"], capture_output=True, check=False)


@contextlib.contextmanager
def small_disk(path: pathlib.Path) -> Iterator[bool]:
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", SMALL_DISK, "tmpfs", path],
        capture_output=True,
        check=False,
    )
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", path], check=True)


def test_full_disk(tally: Tally, root: pathlib.Path) -> None:
    store = put(root / "store", Journal(2000).content())
    with small_disk(root / "small") as mounted:
        for words in ("backup", "--dir", store), ("recover", store):
            sentence = f"{words[0]} to a full disk is told and leaves no store"
            if not mounted:
                tally.skip(sentence, "tmpfs cannot be mounted")
                continue
            dest = root / "small" / words[0]
            done = run(*words, dest)
            tally.check(
                done.returncode == CANTCREAT
                and "No space left" in done.stderr
                and files(dest) == {},
                sentence,
                (done, list(files(dest))),
            )
    for words in ("verify", store), ("backup", "--dir", store, root / "a"):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = run(*words, stdout=full)
        tally.check(
            done.returncode not in (0, DATAERR) and "stdout" in done.stderr,
            f"{words[0]}: an output that is lost is an error",
            done,
        )
    damaged = put(root / "damaged", (store / JOURNAL_NAME).read_bytes()[:-9])
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = run("recover", damaged, root / "b", stdout=full)
    tally.check(
        done.returncode not in (0, DATAERR) and "incomplete" in done.stderr,
        "recover: a list that is lost is an error",
        done,
    )


def test_progress(tally: Tally, root: pathlib.Path) -> None:
    store = put(root / "store", Journal(PLANTS).content())
    for name, words in (
        ("verify", ["verify", store]),
        ("backup", ["backup", "--dir", store, root / "copy-"]),
        ("recover", ["recover", store, root / "new-"]),
    ):
        for option, expected in ("--quiet", False), ("--progress", True):
            last = words[-1] if name == "verify" else f"{words[-1]}{option}"
            done = run(*words[:-1], last, option)
            seen = re.search(rf"^plant-store: {name} +\d+ % .*MB/s", done.stderr)
            tally.check(
                done.returncode == 0 and bool(seen) == expected
                and (expected or done.stderr == ""),
                f"{name} {option}",
                done,
            )


def interrupt(*words: object) -> tuple[int, str]:
    """Interrupt it while its first word about its progress cannot be written."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += os.write(write_end, b"." * 4096)
    os.set_blocking(write_end, True)
    process = subprocess.Popen(
        [program, *map(str, words), "--progress"],
        env=passed_on(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=write_end,
    )
    os.close(write_end)
    with process, os.fdopen(read_end, "rb") as pipe:
        wait_until(lambda: catches(process.pid, signal.SIGINT))
        process.send_signal(signal.SIGINT)
        told = pipe.read()[filled:].decode()
        return process.wait(LIMIT_S), told


def test_interrupt(tally: Tally, root: pathlib.Path) -> None:
    store = put(root / "store", Journal(PLANTS).content())
    status, told = interrupt("verify", store)
    tally.check(
        status == 128 + signal.SIGINT
        and re.search(r"stopped after \d+ plants, \d+ bytes, valid so far\n$", told),
        "verify that is interrupted says how far it got",
        (status, told),
    )
    for words in ("backup", "--dir", store), ("recover", store):
        dest = root / words[0]
        status, told = interrupt(*words, dest)
        tally.check(
            status == 128 + signal.SIGINT
            and "stopped" in told
            and files(dest) == {},
            f"{words[0]} that is interrupted leaves no store",
            (status, told),
        )
    run("backup", "--dir", store, root / "backup")
    before = files(root / "backup")
    status, told = interrupt("backup", "--dir", store, root / "backup")
    tally.check(
        status == 128 + signal.SIGINT and files(root / "backup") == before,
        "an earlier backup is as before an interrupted one",
        (status, told),
    )


def scenario(tally: Tally) -> None:
    for test in (
        test_words,
        test_verify,
        test_index,
        test_backup,
        test_recover,
        test_recovered_store,
        test_recovered_end,
        test_lost_uuid,
        test_read_only,
        test_full_disk,
        test_progress,
        test_interrupt,
    ):
        with (
            tally.part(f"{test.__name__} runs to its end"),
            tempfile.TemporaryDirectory(prefix="plant-store-") as root,
        ):
            test(tally, pathlib.Path(root))


if __name__ == "__main__":
    if program is None or len(sys.argv) != 2:
        print(f"usage: {sys.argv[0]} PATH_OF_plant-store", file=sys.stderr)
        sys.exit(os.EX_USAGE)
    sys.exit(run_scenario(scenario))
