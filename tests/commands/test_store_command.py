#!/usr/bin/env python3
"""Drives `plant-store init`, `verify`, `backup`, `recover` and `schema` as an operator does.

usage: test_store_command.py PATH_OF_plant-store
"""

import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence

from lib_command import (
    CANTCREAT, CONFIG, DATAERR, INTERRUPTED, IOERR, NOINPUT, TEMPFAIL, TIMEOUT_S, USAGE, expect,
)
from lib_service import (
    JOURNAL_NAME, TOP, Tally, append_plants, catches, manifest_of, new_plant, passed_on,
    read_journal, run, run_scenario, seal, take_lock, temporary_store, wait_until,
)
from lib_faults import mount, mounted

PLANTS = 300
NEW_NAME = "plants.jsonl.recovering"
NOBODY = 65534
AT = "2026-01-02T03:04:05.006Z"
BY = "nursery"

program = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None


def command(*words: object, **options: object) -> subprocess.CompletedProcess:
    options = {"env": passed_on(), "timeout": TIMEOUT_S} | options
    return run(program, *words, text=True, **options)


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


def put_manifest(store: pathlib.Path, store_uuid: str) -> None:
    """The file of an index that names the store."""
    (store / "index").mkdir()
    (store / "index" / "manifest").write_bytes(manifest_of(store_uuid))


def files(path: pathlib.Path) -> dict[str, bytes]:
    below = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in below}


def serve(path: pathlib.Path, *ids: int) -> bool:
    """Let plain CGI open the store and create these, or find them there."""
    with temporary_store(str(program.parent)) as store:
        for plant_id in ids:
            body = new_plant(plant_id, f"plant {plant_id}")
            answer = store.cgi(body, {"PLANT_STORE_DIR": str(path)})
            if not answer.stdout.startswith(b"Status: 200"):
                print("#", answer)
                return False
    return True


def use(path: pathlib.Path, *ids: int) -> bool:
    """The same by a process that closes the index, so that it is whole."""
    plants = b"\n".join(new_plant(plant_id, f"plant {plant_id}") for plant_id in ids)
    done = run(program, "import", "--quiet", "--dir", path, input=plants, env=passed_on())
    if done.returncode:
        print("#", done)
    return done.returncode == 0


def test_words(tally: Tally, root: pathlib.Path) -> None:
    """Help, and what is wrong in the arguments."""
    for name in "init", "verify", "backup", "recover":
        done = command(name, "--help")
        tally.check(
            done.returncode == 0
            and done.stdout.startswith(f"Usage: plant-store {name} ")
            and ("--progress" in done.stdout) == (name != "init") and done.stderr == "",
            f"{name} --help tells its usage", done)
        same = command("help", name)
        tally.check(same.stdout == done.stdout, f"and so does help {name}", same)
    for words in (
        "init a b", "init --dir a b", "verify a b", "verify --nothing", "verify --dir a b",
        "backup", "backup a b", "backup --dir", "recover", "recover a", "recover a b c",
        "recover --store", "recover --dir a b",
    ):
        done = command(*words.split(), cwd=root)
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
        done = command(*words, env={**passed_on(), name: value})
        expect(tally, done, f"{words[0]} with {setting} ends with {status}", status, out, err)


