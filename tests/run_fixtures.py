"""Run the cases of tests/fixtures against the responder as plain CGI.

usage: run_fixtures.py BINARY [--valgrind] [PATTERN]

--valgrind looks for leaks, in a sample of the cases unless there is a PATTERN.

A case is a folder:

    env     NAME=value a line, over the defaults below; NAME= is empty, !NAME is
            unset; ${TOKEN} and ${EXPIRED} are tokens of the case's token file
    body    what is sent, raw; absent for nothing
    before  bodies that are created first, one a line, each answered 200
    eof     if present, the input is closed behind the body; else it stays open,
            as RFC 3875 allows, and a program that reads on is caught by a
            timeout
    expect  the status, a line; headers that must be there, a line each; an
            empty line; the exact body, in which * stands for anything
"""

import argparse
import base64
import concurrent.futures
import contextlib
import dataclasses
import fnmatch
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator

from lib_service import (
    JOURNAL_NAME,
    Answer,
    JournalError,
    canonical,
    parse_cgi,
    passed_on,
    read_journal,
)

FIXTURES = pathlib.Path(__file__).resolve().parent / "fixtures"
TIMEOUT_S = 5.0
TIMEOUT_VALGRIND_S = 60.0
VALGRIND_FOUND = 99
VALGRIND_STEP = 3  # one case in so many, for one takes about a second
VALGRIND = [
    "valgrind",
    "-q",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite,possible",
    f"--error-exitcode={VALGRIND_FOUND}",
]


def token_of(secret: bytes) -> str:
    return "pst_" + base64.urlsafe_b64encode(secret).decode().rstrip("=")


TOKEN = token_of(bytes(range(32)))
EXPIRED = token_of(bytes(range(32, 64)))
TOKEN_NAME = "fixture"


class Wrong(Exception):
    """What a case found."""


@dataclasses.dataclass
class Expectation:
    status: int
    headers: list[str]
    body: str

    def matches(self, body: str) -> bool:
        pattern = ".*".join(re.escape(part) for part in self.body.split("*"))
        return re.fullmatch(pattern, body, re.DOTALL) is not None


@dataclasses.dataclass
class Case:
    folder: pathlib.Path

    def read(self, name: str) -> bytes | None:
        path = self.folder / name
        return path.read_bytes() if path.exists() else None

    def body(self) -> bytes:
        return self.read("body") or b""

    def before(self) -> list[bytes]:
        return (self.read("before") or b"").splitlines()

    def expectation(self) -> Expectation:
        text = (self.read("expect") or b"").decode("utf-8")
        head, _, body = text.partition("\n\n")
        status, *headers = head.splitlines()
        return Expectation(int(status), headers, body.removesuffix("\n"))

    def variables(self) -> dict[str, str]:
        variables = request_variables(self.body())
        for line in (self.read("env") or b"").decode("utf-8").splitlines():
            line = line.replace("${TOKEN}", TOKEN).replace("${EXPIRED}", EXPIRED)
            name, assigned, value = line.partition("=")
            if name.startswith("!"):
                variables.pop(name[1:], None)
            elif assigned:
                variables[name] = value
            else:
                raise Wrong(f"neither NAME=value nor !NAME: {line}")
        return variables


def request_variables(body: bytes) -> dict[str, str]:
    """The defaults: a good request."""
    return {
        "GATEWAY_INTERFACE": "CGI/1.1",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "/plants",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_AUTHORIZATION": f"Bearer {TOKEN}",
    }


def write_tokens(path: pathlib.Path) -> None:
    def line(name: str, token: str, rest: str) -> str:
        return f"{name} {hashlib.sha256(token.encode()).hexdigest()}{rest}\n"

    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as tokens:
        tokens.write(line(TOKEN_NAME, TOKEN, ""))
        tokens.write(line("expired", EXPIRED, " 2020-02-29T12:00:00Z"))


@contextlib.contextmanager
def fed(process: subprocess.Popen, body: bytes, close: bool) -> Iterator[None]:
    """Feed the body from a thread, for it may be larger than the pipe."""

    def feed() -> None:
        rest = memoryview(body)
        with contextlib.suppress(BrokenPipeError):
            while rest:
                rest = rest[os.write(process.stdin.fileno(), rest):]
        if close:
            process.stdin.close()

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        yield
    finally:
        feeder.join()
        process.stdin.close()


