#!/usr/bin/env python3
"""Goal: the manual page suffices to read a journal that has been damaged; what is damaged
is refused by name and left as it is, and nothing untrue is said of it.

Damages and forges journals, and compares what `plant-store verify` and the start of a
service find in each with the verdict of second_reader.py, which was written from
plant-store-journal(5) alone.  A store that has its index or its end mark besides refuses
all that differs from what these have seen; a CGI process, which reads no journal from its
beginning, may start, but says only what is true.  With --long it tries ten times as many.
"""

import collections
import copy
import functools
import itertools
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from subprocess import CompletedProcess

from lib_faults import compile_driver, run_script, side_by_side
from lib_service import (
    JOURNAL_NAME, TOP, Tally, init_store, memory, new_plant, passed_on, run,
)

import second_reader  # which lib_service finds
from second_reader import crc32c

SEED = 5
DAMAGES = 300
DAMAGES_LONG = 3000
END_BYTES = 1500
SECTOR, PAGE = 512, 4096
RECORD_MAX, TAIL_MAX = second_reader.RECORD_MAX, second_reader.BATCH_MAX

END_NAME = f"{JOURNAL_NAME}.end"
UUID = b"0b7c3e52-8f4d-4a61-9c0e-5d2f1a6b7c8d"
OTHER_UUID = UUID[::-1]
AT = b"2026-11-21T07:21:00.123Z"
CLOSING = b'{"seq":%seq%,"safe":%safe%,"prev":"%prev%","at":"%at%"'
RECORD = CLOSING + b',"by":"%by%","plant":%plant%'
GOLDEN = TOP / "tests" / "golden" / "journal-v1.jsonl"


# --- Journals ----------------------------------------------------------------


def seal(front: bytes, uuid: bytes = UUID) -> bytes:
    return front + b',"crc":"%08x"}\n' % crc32c(uuid + front)


class Journal:
    """The lines of a journal, and the watermark of the next one."""

    def __init__(self, *batches: int, safe: int = 82) -> None:
        """Batches of so many plants; 0: a closing line."""
        self.lines = [seal(b'{"plant-store":1,"store":"%b"' % UUID)]
        self.plants, self.safe = 0, safe
        for batch in batches:
            for _ in range(max(1, batch)):
                self.add(self.plant() if batch else b"")
            self.safe = self.end()

    def plant(self) -> bytes:
        self.plants += 1
        name = f'a "{self.plants}" \n\1 \\ Fär🌿n'
        return new_plant(self.plants, name, "in" if self.plants % 2 else None)

    def end(self) -> int:
        return sum(map(len, self.lines))

    def add(self, plant: bytes, **values: bytes) -> "Journal":
        """A record with these values instead of the good ones."""
        good = {"seq": b"%d" % len(self.lines), "safe": b"%d" % self.safe, "at": AT}
        good |= {"prev": self.lines[-1][-11:-3], "by": b"nursery", "uuid": UUID}
        good |= {"plant": plant, "form": RECORD if plant else CLOSING, **values}
        front = re.sub(rb"%(\w+)%", lambda found: good[found[1].decode()], good["form"])
        self.lines.append(seal(front, good["uuid"]))
        return self

    def whole(self) -> bytes:
        return b"".join(self.lines)


Case = tuple[str, bytes]


# --- Damage ------------------------------------------------------------------


def random_bytes(whole: bytes, count: int, chance: random.Random) -> Iterator[Case]:
    """Flipped, replaced, removed, doubled, put before it."""
    for _ in range(count):
        at, kind = chance.randrange(len(whole)), chance.choice("fffrd2i")
        byte = whole[at : at + 1]
        new = {
            "f": bytes([byte[0] ^ 1 << chance.randrange(8)]),
            "r": chance.choice((b"\0", b"\n", b"\xff")),
            "d": b"",
            "2": byte * 2,
            "i": chance.choice((b"\n", b"\0", b" ", b"\r", b"0", b'"')) + byte,
        }[kind]
        yield f"byte {at}: {byte} made {new}", whole[:at] + new + whole[at + 1 :]


