#!/usr/bin/env python3
"""The service's reading of bodies against Python's json and against json-c.

usage: test_differential.py [--npm] BUILD_DIR [--count N] [--seed N]

For every body the service must tell one of the errors that the second reader
(lib_json, on Python's json) allows, or read the same plant, and of a plant
json-c alone must read the same values.  The bodies: with --npm the JSON test suite,
alone and embedded in a plant; the fixtures; the fuzzers' corpus, if there is one; and
N more, generated and mutated from those by a seed, which is printed.

tests/scan_driver.c is built as BUILD_DIR was, sanitizers included.
"""

import argparse
import collections
import dataclasses
import itertools
import pathlib
import random
import shlex
import struct
import sys
from collections.abc import Iterable, Iterator

import lib_json
import run_fixtures
import scenario_roundtrip
from lib_service import TOP, Tally, canonical, passed_on, run, run_scenario

COUNT = 200_000
SEED = 8259
BATCH = 10_000
DRIVER_S = 300.0
BUILD_S = 120.0
# Larger ones would take the generator's time; they are compared as they are.
SEED_BYTES_MAX = 2048
# A generator that goes wrong should not pass for a test.
SHARE_MIN = 0.15

# The driver's numbers: enum json_fault and enum plant_fault.
JSON_FAULTS = [lib_json.SYNTAX, lib_json.SYNTAX, lib_json.UTF8, lib_json.DEPTH,
               lib_json.NOT_OBJECT]  # the second is a text that ends too early
PLANT_FAULTS = dict(enumerate((
    lib_json.ID_MISSING, lib_json.ID_TWICE, lib_json.ID_NOT_INTEGER, lib_json.ID_RANGE,
    lib_json.NAME_MISSING, lib_json.NAME_TWICE, lib_json.NAME_NOT_STRING, lib_json.TAG_TWICE,
    lib_json.TAG_NOT_STRING, "out of memory"), 2))


# --- The driver --------------------------------------------------------------


@dataclasses.dataclass
class Driver:
    program: pathlib.Path

    def lines(self, bodies: list[bytes]) -> list[bytes]:
        """A line for each body; RuntimeError if the driver fails."""
        texts = b"".join(struct.pack("<I", len(b)) + b for b in bodies)
        done = run(self.program, env=passed_on(), input=texts, timeout=DRIVER_S)
        lines = done.stdout.split(b"\n")[:-1]
        if done.returncode or len(lines) != len(bodies):
            if len(bodies) > 1:
                # Find the one that does it.
                half = len(bodies) // 2
                self.lines(bodies[:half])
                self.lines(bodies[half:])
            raise RuntimeError(
                f"the driver ends with {done.returncode} on {bodies[:1]}: "
                + done.stderr.decode(errors="replace")[:4000]
            )
        return lines


def build_driver(build: pathlib.Path) -> Driver:
    """Compile and link with the commands that made the folder."""
    compile_line, link_line = (build / "command").read_text().splitlines()
    compiler, *options = shlex.split(compile_line)
    linker, *libraries = shlex.split(link_line)
    folder = build / "tests"
    folder.mkdir(exist_ok=True)
    program, object_file = folder / "scan_driver", folder / "scan_driver.o"
    source = str(TOP / "tests" / "scan_driver.c")
    for command in (
        [compiler, *options, "-c", "-o", object_file, source],
        [linker, "-o", program, object_file, build / "libplant-store.a", *libraries],
    ):
        run(*command, cwd=TOP, timeout=BUILD_S, check=True)
    return Driver(program)


# --- The comparison ----------------------------------------------------------


def nul_in_a_name(body: bytes, plant: dict) -> bool:
    """json-c ends a member's name at U+0000, and so takes it for another."""
    members = lib_json.DECODER.decode(body.decode("utf-8"))
    return any("\0" in name and name.split("\0")[0] in KEYS for name, _ in members)


def pair_like_a_surrogate(body: bytes, plant: dict) -> bool:
    """json-c looks at the low 16 bits of the character that an escaped pair
    stands for, and takes U+1D800 and its like for half a pair once more."""
    strings = (plant["name"], plant.get("tag", ""))
    return rb"\u" in body and any(
        ord(c) > 0xFFFF and 0xD800 <= (ord(c) & 0xFFFF) <= 0xDFFF for string in strings
        for c in string)


