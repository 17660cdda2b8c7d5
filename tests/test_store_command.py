#!/usr/bin/env python3
"""Drives `plant-store verify`, `backup` and `recover` as an operator does.

usage: test_store_command.py PATH_OF_plant-store
"""

import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence

from lib_command import (
    CANTCREAT, CONFIG, DATAERR, INTERRUPTED, NOINPUT, TIMEOUT_S, USAGE, expect, take_lock,
)
from lib_service import (
    JOURNAL_NAME, Tally, catches, new_plant, passed_on, read_journal, run_cgi, run_scenario,
    seal, temporary_store, wait_until,
)

PLANTS = 300
STOPPED_PLANTS = 60_000
LATER_NAME = "plants.jsonl.later"
NOBODY = 65534
SMALL_DISK = "size=64k"
AT = "2026-01-02T03:04:05.006Z"
BY = "nursery"

program = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None


def run(*words: object, **options: object) -> subprocess.CompletedProcess:
    options = {"env": passed_on(), "stdout": subprocess.PIPE, **options}
    return subprocess.run(
        [program, *map(str, words)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, timeout=TIMEOUT_S, check=False, **options)


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


def put_boot(store: pathlib.Path, store_uuid: str) -> None:
    """The file beside an index that names the store."""
    (store / "index").mkdir()
    (store / "index" / "boot").write_text(f"{'clean':36}\n{store_uuid}\n")


def files(path: pathlib.Path) -> dict[str, bytes]:
    below = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in below}


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
    for name in "init", "verify", "backup", "recover":
        done = run(name, "--help")
        tally.check(
            done.returncode == 0
            and done.stdout.startswith(f"Usage: plant-store {name} ")
            and ("--progress" in done.stdout) == (name != "init") and done.stderr == "",
            f"{name} --help tells its usage", done)
        same = run("help", name)
        tally.check(same.stdout == done.stdout, f"and so does help {name}", same)
    for words in (
        "init a b", "init --dir a b", "verify a b", "verify --nothing", "verify --dir a b", "backup", "backup a b",
        "backup --dir", "recover", "recover a", "recover a b c", "recover --store",
        "recover --dir a b",
    ):
        done = run(*words.split(), cwd=root)
        expect(tally, done, f"'{words}' is a usage error with a hint", USAGE, "",
               f"plant-store {words.split()[0]} --help")
        tally.check(done.stderr.count("\n") == 1, f"'{words}': in one line", done)
    store = put(root / "store", Journal(1).content())
    for setting, words, status, out, err in (
        ("PLANT_STORE_DIR=relative", ["verify"], CONFIG, "", "PLANT_STORE_DIR"),
        (f"PLANT_STORE_DIR={store}", ["verify"], 0, None, ""),
        ("PLANT_STORE_THREADS=x", ["backup", root / "a"], CONFIG, "", "PLANT_STORE_THREADS"),
    ):
        name, _, value = setting.partition("=")
        done = run(*words, env={**passed_on(), name: value})
        expect(tally, done, f"{words[0]} with {setting} ends with {status}", status, out, err)