def test_verify(tally: Tally, root: pathlib.Path) -> None:
    journal = Journal(PLANTS)
    store = put(root / "store", journal.content())
    size = len(journal.content())
    whole = f"store {journal.uuid}: {PLANTS} plants, {size} bytes, all valid\n"
    for words in [store], [store / JOURNAL_NAME], ["--dir", store]:
        expect(tally, command("verify", *words), f"verify counts ({len(words)} words)", 0,
               f"{words[-1]}: {whole}", "")
    tally.check(list(files(store)) == [JOURNAL_NAME], "verify leaves nothing", files(store))
    for path, words in (root / "none", "No such file"), (root, "holds no store"):
        expect(tally, command("verify", path), f"verify: {words}", NOINPUT, err=words)
    for line in 1, PLANTS // 2, PLANTS:
        content = journal.content()
        content[journal.offset(line) + 20] ^= 1
        # A closing line says that all before it was durable.
        prev = journal.lines[-1][-11:-3].decode()
        closing = f'{{"seq":{PLANTS + 1},"safe":{size},"prev":"{prev}","at":"{AT}"'
        content += seal(closing, journal.uuid)
        (store / JOURNAL_NAME).write_bytes(content)
        expect(tally, command("verify", store), f"damage in line {line} is told with its offset",
               DATAERR, "", f"damaged at byte {journal.offset(line)}: wrong checksum")
    (store / JOURNAL_NAME).write_bytes(journal.content()[:-10])
    done = command("verify", store)
    expect(tally, done, "a torn end is told", 0,
           err=f"a batch is torn at byte {journal.offset(PLANTS)}, before it was acknowledged")
    tally.check(f": {PLANTS - 1} plants, " in done.stdout, "and is no damage", done)
    (store / JOURNAL_NAME).write_bytes(b"x" + journal.content()[1:])
    expect(tally, command("verify", store), "a header that is damaged is told", DATAERR,
           err="damaged at byte 0")
    for plant_id, name in (7, "another"), (9, "plant 9"):
        journal.add(plant_id, name)
    (store / JOURNAL_NAME).write_bytes(journal.content())
    expect(tally, command("verify", store), "ids that stand twice are told with both places",
           DATAERR, "",
           [f"the plant {plant_id} occurs twice, at bytes {journal.offset(plant_id)} and "
            f"{journal.offset(line)};" for plant_id, line in ((7, PLANTS + 1), (9, PLANTS + 2))])


def test_index(tally: Tally, root: pathlib.Path) -> None:
    store = put(root / "store", Journal(PLANTS).content())
    index, kept, unclosed = store / "index", root / "kept", "a copy, or of another version;"

    def verified(words: str, sentence: str) -> None:
        done = command("verify", store)
        expect(tally, done, sentence, 0, err="")
        tally.check(f"\n{store}/index: {words}" in done.stdout, f"{sentence}, told", done)

    tally.check(serve(store, PLANTS + 1), "the store is served")
    verified("behind; the service catches up\n", "an index that is in use by CGI")
    tally.check(use(store, PLANTS + 1), "the store is used")
    verified("holds the same plants\n", "verify says that the index holds")
    append_plants(store / JOURNAL_NAME, [{"id": PLANTS + 2, "name": "Fern"}])
    verified("behind; the service catches up\n", "an index that is behind")
    tally.check(use(store, PLANTS + 3), "the store goes on")
    index.rename(kept)
    done = command("verify", store)
    expect(tally, done, "a lost index is none to compare", 0, err="")
    tally.check("index" not in done.stdout, "and verify has no word on it", done)
    shutil.copytree(kept, index)
    verified(unclosed, "a copy of an index")
    shutil.rmtree(index)
    kept.rename(index)
    verified("holds the same plants\n", "the index put back")
    content = (index / "manifest").read_bytes()
    (index / "manifest").write_bytes(b"?" * len(content))
    expect(tally, command("verify", store), "an index that cannot be read is damage", DATAERR, "",
           f"{index}: damaged; remove that directory: the next start builds it again")
    (index / "manifest").write_bytes(content)
    verified("holds the same plants\n", "the index mended")