KEYS = ("id", "name", "tag")
# Where json-c is known to be wrong, so that its values may differ from ours.
JSON_C_BUGS = [nul_in_a_name, pair_like_a_surrogate]


@dataclasses.dataclass
class Comparison:
    driver: Driver
    plants: int = 0
    bodies: int = 0
    excused: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    faults: list[str] = dataclasses.field(default_factory=list)

    def run(self, bodies: Iterable[bytes]) -> None:
        for batch in batches(bodies):
            for body, line in zip(batch, self.driver.lines(batch)):
                found = self.compare(body, line)
                if found:
                    self.faults.append(f"{body[:300]!r}: {found}")

    def compare(self, body: bytes, line: bytes) -> str | None:
        errors, plant = lib_json.judge(body)
        kind, first, *values = line.split(b"\t")
        self.bodies += 1
        if kind != b"plant":
            faults = JSON_FAULTS if kind == b"json" else PLANT_FAULTS
            told = faults[int(first)]
            return None if told in errors else f"told {told}, not one of {errors}"
        self.plants += 1
        if errors:
            return f"read as {first!r}, not refused with one of {errors}"
        if first != canonical(plant):
            return f"read as {first!r}, not as {plant}"
        if values != json_c_values(plant):
            for bug in JSON_C_BUGS:
                if bug(body, plant):
                    self.excused[bug.__name__] += 1
                    return None
            return f"read as {first!r}, by json-c as {values}"
        return None


def json_c_values(plant: dict) -> list[bytes]:
    """The plant's values in the form in which the driver prints json-c's."""
    return [str(plant["id"]).encode(), *(
        b"=" + plant[key].encode().hex().encode() if key in plant else b"-"
        for key in KEYS[1:])]


def batches(bodies: Iterable[bytes]) -> Iterator[list[bytes]]:
    rest = iter(bodies)
    while batch := list(itertools.islice(rest, BATCH)):
        yield batch


# --- The bodies --------------------------------------------------------------


def given_bodies(npm_too: bool) -> dict[str, list[bytes]]:
    texts = lib_json.suite().values() if npm_too else ()
    corpus = sorted((TOP / "tests" / "fuzz" / "corpus").rglob("*"))
    return {
        "the JSON test suite": [*texts, *map(lib_json.embedded, texts)],
        "the fixtures": [case.body for case in run_fixtures.all_cases() if case.body],
        "the fuzzers' corpus": [path.read_bytes() for path in corpus if path.is_file()],
    }


