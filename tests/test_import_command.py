#!/usr/bin/env python3
"""Goal: `plant-store import` stores exactly the good lines, and says the rest.

Usage: test_import_command.py build/plant-store
"""

import contextlib
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys

from lib_command import CONFIG, DATAERR, IOERR, NOINPUT, NOPERM, TEMPFAIL, USAGE, take_lock
from lib_service import (
    WAIT_S, FastCgiPeer, JournalError, Store, Tally, canonical, catches, fcgi_request,
    init_store, new_plant, responder, run_cgi, run_scenario, temporary_store, unread, wait_until,
)

NOBODY = 65534
COUNTS = re.compile(
    rb"(\d+) created, (\d+) there already, (\d+) conflicting, (\d+) refused; "
    rb"read up to line (\d+)\n"
)
ODD = [
    "", " ", "a,b", '"', '""', "a\"b", "\n", "\r", "\r\n", "a\n\nb", "'", "\\",
    "\\n", "\t\x00\x1f\x7f", "=1+1", "id", "é\U0001f331\u2028\ufeff", "]}", "x" * 3000,
]


class Import:
    """What the tests share: the program, and how it is run on a store."""

    def __init__(self, tally: Tally, program: str) -> None:
        self.tally = tally
        self.program = pathlib.Path(program).resolve()
        self.check = tally.check

    def store(self) -> contextlib.AbstractContextManager[Store]:
        return temporary_store(str(self.program.parent))

    def start(self, store: Store, *arguments: str, **settings: str) -> subprocess.Popen:
        return subprocess.Popen(
            [self.program, "import", *arguments],
            env=store.environment(**settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, store: Store, text: bytes, *arguments: str, **settings: str) -> "Done":
        process = self.start(store, *arguments, **settings)
        return finish(process, text)


class Done:
    """An import that ended."""

    def __init__(self, status: int, out: bytes, err: bytes) -> None:
        self.status = status
        self.err = err.decode("ascii")
        found = COUNTS.fullmatch(out)
        self.counts = [int(count) for count in found.groups()] if found else None
        self.out = out

    def told(self) -> list[str]:
        """What is said of lines, without the name of the program."""
        found = re.findall(r"^plant-store: (stdin: line .*)$", self.err, re.MULTILINE)
        return found

    def __repr__(self) -> str:
        return f"{self.status} {self.out!r} {self.err}"


def finish(process: subprocess.Popen, text: bytes = b"") -> Done:
    out, err = process.communicate(text, timeout=WAIT_S)
    return Done(process.returncode, out, err)


def lines(first: int, n: int) -> bytes:
    return b"".join(new_plant(i, f"plant {i}") + b"\n" for i in range(first, first + n))


def feed(process: subprocess.Popen, text: bytes) -> None:
    """Write, and wait until all of it has been read."""
    process.stdin.write(text)
    process.stdin.flush()
    if not wait_until(lambda: unread(process.stdin) == 0):
        raise RuntimeError("the input is not read")


def size(path: pathlib.Path) -> int:
    try:
        return len(path.read_bytes().rstrip(b"\n"))
    except FileNotFoundError:
        return 0


@contextlib.contextmanager
def tmpfs(path: pathlib.Path, options: str):
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)


# --- The command line --------------------------------------------------------


