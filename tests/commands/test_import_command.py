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
import time

from lib_command import (
    CONFIG, DATAERR, IOERR, NOINPUT, NOPERM, TEMPFAIL, TIMEOUT_S, USAGE, expect, through_terminal,
)
from lib_service import (
    WAIT_S, Store, Tally, canonical, catches, held_lock, init_store, new_plant, responder, run,
    run_scenario, take_lock, temporary_store, unread, wait_until,
)
from lib_faults import mount, mounted

NOBODY = 65534
TMPFS = ("-t", "tmpfs", "-o")
COUNTS = "{} created, {} already stored, {} conflicting, {} refused; read up to line {}\n"
ODD = [
    "", " ", "a,b", '"', '""', "a\"b", "\n", "\r", "\r\n", "a\n\nb", "'", "\\",
    "\\n", "\t\x00\x1f\x7f", "=1+1", "id", "é\U0001f331\u2028\ufeff", "]}", "x" * 3000,
]
Done = subprocess.CompletedProcess


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
            [self.program, "import", *arguments], env=store.environment(**settings),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, store: Store, text: bytes, *arguments: str, **settings: str) -> Done:
        return finish(self.start(store, *arguments, **settings), text)

    def ends(
        self, done: Done, sentence: str, status: int = 0, counts: tuple | None = None,
        err: str | None = None
    ) -> Done:
        """With these counts, and words of stderr."""
        out = None if counts is None else COUNTS.format(*counts)
        expect(self.tally, done, sentence, status, out, err)
        return done

    def imports(
        self, sentence: str, store: Store, text: bytes, *arguments: str, status: int = 0,
        counts: tuple | None = None, err: str | None = None, **settings: str
    ) -> Done:
        return self.ends(
            self.run(store, text, *arguments, **settings), sentence, status, counts, err)


def told(done: Done) -> list[str]:
    """What is said of lines, without the name of the program."""
    return re.findall(r"^plant-store: (stdin: line .*)$", done.stderr, re.MULTILINE)


def counts_of(done: Done) -> list[int]:
    """None that were not told."""
    found = re.fullmatch(COUNTS.replace("{}", r"(\d+)"), done.stdout)
    return [int(count) for count in found.groups()] if found else [-1] * 5


def finish(process: subprocess.Popen, text: bytes | None = b"") -> Done:
    out, err = process.communicate(text, timeout=WAIT_S)
    return Done(process.args, process.returncode, out.decode(), err.decode("ascii"))


def lines(first: int, n: int) -> bytes:
    return b"".join(new_plant(i, f"plant {i}") + b"\n" for i in range(first, first + n))


def feed(process: subprocess.Popen, text: bytes) -> None:
    """Write, and wait until all of it has been read."""
    process.stdin.write(text)
    process.stdin.flush()
    if not wait_until(lambda: unread(process.stdin) == 0):
        raise RuntimeError("the input is not read")


def ids_of(store: Store) -> list[int]:
    return [plant["id"] for plant in store.plants()]


# --- The command line --------------------------------------------------------


def test_arguments(test: Import) -> None:
    with test.store() as store:
        done = test.imports("--help succeeds", store, b"", "--help")
        test.check(done.stdout.startswith("Usage: plant-store import"), "with the usage", done)
        for arguments in (["--by", "a b"], ["--by", ""], ["--by", "x" * 65],
                          ["--format", "xml"], ["--nothing"], ["a", "b"], ["--by"]):
            test.imports(f"{arguments} is a usage error", store, b"", *arguments, status=USAGE,
                         err="see: plant-store import --help")
        for path, why in ((store.root / "none.csv", "cannot open"),
                          (store.root, "cannot read: Is a directory")):
            test.imports(f"what {why} is no input", store, b"", str(path), status=NOINPUT,
                         err=f"plant-store: {path}: {why}")
        test.imports("- is standard input", store, lines(1, 1), "-", counts=(1, 0, 0, 0, 1))
        wrong = {"status": CONFIG, "err": "BODY_BYTES_MAX", "PLANT_STORE_BODY_BYTES_MAX": "1"}
        test.imports("a wrong setting is told", store, b"", **wrong)
        test.imports("also where it does not say which store", store, b"", "--dir",
                     str(store.dir), **wrong)
        done = test.imports("a missing store is told", store, b"{}", "--dir",
                            str(store.root / "none"), status=CONFIG)
        test.check(done.stdout == "", "and no counts are", done)