def test_other_history(tally: Tally, root: pathlib.Path) -> None:
    """What is not the journal that the index, or the end mark, has seen is refused by all."""
    journal = Journal(PLANTS)
    store, other = put(root / "store", journal.content()), put(root / "other", Journal(5).content())
    tally.check(use(store, PLANTS + 1) and use(other, 6), "two stores are used")
    whole = (store / JOURNAL_NAME).read_bytes()
    index, end = store / "index", store / f"{JOURNAL_NAME}.end"

    def refused(status: int, sentence: str, *words: str) -> None:
        before = files(store)
        for name, *rest in (
            ["verify", store], ["stats", "--dir", store], ["get", "--dir", store, PLANTS + 1],
            ["export", "--dir", store], ["backup", "--dir", store, root / "copy"],
        ):
            expect(tally, command(name, *rest), f"{name} refuses {sentence}", status, "", words)
        tally.check(files(store) == before and not (root / "copy" / JOURNAL_NAME).exists(),
                    f"and neither changes nor copies {sentence}")

    half = len(whole) // 2
    (store / JOURNAL_NAME).write_bytes(whole[:half])
    shorter = f"is shorter ({half} bytes) than what was stored in it ({len(whole)}): restore it"
    refused(DATAERR, "a journal shorter than index and end mark know", shorter)
    index.rename(root / "index")
    refused(DATAERR, "one shorter than the end mark knows", shorter)
    (root / "index").rename(index)
    kept = end.rename(root / "end")
    refused(DATAERR, "one shorter than the index knows", shorter)
    # The same store went on from an earlier backup.
    (store / JOURNAL_NAME).write_bytes(journal.content())
    append_plants(store / JOURNAL_NAME, [{"id": n, "name": "another"} for n in range(900, 909)])
    refused(DATAERR, "one that is another history", "another history of this store: the line at",
            "to use this copy anyway, remove `index` and `plants.jsonl.end`")
    kept.rename(end)
    (store / JOURNAL_NAME).write_bytes((other / JOURNAL_NAME).read_bytes())
    words = f"{store / JOURNAL_NAME}: belongs to a different store from the index beside it"
    refused(CONFIG, "one of another store than the index", words, f"remove {index} first")
    shutil.rmtree(index)
    refused(CONFIG, "one of another store than the end mark", f"{end}: belongs to another store;")
    (store / JOURNAL_NAME).write_bytes(whole)
    expect(tally, command("verify", store), "its own is not refused", 0, err="")


def test_backup(tally: Tally, root: pathlib.Path) -> None:
    journal = Journal(PLANTS)
    store = put(root / "store", journal.content())
    size = len(journal.content())
    for round_, new in (1, size), (2, 0):
        expect(tally, command("backup", "--dir", store, root / "copy"),
               f"backup {round_} counts what is new", 0,
               f"{root}/copy: store {journal.uuid}: {size} bytes, {new} of them new\n")
    (store / "last-backup").unlink()
    tally.check(files(root / "copy") == files(store), "the copy equals the store")
    done = command("backup", "--dir", root / "none", root / "other")
    expect(tally, done, "backup without a store is told", NOINPUT)
    tally.check(not (root / "other").exists(), "and makes nothing")
    (root / "file").touch()
    done = command("backup", "--dir", store, root / "file")
    tally.check(done.returncode != 0 and "file: cannot create or open" in done.stderr,
                "backup to a file is refused", done)
    serve(store, 1)
    before = files(store)
    expect(tally, command("backup", "--dir", store, store), "backup to the store itself is refused",
           CANTCREAT, err="was used")
    tally.check(files(store)[JOURNAL_NAME] == before[JOURNAL_NAME], "and changes nothing")


Damage = tuple[str, bytes, Sequence[int], str]


def damages(journal: Journal) -> Iterator[Damage]:
    """What happens to a journal: its bytes then, the lost ids, and what is told."""
    whole, at, lines = bytes(journal.content()), journal.offset, journal.lines
    size, half = len(whole), PLANTS // 2

    def replaced(begin: int, end: int, new: bytes) -> bytes:
        return whole[:begin] + new + whole[end:]

    def flipped(place: int) -> bytes:
        return replaced(place, place + 1, bytes([whole[place] ^ 1]))

    def told(begin: int, end: int, reason: str) -> str:
        return f"{begin}-{end} ({end - begin} bytes): {reason}\n"

    for name, line, end in (("the first record", 1, at(2)), ("the last", PLANTS, size - 1),
                            ("one in the middle", half, at(half + 1))):
        yield (f"{name} damaged", flipped(at(line) + 60), [line],
               told(at(line), end, "wrong checksum"))
    yield "the header damaged", flipped(20), [], told(0, 82, "not a record")
    yield ("NUL bytes", replaced(at(11), at(14), bytes(at(14) - at(11))), [11, 12, 13],
           told(at(11), at(14), "not a record"))
    yield "a torn end", whole[:-20], [PLANTS], told(at(PLANTS), size - 20, "incomplete line")
    yield "lines removed", replaced(at(7), at(9), b""), [7, 8], ""
    yield ("a newline damaged", replaced(at(5) - 1, at(5), b"x"), [4],
           told(at(4), at(5), "not a record"))
    yield "room ahead", whole + b"\n" * 9999, [], ""
    yield ("nothing readable", lines[0] + b"?" * 9, range(1, PLANTS + 1),
           told(82, 91, "not a record"))
    yield ("a line doubled", replaced(at(9), at(9), lines[8]), [],
           told(at(9), at(9) + len(lines[8]), "repeats an earlier plant"))
    for name in "another", "a third":
        journal.add(3, name)
    yield ("three plants with one id", journal.content(), [],
           "".join(told(at(line), at(line + 1), "an earlier plant has this id")
                   for line in (PLANTS + 1, PLANTS + 2)))