def many_flips(whole: bytes, count: int, chance: random.Random) -> Iterator[Case]:
    """Anywhere, and among the last bytes."""
    for number in range(count):
        bad = bytearray(whole)
        for _ in range(chance.choice((1, 2, 5))):
            at = chance.randrange(len(bad) if number % 2 else END_BYTES)
            bad[-1 - at] ^= 1 << chance.randrange(8)
        yield f"bits flipped, number {number}", bytes(bad)


def zeroed(whole: bytes, size: int) -> Iterator[Case]:
    for at in range(0, len(whole), size):
        bad = whole[:at] + bytes(min(size, len(whole) - at)) + whole[at + size :]
        yield f"{size} bytes zeroed at {at}", bad
        yield f"{size} bytes zeroed from {at}, room behind", bad + b"\n" * 700


def cut(whole: bytes, count: int, chance: random.Random) -> Iterator[Case]:
    for _ in range(count):
        at = chance.randrange(len(whole))
        yield f"cut at {at}", whole[:at]
        yield f"cut at {at}, room behind", whole[:at] + b"\n" * 700
        yield f"zeros from {at}", whole[:at] + bytes(len(whole) - at)


def lines_changed(lines: list[bytes]) -> Iterator[Case]:
    """Removed, doubled, swapped, replaced, spelt otherwise."""
    for i, line in enumerate(lines):
        upper = line[:-11] + line[-11:-3].upper() + line[-3:]
        news = {"removed": b"", "doubled": line * 2, "upper-case crc": upper}
        news |= {"CRLF": line[:-1] + b"\r\n", "newline lost": line[:-1]}
        news |= {"zeros for its newline": line[:-64] + bytes(64)}
        news |= {"blank": b"\n" * len(line), "replaced": lines[-1 - i]}
        news |= {"space": line.replace(b",", b", ", 1), "tab": line.replace(b":", b":\t")}
        for what, new in news.items():
            yield f"line {i}: {what}", b"".join([*lines[:i], new, *lines[i + 1 :]])
        swapped = [*lines[:i], *lines[i : i + 2][::-1], *lines[i + 2 :]]
        yield f"line {i}: swapped", b"".join(swapped)


def behind(whole: bytes, last: bytes) -> Iterator[Case]:
    """What tampering.py puts behind the records, and the bound of a batch."""
    garbage = b"\0\1garbage \xff\n{\"seq\":1,"
    tails = [garbage, last, b"\0", b"x" * PAGE, last + garbage, b"\n\n" + last]
    tails += [bytes(TAIL_MAX), bytes(TAIL_MAX + 1), b"\n" + b"x" * (TAIL_MAX - 1)]
    tails += [b"\n" + b"x" * TAIL_MAX, b"\n" * (TAIL_MAX + 1)]
    for tail in tails:
        for room in b"", b"\n" * 700:
            what = f"{len(tail)} bytes {tail[:20]} behind {len(room)} of room"
            yield what, whole + room + tail
            yield f"{what}, room behind", whole + room + tail + b"\n" * 700


# --- Forged lines --------------------------------------------------------------

