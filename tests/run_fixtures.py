"""Run the cases of tests/fixtures against the responder as plain CGI.

usage: run_fixtures.py BINARY [--valgrind] [PATTERN]

--valgrind looks for leaks, in a sample of the cases unless there is a PATTERN.

A case is a folder:

    env     NAME=value a line, over the defaults below; NAME= is empty, !NAME is
            unset; ${TOKEN} and ${EXPIRED} are tokens of the case's token file,
            ${REVOKED} is one whose line there is commented out
    body    what is sent, raw; absent for nothing
    before  bodies that are created first, one a line, each answered 200
    eof     if present, the input is closed behind the body; else it stays open,
            as RFC 3875 allows, and a program that reads on is caught by a
            timeout
    broken  if present, the input is one that cannot be read
    exit    the exit status, if it is not 0
    arguments
            words of the query that the server passes as arguments, one a line
    expect  the status, a line; headers that must be there, a line each; an
            empty line; the exact body, in which * stands for anything

Whatever is refused must leave the journal as it was, byte for byte, and the
next good request to the same store must be answered 200.  Every error number
must occur in a case, but for those that no such request can provoke.
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

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE / "fixtures"
ERRORS = HERE.parent / "include" / "http" / "errors.h"
TIMEOUT_S = 5.0
TIMEOUT_VALGRIND_S = 60.0
VALGRIND_FOUND = 99
VALGRIND_STEP = 3  # one case in so many, for one takes about a second
INT32 = range(-(2**31), 2**31)
NEXT = b'{"id":4611686018427387904,"name":"next"}'  # of no case

# The errors that no case can have, and who provokes them instead.
WITHOUT_CASE = {
    "BODY_LONG": "CGI reads no further than Content-Length; FastCGI: reactor",
    "STORE_FULL": "needs a full disk",
    "STORE_FAILED": "needs a disk that fails",
    "STORE_BUSY": "needs a lock that is held for seconds",
    "SHUTTING_DOWN": "not in use: what has arrived at the end is answered",
    "OUT_OF_MEMORY": "needs an allocation that fails",
    "INTERNAL": "needs a mistake of ours, or of the crypto library",
    "HEAD_TOO_LARGE": "told by web servers: servers/suite.py",
    "NO_ANSWER": "told by web servers: servers/suite.py",
}
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
REVOKED = token_of(bytes(range(64, 96)))
TOKENS = {"${TOKEN}": TOKEN, "${EXPIRED}": EXPIRED, "${REVOKED}": REVOKED}
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

    def arguments(self) -> list[str]:
        return (self.read("arguments") or b"").decode("utf-8").splitlines()

    def exit_status(self) -> int:
        return int(self.read("exit") or b"0")

    def expectation(self) -> Expectation:
        text = (self.read("expect") or b"").decode("utf-8")
        head, _, body = text.partition("\n\n")
        status, *headers = head.splitlines()
        return Expectation(int(status), headers, body.removesuffix("\n"))

    def variables(self) -> dict[str, str]:
        variables = request_variables(self.body())
        for line in (self.read("env") or b"").decode("utf-8").splitlines():
            for place, token in TOKENS.items():
                line = line.replace(place, token)
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
        tokens.write("#" + line("revoked", REVOKED, ""))


@dataclasses.dataclass
class Input:
    body: bytes
    close: bool = False  # the input ends behind the body
    broken: bool = False  # reading it fails


@contextlib.contextmanager
def fed(process: subprocess.Popen, given: Input) -> Iterator[None]:
    """Feed the body from a thread, for it may be larger than the pipe."""

    def feed() -> None:
        rest = memoryview(given.body)
        with contextlib.suppress(BrokenPipeError):
            while rest:
                rest = rest[os.write(process.stdin.fileno(), rest):]
        if given.close:
            process.stdin.close()

    if given.broken:
        yield
        return
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
    given: Input,
    timeout_s: float = TIMEOUT_S,
    status: int = 0,
) -> Answer:
    """One request; Wrong unless it is answered well and `status` is the exit's."""
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(tempfile.TemporaryFile())
        err = stack.enter_context(tempfile.TemporaryFile())
        stdin = subprocess.PIPE
        if given.broken:
            # A directory can be opened, but to read it is EISDIR.
            stdin = os.open("/", os.O_RDONLY)
            stack.callback(os.close, stdin)
        process = subprocess.Popen(
            command,
            env=variables,
            stdin=stdin,
            stdout=out,
            stderr=err,
            bufsize=0,
        )
        with fed(process, given):
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
    if process.returncode != status:
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
        if answer.body or answer.header("Content-Length") is None:
            raise Wrong(f"a body, or no length of it, for HEAD: {answer}")
        return
    if answer.header("Content-Length") != str(len(answer.body)):
        raise Wrong(f"the Content-Length is not {len(answer.body)}: {present}")
    try:
        json.loads(body)
    except ValueError as error:
        raise Wrong(f"the body is not JSON: {error}: {clip(body)}") from error
    if answer.status != 200 and answer.error() not in INT32:
        raise Wrong(f"the body does not have the shape Error: {body}")