def test_format(test: Import) -> None:
    csv, json = b"id,name\r\n1,one\r\n", b'{"id":2,"name":"two"}\r\n'
    with test.store() as store:
        for name, text, status in (
                ("a.csv", csv, 0), ("a.CSV", csv, 0), ("a.jsonl", json, 0),
                ("a.ndjson", json, 0), ("a.txt", csv, 0), ("b.txt", json, 0),
                ("b.csv", json, DATAERR), ("b.jsonl", csv, DATAERR)):
            path = store.root / name
            path.write_bytes(text)
            test.imports(f"{name} with {text[:5]!r} has its format", store, b"", str(path),
                         status=status)
        test.imports("--format wins over the first byte", store, csv, "--format", "jsonl",
                     status=DATAERR, err="stdin: line 1: error 4001")
        test.check(sorted(ids_of(store)) == [1, 2], "and only what has the right format is stored",
                   store.plants())


# --- What is stored, and what is not -----------------------------------------


def test_json_lines(test: Import) -> None:
    text = (b'{"id":1,"name":"a"}\n\n {"name":"b","x":[{}],"tag":"t","id":-2}\r\n'
            b'\t \r\n{"id":9223372036854775807,"name":""}')
    with test.store() as store:
        done = test.imports("JSON lines are stored", store, text, "--by", "some.Name_-1",
                            counts=(3, 0, 0, 0, 5))
        test.check(not told(done), "blank ones passed over", done)
        test.check(store.plants() == [
            {"id": 1, "name": "a"}, {"id": -2, "name": "b", "tag": "t"},
            {"id": 9223372036854775807, "name": ""}], "as they are", store.plants())
        before = store.journal.read_bytes()
        test.check(before.count(b'"by":"some.Name_-1"') == 3, "with the given name beside each")
        test.imports("a second import finds them there already", store, text,
                     counts=(0, 3, 0, 0, 5))
        test.check(store.journal.read_bytes() == before, "and adds nothing")
        done = test.run(store, b'{"id":7,"name":"a"}')
        test.check(store.journal.read_bytes().count(b'"by":"import"') == 1,
                   "without a name it is import", done)
        test.imports("an empty input is no error", store, b"", counts=(0, 0, 0, 0, 0))


REFUSED = [  # a line, and the number of why it is refused; test_plant has each reason
    (b'{"id":1,"name":"\\ud800"}', 4001), (b'"x"', 4004), (b'{"id":1,"id":1,"name":"a"}', 4102),
    (b'{"id":1,"name":"a"} {}', 4001),
]


def test_refusals(test: Import) -> None:
    text = lines(1, 1) + b"".join(line + b"\n" for line, _ in REFUSED) + lines(2, 1)
    with test.store() as store:
        done = test.imports("--keep-going stores the others", store, text, "--keep-going",
                            status=DATAERR, counts=(2, 0, 0, len(REFUSED), len(REFUSED) + 2))
        numbers = [int(number) for number in re.findall(r": error (\d+): ", done.stderr)]
        test.check(numbers == [number for _, number in REFUSED],
                   "each line is refused for its reason", numbers)
        test.check([line.split(":")[1] for line in told(done)] ==
                   [f" line {i}" for i in range(2, len(REFUSED) + 2)],
                   "and told by its number", done)
        for line, number in REFUSED:
            message = store.cgi(line).stdout.partition(b'"message":"')[2].removesuffix(b'"}')
            message = message.decode().replace('\\"', '"').replace("\\\\", "\\")
            test.check(f": error {number}: {message}\n" in done.stderr,
                       f"the interface says the same of {line[:30]!r}", message)
        test.imports("without it the first that is refused ends the import", store,
                     lines(3, 1) + b"x\n" + lines(4, 1), status=DATAERR, counts=(1, 0, 0, 1, 2),
                     err="--keep-going")
        test.check(ids_of(store) == [1, 2, 3], "after what came before it", store.plants())