def test_verify(tally: Tally, root: pathlib.Path) -> None:
    journal = Journal(PLANTS)
    store = put(root / "store", journal.content())
    size = len(journal.content())
    whole = f"store {journal.uuid}: {PLANTS} plants, {size} bytes, all valid\n"
    for words in [store], [store / JOURNAL_NAME], ["--dir", store]:
        expect(tally, run("verify", *words), f"verify counts ({len(words)} words)", 0,
               f"{words[-1]}: {whole}", "")
    tally.check(list(files(store)) == [JOURNAL_NAME], "verify leaves nothing", files(store))
    for path, words in (root / "none", "No such file"), (root, "holds no store"):
        expect(tally, run("verify", path), f"verify: {words}", NOINPUT, err=words)
    for line in 1, PLANTS // 2, PLANTS:
        content = journal.content()
        content[journal.offset(line) + 20] ^= 1
        # A closing line says that all before it was durable.
        prev = journal.lines[-1][-11:-3].decode()
        closing = f'{{"seq":{PLANTS + 1},"safe":{size},"prev":"{prev}","at":"{AT}"'
        content += seal(closing, journal.uuid)
        (store / JOURNAL_NAME).write_bytes(content)
        expect(tally, run("verify", store), f"damage in line {line} is told with its offset",
               DATAERR, "", f"damaged at byte {journal.offset(line)}: wrong checksum")
    (store / JOURNAL_NAME).write_bytes(journal.content()[:-10])
    done = run("verify", store)
    expect(tally, done, "a torn end is told", 0, err="a batch was torn")
    tally.check(f": {PLANTS - 1} plants, " in done.stdout, "and is no damage", done)
    (store / JOURNAL_NAME).write_bytes(b"x" + journal.content()[1:])
    expect(tally, run("verify", store), "a header that is damaged is told", DATAERR,
           err="damaged at byte 0")
    for plant_id, name in (7, "another"), (9, "plant 9"):
        journal.add(plant_id, name)
    (store / JOURNAL_NAME).write_bytes(journal.content())
    expect(tally, run("verify", store), "ids that stand twice are told with both places",
           DATAERR, "",
           [f"the plant {plant_id} stands twice, at the bytes {journal.offset(plant_id)} and "
            f"{journal.offset(line)}:" for plant_id, line in ((7, PLANTS + 1), (9, PLANTS + 2))])