def test_arguments(test: Import) -> None:
    with test.store() as store:
        done = test.run(store, b"", "--help")
        test.check(
            done.status == 0 and done.out.startswith(b"Usage: plant-store import"),
            "--help tells the usage", done)
        for arguments in (["--by", "a b"], ["--by", ""], ["--by", "x" * 65],
                          ["--format", "xml"], ["--nothing"], ["a", "b"], ["--by"]):
            done = test.run(store, b"", *arguments)
            test.check(
                done.status == USAGE and "see: plant-store import --help" in done.err,
                f"{arguments} is a usage error", done)
        for path, why in ((store.root / "none.csv", "cannot open"),
                          (store.root, "cannot read: Is a directory")):
            done = test.run(store, b"", str(path))
            test.check(
                done.status == NOINPUT and f"plant-store: {path}: {why}" in done.err,
                f"what {why} is no input", done)
        done = test.run(store, lines(1, 1), "-")
        test.check(done.status == 0 and done.counts == [1, 0, 0, 0, 1],
                   "- is standard input", done)
        done = test.run(store, b"", PLANT_STORE_BODY_BYTES_MAX="1")
        test.check(done.status == 78 and "BODY_BYTES_MAX" in done.err,
                   "a wrong setting is told", done)
        done = test.run(store, b"", "--dir", str(store.dir), PLANT_STORE_BODY_BYTES_MAX="1")
        test.check(done.status == 78 and "BODY_BYTES_MAX" in done.err,
                   "also where it does not say which store", done)
        done = test.run(store, b"{}", "--dir", str(store.root / "none"))
        test.check(done.status == 78 and done.out == b"",
                   "a missing store is told", done)


def test_format(test: Import) -> None:
    csv, json = b"id,name\r\n1,one\r\n", b'{"id":2,"name":"two"}\r\n'
    with test.store() as store:
        for name, text, status in (
                ("a.csv", csv, 0), ("a.CSV", csv, 0), ("a.jsonl", json, 0),
                ("a.ndjson", json, 0), ("a.txt", csv, 0), ("b.txt", json, 0),
                ("b.csv", json, DATAERR), ("b.jsonl", csv, DATAERR)):
            path = store.root / name
            path.write_bytes(text)
            done = test.run(store, b"", str(path))
            test.check(done.status == status, f"{name} with {text[:5]!r} has its format",
                       done)
        done = test.run(store, csv, "--format", "jsonl")
        test.check(done.status == DATAERR and "stdin: line 1: error 4001" in done.err,
                   "--format wins over the first byte", done)
        test.check(sorted(plant["id"] for plant in store.plants()) == [1, 2],
                   "and only what has the right format is stored", store.plants())


# --- What is stored, and what is not -----------------------------------------


def test_json_lines(test: Import) -> None:
    text = (b'{"id":1,"name":"a"}\n\n {"name":"b","x":[{}],"tag":"t","id":-2}\r\n'
            b'\t \r\n{"id":9223372036854775807,"name":""}')
    with test.store() as store:
        done = test.run(store, text, "--by", "some.Name_-1")
        test.check(done.status == 0 and done.counts == [3, 0, 0, 0, 5] and not
                   done.told(), "JSON lines are stored, blank ones passed over", done)
        test.check(store.plants() == [
            {"id": 1, "name": "a"}, {"id": -2, "name": "b", "tag": "t"},
            {"id": 9223372036854775807, "name": ""}], "as they are", store.plants())
        test.check(store.journal.read_bytes().count(b'"by":"some.Name_-1"') == 3,
                   "with the given name beside each")
        before = store.journal.read_bytes()
        done = test.run(store, text)
        test.check(done.status == 0 and done.counts == [0, 3, 0, 0, 5],
                   "a second import finds them there already", done)
        test.check(store.journal.read_bytes() == before, "and adds nothing")
        done = test.run(store, b'{"id":7,"name":"a"}')
        test.check(store.journal.read_bytes().count(b'"by":"import"') == 1,
                   "without a name it is import", done)
        done = test.run(store, b"")
        test.check(done.status == 0 and done.counts == [0, 0, 0, 0, 0],
                   "an empty input is no error", done)


REFUSED = [  # a line, and the number of why it is refused
    (b"x", 4001), (b'{"id":1,"name":"a"', 4001), (b'{"id":1,"name":"\xff"}', 4002),
    (b'{"id":1,"name":"a","x":' + b"[" * 64 + b"]" * 64 + b"}", 4003), (b'"x"', 4004),
    (b'{"name":"a"}', 4101), (b'{"id":1,"id":1,"name":"a"}', 4102),
    (b'{"id":1.0,"name":"a"}', 4103), (b'{"id":9223372036854775808,"name":"a"}', 4104),
    (b'{"id":1}', 4201), (b'{"id":1,"name":"a","name":"a"}', 4202),
    (b'{"id":1,"name":1}', 4203), (b'{"id":1,"name":"a","tag":"","tag":""}', 4301),
    (b'{"id":1,"name":"a","tag":null}', 4302), (b'{"id":1,"name":"a"} {}', 4001),
    (b'{"id":1,"name":"\\ud800"}', 4001),
]