def test_hints(test: Import) -> None:
    """Files that were not meant for import, and a terminal."""
    with test.store() as store:
        test.run(store, lines(1, 1))
        array = ("a JSON array; import needs one plant per line: jq -c '.[]' FILE (jq 1.6 rounds "
                 "ids above 2^53)")
        journal = "a line of a journal; import the output of: plant-store export --file JOURNAL"
        whole = store.journal.read_bytes()
        lines_of_one = ("JSON that spans several lines; import needs one plant per line: jq -c . FILE "
                        "(jq 1.6 rounds ids above 2^53)")
        for text, hint in ((b'{ \n  "id": 1\n}\n', lines_of_one), (b'[\n{"id":1,"name":"a"}\n]\n', array), (b"[]", array),
                           (whole, journal), (whole.partition(b"\n")[2], journal)):
            for form in ["--format", "jsonl"], []:
                done = test.run(store, text, *form)
                test.check(done.returncode == DATAERR and told(done) == [f"stdin: line 1: {hint}"],
                           f"{text[:9]!r} {form} is refused with the way to import it", done)
        master, slave = pty.openpty()
        os.write(master, b'{"id":2,"name":"typed"}\n\x04')
        done = store.command("import", stdin=slave)
        os.close(slave)
        os.close(master)
        expect(test.tally, done, "on a terminal it says what it waits for",
               err=b"end with Ctrl-D")
        test.check(store.plants()[-1] == {"id": 2, "name": "typed"}, "and stores it")
        _, said = through_terminal(lambda slave: type_slowly(store, slave))
        test.check(b"end with Ctrl-D" in said and b"MB" not in said,
                   "no progress is shown over what is typed", said)


def type_slowly(store: Store, slave: int) -> None:
    """Longer than a terminal's line of progress would take to appear."""
    keys, typed = pty.openpty()
    with subprocess.Popen([store.build / "plant-store", "import"], stdin=typed, stderr=slave,
                          stdout=subprocess.DEVNULL, env=store.environment()) as process:
        for number in range(3):
            time.sleep(0.3)
            os.write(keys, new_plant(number, "typed") + b"\n")
        os.write(keys, b"\x04")
        process.wait(TIMEOUT_S)
    os.close(keys)
    os.close(typed)


def test_conflicts(test: Import) -> None:
    other = b'{"id":1,"name":"x"}\n'
    with test.store() as store:
        test.run(store, lines(1, 3))
        text = b'{"id":4,"name":"a"}\n{"id":4,"name":"b"}\n{"id":2,"name":"c"}\n'
        done = test.imports("conflicts are counted", store, text + lines(1, 1), "--keep-going",
                            status=DATAERR, counts=(1, 1, 2, 0, 4))
        test.check(
            told(done) == [f"stdin: line {line}: error 5001: id {plant_id}: Another "
                           "plant with this id is stored already: send another id."
                           for line, plant_id in ((2, 4), (3, 2))],
            "and told by line and id", done)
        done = test.run(store, other + lines(100, 12000))
        last = counts_of(done)[4]
        test.check(1 < last < 12001, "without --keep-going it ends early", done)
        test.ends(done, "a conflict ends the import then", DATAERR, (last - 1, 0, 1, 0, last),
                  "--keep-going")
        test.check(len(store.plants()) == 4 + last - 1, "where it says that it does")
        test.imports("with the line where it ends", store,
                     lines(100, 1) + b"\n" + other + b"x\n", status=DATAERR,
                     counts=(0, 1, 1, 1, 4), err="stdin: stopped at line 4; correct")