def bytes_of(journal: pathlib.Path) -> bytes | None:
    return journal.read_bytes() if journal.exists() else None


def check_stored(journal: pathlib.Path, body: bytes) -> None:
    """The plant of the body is there once, as sent, in its canonical form."""
    sent = json.loads(body)
    plant = {name: sent[name] for name in ("id", "name", "tag") if name in sent}
    if [p for p in read_journal(journal) if p["id"] == plant["id"]] != [plant]:
        raise Wrong(f"not once in the journal: {clip(str(plant))}")
    line = b'"by":"' + TOKEN_NAME.encode() + b'","plant":' + canonical(plant) + b","
    if line not in journal.read_bytes():
        raise Wrong(f"not so in the journal: {clip(repr(line))}")


def check_refused(
    binary: str, service: dict[str, str], journal: pathlib.Path, before: bytes | None
) -> None:
    """Nothing has changed, and the store serves on."""
    if bytes_of(journal) != before:
        raise Wrong(f"the journal has changed: {bytes_of(journal)!r}")
    create(binary, service, NEXT)
    check_stored(journal, NEXT)


def create(binary: str, service: dict[str, str], body: bytes) -> None:
    answer = run([binary], service | request_variables(body), Input(body))
    if answer.status != 200:
        raise Wrong(f"a good request is answered {answer}: {body!r}")


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
                create(binary, service, body)
            before = bytes_of(journal)
            variables = case.variables()
            body, expected = case.body(), case.expectation()
            close, broken = case.read("eof"), case.read("broken")
            given = Input(body, close is not None, broken is not None)
            status = case.exit_status()
            words = [*command, *case.arguments()]
            answer = run(words, service | variables, given, timeout_s, status)
            check_answer(answer, expected, variables["REQUEST_METHOD"])
            if expected.status == 200:
                check_stored(journal, body)
            else:
                check_refused(binary, service, journal, before)
        except (Wrong, JournalError) as error:
            return str(error)
    return None


def uncovered(cases: list[Case]) -> list[str]:
    """What is wrong with how the cases cover the table of errors."""
    table = dict(re.findall(r"^X\((\w+), (\d+),", ERRORS.read_text(), re.MULTILINE))
    bodies = "\n".join(case.expectation().body for case in cases)
    present = set(re.findall(r'^\{"error":(\d+),', bodies, re.MULTILINE))
    wrong = [f"no such number: {number}" for number in present - set(table.values())]
    wrong += [f"no such error: {name}" for name in WITHOUT_CASE.keys() - table.keys()]
    for name, number in table.items():
        if name not in WITHOUT_CASE and number not in present:
            wrong.append(f"no case has {name}, {number}")
        if name in WITHOUT_CASE and number in present:
            wrong.append(f"a case has {name}, {number}, though it is to have none")
    return wrong


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
    failed = passed = 0
    if options.pattern == "*" and not options.valgrind:
        wrong = uncovered(cases)
        failed, passed = int(bool(wrong)), int(not wrong)
        for line in wrong:
            print(f"not ok - every error has a case: {line}")
        for name, reason in WITHOUT_CASE.items():
            print(f"# no case has {name}: {reason}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda case: run_case(case, binary, options.valgrind), cases)
        for case, wrong in zip(cases, found):
            passed += wrong is None
            if wrong is not None:
                failed += 1
                print(f"not ok - {case.folder.name}")
                print("    " + wrong.replace("\n", "\n    "), flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