def test_recover(tally: Tally, root: pathlib.Path) -> None:
    journal = Journal(PLANTS)
    for number, (name, content, lost, told) in enumerate(damages(journal)):
        source = put(root / f"source-{number}", content)
        put_manifest(source, journal.uuid)
        before = files(source)
        dest = root / f"dest-{number}"
        done = command("recover", source, dest)
        *lines, summary = done.stdout.splitlines(keepends=True) or [""]
        twice = told.count("earlier")
        tally.check(
            done.returncode == (DATAERR if told else 0)
            and "".join(lines) == told
            and f" {PLANTS - len(lost) or 'no'} plants of store {journal.uuid}" in summary
            and ("; lost: " in summary) == (bool(told) and not twice)
            and (f"; left out: {twice} record{'s' * (twice > 1)} with repeated ids" in summary) == bool(twice)
            and done.stderr == "",
            f"recover, {name}: what is lost is told", done)
        kept = [plant_id for plant_id in range(1, PLANTS + 1) if plant_id not in lost]
        tally.check(plants_of(dest) == kept, f"recover, {name}: the rest is there")
        made = files(dest)
        *above, last = made[JOURNAL_NAME].splitlines(keepends=True)
        safe = f'"safe":{len(b"".join(above))},'.encode()
        tally.check(not kept or b'"plant":' not in last and safe in last,
                    f"recover, {name}: a closing line says that all is durable", last)
        tally.check(
            files(source) == before and set(made) == {JOURNAL_NAME},
            f"recover, {name}: the source is as before, and no other file is made", list(made))
        expect(tally, command("verify", dest), f"recover, {name}: valid")