def test_limit(test: Import) -> None:
    fits = b'{"id":1,"name":"' + b"a" * 80 + b'"}'
    fits += b" " * (100 - len(fits))
    limit = {"PLANT_STORE_BODY_BYTES_MAX": "100"}
    with test.store() as store:
        for end in b"\n", b"\r\n", b"":
            test.imports(f"a line of the limit and {end!r} fits", store, fits + end, **limit)
            test.imports(f"a longer one before {end!r} does not", store, fits + b" " + end,
                         status=DATAERR, err="line 1: error 3007", **limit)
        # {"id":1,"name":"...","tag":"t"}
        for length, status in (100 - 28, 0), (100 - 27, DATAERR):
            test.imports(f"CSV for JSON of {length + 28} bytes ends with {status}", store,
                         b"id,name,tag\n2,%s,t" % (b"a" * length), status=status, **limit)


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
            done = test.ends(finish(process), f"{name} lines that are too long are refused",
                             DATAERR, (2, 0, 0, 2, last))
            refused = re.findall(r"line (\d+): error 3007", done.stderr)
            test.check(refused == [str(first), str(last)], "alone", done)
            test.check(used < 32 << 10, "and not kept in memory", f"{used} KiB")


# --- CSV ---------------------------------------------------------------------


def test_csv(test: Import) -> None:
    text = (b'\xef\xbb\xbf"id",name,tag\r\n1,one,t\r\n\n"2","t\nw""o\r\n",\n'
            b'x,x,x\n3, three ,""\r\n-4,"",t')
    with test.store() as store:
        done = test.imports("CSV with a byte order mark is read", store, text, "--keep-going",
                            status=DATAERR, counts=(4, 0, 0, 1, 9))
        test.check([line.split(" error")[0] for line in told(done)] == ["stdin: line 7:"],
                   "line breaks in quotes count as lines", done)
        test.check(store.plants() == [
            {"id": 1, "name": "one", "tag": "t"}, {"id": 2, "name": 't\nw"o\r\n'},
            {"id": 3, "name": " three ", "tag": ""},
            {"id": -4, "name": "", "tag": "t"}], "each field as it is", store.plants())
        test.imports("without a column tag there is none", store, b"id,name\n1,one\n",
                     status=DATAERR, counts=(0, 0, 1, 0, 2))
        for text in (b"tag,name,id\nt,two,5\n,three,6\n", b"name,id\nfour,7\n"):
            test.run(store, text)
        test.check(store.plants()[4:] == [
            {"id": 5, "name": "two", "tag": "t"}, {"id": 6, "name": "three"},
            {"id": 7, "name": "four"}], "the columns may stand in any order", store.plants())


def test_csv_refusals(test: Import) -> None:
    wrong = [
        (b"1", "too few fields"), (b"1,a,b,c", "too many fields"),
        (b'1,a"b,', "a quote or a CR"), (b'1,"a"b,', "a quote or a CR"),
        (b"1,a\rb,", "a quote or a CR"), (b",a,", "error 4101"), (b'"",a,', "error 4103"),
        (b" 1,a,", "error 4103"), (b"1.5,a,", "error 4103"), (b"01,a,", "error 4103"),
        (b"+1,a,", "error 4103"), (b"1e3,a,", "error 4103"), (b"-,a,", "error 4103"),
        (b'"1,""name"":""x""}",a,', "error 4103"), (b"9223372036854775808,a,", "error 4104"),
        (b"1,,t", "error 4201"), (b"1,\xc3,t", "error 4002"), (b"1,a,\xed\xa0\x80", "4002"),
        (b'1,"a', "a quote that is never closed"),
    ]
    text = b"id,name,tag\n" + b"\n".join(line for line, _ in wrong)
    with test.store() as store:
        done = test.imports("wrong lines are counted", store, text, "--keep-going",
                            status=DATAERR, counts=(0, 0, 0, len(wrong), len(wrong) + 1))
        for i, (line, why) in enumerate(wrong):
            found = told(done)[i:i + 1]
            test.check(found and f"line {i + 2}: " in found[0] and why in found[0],
                       f"{line!r} is refused", found)
        test.imports("the last line is counted once", store, text + b"\n", "--keep-going",
                     status=DATAERR, counts=(0, 0, 0, len(wrong), len(wrong) + 1))
        for header in (b"id,name,tags", b"name,tag", b"id", b"id,id,name", b"tag,id",
                       b"id,name,name", b"id;name", b"1,one", b"ID,name",
                       b"id,name,tag,", b'{"id', b'x"'):
            test.imports(f"{header!r} is no header", store, header + b"\n1,one\n", "--format",
                         "csv", "--keep-going", status=DATAERR,
                         err="line 1: expected the CSV header")
        test.check(not store.plants(), "and nothing is stored", store.plants())