PLANT = b'{"id":%b,"name":%b}'
# Behind "name": and so, in some, with members of the plant.
NAMES = [
    *rb"""
    "" "\b\t\n\f\r\"\\\u0000\u0007\u000b\u001f" "\u0008" "\/" "\u001F" "\u0020" "\x41"
    "\u00" "\ud83c\udf3f" "a a" 1 null "a","tag":"" "a","tag":null "a","by":"b"
    "a","tag":"b","tag":"b"
    """.split(),
    *(b'"a", "tag":"b"', b'"\t"', b'"\x7f\xef\xbf\xbe\xf0\x9f\x8c\xbf"', b'"\xff"'),
    *(b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\xe2\x82"', b'"""'),
]
IDS = b"""
    0 -1 -0 00 01 -01 +1 1.0 1e2 "1" 9223372036854775807 9223372036854775808
    18446744073709551617 -9223372036854775808 -9223372036854775809
    """.split()
NUMBERS = b"0 00 -0 -1 9223372036854775807 9223372036854775808 07".split() + [b""]
TIMES = b"""
    2026-11-21T07:21:60.000Z 2016-12-31T23:59:60.000Z 2026-01-01T00:60:00.000Z
    2026-01-01T24:00:00.000Z 2026-00-01T00:00:00.000Z 2026-13-01T00:00:00.000Z
    2026-01-00T00:00:00.000Z 2026-04-31T00:00:00.000Z 2026-02-29T00:00:00.000Z
    1900-02-29T00:00:00.000Z 2000-02-29T00:00:00.000Z 0000-02-29T23:59:59.999Z
    0000-01-01T00:00:00.000Z 9999-12-31T23:59:59.999Z 2026-01-01t00:00:00.000Z
    2026-01-01T00:00:00.000z 2026-01-01T00:00:00Z 2026-01-01T00:00:00.00Z
    2026-01-01T00:00:00.000+00:00 000000000000000000000000
    """.split() + [b"2026-01-01 00:00:00.000Z", b""]
BYS = [b"A-Z_a.z-0", b"x" * 64, b"x" * 65, b"", b"a b", b"\xc3\xa9", b'a\\"', b"a/b"]
PREVS = b"00000000 ABCDEF01 g0000000 0000000 000000000".split()
FORMS = [
    RECORD.replace(b"{", b"{ ", 1),
    RECORD.replace(b'"by"', b'"By"'),
    RECORD.replace(b'"seq"', b'"Seq"'),
    RECORD.replace(b',"plant"', b' ,"plant"'),
    RECORD.replace(b',"by":"%by%"', b""),
    RECORD.replace(b',"plant":%plant%', b""),
    RECORD + b',"more":1',
    RECORD + b" ",
]


def forged_values(end: int) -> Iterator[tuple[bytes, dict]]:
    """Plants, and the other values of a record; `end`: where it begins."""
    good = new_plant(999, "forged")
    yield good, {}
    yield b"", {}
    for name in NAMES:
        yield PLANT % (b"999", name), {}
    for plant_id in IDS:
        yield PLANT % (plant_id, b'"a"'), {}
    yield b'{"name":"a","id":999}', {}
    yield b'{"id":999}', {}
    yield b"{}", {}
    for at in TIMES:
        yield good, {"at": at}
        yield b"", {"at": at}
    values = {"by": BYS, "form": FORMS, "seq": NUMBERS, "uuid": [OTHER_UUID]}
    # Where the first record is damaged, the journal ends at 82.
    safe = [b"%d" % number for number in (82, 83, end, end + 1)]
    values |= {"prev": PREVS, "safe": [*NUMBERS, *safe]}
    for name, those in values.items():
        for value in those:
            yield good, {name: value}
    frame = len(Journal(3).add(PLANT % (b"999", b'""')).lines[-1])
    for size in RECORD_MAX, RECORD_MAX + 1:
        yield PLANT % (b"999", b'"%b"' % (b"x" * (size - frame))), {}


def forged() -> Iterator[Case]:
    """Each followed by a good record, and as a later record."""
    end = Journal(3).end()
    for plant, values in forged_values(end):
        what = f"{plant[:60]} {values}"
        journal = Journal(3).add(plant, **values)
        journal.safe = journal.end()
        yield f"{what} in the middle", journal.add(b"").whole()
        journal = Journal(3).add(plant, **{"safe": b"%d" % end, **values})
        lost = journal.whole().replace(b"Z", b"z", 1)
        yield f"{what} behind damage and a lost newline", lost[: end - 1] + lost[end:]


def special() -> Iterator[tuple[str, bytes, str]]:
    """With the verdict that is due."""
    journal, old, twice = Journal(3, 1, 0, 4, 4, 0), Journal(3, 1, safe=0), Journal(3, 2)
    lines, whole, header = journal.lines, journal.whole(), journal.lines[0]
    valid, begin = f"ok {journal.plants} {len(whole)}", len(whole) - len(lines[-1])
    other = seal(b'{"plant-store":1,"store":"%b"' % OTHER_UUID, OTHER_UUID)
    for what, head in {
        "empty file": b"",
        "only newlines": b"\n" * 100,
        "header without its newline": header[:-1],
        "header of another UUID": header.replace(b"0b7c", b"0b7d"),
        "header with an upper-case UUID": header.replace(UUID, UUID.upper()),
        "header with no UUID": other,
        "header with a space": header.replace(b":1", b": 1") + whole[82:],
        "byte order mark": b"\xef\xbb\xbf" + whole,
    }.items():
        yield what, head, "damaged 0"
    for number in b"1", b"01", b"-2", b'"2"', b"", b"%d" % 2**63, b"9" * 20, b" 2":
        yield f"version {number}", b'{"plant-store":%b}\n' % number, "damaged 0"
    for number in 0, 2, 10, 2**63 - 1:
        for rest in b',"anything":[]}\n', b"}", b"", b'"', b"x\n":
            head = b'{"plant-store":%d%b' % (number, rest)
            yield f"version {number}, {rest}", head, f"version {number}"
    yield "header only", header, "ok 0 82"
    yield "header and newlines", header + b"\n" * 9, "ok 0 82"
    yield "safe is 0 in the first batch", old.whole(), f"ok 4 {old.end()}"
    yield "newlines at the end", whole + b"\n" * 70000, valid
    yield "the golden journal", GOLDEN.read_bytes(), "ok 3 753"
    bad = f"damaged {begin - len(lines[-2])}"
    yield "newline lost before the last line", whole[: begin - 1] + lines[-1], bad

    again = twice.end()
    twice.add(new_plant(2, "again")).add(new_plant(1, "again")).add(b"")
    yield "two ids that occur twice", twice.whole(), f"duplicate {again}"
    yield "the same and a torn tail", twice.whole() + b"{", f"duplicate {again}"
    spoilt = twice.whole().replace(b"T", b"t", 1)
    yield "the same and damage", spoilt, "damaged 82"

    long = Journal(3).add(PLANT % (b"4", b'"%b"' % (b"x" * 10**6)))
    long.safe = long.end()
    long.add(b"")
    yield "a long record", long.whole(), f"ok 4 {long.end()}"
    for at in 3, 4:
        bad = f"damaged {sum(map(len, long.lines[:at]))}"
        lost = b"".join([*long.lines[:at], bytes(3 << 20), *long.lines[at:]])
        yield f"3 MiB of zeros before line {at}", lost, bad


# --- A real journal ------------------------------------------------------------


def read_real_journal(tally: Tally, program: pathlib.Path, root: pathlib.Path) -> None:
    """The journal of two imports; the reader runs as a program."""

    def output(*words: object, **options: object) -> bytes:
        return run(*words, env=passed_on(), check=True, **options).stdout

    init_store(program.parent, root / "real")
    for ids in range(300), range(300, 500):
        plants = b"\n".join(PLANT % (b"%d" % i, rb'"\u0041 \u001f"') for i in ids)
        output(program, "import", "--quiet", "--dir", root / "real", input=plants)
    journal = root / "real" / JOURNAL_NAME
    exported = output(program, "export", "--quiet", "--dir", root / "real")
    ours = output(sys.executable, second_reader.__file__, "--plants", journal)
    text = journal.read_bytes().rstrip(b"\n") + b"\n"
    due = exported + b"ok 500 %d\n" % len(text)
    tally.check(ours == due, "the reader finds what export writes", ours[-300:])
    first = text.split(b"\n")[1]
    tally.check(b'"safe":82,' in first, "the first watermark is 82", first)


# --- The store of a journal ------------------------------------------------------


class Place:
    """A store into whose journal one damage after the other is put, and its copy without index.

    Batches of 3, 1, 4 and 4 plants, the second and the last one closed.
    """

    BATCHES = "batch 1 3", "put 4 plant 4", "idle", "batch 5 4", "batch 9 4", "idle"
    PLANTS = 12

    def __init__(self, root: pathlib.Path, build: pathlib.Path, driver: pathlib.Path) -> None:
        self.root, self.build, self.driver, self.turn = root, build, driver, 0
        self.dir, self.bare = root / "store", root / "bare"
        init_store(build, self.dir)
        self.drive(self.dir, *self.BATCHES)
        self.whole = (self.dir / JOURNAL_NAME).read_bytes().rstrip(b"\n") + b"\n"
        self.mark = (self.dir / END_NAME).read_bytes()

    @functools.cache
    def own(self) -> "Place":
        """For this process: no copy of an index is believed."""
        own = copy.copy(self)
        own.root = self.root / str(os.getpid())
        own.dir, own.bare = own.root / "store", own.root / "bare"
        own.dir.mkdir(0o700, parents=True)
        own.bare.mkdir(0o700)
        own.make_index()
        return own

    def drive(self, place: pathlib.Path, *lines: str, once: bool = False) -> CompletedProcess:
        return run(self.driver, place, *["once"] * once, env=passed_on(), text=True,
                   input="".join(f"{line}\n" for line in (*lines, "close")))

    def make_index(self) -> None:
        """Of the good journal, with all of it: a checkpoint ends an import."""
        shutil.rmtree(self.dir / "index", ignore_errors=True)
        (self.dir / JOURNAL_NAME).write_bytes(self.whole)
        run(self.build / "plant-store", "import", "--quiet", "--dir", self.dir, env=passed_on(),
            check=True)
        (self.dir / END_NAME).unlink(missing_ok=True)
        self.whole_index = self.index()

    def index(self) -> dict[str, tuple[int, int]]:
        return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns)
                for path in (self.dir / "index").glob("*")}

    def start(self, place: pathlib.Path, bad: bytes, *lines: str, mark: bool = False,
              once: bool = False) -> tuple[CompletedProcess, str]:
        """A start with this journal; and what it did that a refusal must not do."""
        journal, end = place / JOURNAL_NAME, place / END_NAME
        journal.write_bytes(bad)
        journal.chmod(0o600)
        if mark:
            end.write_bytes(self.mark)
        done = self.drive(place, *lines, once=once)
        kept = [path.read_bytes() for path in place.glob("*.torn-*")]
        touched = kept or journal.read_bytes() != bad
        for path in (end, *place.glob("*.torn-*")):
            path.unlink(missing_ok=True)
        if place == self.dir and self.index() != self.whole_index:
            self.make_index()
        shutil.rmtree(self.bare / "index", ignore_errors=True)
        return done, "touched" if touched else ""

    def is_known(self, bad: bytes) -> bool:
        """Whether index and end mark show that it is not what it was."""
        return bad[:len(self.whole)] != self.whole

    def compare(self, bad: bytes, verdict: str, of_it: bool) -> list[str]:
        """What a service or a CGI process does otherwise than the verdict has it; `of_it`: of a
        damage to its journal."""
        wrong = []
        word, _, offset = verdict.partition(" ")
        starts = [("a start", self.bare, False)]
        if of_it:
            starts += [("one with an end mark", self.bare, True), ("one with an index", self.dir, False)]
        for what, place, mark in starts:
            known = what != "a start" and self.is_known(bad)
            due = {"damaged": os.EX_DATAERR, "version": os.EX_CONFIG}.get(word, 0)
            due = due or os.EX_DATAERR * known
            done, touched = self.start(place, bad, mark=mark)
            words = f"damaged at byte {offset}:" if word == "damaged" and not known else \
                "damaged at byte |beside it first|has a version" if due else ""
            named = re.search(words, done.stderr)
            if done.returncode != due or (due and touched) or not named:
                wrong.append(f"{what}: {done.returncode}, {touched}: {done.stderr}")
        if of_it and self.is_known(bad):
            wrong += self.ask(bad)
        return wrong

    def ask(self, bad: bytes) -> list[str]:
        """For every plant, beginning with another one each time, by its name or by another's."""
        self.turn += 1
        asked = {}
        for number in range(self.PLANTS + 1):
            plant_id = (number + self.turn) % (self.PLANTS + 1) + 1
            other = (self.turn // 13 + number) % 2
            asked[plant_id] = ("created" if plant_id > self.PLANTS else "conflict" if other else "same",
                               f"put {plant_id} {'another' if other else f'plant {plant_id}'}")
        done, _ = self.start(self.dir, bad, *(line for _, line in asked.values()), once=True)
        told = [line.split() for line in done.stdout.splitlines() if " " in line]
        return [f"CGI: untrue: {plant_id} {result}" for plant_id, result in told
                if result not in ("failed", asked[int(plant_id)][0])]


# --- The comparison ------------------------------------------------------------


def verify(program: pathlib.Path, folder: pathlib.Path, journal: bytes) -> tuple[str, int]:
    """The verdict of `plant-store verify` in the reader's words, and its count."""
    path = folder / "damaged.jsonl"
    path.write_bytes(journal)
    done = run(program, "verify", "--quiet", path, env=passed_on(), text=True)
    out = re.fullmatch(r".*: (\d+|no) plants?, (\d+) bytes, all valid\n", done.stdout)
    plants = int(out[1].replace("no", "0")) if out else -1
    err = re.search(r"(damaged|torn) at byte (\d+)", done.stderr)
    twins = re.findall(r"occurs twice, at bytes \d+ and (\d+)", done.stderr)
    version = re.match(rb'\{"plant-store":(\d+)', journal)
    match done.returncode:
        case 0 if out and err and err[1] == "torn":
            return f"torn {err[2]}", plants
        case 0 if out and not done.stderr:
            return f"ok {plants} {out[2]}", plants
        case 65 if err and err[1] == "damaged" and not out:
            return f"damaged {err[2]}", -1
        case 65 if twins and not out:
            return f"duplicate {min(map(int, twins))}", -1
        case 78 if version and "has a version" in done.stderr:
            return f"version {int(version[1])}", -1
    return f"status {done.returncode}: {done.stdout}{done.stderr}", -1


def compare(place: Place, of_it: bool, case: tuple) -> tuple[str, str]:
    """The reader's verdict, and what is wrong."""
    what, journal, *due = case
    ours, plants = second_reader.read(journal)
    own = place.own()
    theirs, count = verify(own.build / "plant-store", own.root, journal)
    if ours != theirs or count not in (-1, len(plants)):
        ours_count = f"{ours} with {len(plants)} plants"
        return ours, f"{what}: the reader: {ours_count}; verify: {theirs}, {count}"
    if due and due[0] != ours:
        return ours, f"{what}: both: {ours}; due: {due[0]}"
    wrong = own.compare(journal, ours, of_it)
    return ours, f"{what}: {ours}, but {wrong}" if wrong else ""


HARMS: dict[str, Callable[[bytes], bytes]] = {
    "cut to half": lambda data: data[:len(data) // 2],
    "empty": lambda data: b"",
    "zero": lambda data: bytes(len(data)),
    "garbled": lambda data: random.Random(SEED).randbytes(len(data)),
}


def check_index(tally: Tally, place: Place) -> None:
    """It may end a start; without it, all is served."""
    for name, harm in itertools.product(("manifest", "run-*"), HARMS):
        (file,) = (place.dir / "index").glob(name)
        file.write_bytes(HARMS[harm](file.read_bytes()))
        done, touched = place.start(place.dir, place.whole)
        asked = place.ask(place.whole)
        tally.check(not touched and not asked, f"a {name} of the index, {harm}: a start leaves the "
                    "plants as they are, and tells the truth", (done, asked))


def scenario(tally: Tally, arguments) -> None:
    count = DAMAGES_LONG if arguments.long else DAMAGES
    chance = random.Random(SEED)
    large = Journal(*[8, 7, 9, 0] * 13).whole()
    with tempfile.TemporaryDirectory(dir=memory()) as directory:
        root = pathlib.Path(directory)
        read_real_journal(tally, arguments.build / "plant-store", root)
        place = Place(root, arguments.build, compile_driver(arguments.build))
        whole = place.whole
        lines = whole.splitlines(keepends=True)
        sealed = b"%b %020d" % (second_reader.HEADER.fullmatch(lines[0])[1], len(whole))
        tally.check(place.mark == sealed + b" %08x\n" % crc32c(sealed),
                    "an end mark is as the page has it", place.mark)
        kinds = {
            "bytes of a small journal": random_bytes(whole + b"\n" * 700, count, chance),
            "sectors zeroed": zeroed(whole, SECTOR),
            "shorter files": cut(whole, count // 10, chance),
            "lines changed": lines_changed(lines),
            "bytes behind the records": behind(whole, lines[-1]),
        }
        others = {
            "bits of 300 plants": many_flips(large, count // 3, chance),
            "pages zeroed": zeroed(large, PAGE),
            "forged lines": forged(),
            "special files": special(),
        }
        for kind, cases in (kinds | others).items():
            work = functools.partial(compare, place, kind in kinds)
            results = list(side_by_side(work, list(cases)))
            words = collections.Counter(ours.split()[0] for ours, _ in results)
            wrong = [text for _, text in results if text]
            tally.check(len(words) > 1 and not wrong,
                        f"{kind}: what the page defines is found, told and obeyed {dict(words)}",
                        "\n    ".join([f"{len(wrong)} differ", *wrong[:10]]))
        check_index(tally, place.own())


if __name__ == "__main__":
    sys.exit(run_script(__doc__, scenario))
