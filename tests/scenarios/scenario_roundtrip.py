"""Goal: any valid plant, in any spelling, is answered and kept exactly as sent.

usage: scenario_roundtrip.py BUILD_DIR

The same seed makes the same plants.  jq reads the journal as a second
opinion.  jq 1.6 keeps numbers as doubles, so that ids are compared by their text
in the line, names and tags by what jq says.
"""

import collections
import contextlib
import dataclasses
import json
import random
import re
import sys

from lib_service import (
    FastCgiPeer, Responder, Store, Tally, canonical, main, responder, run, temporary_store,
)

PLANTS = 20_000
SEED = 1  # a run that fails can be run again
CONNECTIONS = 96
BODY_BYTES_MAX = 65536  # the service's default

# One plant in so many is long, has the largest body, is sent again.
LONG = 500
LARGEST = 2000
REPEATED = 50

INT64 = range(-(2**63), 2**63)
ID_CENTRES = (0, 2**31, -(2**31), 2**32, 2**53, -(2**53), 2**63 - 1, -(2**63))
ID_SPREAD = 1000

MUST_ESCAPE = re.compile(r'[\x00-\x1f"\\]')
LETTERS = dict(zip('"\\/\b\f\n\r\t', '"\\/bfnrt'))
SPACES = ("", "", "", "", " ", "\n", "\t", "\r\n", "  \t ")
ESCAPE_CHANCES = (0.0, 0.0, 0.0, 0.1, 0.5, 1.0)
MEMBERS = ("id", "name", "tag")
OTHER_MEMBERS = ("", "ID", "Name", "tag ", "id\0", "note", "plant", "\u0438\u0434")
NUMBERS = ("0", "-0", "-0.0", "1E+2", "1e-9", "3.14", "1e99999", "9" * 40)
# Quotes, escapes, records, line ends, marks of direction, joined and composed
# characters, noncharacters, the ends of the planes, characters whose low 16 bits
# are those of a surrogate.
PIECES = (
    ('"', "\\", "/", "\\u0041", "\\\\n", '"},"crc":"00000000"}\n', '{"seq":1,')
    + ("\r\n", "%s%n", "<b>&", "\0", "\x1b[31m", "\x7f", "\x85", "\u2028\u2029")
    + ("\u200f\u202e", "\ufeff", "e\u0301", "\u00e9", "\u200d", "\ufffd", "\ud7ff")
    + ("\ue000", "\ufdd0\ufffe\uffff", "\U0001f33f", "\U00010000\U0010ffff")
    + ("\U0001d800\U0001dfff\U0010dbff", "\U0001f9d1\u200d\U0001f33e")
)


def text_between(first: int, last: int) -> str:
    return "".join(map(chr, range(first, last + 1)))


ALPHABETS = (
    text_between(0x20, 0x7E),
    text_between(0x00, 0x1F),
    text_between(0x00, 0x7F),
    text_between(0x80, 0x7FF),
    text_between(0x800, 0xD7FF) + text_between(0xE000, 0xFFFF),
)


# --- Plants ------------------------------------------------------------------


@dataclasses.dataclass
class Plant:
    id: int
    name: str
    tag: str | None

    def record(self) -> bytes:
        """As the journal is to hold it."""
        plant = {"id": self.id, "name": self.name}
        return canonical(plant if self.tag is None else plant | {"tag": self.tag})