def test_refusals(test: Import) -> None:
    text = lines(1, 1) + b"".join(line + b"\n" for line, _ in REFUSED) + lines(2, 1)
    with test.store() as store:
        done = test.run(store, text, "--keep-going")
        numbers = [int(number) for number in re.findall(r": error (\d+): ", done.err)]
        test.check(numbers == [number for _, number in REFUSED],
                   "each line is refused for its reason", numbers)
        test.check(
            [told.split(":")[1] for told in done.told()] ==
            [f" line {i}" for i in range(2, len(REFUSED) + 2)], "and told by its number",
            done)
        test.check(done.status == DATAERR and
                   done.counts == [2, 0, 0, len(REFUSED), len(REFUSED) + 2],
                   "--keep-going stores the others", done)
        for line, number in REFUSED:
            found = run_cgi([store.responder], {**store.environment(),
                                                **store.request(line)}, line)
            message = found.stdout.partition(b'"message":"')[2].removesuffix(b'"}')
            message = message.decode().replace('\\"', '"').replace("\\\\", "\\")
            test.check(f": error {number}: {message}\n" in done.err,
                       f"the interface says the same of {line[:30]!r}", message)
        done = test.run(store, lines(3, 1) + b"x\n" + lines(4, 1))
        test.check(done.status == DATAERR and done.counts == [1, 0, 0, 1, 2] and
                   "--keep-going" in done.err,
                   "without it the first that is refused ends the import", done)
        test.check([plant["id"] for plant in store.plants()] == [1, 2, 3],
                   "after what came before it", store.plants())


def test_hints(test: Import) -> None:
    """Files that were not meant for import, and a terminal."""
    with test.store() as store:
        test.run(store, lines(1, 1))
        array = ("a JSON array; import wants one plant a line: jq -c '.[]' FILE (jq 1.6 rounds "
                 "ids above 2^53)")
        journal = ("a line of a journal; import the output of: plant-store export --file "
                   "JOURNAL")
        for text, hint in (
                (b'[\n{"id":1,"name":"a"}\n]\n', array), (b"[]", array),
                (store.journal.read_bytes(), journal),
                (store.journal.read_bytes().partition(b"\n")[2], journal)):
            done = test.run(store, text, "--format", "jsonl")
            test.check(done.status == DATAERR and done.told() == [f"stdin: line 1: {hint}"],
                       f"{text[:9]!r} is refused with the way to import it", done)
        master, slave = pty.openpty()
        os.write(master, b'{"id":2,"name":"typed"}\n\x04')
        process = subprocess.run([test.program, "import"], env=store.environment(), stdin=slave,
                                 capture_output=True, timeout=WAIT_S)
        os.close(slave)
        os.close(master)
        test.check(process.returncode == 0 and b"end with Ctrl-D" in process.stderr and
                   store.plants()[-1] == {"id": 2, "name": "typed"},
                   "on a terminal it says what it waits for", process)