PIECES = [
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b":", b",", b"/", b" ", b"\t", b"\r\n"),
    *(b'"id":', b'"name":', b'"tag":', rb'"\u0069d":', rb'"na\u006De":', b'"":'),
    *(rb'"id\u0000":2', rb'"name\u0000x":"y"', b',"tag":"t"', b',"id":1'),
    *(b"0", b"-", b"-0", b"01", b"1.0", b"1e5", b"1E+2", b".5", b"2.", b"1e", b"+1"),
    *(b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808"),
    *(b"-9223372036854775809", b"18446744073709551616", b"1" * 400, b"0" * 30),
    *(b"true", b"false", b"null", b"nul", b"NaN", b"Infinity", b"-Infinity", b"True"),
    *(rb"\n", rb"\/", rb"\"", rb"\u", rb"\u00e9", rb"\u0000", rb"\uD83C\uDF3F", rb"\x"),
    *(rb"\ud800", rb"\udc00", rb"\uD836\uDC00", rb"\ud876\udfff", rb"\u1d", rb"\U0041"),
    *(b"\x00", b"\x1f", b"\x7f", b"\n", b"'", b"//", b"/* */", b"\xef\xbb\xbf"),
    *(b"\xc3\xa9", b"\xe2\x82\xac", b"\xf0\x9f\x8c\xbf", b"\xf0\x9d\xa0\x80"),
    *(b"\xc0\x80", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff"),
    *(b"\xc2", b"\xe2\x82", b"\xf0\x9f\x8c", b"\x80", b"\xc2\xa0", b"\xe2\x80\xa8"),
    *(b"[" * 62, b"]" * 62, b'{"a":' * 63, b"}" * 63, b"[" * 64, b"[]", b"{}"),
]
BAD_IDS = [b"1.0", b"1e2", b"0.0", b"9223372036854775808", b"-18446744073709551616"]


class Generator:
    def __init__(self, seed: int, seeds: list[bytes]) -> None:
        self.random = random.Random(seed)
        self.good = scenario_roundtrip.Generator(seed, 0)
        self.seeds = [body for body in seeds if len(body) <= SEED_BYTES_MAX]

    def bodies(self, count: int) -> Iterator[bytes]:
        for _ in range(count):
            kind = self.random.random()
            if kind < 0.3:
                yield self.plant()
            elif kind < 0.65:
                yield self.mutated(self.plant())
            else:
                yield self.mutated(self.random.choice(self.seeds))

    def plant(self) -> bytes:
        """Most often a good one, in any spelling."""
        plant = self.good.plant()
        body = self.good.body(plant)
        kind = self.random.random()
        if kind < 0.05:
            return body.replace(b"%d" % plant.id, self.random.choice(BAD_IDS), 1)
        if kind < 0.15:
            # A member twice, or one whose name goes on behind U+0000.
            name = self.random.choice(KEYS) + self.random.choice(("", "\0x"))
            member = f"{{{self.good.token(name)}:{self.good.any_value()},"
            return body.replace(b"{", member.encode(), 1)
        return body

    def mutated(self, body: bytes) -> bytes:
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            body = self.mutate(body)
        return body

    def mutate(self, body: bytes) -> bytes:
        rnd = self.random
        at = rnd.randrange(len(body) + 1)
        end = min(len(body), at + rnd.choice((1, 1, 2, 8)))
        match rnd.randrange(8):
            case 0:
                return body[:at] + body[end:]
            case 1:
                return body[:at] + bytes([rnd.randrange(256)]) + body[at + 1:]
            case 2:
                return body[:at] + body[at:end] * 2 + body[end:]
            case 3:
                return body[:at]
            case 4:
                other = rnd.choice(self.seeds)
                return body[:at] + other[rnd.randrange(len(other) + 1):]
            case 5:
                return body[:at] + rnd.choice(PIECES) + body[end:]
            case _:
                return body[:at] + rnd.choice(PIECES) + body[at:]


# --- The test ----------------------------------------------------------------


def check(tally: Tally, driver: Driver, what: str, bodies: Iterable[bytes]) -> Comparison:
    comparison = Comparison(driver)
    comparison.run(bodies)
    excused = "".join(
        f", {count} excused: {name}" for name, count in sorted(comparison.excused.items()))
    tally.check(comparison.bodies > 0 and not comparison.faults,
                f"{what}: {comparison.bodies} bodies, {comparison.plants} plants{excused}",
                "\n    ".join([f"{len(comparison.faults)} differ", *comparison.faults[:10]]))
    return comparison


def scenario(tally: Tally, build: pathlib.Path, count: int, seed: int, npm_too: bool) -> None:
    driver = build_driver(build)
    given = given_bodies(npm_too)
    for what, bodies in given.items():
        if bodies:
            check(tally, driver, what, bodies)
        else:
            tally.skip(what, "it needs --npm; scripts/test --full has it")
    generator = Generator(seed, [body for bodies in given.values() for body in bodies])
    what = f"generated with the seed {seed}"
    found = check(tally, driver, what, generator.bodies(count))
    share = found.plants / found.bodies
    tally.check(
        SHARE_MIN < share < 1 - SHARE_MIN,
        "the generated bodies are good and bad in good measure", f"{share:.0%} are plants")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build_dir", type=pathlib.Path)
    parser.add_argument("--npm", action="store_true", help="with the JSON test suite, from npm")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    build = options.build_dir.resolve()
    return run_scenario(lambda tally: scenario(
        tally, build, options.count, options.seed, options.npm))


if __name__ == "__main__":
    sys.exit(main())