def test_csv_limit(test: Import) -> None:
    """A field that is larger in JSON, where each of its line breaks is two characters."""
    going = ("--format", "csv", "--keep-going")
    with test.store() as store:
        text = b'id,name\n1,"' + b"\n" * 40000 + b'"\n2,two\n'
        test.imports("the limit is that of the plant as JSON", store, text, *going,
                     status=DATAERR, counts=(1, 0, 0, 1, 40003), err="error 3007")
        path = store.root / "plants.csv"  # all of it is read at once
        path.write_bytes(b"id,name\n1," + b"x" * 100_000 + b"\n3,three\n")
        test.imports("and holds for what is there whole, too", store, b"", str(path), *going,
                     status=DATAERR, counts=(1, 0, 0, 1, 3), err="error 3007")
    with test.store() as store:
        text = b"id,name\n1,a\"" + b"x" * 1_200_000 + b"\n2,two\n3,three\n"
        text += b'4,"q\n99,not a plant\n5,five"\n6,six\n'
        test.imports("a wrong record, however long, ends with its line", store, text, *going,
                     status=DATAERR, counts=(4, 0, 0, 1, 8))
        test.check(ids_of(store) == [2, 3, 4, 6], "and the others are stored", store.plants())


def test_round_trip(test: Import) -> None:
    plants = [{"id": i, "name": name, "tag": tag} for i, (name, tag) in
              enumerate((name, tag) for name in ODD for tag in ODD)]
    rows = ["id,name,tag"]
    for plant in plants:
        fields = ['"' + plant[member].replace('"', '""') + '"' for member in ("name", "tag")]
        rows.append(f'{plant["id"]},{",".join(fields)}')
    with test.store() as store:
        done = test.imports("odd strings come through CSV", store, "\r\n".join(rows).encode())
        test.check(store.plants() == plants, "as they are", done)
        done = test.run(store, b"\n".join(canonical(plant) for plant in plants))
        test.check(counts_of(done)[:2] == [0, len(plants)], "and are the same as JSON lines",
                   done)


def test_moving(test: Import) -> None:
    """What export --full writes comes back with its times and token names."""
    refused = [b'{"id":1,"name":"a"}', b"", b"{", b'{"at":"2026-02-30T00:00:00.000Z"']
    with test.store() as old, test.store() as new:
        test.run(old, lines(1, 300), "--by", "nursery-1")
        test.run(old, lines(301, 300), "--by", "x" * 64)
        full = old.command("export", "--full").stdout
        test.imports("import --full takes what export --full wrote", new, full, "--full",
                     counts=(600, 0, 0, 0, 600))
        moved = new.command("export", "--full").stdout
        test.check(moved == full != b"", "times and names of tokens are kept")
        test.imports("what is there already is left alone", new, full, "--full",
                     counts=(0, 600, 0, 0, 600))
        line = full.splitlines()[0]
        refused += [line.replace(b"nursery-1", by) for by in (b"", b"a b", b"x" * 65)]
        refused += [line[:n] for n in range(1, len(line))]
        done = test.run(new, b"\n".join(refused), "--full", "--keep-going")
        test.check(counts_of(done)[3] == len(refused) - 1, "a line of another form is refused",
                   done)
        for words in ["--full", "--by", "me"], ["--full", "--format", "csv"]:
            test.imports(f"{' '.join(words)} is a usage error", new, full, *words, status=USAGE)