def test_conflicts(test: Import) -> None:
    with test.store() as store:
        test.run(store, lines(1, 3))
        text = b'{"id":4,"name":"a"}\n{"id":4,"name":"b"}\n{"id":2,"name":"c"}\n'
        done = test.run(store, text + lines(1, 1), "--keep-going")
        test.check(done.status == DATAERR and done.counts == [1, 1, 2, 0, 4],
                   "conflicts are counted", done)
        test.check(
            done.told() == [f"stdin: line {line}: error 5001: id {plant_id}: Another "
                            "plant with this id is stored already: send another id."
                            for line, plant_id in ((2, 4), (3, 2))],
            "and told by line and id", done)
        text = b'{"id":1,"name":"x"}\n'
        done = test.run(store, text + lines(100, 12000))
        last = done.counts[4] if done.counts else 0
        test.check(done.status == DATAERR and 1 < last < 12001 and
                   done.counts == [last - 1, 0, 1, 0, last] and "--keep-going" in done.err,
                   "without --keep-going a conflict ends the import", done)
        test.check(len(store.plants()) == 4 + last - 1, "where it says that it does")
        text = b'{"id":100,"name":"plant 100"}\n\n{"id":1,"name":"x"}\nx\n'
        done = test.run(store, text)
        test.check("stdin: stopped at line 4. Stored: line 1. In conflict: line 3. Refused: "
                   "line 4. Correct" in done.err, "with the lines that were stored", done)
        text = b"".join(lines(100, 2) + b'{"id":1,"name":"x"}\n' for _ in range(9))
        done = test.run(store, text)
        test.check(": stopped at line 27. Stored: line 1 and 17 more. In conflict: line 3 "
                   "and 8 more. Correct" in done.err, "of which the first are enough", done)


def test_limit(test: Import) -> None:
    fits = b'{"id":1,"name":"' + b"a" * 80 + b'"}'
    fits += b" " * (100 - len(fits))
    with test.store() as store:
        for end in b"\n", b"\r\n", b"":
            done = test.run(store, fits + end, PLANT_STORE_BODY_BYTES_MAX="100")
            test.check(done.status == 0, f"a line of the limit and {end!r} fits", done)
            done = test.run(store, fits + b" " + end, PLANT_STORE_BODY_BYTES_MAX="100")
            test.check(done.status == DATAERR and "line 1: error 3007" in done.err,
                       f"a longer one before {end!r} does not", done)
        # {"id":1,"name":"...","tag":"t"}
        for length, status in (100 - 28, 0), (100 - 27, DATAERR):
            done = test.run(store, b"id,name,tag\n2,%s,t" % (b"a" * length),
                            PLANT_STORE_BODY_BYTES_MAX="100")
            test.check(done.status == status,
                       f"CSV for JSON of {length + 28} bytes ends with {status}", done)


def test_long_lines(test: Import) -> None:
    """A line larger than any memory it may take, in the middle."""
    if b"__asan_init" in test.program.read_bytes():
        test.tally.skip("long lines take no memory", "a sanitizer takes its own")
        return
    long = b"x" * (40 << 20)
    json = lines(1, 1) + long + b"\n" + lines(2, 1) + long
    csv = b'id,name\n1,plant 1\n9,"' + long + b'\n""\n"\n2,plant 2\n8,"' + long
    for name, text, first, last in ("JSON", json, 2, 4), ("CSV", csv, 3, 7):
        with test.store() as store:
            process = test.start(store, "--keep-going", PLANT_STORE_BODY_BYTES_MAX="1048576")
            feed(process, text)
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            used = int(re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)[1])
            done = finish(process)
            test.check(
                done.status == DATAERR and done.counts == [2, 0, 0, 2, last] and
                re.findall(r"line (\d+): error 3007", done.err) == [str(first), str(last)],
                f"{name} lines that are too long are refused alone", done)
            test.check(used < 32 << 10, "and not kept in memory", f"{used} KiB")


# --- CSV ---------------------------------------------------------------------


def test_csv(test: Import) -> None:
    text = (b'\xef\xbb\xbf"id",name,tag\r\n1,one,t\r\n\n"2","t\nw""o\r\n",\n'
            b'x,x,x\n3, three ,""\r\n-4,"",t')
    with test.store() as store:
        done = test.run(store, text, "--keep-going")
        test.check(done.counts == [4, 0, 0, 1, 9] and done.status == DATAERR,
                   "CSV with a byte order mark is read", done)
        test.check([told.split(" error")[0] for told in done.told()] ==
                   ["stdin: line 7:"], "line breaks in quotes count as lines", done)
        test.check(store.plants() == [
            {"id": 1, "name": "one", "tag": "t"}, {"id": 2, "name": 't\nw"o\r\n'},
            {"id": 3, "name": " three ", "tag": ""},
            {"id": -4, "name": "", "tag": "t"}], "each field as it is", store.plants())
        done = test.run(store, b"id,name\n1,one\n")
        test.check(done.counts == [0, 0, 1, 0, 2], "without a column tag there is none",
                   done)
        for text in (b"tag,name,id\nt,two,5\n,three,6\n", b"name,id\nfour,7\n"):
            test.run(store, text)
        test.check(store.plants()[4:] == [
            {"id": 5, "name": "two", "tag": "t"}, {"id": 6, "name": "three"},
            {"id": 7, "name": "four"}], "the columns may stand in any order", store.plants())