class Generator:
    """Valid plants, and texts that say them."""

    def __init__(self) -> None:
        self.chance = random.Random(SEED)
        self.used: set[int] = set()

    def one_in(self, n: int) -> bool:
        return self.chance.random() * n < 1

    def new_id(self) -> int:
        while True:
            if self.one_in(2):
                new = self.chance.getrandbits(64) - 2**63
            else:
                new = self.chance.choice(ID_CENTRES)
                new += self.chance.randint(-ID_SPREAD, ID_SPREAD)
            if new in INT64 and new not in self.used:
                self.used.add(new)
                return new

    def string(self, length: int) -> str:
        """A string of about `length` characters."""
        kind = self.chance.randrange(len(ALPHABETS) + 3)
        if kind < len(ALPHABETS):
            return "".join(self.chance.choices(ALPHABETS[kind], k=length))
        if kind == len(ALPHABETS):
            planes = self.chance.choices(range(0x10000, 0x110000), k=length)
            return "".join(map(chr, planes))
        if kind == len(ALPHABETS) + 1:
            return "".join(self.chance.choices(PIECES, k=length // 3))
        third = length // 3
        return "".join(self.string(third) for _ in range(3)) if third else ""

    def short_string(self) -> str:
        return self.string(int(self.chance.expovariate(1 / 14)))

    def plant(self) -> Plant:
        name = self.short_string()
        if self.one_in(LONG):
            name = self.string(self.chance.randint(1000, BODY_BYTES_MAX // 2))
        tag = self.short_string() if self.one_in(2) else None
        plant = Plant(self.new_id(), name, tag)
        while len(plant.record()) > BODY_BYTES_MAX:
            plant.name = plant.name[: len(plant.name) // 2]
        return plant

    def escape(self, character: str) -> str:
        if character in LETTERS and self.one_in(2):
            return "\\" + LETTERS[character]
        units = character.encode("utf-16-be").hex()
        if self.one_in(2):
            units = units.upper()
        return "".join("\\u" + units[at:at + 4] for at in range(0, len(units), 4))

    def token(self, string: str) -> str:
        """A string token that means `string`, in one of its spellings."""
        chance = self.chance.choice(ESCAPE_CHANCES)
        if not chance:
            found = MUST_ESCAPE.sub(lambda found: self.escape(found[0]), string)
            return f'"{found}"'
        draw, must = self.chance.random, MUST_ESCAPE.match
        spelt = [self.escape(c) if must(c) or draw() < chance else c for c in string]
        return '"' + "".join(spelt) + '"'

    def space(self) -> str:
        return self.chance.choice(SPACES)

    def any_value(self, depth: int = 0) -> str:
        kind = self.chance.randrange(4 if depth > 3 else 6)
        if kind == 0:
            return self.chance.choice(("true", "false", "null"))
        if kind == 1:
            return self.chance.choice(NUMBERS)
        if kind < 4:
            return self.token(self.short_string())
        values = [self.any_value(depth + 1) for _ in range(self.chance.randrange(4))]
        if kind == 4:
            return f"[{self.space()}{','.join(values)}{self.space()}]"
        # Below the top even our members' names mean nothing.
        names = self.chance.choices(MEMBERS + OTHER_MEMBERS, k=len(values))
        pairs = [f"{self.token(n)}:{v}" for n, v in zip(names, values)]
        return "{" + ",".join(pairs) + "}"

    def body(self, plant: Plant) -> bytes:
        """The plant in some spelling, in the order and among what chance says."""
        number = "-0" if plant.id == 0 and self.one_in(2) else str(plant.id)
        members = [("id", number), ("name", self.token(plant.name))]
        if plant.tag is not None:
            members.append(("tag", self.token(plant.tag)))
        while self.one_in(4):
            members.append((self.chance.choice(OTHER_MEMBERS), self.any_value()))
        self.chance.shuffle(members)
        space = self.space if self.one_in(2) else str
        pairs = (
            f"{space()}{self.token(name)}{space()}:{space()}{value}{space()}"
            for name, value in members
        )
        body = f"{space()}{{{','.join(pairs)}}}{space()}".encode()
        if len(body) <= BODY_BYTES_MAX:
            return body
        return plant.record()

    def largest(self, plant: Plant) -> bytes:
        """Make the plant longer until its body is as large as can be."""
        plant.name += "x" * (BODY_BYTES_MAX - len(plant.record()))
        return plant.record()


# --- Clients -----------------------------------------------------------------


def send_all(tally: Tally, store: Store, service: Responder, plants: int) -> list[bytes]:
    """Over kept connections, each with a request on its way; the plants that were sent."""
    generator, sent, wrong, repeated, largest = Generator(), [], [], 0, 0
    waiting: collections.deque[tuple[FastCgiPeer, Plant, bytes]] = collections.deque()

    def receive() -> FastCgiPeer:
        """Take the oldest answer, which must hold the plant as it was sent."""
        peer, plant, body = waiting.popleft()
        answer = peer.answer()
        due = {"name": plant.name} if plant.tag is None else {"name": plant.name, "tag": plant.tag}
        if not answer.is_plant(plant.name, plant.tag) or json.loads(answer.body.decode()) != due:
            wrong.append(f"{body[:300]!r}: {answer.status} {answer.body[:300]!r}")
        return peer

    def send(plant: Plant, body: bytes) -> None:
        peer = free.pop() if free else receive()
        peer.send(store.fcgi(body, keep=True))
        waiting.append((peer, plant, body))

    with contextlib.ExitStack() as stack:
        free = [stack.enter_context(FastCgiPeer(service.socket_path)) for _ in range(CONNECTIONS)]
        for _ in range(plants):
            plant = generator.plant()
            is_largest = generator.one_in(LARGEST)
            body = generator.largest(plant) if is_largest else generator.body(plant)
            largest += is_largest
            sent.append(plant.record())
            send(plant, body)
            if generator.one_in(REPEATED):  # perhaps while the first is still on its way
                send(plant, generator.body(plant))
                repeated += 1
        while waiting:
            receive()
    print(f"# of {plants} plants {repeated} were sent again, {largest} were largest")
    tally.check(not wrong, f"{plants} plants are answered with what was sent, canonical", wrong[:3])
    return sent


# --- The journal -------------------------------------------------------------


def stored_in(store: Store) -> list[bytes]:
    """The bytes of each record's plant.

    A quote within a string is escaped, so that the first `,"plant":` of a line
    and its last `,"crc":` are not of a string.
    """
    lines = (line.partition(b',"plant":')[2] for line in store.journal.read_bytes().split(b"\n"))
    return [line.rpartition(b',"crc":')[0] for line in lines if line]


def check_journal(tally: Tally, stored: list[bytes], sent: list[bytes]) -> None:
    extra = collections.Counter(stored) - collections.Counter(sent)
    lost = collections.Counter(sent) - collections.Counter(stored)
    detail = f"lost {list(lost)[:2]}, more {list(extra)[:2]}"
    sentence = "the journal holds each of them once, byte for byte"
    tally.check(not extra and not lost and bool(stored), sentence, detail[:2000])


def check_jq(tally: Tally, store: Store, stored: list[bytes]) -> None:
    done = run("jq", "-c", "select(.plant) | .plant | del(.id)", store.journal)
    sentence = "jq reads the whole journal"
    tally.check(done.returncode == 0 and not done.stderr, sentence, done.stderr[:300])
    read = done.stdout.splitlines()
    wrong = []
    for line, plant in zip(read, stored):
        ours = json.loads(plant)
        text = re.match(rb'\{"id":(-?\d+),', plant)
        if not text or int(text[1]) != ours.pop("id") or json.loads(line) != ours:
            wrong.append((plant[:200], line[:200]))
    sentence = "jq reads the names and tags that were sent"
    well = len(read) == len(stored) and not wrong
    tally.check(well, sentence, (len(read), len(stored), wrong[:2]))


def check(tally: Tally, store: Store, plants: int = PLANTS) -> None:
    with responder(store) as service:
        sent = send_all(tally, store, service, plants)
    service.check_end(tally)
    stored = stored_in(store)
    check_journal(tally, stored, sent)
    check_jq(tally, store, stored)


def scenario(tally: Tally, build_dir: str) -> None:
    with temporary_store(build_dir) as store:
        check(tally, store)


if __name__ == "__main__":
    sys.exit(main(scenario))