# --- Interruptions -----------------------------------------------------------


def test_kill(test: Import) -> None:
    text = lines(1, 12000)
    with test.store() as store:
        path = store.root / "plants"
        path.write_bytes(text)
        process = test.start(store)
        feed(process, text)
        test.check(wait_until(lambda: len(store.journal.read_bytes().rstrip(b"\n")) > 1 << 19),
                   "it stores before the input ends")
        process.kill()
        finish(process)
        done = test.imports("after kill -9 a second import succeeds", store, b"", str(path))
        created, there, *_ = counts_of(done)
        test.check(there > 4000 and created + there == 12000, "and stores the rest", done)
        test.check(ids_of(store) == list(range(1, 12001)), "so that each is there once, in order")


def interrupt(test: Import, process: subprocess.Popen, number: int) -> Done:
    """Its input is still open then."""
    process.send_signal(number)
    process.wait(WAIT_S)
    return finish(process)


def test_signals(test: Import) -> None:
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        with test.store() as store:
            process = test.start(store)
            feed(process, lines(1, 3) + b'{"id":4,"na')
            test.ends(interrupt(test, process, number),
                      f"{number.name} ends it with what was read stored", 128 + number,
                      (3, 0, 0, 0, 3), "interrupted; every line up to 3 is done")
            test.check(len(store.plants()) == 3, "and nothing of a line in part")


def test_signals_elsewhere(test: Import) -> None:
    """In the middle of a line that is too long, and before the store is open."""
    with test.store() as store:
        process = test.start(store)
        feed(process, lines(1, 2) + b"x" * (128 << 10))
        test.ends(interrupt(test, process, signal.SIGINT),
                  "SIGINT ends it in the middle of a line that is too long",
                  128 + signal.SIGINT, (2, 0, 0, 0, 2))
    with test.store() as store:
        test.run(store, lines(1, 1))
        (store.dir / "index" / "manifest").unlink()
        with held_lock(store):
            process = test.start(store)
            test.check(wait_until(lambda: catches(process.pid, signal.SIGINT)),
                       "it waits for the store")
            process.send_signal(signal.SIGINT)
        done = test.ends(finish(process, lines(2, 1)), "SIGINT ends it before its store is open",
                         128 + signal.SIGINT, err="interrupted; nothing was imported")
        test.check(done.stdout == "", "without counts", done)


def test_progress(test: Import) -> None:
    with test.store() as store:
        path = store.root / "plants"
        path.write_bytes(lines(1, 100))
        done = test.imports("--progress is taken", store, b"", "--progress", str(path))
        test.check(re.search(r"(?m)^plant-store: import +\d+ %", done.stderr),
                   "and tells the share of the file", done)
        process = test.start(store, "--progress")
        feed(process, lines(1, 1))
        wait_until(lambda: False, 1.2)  # a line of progress a second
        done = finish(process, lines(2, 1))
        test.check(re.search(r"(?m)^plant-store: import +[\d.]+ MB +[\d.]+ MB/s$", done.stderr),
                   "and of a pipe how much it was", done)
        test.imports("--quiet tells only the counts", store, b"", "--quiet", str(path),
                     counts=(0, 100, 0, 0, 100), err="")


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
    process.send_signal(signal.SIGTERM)  # it would try again for two minutes
    done = finish(process, None)
    os.close(held)
    test.ends(done, "a store that stays locked is told, with what to do", 128 + signal.SIGTERM,
              (0, 0, 0, 0, 2), "line 1: error 5004: id 1: The store is busy")
    test.imports("and the import can be repeated", store, lines(1, 2), counts=(2, 0, 0, 0, 2))