def test_index(tally: Tally, root: pathlib.Path) -> None:
    store = put(root / "store", Journal(PLANTS).content())
    if not tally.check(serve(store, PLANTS + 1), "the store is served"):
        return

    def verified(words: str, sentence: str) -> None:
        done = run("verify", store)
        expect(tally, done, sentence, 0, err="")
        tally.check(f"\n{store}/index: {words}" in done.stdout, f"{sentence}, told", done)

    verified("holds the same plants\n", "verify says that the index holds")
    early, late = root / "early", root / "late"
    shutil.copytree(store / "index", early)
    tally.check(serve(store, PLANTS + 2), "the store goes on")
    (store / "index").rename(late)
    done = run("verify", store)
    expect(tally, done, "a lost index is none to compare", 0, err="")
    tally.check("index" not in done.stdout, "and verify has no word on it", done)
    shutil.copytree(early, store / "index")
    verified("lacks the last plants;", "an index that is behind")
    shutil.rmtree(store / "index")
    other = put(root / "other", Journal(5).content())
    tally.check(serve(other, 6), "another store is served")
    shutil.copytree(other / "index", store / "index")
    verified("of another store: remove it", "an index of another store")
    shutil.rmtree(store / "index")
    late.rename(store / "index")
    verified("holds the same plants\n", "the index put back")
    os.truncate(store / JOURNAL_NAME, os.path.getsize(store / JOURNAL_NAME) // 2)
    for words in (
        ["verify", store], ["stats", "--dir", store], ["get", "--dir", store, PLANTS + 2],
        ["export", "--dir", store], ["backup", "--dir", store, root / "copy"],
    ):
        expect(tally, run(*words),
               f"{words[0]}: a journal shorter than the index knows is damaged", DATAERR, "",
               ["damaged at byte", "restore it"])
    tally.check(not (root / "copy" / JOURNAL_NAME).exists(), "no copy is made of it")


def test_backup(tally: Tally, root: pathlib.Path) -> None:
    journal = Journal(PLANTS)
    store = put(root / "store", journal.content())
    size = len(journal.content())
    for round_, new in (1, size), (2, 0):
        expect(tally, run("backup", "--dir", store, root / "copy"),
               f"backup {round_} counts what is new", 0,
               f"{root}/copy: store {journal.uuid}: {PLANTS} plants, {size} bytes, {new} of "
               "them new\n")
    tally.check(files(root / "copy") == files(store), "the copy equals the store")
    done = run("backup", "--dir", root / "none", root / "other")
    expect(tally, done, "backup without a store is told", NOINPUT)
    tally.check(not (root / "other").exists(), "and makes nothing")
    (root / "file").touch()
    done = run("backup", "--dir", store, root / "file")
    tally.check(done.returncode != 0 and "file: cannot make or open it" in done.stderr,
                "backup to a file is refused", done)
    serve(store, 1)
    before = files(store)
    expect(tally, run("backup", "--dir", store, store), "backup to the store itself is refused",
           CANTCREAT, err="was served")
    tally.check(files(store)[JOURNAL_NAME] == before[JOURNAL_NAME], "and changes nothing")


def test_prepared_backup(tally: Tally, root: pathlib.Path) -> None:
    """What others have put into DEST is neither written through nor changed."""
    store = put(root / "store", Journal(PLANTS).content())
    journal, content = store / JOURNAL_NAME, Journal(3).content()
    elsewhere = root / "elsewhere"
    elsewhere.write_bytes(content)
    for name, make, foreign in (
        ("a symbolic link to the journal", lambda copy: copy.symlink_to(journal), None),
        ("a symbolic link", lambda copy: copy.symlink_to(elsewhere), None),
        ("a link to nothing", lambda copy: copy.symlink_to(root / "nothing"), None),
        ("a hard link to the journal", lambda copy: copy.hardlink_to(journal), None),
        ("a pipe", os.mkfifo, None),
        ("another user's file", lambda copy: copy.write_bytes(content), JOURNAL_NAME),
        ("another user's directory", lambda copy: None, "."),
    ):
        dest = root / f"dest of {name}"
        dest.mkdir()
        make(dest / JOURNAL_NAME)
        if foreign:
            if os.geteuid() != 0:
                tally.skip(f"backup: {name} is refused", "only root can give files away")
                continue
            os.chown(dest / foreign, NOBODY, NOBODY)
        before = files(root)
        expect(tally, run("backup", "--dir", store, dest), f"backup: {name} is refused", CONFIG,
               "", f"{dest}")
        tally.check(files(root) == before and not (root / "nothing").exists(),
                    f"and nothing is changed ({name})")
    copy, older = root / "copy" / JOURNAL_NAME, root / "older"
    run("backup", "--dir", store, copy.parent)
    older.hardlink_to(copy)
    before = older.read_bytes()
    tally.check(serve(store, PLANTS + 1), "the store goes on")
    expect(tally, run("backup", "--dir", store, copy.parent), "a linked backup is continued")
    tally.check(older.read_bytes() == before and len(copy.read_bytes()) > len(before),
                "and its other name keeps the older one")


Damaged = tuple[bytes, list[int], str, list[bytes]]
Damage = Callable[[Journal], Damaged]


def damages() -> Iterator[tuple[str, Damage]]:
    """What happens to a journal: its bytes then, the lost ids, what is told, and the
    later records of ids that stand twice."""

    def told(begin: int, end: int, reason: str) -> str:
        return f"{begin}-{end} ({end - begin} bytes): {reason}\n"

    def flipped(line: int) -> Damage:
        def damage(journal: Journal) -> Damaged:
            content = journal.content()
            content[journal.offset(line) + 60] ^= 1
            begin, end = journal.offset(line), journal.offset(line + 1) - (line == PLANTS)
            return content, [line], told(begin, end, "wrong checksum"), []

        return damage

    def header(journal: Journal) -> Damaged:
        content = journal.content()
        content[20] ^= 1
        return content, [], told(0, 82, "not a record"), []

    def zeroed(journal: Journal) -> Damaged:
        content = journal.content()
        begin, end = journal.offset(11), journal.offset(14)
        content[begin:end] = bytes(end - begin)
        return content, [11, 12, 13], told(begin, end, "not a record"), []

    def torn(journal: Journal) -> Damaged:
        begin, end = journal.offset(PLANTS), len(journal.content()) - 20
        return journal.content()[:-20], [PLANTS], told(begin, end, "incomplete line"), []

    def removed(journal: Journal) -> Damaged:
        content = journal.content()
        del content[journal.offset(7) : journal.offset(9)]
        return content, [7, 8], "", []

    def newline(journal: Journal) -> Damaged:
        begin, end = journal.offset(4), journal.offset(5)
        content = journal.content()
        content[end - 1] = ord("x")
        return content, [4], told(begin, end, "not a record"), []

    def doubled(journal: Journal) -> Damaged:
        at = journal.offset(9)
        content = journal.content()
        content[at:at] = journal.lines[8]
        return content, [], "", [journal.lines[8]]

    def differing(journal: Journal) -> Damaged:
        for name in "another", "a third":
            journal.add(3, name)
        return journal.content(), [], "", journal.lines[-2:]

    def room(journal: Journal) -> Damaged:
        return journal.content() + b"\n" * 9999, [], "", []

    def emptied(journal: Journal) -> Damaged:
        lost = list(range(1, PLANTS + 1))
        return journal.lines[0] + b"?" * 9, lost, told(82, 91, "not a record"), []

    yield "the first record damaged", flipped(1)
    yield "one in the middle damaged", flipped(PLANTS // 2)
    yield "the last damaged", flipped(PLANTS)
    yield "the header damaged", header
    yield "NUL bytes", zeroed
    yield "a torn end", torn
    yield "lines removed", removed
    yield "a newline damaged", newline
    yield "a line doubled", doubled
    yield "three plants with one id", differing
    yield "room ahead", room
    yield "nothing readable", emptied


def test_recover(tally: Tally, root: pathlib.Path) -> None:
    for number, (name, damage) in enumerate(damages()):
        journal = Journal(PLANTS)
        content, lost, told, later = damage(journal)
        source = put(root / f"source-{number}", content)
        put_boot(source, journal.uuid)
        before = files(source)
        dest = root / f"dest-{number}"
        done = run("recover", source, dest)
        *lines, summary = done.stdout.splitlines(keepends=True) or [""]
        tally.check(
            done.returncode == (DATAERR if told or later else 0)
            and "".join(lines) == told
            and f" {PLANTS - len(lost)} plants of store {journal.uuid}" in summary
            and ("; lost: " in summary) == bool(told)
            and (f"; {len(later)} records of ids that stand twice" in summary) == bool(later)
            and done.stderr == "",
            f"recover, {name}: what is lost is told", done)
        kept = [plant_id for plant_id in range(1, PLANTS + 1) if plant_id not in lost]
        tally.check(plants_of(dest) == kept, f"recover, {name}: the rest is there")
        made = files(dest)
        tally.check(
            made.pop(LATER_NAME, b"") == b"".join(later),
            f"recover, {name}: later records of an id are kept as they stood")
        tally.check(
            files(source) == before
            and set(made) - {f"{JOURNAL_NAME}.end"}
            == {JOURNAL_NAME, "index/boot", "index/data.mdb"},
            f"recover, {name}: the source is as before, and no other file is made", list(made))
        expect(tally, run("verify", dest), f"recover, {name}: valid")


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
        and text.count(f'"at":"{AT}","by":"{BY}"') == 19 and journal.uuid not in text,
        "recover of a file into an empty directory keeps time and name", done)
    tally.check(dest.stat().st_mode & 0o777 == 0o755, "the directory keeps its rights")
    tally.check(serve(dest, *range(1, 23)) and plants_of(dest)[-3:] == [4, 21, 22],
                "the service goes on with it", plants_of(dest))
    whole, other = put(root / "whole", journal.content()), uuid.uuid4()
    for words, status, hint in (
        ((source, dest), CANTCREAT, "holds a store"),
        ((source, source), CANTCREAT, "holds a store"),
        ((root / "none", root / "new"), NOINPUT, "No such file"),
        ((root, root / "new"), NOINPUT, "cannot open"),
        (("/dev/null", root / "new"), DATAERR, "--store"),
        (("--store", "ABC", source, root / "new"), CONFIG, "not of the store ABC"),
        (("--store", other, whole, root / "new"), CONFIG, f"not of the store {other}"),
    ):
        before = files(source)
        expect(tally, run("recover", *words), f"recover is refused: {hint}", status, "", hint)
        tally.check(not (root / "new").exists() and files(source) == before,
                    f"and nothing is made or changed ({hint})")


def test_recovered_index(tally: Tally, root: pathlib.Path) -> None:
    """Recover needs nothing of the damaged store's index."""
    store = put(root / "store", Journal(20).content())
    tally.check(serve(store, 21, 22), "the store is served")
    before = files(store)
    for number, content in enumerate((before["index/data.mdb"], b"?" * 65536, b"")):
        (store / "index" / "data.mdb").write_bytes(content)
        done = run("recover", store, root / f"dest-{number}")
        tally.check(
            done.returncode == 0 and "everything was readable" in done.stdout
            and plants_of(root / f"dest-{number}") == list(range(1, 23)),
            f"recover goes on with whatever index there is ({len(content)} bytes)", done)
        tally.check(files(store) == {**before, "index/data.mdb": content},
                    "the source and its index are as before")


def test_lost_uuid(tally: Tally, root: pathlib.Path) -> None:
    journal = Journal(3)
    source = put(root / "source", b"?" + journal.content()[1:])
    expect(tally, run("recover", source, root / "dest"),
           "without the uuid recover says where it stands", DATAERR, err="--store")
    tally.check(not (root / "dest").exists(), "and makes nothing")
    done = run("recover", "--store", journal.uuid, source, root / "dest")
    tally.check(done.returncode == DATAERR and plants_of(root / "dest") == [1, 2, 3],
                "with the uuid it finds all", done)
    later = put(root / "later", b'{"plant-store":2,' + journal.content()[17:])
    expect(tally, run("recover", later, root / "other"),
           "a journal of another version is refused", DATAERR, err="of another version")
    tally.check(not (root / "other").exists(), "and nothing is made of it")


def test_init(tally: Tally, root: pathlib.Path) -> None:
    """Init makes a store where none is, and nothing else changes there."""
    for words, setting in ((["{}"], ""), (["--dir", "{}"], ""), ([], "{}")):
        path = root / f"new-{len(words)}"
        done = run("init", *(word.format(path) for word in words),
                   env={**passed_on(), "PLANT_STORE_DIR": setting.format(path)})
        tally.check(
            done.returncode == 0 and done.stdout == f"{path}: made a new store\n"
            and path.stat().st_mode & 0o777 == 0o700 and serve(path, 1)
            and plants_of(path) == [1], f"init {words} makes the directory and a store", done)
    for name in JOURNAL_NAME, f"{JOURNAL_NAME}.failed", "index":
        path = root / f"with-{name}"
        path.mkdir()
        (path / name).mkdir()
        expect(tally, run("init", path), f"a directory with {name} is refused", CONFIG, "",
               [f"{path}: holds a store, or a part of one: {name}", "nothing was changed"])
        tally.check(not any((path / name).iterdir()) and len(list(path.iterdir())) == 1,
                    f"and nothing was changed ({name})")
    expect(tally, run("init", root / "none" / "store"), "a missing parent is told", NOINPUT, "",
           "No such file or directory")
    path = root / "mounted"
    root.chmod(0o711)
    (path / "lost+found").mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    expect(tally, run("init", path), "other files are no obstacle", 0, None, "")
    owner = (path / JOURNAL_NAME).stat()
    tally.check((owner.st_uid, owner.st_mode & 0o777) == (path.stat().st_uid, 0o600),
                "the store belongs to the directory's owner, also if root makes it", owner)


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
    command = ["mount", "-t", "tmpfs", "-o", SMALL_DISK, "tmpfs", path]
    done = subprocess.run(command, capture_output=True, check=False)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", path], check=True)


def test_full_disk(tally: Tally, root: pathlib.Path) -> None:
    store = put(root / "store", Journal(2000).content())
    with small_disk(root / "small") as mounted:
        for words in ("backup", "--dir", store), ("recover", store):
            sentence = f"{words[0]} to a full disk is told"
            if not mounted:
                tally.skip(sentence, "tmpfs cannot be mounted")
                continue
            dest = root / "small" / words[0]
            expect(tally, run(*words, dest), sentence, CANTCREAT, err="No space left")
            tally.check(files(dest) == {}, "and leaves no store", list(files(dest)))
    damaged = put(root / "damaged", (store / JOURNAL_NAME).read_bytes()[:-9])
    for words in ["verify", store], ["backup", "--dir", store, root / "a"], [
        "recover", damaged, root / "b"
    ]:
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = run(*words, stdout=full)
        tally.check(
            done.returncode not in (0, DATAERR) and "stdout" in done.stderr
            and "incomplete" in done.stderr, f"{words[0]}: an output that is lost is an error",
            done)


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
            seen = re.search(rf"^plant-store: {name} +\d+ % .*MB/s", done.stderr, re.M)
            tally.check(
                done.returncode == 0 and bool(seen) == expected
                and (expected or name == "recover" or done.stderr == ""), f"{name} {option}",
                done)
            tally.check(("writing to the disk ..." in done.stderr) ==
                        (expected and name == "backup"), f"{name} {option}: the disk's part",
                        done)


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
        return process.wait(TIMEOUT_S), told


def test_interrupt(tally: Tally, root: pathlib.Path) -> None:
    store = put(root / "store", Journal(PLANTS).content())
    for words, told_words in (
        (["verify", store], r"stopped after \d+ plants, \d+ bytes, valid so far\n$"),
        (["stats", store], r"stats: stopped after \d+ plants\n$"),
        (["backup", "--dir", store, root / "new"], rf"stopped; {root}/new is as it was; run it again\n$"),
        (["recover", store, root / "made"], "made: stopped; no store was made"),
    ):
        status, told = interrupt(*words)
        tally.check(status == INTERRUPTED and re.search(told_words, told),
                    f"{words[0]} that is interrupted says how far it got", (status, told))
    tally.check(files(root / "new") == files(root / "made") == {}, "no store is left")
    run("backup", "--dir", store, root / "backup")
    before = files(root / "backup")
    status, told = interrupt("backup", "--dir", store, root / "backup")
    tally.check(status == INTERRUPTED and files(root / "backup") == before,
                "an earlier backup is as before an interrupted one", (status, told))


def stop_often(journal: pathlib.Path, words: Sequence[object]) -> tuple[int, int, int]:
    """Stop it as a terminal does, again and again, each time for a look at the lock;
    its status, how often it was stopped, and how often it held the lock then."""
    # A group of its own, as a shell gives it: nothing stops an orphaned one.
    process = subprocess.Popen(
        [program, *map(str, words)], env=passed_on(), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0)
    stopped = held = 0
    while True:
        os.kill(process.pid, signal.SIGTSTP)
        status = os.waitpid(process.pid, os.WUNTRACED)[1]
        if not os.WIFSTOPPED(status):
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, stopped, held
        stopped += 1
        try:
            os.close(take_lock(journal))
        except BlockingIOError:
            held += 1
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(random.uniform(0, 0.002))


def test_stopped(tally: Tally, root: pathlib.Path) -> None:
    """A subcommand that its terminal stops does not hold the store's lock meanwhile."""
    store, plants = root / "store", root / "plants"
    run("init", store)
    plants.write_bytes(b"\n".join(new_plant(n, "Fern") for n in range(STOPPED_PLANTS)))
    for words in (
        ["import", "--dir", store, plants], ["verify", store], ["stats", "--dir", store],
        ["get", "--dir", store, 7], ["backup", "--dir", store, root / "backup"],
        ["export", "--dir", store, "-o", root / "exported"],
    ):
        status, stopped, held = stop_often(store / JOURNAL_NAME, words)
        tally.check((status, held) == (0, 0) and stopped > 0,
                    f"{words[0]} that is stopped {stopped} times never holds the lock then",
                    (status, held))


def scenario(tally: Tally) -> None:
    for test in (
        test_words, test_init, test_verify, test_index, test_backup, test_prepared_backup,
        test_recover, test_recovered_store, test_recovered_index, test_lost_uuid, test_read_only,
        test_full_disk, test_progress, test_interrupt, test_stopped,
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