def test_csv_refusals(test: Import) -> None:
    wrong = [
        (b"1", "too few fields"), (b"1,a,b,c", "too many fields"),
        (b'1,a"b,', "a quote inside a field"), (b'1,"a"b,', "text behind a closing"),
        (b"1,a\rb,", "a CR without LF"), (b",a,", "error 4101"), (b'"",a,', "error 4103"),
        (b" 1,a,", "error 4103"), (b"1.5,a,", "error 4103"), (b"01,a,", "error 4103"),
        (b"+1,a,", "error 4103"), (b"1e3,a,", "error 4103"), (b"-,a,", "error 4103"),
        (b'"1,""name"":""x""}",a,', "error 4103"), (b"9223372036854775808,a,", "error 4104"),
        (b"1,,t", "error 4201"), (b"1,\xc3,t", "error 4002"), (b"1,a,\xed\xa0\x80", "4002"),
        (b'1,"a', "a quote that is never closed"),
    ]
    text = b"id,name,tag\n" + b"\n".join(line for line, _ in wrong)
    with test.store() as store:
        done = test.run(store, text, "--keep-going")
        told = done.told()
        for i, (line, why) in enumerate(wrong):
            test.check(i < len(told) and f"line {i + 2}: " in told[i] and why in told[i],
                       f"{line!r} is refused", told[i:i + 1])
        test.check(done.counts == [0, 0, 0, len(wrong), len(wrong) + 1] and
                   not store.plants(), "and nothing stored", done)
        for header in (b"id,name,tags", b"name,tag", b"id", b"id,id,name", b"tag,id",
                       b"id,name,name", b"id;name", b"1,one", b"ID,name",
                       b"id,name,tag,", b'{"id', b'x"'):
            done = test.run(store, header + b"\n1,one\n", "--format", "csv", "--keep-going")
            test.check(done.status == DATAERR and "line 1: not the header line" in done.err
                       and not store.plants(), f"{header!r} is no header", done)


def test_csv_limit(test: Import) -> None:
    """A field that is larger in JSON, where each of its line breaks is two characters."""
    with test.store() as store:
        text = b'id,name\n1,"' + b"\n" * 40000 + b'"\n2,two\n'
        done = test.run(store, text, "--format", "csv", "--keep-going")
        test.check(done.counts == [1, 0, 0, 1, 40003] and "error 3007" in done.err,
                   "the limit is that of the plant as JSON", done)
        path = store.root / "plants.csv"  # all of it is read at once
        path.write_bytes(b"id,name\n1," + b"x" * 100_000 + b"\n3,three\n")
        done = test.run(store, b"", str(path), "--keep-going")
        test.check(done.counts == [1, 0, 0, 1, 3] and "error 3007" in done.err,
                   "and holds for what is there whole, too", done)
    with test.store() as store:
        text = b"id,name\n1,a\"" + b"x" * 1_200_000 + b"\n2,two\n3,three\n"
        text += b'4,"q\n99,not a plant\n5,five"\n6,six\n'
        done = test.run(store, text, "--format", "csv", "--keep-going")
        found = [plant["id"] for plant in store.plants()]
        test.check(done.counts == [4, 0, 0, 1, 8] and found == [2, 3, 4, 6],
                   "a wrong record, however long, ends with its line", (done, found))