def test_recovered_store(tally: Tally, root: pathlib.Path) -> None:
    """What recover makes is a store of its own, and keeps at and by."""
    journal = Journal(20)
    content = journal.content()
    content[journal.offset(4) + 9] ^= 1
    source = put(root / "source", content)
    dest = root / "dest"
    dest.mkdir(mode=0o755)
    (dest / "other").touch()
    command("init", dest / NEW_NAME)
    tally.check(use(dest / NEW_NAME, 7), "a kill leaves a part of the new store")
    done = command("recover", source / JOURNAL_NAME, dest)
    text = (dest / JOURNAL_NAME).read_text()
    tally.check(
        done.returncode == DATAERR
        and text.count(f'"at":"{AT}","by":"{BY}"') == 19 and journal.uuid not in text,
        "recover of a file into a directory without a store keeps time and name", done)
    tally.check(
        dest.stat().st_mode & 0o777 == 0o755 and set(files(dest)) == {JOURNAL_NAME, "other"},
        "the directory keeps its rights and files, but not what a kill has left", files(dest))
    tally.check(serve(dest, *range(1, 23)) and plants_of(dest)[-3:] == [4, 21, 22],
                "the service goes on with it", plants_of(dest))
    (root / "linked").mkdir()
    (root / "linked" / NEW_NAME).symlink_to(dest)
    (root / "with-end").mkdir()
    (root / "with-end" / f"{JOURNAL_NAME}.end").touch()
    for words, status, hint in (
        ((source, dest), CANTCREAT, "holds a store"),
        ((source, source), CANTCREAT, "holds a store"),
        ((source, root / "with-end"), CANTCREAT, f"a part of one: {JOURNAL_NAME}.end"),
        ((source, root / "linked"), CANTCREAT, f"{NEW_NAME} cannot be created there"),
        ((root / "none", root / "new"), NOINPUT, "No such file"),
        ((root, root / "new"), NOINPUT, "cannot open"),
        (("/dev/null", root / "new"), DATAERR, "--store"),
    ):
        before = files(root)
        expect(tally, command("recover", *words), f"recover is refused: {hint}", status, "", hint)
        tally.check(not (root / "new").exists() and files(root) == before,
                    f"and nothing is made or changed ({hint})")
    busy = root / "busy"
    (busy / NEW_NAME).mkdir(parents=True)
    (busy / NEW_NAME / JOURNAL_NAME).touch()
    fd = os.open(busy, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    expect(tally, command("recover", source, busy), "recover into what another makes is refused",
           TEMPFAIL, "", "cannot lock")
    tally.check((busy / NEW_NAME / JOURNAL_NAME).exists(), "and the other goes on")
    os.close(fd)


def test_name(tally: Tally, root: pathlib.Path) -> None:
    """The name of a recovered store is durable, or removed before anybody can store there."""
    sentence = "recover holds the lock of the new store until its name is durable"
    if tally.lacks(sentence, "strace"):
        return
    source, dest = put(root / "source", Journal(3).content()), root / "dest"
    dest.mkdir()
    options = passed_on().get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    # The second sync of DEST: what follows is locked for two seconds, and then fails.
    process = subprocess.Popen(
        ["strace", "-qq", "-o", "/dev/null", "-P", dest, "-e",
         "inject=fsync:error=EIO:delay_enter=2000000:when=2", program, "recover", source, dest],
        env=passed_on() | {"ASAN_OPTIONS": options}, stderr=subprocess.PIPE)
    wait_until((dest / JOURNAL_NAME).exists)
    try:
        os.close(take_lock(dest / JOURNAL_NAME))
        tally.check(False, sentence)
    except BlockingIOError:
        tally.check(True, sentence)
    said = process.communicate()[1]
    tally.check(process.returncode == IOERR and b"cannot create a store there" in said
                and not list(dest.iterdir()), "or removes the name", (said, list(dest.iterdir())))


def test_restore(tally: Tally, root: pathlib.Path) -> None:
    """The commands of deploy/README.md, at other places: the plants after the backup come back."""
    page = (TOP / "deploy/README.md").read_text()
    section = page.partition("\n## Restore\n")[2].partition("\n## ")[0]
    script = "\n".join(re.findall("^    (.*)$", section, re.M))
    for what, damage in ("whole", None), ("damaged", 5):
        lib = root / what
        lib.mkdir(mode=0o755)
        store, batch, backup = lib / "plant-store", lib / "batch", lib / "plant-store-backup"
        consume = "export", "--quiet", "--dir", store, "--cursor", lib / "place", "-o", batch, "--force"
        backup.mkdir()
        command("init", store)
        serve(store, 1, 2, 3)
        command("backup", "--dir", store, backup / "1")
        (backup / "latest").symlink_to("1")
        serve(store, 4, 5, 6, 7, 8)
        expect(tally, command(*consume), f"{what}: a consumer reads the old store")
        journal = store / JOURNAL_NAME
        if damage:
            content = journal.read_bytes()
            journal.write_bytes(content.replace(b'"id":5,', b'"id":9,'))
        here = script.replace("/var/lib", str(lib)).replace("-o plant-store ", "")
        here = re.sub(r"(?m)^systemctl", ":", re.sub(r"(?m)(^|\| )plant-store ", rf"\1{program} ", here))
        done = run("bash", "-c", here, text=True, env=passed_on() | {"PLANT_STORE_DIR": str(store)})
        lost = {damage} - {None}
        tally.check(done.returncode == 0 and plants_of(store) == sorted({*range(1, 9)} - lost)
                    and ("bytes): wrong checksum" in done.stdout) == bool(damage),
                    f"{what}: all that can be read is there once, and the rest is listed", done)
        expect(tally, command(*consume), f"{what}: the cursor of another history is refused", DATAERR,
               err="remove it")
        (lib / "place").unlink()
        command(*consume)
        tally.check(batch.read_text().count('"id"') == 8 - len(lost), f"{what}: the consumer gets each")


def test_lost_uuid(tally: Tally, root: pathlib.Path) -> None:
    journal = Journal(3)
    source = put(root / "source", b"?" + journal.content()[1:])
    expect(tally, command("recover", source, root / "dest"),
           "without the uuid recover says where it stands", DATAERR, err="--store")
    expect(tally, command("recover", "--store", "short", source, root / "dest"),
           "and with what is none", DATAERR, err="--store")
    tally.check(not (root / "dest").exists(), "and makes nothing")
    done = command("recover", "--store", journal.uuid, source, root / "dest")
    tally.check(done.returncode == DATAERR and plants_of(root / "dest") == [1, 2, 3],
                "with the uuid it finds all", done)
    later = put(root / "later", b'{"plant-store":2,' + journal.content()[17:])
    expect(tally, command("recover", later, root / "other"),
           "a journal of another version is refused", DATAERR, err="of another version")
    tally.check(not (root / "other").exists(), "and nothing is made of it")


def test_init(tally: Tally, root: pathlib.Path) -> None:
    """Init makes a store where none is, and nothing else changes there."""
    for words, setting in ((["{}"], ""), (["--dir", "{}"], ""), ([], "{}")):
        path = root / f"new-{len(words)}"
        done = command("init", *(word.format(path) for word in words),
                   env={**passed_on(), "PLANT_STORE_DIR": setting.format(path)})
        tally.check(
            done.returncode == 0 and done.stdout == f"{path}: created a new store\n"
            and path.stat().st_mode & 0o777 == 0o700 and serve(path, 1)
            and plants_of(path) == [1], f"init {words} makes the directory and a store", done)
    for name in JOURNAL_NAME, f"{JOURNAL_NAME}.failed", "index":
        path = root / f"with-{name}"
        path.mkdir()
        (path / name).mkdir()
        expect(tally, command("init", path), f"a directory with {name} is refused", CONFIG, "",
               [f"{path}: holds a store, or a part of one: {name}", "nothing was changed"])
        tally.check(not any((path / name).iterdir()) and len(list(path.iterdir())) == 1,
                    f"and nothing was changed ({name})")
    expect(tally, command("init", root / "none" / "store"), "a missing parent is told", NOINPUT, "",
           "No such file or directory")
    path = root / "mounted"
    root.chmod(0o711)
    (path / "lost+found").mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    expect(tally, command("init", path), "other files are no obstacle", 0, None, "")
    owner = (path / JOURNAL_NAME).stat()
    tally.check((owner.st_uid, owner.st_mode & 0o777) == (path.stat().st_uid, 0o600),
                "the store belongs to the directory's owner, also if root makes it", owner)


def test_owner(tally: Tally, root: pathlib.Path) -> None:
    """What root makes in a directory of another user, and what that user may have put there."""
    if tally.lacks("root in a directory of another user", "root"):
        return
    root.chmod(0o755)
    source = put(root / "source", Journal(3).content())
    there, theirs = root / "there", root / "theirs"
    for path in (there, theirs, source):
        path.mkdir(exist_ok=True)
        os.chown(path, NOBODY, NOBODY)
    for what, dest in ("is there", there), ("is made in another's", theirs / "dest"):
        done = command("recover", source, dest)
        owners = {(path.stat().st_uid, path.stat().st_gid) for path in [dest, *dest.rglob("*")]}
        tally.check(done.returncode == 0 and owners == {(NOBODY, NOBODY)},
                    f"recover by root: all in a directory that {what} belongs to the store's owner",
                    (done, owners))
    for mode, *words in (0o755, "recover", source), (0o777, "init"):
        root.chmod(mode)
        done = command(*words, root / "new")
        expect(tally, done, f"{words[0]} makes no store of root's for another user, nor where "
               "others could put a link", CANTCREAT, "", "install -d -o plant-store -m 0700")
        tally.check(not (root / "new").exists(), "and makes nothing")


    link, target = root / "link", root / "target"
    target.mkdir()
    link.symlink_to(target)
    os.chown(source, 0, 0)
    os.lchown(link, NOBODY, NOBODY)
    for word, *words in (["init"], ["recover", source], ["backup", "--dir", source]):
        for path in link, f"{link}/":
            done = command(word, *words, path)
            tally.check(done.returncode in (CANTCREAT, CONFIG) and "nother user" in done.stderr
                        and not any(target.iterdir()),
                        f"{word} by root follows no link of others", done)
    os.lchown(link, 0, 0)
    expect(tally, command("backup", "--dir", source, link), "but one of root's", err="")


def test_reader(tally: Tally, root: pathlib.Path) -> None:
    """The kernel does not tell other users which pages are cached."""
    sentence = "who may only read a copy is told to read it as its owner"
    if tally.lacks(sentence, "root"):
        return
    store = put(root / "foreign", Journal(3).content())
    for path in root, store, store / JOURNAL_NAME:
        path.chmod(0o755)
    with temporary_store(str(program.parent)) as service:
        done = run(service.installed(), "verify", store, env=passed_on(), user=NOBODY, text=True)
    if run("stat", "-f", "-c", "%T", root, text=True).stdout == "tmpfs\n":
        expect(tally, done, "in memory there is no disk to read", 0)
    else:
        expect(tally, done, sentence, TEMPFAIL, "", "or this user does not own it")


def test_pipes(tally: Tally, root: pathlib.Path) -> None:
    """Whoever owns a store cannot make a reader wait, nor follow a link."""
    for name in JOURNAL_NAME, f"{JOURNAL_NAME}.end", "index/manifest", "index/end":
        store = put(root / name.replace("/", "-"), Journal(3).content())
        with temporary_store(str(program.parent)) as service:
            service.command("import", "--dir", store, "--quiet", input=b"", check=True)
        for what, make in (("link", lambda path: path.symlink_to("/etc/hostname")),
                           ("pipe", os.mkfifo)):
            (store / name).unlink()
            make(store / name)
            for word, *rest in (["stats"], ["verify"], ["get", "1"], ["export"], ["check"],
                                ["backup", root / f"copy-{store.name}"]):
                done = command(word, *rest, env={
                    **passed_on(), "PLANT_STORE_DIR": str(store)})
                statuses = {JOURNAL_NAME: (NOINPUT, CONFIG), f"{JOURNAL_NAME}.end": (CONFIG,),
                            "check": (CONFIG,)}  # no tokens
                tally.check(done.returncode in statuses.get(name, statuses.get(word, (0,))),
                            f"{word} ends where {name} is a {what}", done)
                if word == "verify" and name == "index/manifest":
                    tally.check("index: a copy, or of another version; not compared"
                                in done.stdout, "and does not follow it", done)


def test_read_only(tally: Tally, root: pathlib.Path) -> None:
    """A store that was served, in a snapshot that is mounted for reading."""
    store = put(root / "store", Journal(3).content())
    if not tally.check(use(store, 4), "the store is used"):
        return
    place = root / "mounted"
    place.mkdir()
    sentence = "a read-only mount can be read, its index too"
    if tally.lacks(sentence, "mounts"):
        return
    with mounted(store, place, "--bind"):
        mount("none", place, "-o", "remount,ro,bind")
        done = command("verify", place)
    well = done.returncode == 0 and "/index: holds the same" in done.stdout
    tally.check(well, sentence, done)


def test_full_disk(tally: Tally, root: pathlib.Path) -> None:
    store = put(root / "store", Journal(2000).content())
    (root / "small").mkdir()
    if not tally.lacks("a full disk is told", "mounts"):
        with mounted("tmpfs", root / "small", "-t", "tmpfs", "-o", "size=64k,mode=0700"):
            for words in ("backup", "--dir", store), ("recover", store):
                dest = root / "small" / words[0]
                expect(tally, command(*words, dest), f"{words[0]} to a full disk is told",
                       CANTCREAT, err="No space left")
                tally.check(files(dest) == {}, "and leaves no store", list(files(dest)))
    damaged = put(root / "damaged", (store / JOURNAL_NAME).read_bytes()[:-9])
    for words in (["verify", store], ["backup", "--dir", store, root / "a"],
                  ["recover", damaged, root / "b"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = command(*words, stdout=full)
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
            done = command(*words[:-1], last, option)
            seen = re.search(rf"^plant-store: {name} +\d+ % .*MB/s", done.stderr, re.M)
            tally.check(
                done.returncode == 0 and bool(seen) == expected
                and (expected or name == "recover" or done.stderr == ""), f"{name} {option}",
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
        [program, *map(str, words), "--progress"], env=passed_on(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=write_end)
    os.close(write_end)
    with process, os.fdopen(read_end, "rb") as pipe:
        wait_until(lambda: catches(process.pid, signal.SIGINT))
        process.send_signal(signal.SIGINT)
        told = pipe.read()[filled:].decode()
        return process.wait(TIMEOUT_S), told


def test_interrupt(tally: Tally, root: pathlib.Path) -> None:
    store = put(root / "store", Journal(PLANTS).content())
    for words, told_words in (
        (["verify", store], r"stopped after (no|\d+) plants, \d+ bytes, valid so far\n$"),
        (["stats", store], r"stats: stopped after (no|\d+) plants\n$"),
        (["backup", "--dir", store, root / "new"],
         rf"stopped; {root}/new is unchanged; run backup again\n$"),
        (["recover", store, root / "made"], "made: stopped; no store was created"),
    ):
        status, told = interrupt(*words)
        tally.check(status == INTERRUPTED and re.search(told_words, told),
                    f"{words[0]} that is interrupted says how far it got", (status, told))
    tally.check(files(root / "new") == files(root / "made") == {}, "no store is left")
    command("backup", "--dir", store, root / "backup")
    before = files(root / "backup")
    status, told = interrupt("backup", "--dir", store, root / "backup")
    tally.check(status == INTERRUPTED and files(root / "backup") == before,
                "an earlier backup is as before an interrupted one", (status, told))


def test_stopped(tally: Tally, root: pathlib.Path) -> None:
    """A stopped process would keep the store's lock."""
    command("init", root / "store")
    with subprocess.Popen([program, "import", "--quiet", "--dir", root / "store"],
                          stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=passed_on(),
                          process_group=0) as process:  # as a shell gives it
        wait_until(lambda: catches(process.pid, signal.SIGTTOU, "SigIgn"))
        for number in signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU:
            os.kill(process.pid, number)
        process.stdin.write(new_plant(1, "Fern"))
        process.stdin.close()
        status = os.waitpid(process.pid, os.WUNTRACED)[1]
        process.returncode = os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else -1
        os.kill(process.pid, signal.SIGKILL) if os.WIFSTOPPED(status) else None
    tally.check(status == 0, "its terminal does not stop a subcommand", status)


def test_module(tally: Tally, root: pathlib.Path) -> None:
    """The database's module, beside the program and where it is installed."""
    (root / "bin").mkdir()
    copy = shutil.copy(program, root / "bin")

    def stats() -> subprocess.CompletedProcess:
        return run(copy, "stats", text=True,
                   env=passed_on() | {"PLANT_STORE_DATABASE": "postgresql://"})

    expect(tally, run(copy, "schema", "--roles", "--feed", text=True),
           "of the schema one part is printed", USAGE, "", "--roles conflicts with --feed")
    expect(tally, run(copy, "schema", text=True), "the schema is printed without the module",
           os.EX_OK, (TOP / "deploy/postgresql/tables.sql").read_text(), "")
    expect(tally, stats(), "a module that is not there is named with what to install", CONFIG,
           "", ["cannot load the module: ", "install the package plant-store-postgresql"])
    for place in root / "lib" / "plant-store", root / "bin":
        place.mkdir(parents=True, exist_ok=True)
        run("cc", "-shared", "-x", "c", "-o", place / "postgresql.so", "-",
            input=b"int store_engine[99];", check=True)
        expect(tally, stats(), f"one of another version in {place.name} is refused", CONFIG,
               "", "does not have this program's version; install the same version of both")


def scenario(tally: Tally) -> None:
    for test in (
        test_module, test_words, test_init, test_owner, test_reader, test_pipes, test_verify, test_index,
        test_other_history, test_backup, test_recover,
        test_recovered_store, test_name, test_restore, test_lost_uuid, test_read_only,
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