def run(
    command: list[str],
    variables: dict[str, str],
    body: bytes,
    close: bool,
    timeout_s: float,
) -> Answer:
    """One request; Wrong unless it is answered well and the program exits 0."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            bufsize=0,
        )
        with fed(process, body, close):
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise Wrong(f"no exit within {timeout_s} s") from None
        out.seek(0)
        err.seek(0)
        raw, said = out.read(), err.read().decode(errors="replace")
    if process.returncode == VALGRIND_FOUND:
        raise Wrong(f"valgrind found errors\n{said}")
    if process.returncode != 0:
        raise Wrong(f"exit status {process.returncode}\nstderr: {said}")
    try:
        return parse_cgi(raw)
    except ValueError as error:
        raise Wrong(f"{error}\nstderr: {said}") from error


def clip(text: str) -> str:
    """A text that one can read in a terminal: some bodies are 64 KiB."""
    return text if len(text) <= 400 else f"{text[:200]} ... {text[-200:]}"


def diff(expected: str, actual: str) -> Wrong:
    return Wrong(f"- {clip(expected)}\n+ {clip(actual)}")


def check_answer(answer: Answer, expected: Expectation, method: str) -> None:
    """The head and the body; an empty one for HEAD, whose length is told."""
    if answer.status != expected.status:
        raise diff(str(expected.status), f"{answer.status} {answer.body!r}")
    present = [f"{name}: {value}" for name, value in answer.headers]
    for line in expected.headers:
        if line not in present:
            raise Wrong("\n".join([f"- {line}", *(f"+ {at}" for at in present)]))
    if answer.header("Content-Type") != "application/json":
        raise Wrong(f"not exactly one Content-Type: application/json: {present}")
    try:
        body = answer.body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Wrong(f"the body is not UTF-8: {error}") from error
    if not expected.matches(body):
        raise diff(expected.body, body)
    if method == "HEAD":
        return
    if answer.header("Content-Length") != str(len(answer.body)):
        raise Wrong(f"the Content-Length is not {len(answer.body)}: {present}")
    try:
        json.loads(body)
    except ValueError as error:
        raise Wrong(f"the body is not JSON: {error}: {clip(body)}") from error
    if answer.status != 200 and answer.error() is None:
        raise Wrong(f"the body does not have the shape Error: {body}")


def plants_in(journal: pathlib.Path) -> list[dict]:
    return read_journal(journal) if journal.exists() else []


def check_stored(journal: pathlib.Path, body: bytes) -> None:
    """The plant of the body is there once, as sent, in its canonical form."""
    sent = json.loads(body)
    plant = {name: sent[name] for name in ("id", "name", "tag") if name in sent}
    if [p for p in plants_in(journal) if p["id"] == plant["id"]] != [plant]:
        raise Wrong(f"not once in the journal: {clip(str(plant))}")
    line = b'"by":"' + TOKEN_NAME.encode() + b'","plant":' + canonical(plant) + b","
    if line not in journal.read_bytes():
        raise Wrong(f"not so in the journal: {clip(repr(line))}")


def run_case(case: Case, binary: str, valgrind: bool) -> str | None:
    """None, or what is wrong."""
    command = [*VALGRIND, binary] if valgrind else [binary]
    timeout_s = TIMEOUT_VALGRIND_S if valgrind else TIMEOUT_S
    with tempfile.TemporaryDirectory(prefix="plant-store-") as root:
        journal = pathlib.Path(root) / "store" / JOURNAL_NAME
        journal.parent.mkdir(mode=0o700)
        tokens = pathlib.Path(root) / "tokens"
        write_tokens(tokens)
        service = passed_on()
        service["PLANT_STORE_DIR"] = str(journal.parent)
        service["PLANT_STORE_TOKENS"] = str(tokens)
        try:
            for body in case.before():
                variables = service | request_variables(body)
                if run([binary], variables, body, False, TIMEOUT_S).status != 200:
                    raise Wrong(f"not created before: {body!r}")
            before = plants_in(journal)
            variables = case.variables()
            close = case.read("eof") is not None
            body, expected = case.body(), case.expectation()
            answer = run(command, service | variables, body, close, timeout_s)
            check_answer(answer, expected, variables["REQUEST_METHOD"])
            if expected.status == 200:
                check_stored(journal, body)
            elif plants_in(journal) != before:
                raise Wrong(f"the journal has changed: {clip(str(plants_in(journal)))}")
        except (Wrong, JournalError) as error:
            return str(error)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the CGI fixtures.")
    parser.add_argument("binary", help="path of plant-store.fcgi")
    parser.add_argument("--valgrind", action="store_true", help="look for leaks")
    parser.add_argument("pattern", nargs="?", default="*", help="names, as a glob")
    options = parser.parse_intermixed_args()
    binary = os.path.abspath(options.binary)
    cases = [
        Case(folder)
        for folder in sorted(FIXTURES.iterdir())
        if folder.is_dir() and fnmatch.fnmatch(folder.name, options.pattern)
    ]
    if options.valgrind and options.pattern == "*":
        cases = cases[::VALGRIND_STEP]
    if not cases:
        print(f"no case matches {options.pattern}", file=sys.stderr)
        return os.EX_USAGE
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda case: run_case(case, binary, options.valgrind), cases)
        for case, wrong in zip(cases, found):
            if wrong is not None:
                failed += 1
                print(f"not ok - {case.folder.name}")
                print("    " + wrong.replace("\n", "\n    "), flush=True)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