def test_round_trip(test: Import) -> None:
    plants = [{"id": i, "name": name, "tag": tag} for i, (name, tag) in
              enumerate((name, tag) for name in ODD for tag in ODD)]
    rows = ["id,name,tag"]
    for plant in plants:
        fields = ['"' + plant[member].replace('"', '""') + '"' for member in ("name", "tag")]
        rows.append(f'{plant["id"]},{",".join(fields)}')
    csv = "\r\n".join(rows).encode()
    json = b"\n".join(canonical(plant) for plant in plants)
    with test.store() as store:
        done = test.run(store, csv)
        test.check(done.status == 0 and store.plants() == plants,
                   "odd strings come through CSV", done)
        done = test.run(store, json)
        test.check(done.counts and done.counts[:2] == [0, len(plants)],
                   "and are the same plants as JSON lines", done)


def test_moving(test: Import) -> None:
    """What export --full writes comes back with its times and token names."""
    refused = [b'{"id":1,"name":"a"}', b"", b"{", b'{"at":"2026-02-30T00:00:00.000Z"']
    with test.store() as old, test.store() as new:
        test.run(old, lines(1, 300), "--by", "nursery-1")
        test.run(old, lines(301, 300), "--by", "x" * 64)
        export = [test.program, "export", "--full", "--dir"]
        full = subprocess.check_output([*export, old.dir], stderr=subprocess.DEVNULL)
        done = test.run(new, full, "--full")
        test.check(done.status == 0 and done.counts == [600, 0, 0, 0, 600],
                   "import --full takes what export --full wrote", done)
        moved = subprocess.check_output([*export, new.dir], stderr=subprocess.DEVNULL)
        test.check(moved == full, "times and names of tokens are kept")
        done = test.run(new, full, "--full")
        test.check(done.status == 0 and done.counts == [0, 600, 0, 0, 600],
                   "what is there already is left alone", done)
        line = full.splitlines()[0]
        refused += [line.replace(b"nursery-1", by) for by in (b"", b"a b", b"x" * 65)]
        refused += [line[:n] for n in range(1, len(line))]
        done = test.run(new, b"\n".join(refused), "--full", "--keep-going")
        test.check(done.counts and done.counts[3] == len(refused) - 1,
                   "a line of another form is refused", done)
        for words in ["--full", "--by", "me"], ["--full", "--format", "csv"]:
            done = test.run(new, full, *words)
            test.check(done.status == USAGE, f"{' '.join(words)} is a usage error", done)


# --- Interruptions -----------------------------------------------------------


def test_kill(test: Import) -> None:
    text = lines(1, 12000)
    with test.store() as store:
        path = store.root / "plants"
        path.write_bytes(text)
        process = test.start(store)
        feed(process, text)
        test.check(wait_until(lambda: size(store.journal) > 1 << 19),
                   "it stores before the input ends")
        process.kill()
        finish(process)
        done = test.run(store, b"", str(path))
        test.check(
            done.status == 0 and done.counts and done.counts[1] > 4000 and
            done.counts[0] + done.counts[1] == 12000,
            "after kill -9 a second import stores the rest", done)
        test.check([plant["id"] for plant in store.plants()] == list(range(1, 12001)),
                   "so that each is there once, in order")


def test_signals(test: Import) -> None:
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        with test.store() as store:
            process = test.start(store)
            feed(process, lines(1, 3) + b'{"id":4,"na')
            process.send_signal(number)
            process.wait(WAIT_S)  # its input is still open
            done = finish(process)
            test.check(
                done.status == 128 + number and done.counts == [3, 0, 0, 0, 3] and
                "interrupted; every line up to 3 is done" in done.err,
                f"{number.name} ends it with what was read stored", done)
            test.check(len(store.plants()) == 3, "and nothing of a line in part")