def test_full(test: Import) -> None:
    if test.tally.lacks("a full disk", "mounts"):
        return
    text = lines(1, 15100)
    with test.store() as store, mounted("none", store.dir, *TMPFS, "size=2m,mode=0700"):
        init_store(store.build, store.dir)
        done = test.imports("a full disk is told", store, text, status=TEMPFAIL)
        found = re.search(r"stdin: line (\d+): error 5002: .* Every line before it is done",
                          done.stderr)
        stored = len(store.plants())
        test.check(found and stored > 0 and int(found[1]) == stored + 1 == counts_of(done)[0] + 1,
                   "with the line up to which all is stored", done)
        mount("none", store.dir, "-o", "remount,size=64m")
        test.imports("when there is room, the import can be repeated", store, text,
                     counts=(15100 - stored, stored, 0, 0, 15100))
        test.check(len(store.plants()) == 15100, "and all is there once")


def test_read_only(test: Import) -> None:
    if test.tally.lacks("a read-only store", "mounts"):
        return
    with test.store() as store, mounted("none", store.dir, *TMPFS, "size=8m,mode=0700"):
        test.imports("a file system without a store is told", store, lines(1, 1), status=CONFIG,
                     err="plant-store init")
        test.check(not any(store.dir.iterdir()), "and gets none by an import")
        init_store(store.build, store.dir)
        test.run(store, lines(1, 1))
        mount("none", store.dir, "-o", "remount,ro")
        done = test.imports("a read-only store is told", store, lines(2, 1), status=NOPERM,
                            err="mount it for writing")
        test.check(done.stdout == "", "without counts", done)


def test_failed(test: Import) -> None:
    with test.store() as store:
        process = test.start(store)
        feed(process, lines(1, 2))
        store.journal.rename(store.root / "moved")
        test.ends(finish(process), "a store that fails meanwhile is told", IOERR, (0, 0, 0, 0, 2),
                  "line 1: error 5003: id 1: The store has failed")
    with test.store() as store:
        done = run("sh", "-c", 'exec "$0" import <&-', test.program, env=store.environment())
        expect(test.tally, done, "an input that cannot be read is told", IOERR,
               err=b"stdin: cannot read")


# --- Others that use the store -----------------------------------------------


def test_owner(test: Import) -> None:
    if test.tally.lacks("files belong to the store's owner", "root"):
        return
    with test.store() as store:
        path = store.root / "plants"
        path.write_bytes(lines(1, 3))
        path.chmod(0o600)  # for root alone
        for made in (store.dir, store.journal):
            os.chown(made, NOBODY, NOBODY)
        test.imports("root imports into another user's store", store, b"", str(path),
                     counts=(3, 0, 0, 0, 3))
        owners = {(entry.stat().st_uid, entry.stat().st_gid) for entry in store.dir.rglob("*")}
        test.check(owners == {(NOBODY, NOBODY)}, "whose files are that user's", owners)
    if shutil.which("setpriv") is None:
        test.tally.skip("root that may not become the owner", "needs setpriv")
        return
    with test.store() as store:
        os.chown(store.dir, NOBODY, NOBODY)
        done = run("setpriv", "--bounding-set", "-setuid", test.program, "import",
                   env=store.environment(), input=lines(1, 1))
        expect(test.tally, done, "root that may not become the owner is told", NOPERM,
               err=b"cannot become its owner")
        test.check(not (store.dir / "index").exists(), "and makes nothing")


def test_with_service(test: Import) -> None:
    with test.store() as store:
        with responder(store, watched=False) as service:
            process = test.start(store)
            answers = []
            for i in range(20):
                feed(process, lines(1000 * i, 300))
                answer = store.ask(service.socket_path, new_plant(-1 - i, "served"))
                answers.append(answer.status)
            test.ends(finish(process), "it stores while the service runs", 0,
                      (6000, 0, 0, 0, 6000))
            test.check(answers == [200] * 20, "which goes on", answers)
            answer = store.ask(service.socket_path, new_plant(7, "other"))
            test.check(answer.is_error(409, 5001), "and knows what was imported", answer)
        service.check_end(test.tally)
        with test.tally.part("the journal is whole"):
            stored = len(store.plants())
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