def test_signals_elsewhere(test: Import) -> None:
    """In the middle of a line that is too long, and before the store is open."""
    with test.store() as store:
        process = test.start(store)
        feed(process, lines(1, 2) + b"x" * (128 << 10))
        process.send_signal(signal.SIGINT)
        process.wait(WAIT_S)
        done = finish(process)
        test.check(done.status == 128 + signal.SIGINT and done.counts == [2, 0, 0, 0, 2],
                   "SIGINT ends it in the middle of a line that is too long", done)
    with test.store() as store:
        test.run(store, lines(1, 1))
        (store.dir / "index" / "data.mdb").unlink()
        held = take_lock(store.journal)
        process = test.start(store)
        test.check(wait_until(lambda: catches(process.pid, signal.SIGINT)),
                   "it waits for the store")
        process.send_signal(signal.SIGINT)
        os.close(held)
        done = finish(process, lines(2, 1))
        test.check(done.status == 128 + signal.SIGINT and done.out == b"" and
                   "interrupted; nothing was imported" in done.err,
                   "SIGINT ends it before its store is open", done)


def test_progress(test: Import) -> None:
    with test.store() as store:
        path = store.root / "plants"
        path.write_bytes(lines(1, 100))
        done = test.run(store, b"", "--progress", str(path))
        test.check(done.status == 0 and re.search(r"^plant-store: import +\d+ %", done.err,
                                                  re.MULTILINE),
                   "--progress tells the share of the file", done)
        process = test.start(store, "--progress")
        feed(process, lines(1, 1))
        wait_until(lambda: False, 1.2)  # a line of progress a second
        done = finish(process, lines(2, 1))
        test.check(re.search(r"^plant-store: import +[\d.]+ MB +[\d.]+ MB/s$", done.err,
                             re.MULTILINE),
                   "and of a pipe how much it was", done)
        done = test.run(store, b"", "--quiet", str(path))
        test.check(done.err == "" and done.counts == [0, 100, 0, 0, 100],
                   "--quiet tells only the counts", done)


# --- A store that does not take it -------------------------------------------


def start_busy(test: Import, store: Store) -> tuple[subprocess.Popen, int]:
    """An import that finds the lock taken when it wants to store its lines."""
    process = test.start(store)
    feed(process, lines(1, 2))
    held = take_lock(store.journal)
    process.stdin.close()
    process.stdin = None
    return process, held


def check_busy(test: Import, store: Store, process: subprocess.Popen, held: int) -> None:
    done = finish(process, None)
    os.close(held)
    test.check(done.status == TEMPFAIL and done.counts == [0, 0, 0, 0, 2] and
               "line 1: the store is busy; every line before it is done" in done.err,
               "a store that stays locked is told, with what to do", done)
    done = test.run(store, lines(1, 2))
    test.check(done.counts == [2, 0, 0, 0, 2], "and the import can be repeated", done)


def test_full(test: Import) -> None:
    if os.geteuid() != 0:
        test.tally.skip("a full disk", "needs root")
        return
    text = lines(1, 15100)
    with test.store() as store, tmpfs(store.dir, "size=2m,mode=0700"):
        init_store(store.build, store.dir)
        done = test.run(store, text)
        found = re.search(r"stdin: line (\d+): the store is full; every line before it is "
                          r"done; make room", done.err)
        stored = len(store.plants())
        test.check(done.status == TEMPFAIL and found and stored > 0 and
                   int(found[1]) == stored + 1 == done.counts[0] + 1,
                   "a full disk is told, with the line up to which all is stored", done)
        options = "remount,size=64m"
        subprocess.run(["mount", "-o", options, "none", store.dir], check=True)
        done = test.run(store, text)
        test.check(done.counts == [15100 - stored, stored, 0, 0, 15100],
                   "when there is room, the import can be repeated", done)
        test.check(len(store.plants()) == 15100, "and all is there once")


def test_read_only(test: Import) -> None:
    if os.geteuid() != 0:
        test.tally.skip("a read-only store", "needs root")
        return
    with test.store() as store, tmpfs(store.dir, "size=8m,mode=0700"):
        done = test.run(store, lines(1, 1))
        test.check(done.status == CONFIG and "plant-store init" in done.err and
                   not any(store.dir.iterdir()),
                   "a file system without a store gets none by an import", done)
        init_store(store.build, store.dir)
        test.run(store, lines(1, 1))
        subprocess.run(["mount", "-o", "remount,ro", "none", store.dir], check=True)
        done = test.run(store, lines(2, 1))
        test.check(done.status == NOPERM and "mount it for writing" in done.err and done.out == b"",
                   "a read-only store is told", done)


def test_failed(test: Import) -> None:
    with test.store() as store:
        process = test.start(store)
        feed(process, lines(1, 2))
        store.journal.rename(store.root / "moved")
        done = finish(process)
        test.check(done.status == IOERR and done.counts == [0, 0, 0, 0, 2] and
                   "line 1: the store has failed" in done.err,
                   "a store that fails meanwhile is told", done)
    with test.store() as store:
        process = subprocess.run(
            ["sh", "-c", 'exec "$0" import <&-', test.program], env=store.environment(),
            capture_output=True, timeout=WAIT_S)
        test.check(process.returncode == IOERR and b"stdin: cannot read" in process.stderr,
                   "an input that cannot be read is told", process)


# --- Others that use the store -----------------------------------------------


def test_owner(test: Import) -> None:
    if os.geteuid() != 0:
        test.tally.skip("files belong to the store's owner", "needs root")
        return
    with test.store() as store:
        path = store.root / "plants"
        path.write_bytes(lines(1, 3))
        path.chmod(0o600)  # for root alone
        for made in (store.dir, store.journal):
            os.chown(made, NOBODY, NOBODY)
        done = test.run(store, b"", str(path))
        test.check(done.status == 0 and done.counts[0] == 3,
                   "root imports into another user's store", done)
        owners = {(entry.stat().st_uid, entry.stat().st_gid)
                  for entry in store.dir.rglob("*")}
        test.check(owners == {(NOBODY, NOBODY)}, "whose files are that user's", owners)
    if shutil.which("setpriv") is None:
        test.tally.skip("root that may not become the owner", "needs setpriv")
        return
    with test.store() as store:
        os.chown(store.dir, NOBODY, NOBODY)
        process = subprocess.run(
            ["setpriv", "--bounding-set", "-setuid", test.program, "import"],
            env=store.environment(), input=lines(1, 1), capture_output=True, timeout=WAIT_S)
        test.check(process.returncode == NOPERM and b"cannot become its owner" in
                   process.stderr and not (store.dir / "index").exists(),
                   "root that may not become the owner is told, and makes nothing", process)


def test_with_service(test: Import) -> None:
    with test.store() as store:
        with responder(store, watched=False) as service:
            process = test.start(store)
            answers = []
            for i in range(20):
                feed(process, lines(1000 * i, 300))
                body = new_plant(-1 - i, "served")
                with FastCgiPeer(service.socket_path) as peer:
                    answers.append(peer.exchange(fcgi_request(store.request(body).items(),
                                                              body)).status)
            done = finish(process)
            test.check(done.status == 0 and done.counts == [6000, 0, 0, 0, 6000],
                       "it stores while the service runs", done)
            test.check(answers == [200] * 20, "which goes on", answers)
            body = new_plant(7, "other")
            with FastCgiPeer(service.socket_path) as peer:
                answer = peer.exchange(fcgi_request(store.request(body).items(), body))
            test.check(answer.is_error(409, 5001), "and knows what was imported", answer)
        service.check_end(test.tally)
        try:
            stored = len(store.plants())
        except JournalError as error:
            stored = error
        test.check(stored == 6020, "the journal holds all of both", stored)


def scenario(tally: Tally) -> None:
    test = Import(tally, sys.argv[1])
    with test.store() as store:
        process, held = start_busy(test, store)  # it takes its time
        for part in (test_arguments, test_format, test_json_lines, test_refusals,
                     test_hints, test_conflicts, test_limit, test_long_lines, test_csv,
                     test_csv_refusals, test_csv_limit, test_round_trip, test_moving, test_kill,
                     test_signals, test_signals_elsewhere, test_progress, test_full,
                     test_read_only, test_failed, test_owner, test_with_service):
            with tally.part(f"{part.__name__} runs to its end"):
                part(test)
        check_busy(test, store, process, held)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(run_scenario(scenario))
