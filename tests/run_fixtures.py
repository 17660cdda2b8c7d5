"""Run the cases of tests/fixtures against the responder as plain CGI.

usage: run_fixtures.py BUILD_DIR [--valgrind] [PATTERN]

--valgrind looks for leaks, in a sample of the cases unless there is a PATTERN.

tests/fixtures/FAMILY.txt holds the cases of a family.  "#" begins a comment.  A
case is a line with its name and the expected answer, then indented lines with
the differences from a good request:

    NAME: 200 BODY      the exact body; without one, that of the good plant
    NAME: STATUS NUMBER [byte N]
                        an error; errors.h has its message, and a fault of the
                        JSON text is found at that byte
        NAME: 204           the answer to a preflight
    VARIABLE=value  a variable of the environment; !VARIABLE is unset
        body TEXT       instead of the good plant; "no body" is nothing at all
        before TEXT     a body that is created first and answered 200
        eof             the input is closed behind the body; else it stays open,
                        as RFC 3875 allows, and a program that reads on is
                        caught by a timeout
        broken          the input is one that cannot be read
        exit STATUS     the exit status, if it is not 0
        argument WORD   a word of the query that the server passes as argument
    id TEXT         the answer's X-Request-Id; without one, it is made
    allows ORIGIN   the answer has the headers of CORS for it

${TOKEN} and ${EXPIRED} are tokens of the case's token file, ${REVOKED} is one
whose line there is commented out.  ${0d 0a} are bytes, ${64*x} is 64 times x,
and a variable ${0..9} of the name X stands for X0=, X1= and so on to X9=.

Each answer has the headers that belong to it, and no other.  The answer to HEAD has an empty
body, and the length that the body would have.  Whatever is refused must leave
the journal as it was, byte for byte, and the next good request to the same store
must be answered 200.  Every error number must occur in a case, except for those
that no such request can provoke.
"""

import argparse
import base64
import concurrent.futures
import contextlib
import dataclasses
import fcntl
import fnmatch
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import lib_service
from lib_service import (
    WAIT_S, Answer, JournalError, Store, canonical, init_store, parse_cgi, read_errors,
    read_journal,
)

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE / "fixtures"
PIPE_BYTES = 1 << 20  # what anybody may have; the largest body is 64 KiB
VALGRIND_FOUND = 99
VALGRIND_STEP = 3  # one case in so many, for one takes about a second
MADE_ID = re.compile(r"[0-9a-f]{16}-[0-9a-f]+")
GOOD = b'{"id":1,"name":"Fern","tag":"indoor"}'
GOOD_ANSWER = b'{"name":"Fern","tag":"indoor"}'
NEXT = b'{"id":4611686018427387904,"name":"next"}'  # of no case

ERRORS = {row.number: row for row in read_errors()}
PREFLIGHT = [
    "Access-Control-Allow-Methods: POST",
    "Access-Control-Allow-Headers: authorization, content-type, x-request-id",
    "Access-Control-Max-Age: 7200",
]
# No token was presented: no error code with the challenge (RFC 6750, 3.1).
NO_TOKEN = (1001, 1002)
# The errors that no case can have, and who provokes them instead.
WITHOUT_CASE = {
    "BODY_LONG": "CGI reads no further than Content-Length; FastCGI: reactor",
    "STORE_FULL": "needs a full disk",
    "STORE_FAILED": "needs a disk that fails",
    "STORE_BUSY": "needs a lock that is held for seconds",
    "STORE_AWAY": "needs a database that is down: postgresql/single.py",
    "STORE_UNKNOWN": "needs a database that fails: postgresql/standby.py",
    "OUT_OF_MEMORY": "needs an allocation that fails",
    "INTERNAL": "needs a mistake of ours, or of the crypto library",
    "HEAD_TOO_LARGE": "told by web servers: servers/suite.py",
    "PROTOCOL_UNKNOWN": "told by web servers: servers/suite.py",
    "NO_ANSWER": "told by web servers: servers/suite.py",
    "TOO_MANY_AT_ONCE": "told by web servers: servers/slow_clients.py",
    "CREDENTIAL_CERTIFICATE": "told by web servers: servers/limits.py",
    "TOO_MANY_FOR_TOKEN": "told by web servers: servers/limits.py",
}
VALGRIND = [
    "valgrind", "-q", "--leak-check=full", "--errors-for-leak-kinds=definite,possible",
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
class Case:
    name: str
    status: int
    answer: bytes | None = None  # of a success
    number: int | None = None  # of an error
    place: str | None = None  # "byte N"
    changes: list[str] = dataclasses.field(default_factory=list)
    body: bytes = GOOD
    before: list[bytes] = dataclasses.field(default_factory=list)
    arguments: list[str] = dataclasses.field(default_factory=list)
    exit: int = 0
    eof: bool = False
    broken: bool = False
    id: str | None = None  # None: made
    origin: str | None = None

    def variables(self, store: Store) -> dict[str, str]:
        variables = store.request(self.body)
        for line in self.changes:
            name, _, value = line.partition("=")
            if name.startswith("!"):
                del variables[name[1:]]
            elif found := re.search(r"\$\{(\d+)\.\.(\d+)\}$", name):
                for i in range(int(found[1]), int(found[2]) + 1):
                    variables[f"{name[:found.start()]}{i}"] = value
            else:
                variables[name] = os.fsdecode(expand(value))
        return variables

    def expected(self) -> re.Pattern[bytes]:
        """What the body must match in whole."""
        if self.number is None:
            return re.compile(re.escape(self.answer))
        message = ERRORS[self.number].message
        if self.place is None:
            return re.compile(re.escape(error_body(self.number, message)))
        whole = error_body(self.number, f"{message}: {self.place}: \0")
        return re.compile(re.escape(whole).replace(rb"\\u0000", b".+"), re.DOTALL)

    def headers(self) -> list[str]:
        """All but Status, X-Request-Id and Content-Length."""
        lines = ["Content-Type: application/json"] if self.status != 204 else PREFLIGHT[:]
        if self.origin is not None:
            lines.append(f"Access-Control-Allow-Origin: {self.origin}")
            lines.append("Access-Control-Expose-Headers: retry-after, x-request-id")
        # An invalid list is none.
        if any(re.match("PLANT_STORE_CORS_ORIGINS=.*[a-z0-9]$", each) for each in self.changes):
            lines.append("Vary: Origin")
        if self.number is None:
            return lines
        status = ERRORS[self.number].status
        if status == 401:
            error = "" if self.number in NO_TOKEN else ', error="invalid_token"'
            lines.append(f'WWW-Authenticate: Bearer realm="plant-store"{error}')
        if status == 405:
            lines.append("Allow: POST")
        if status == 503:
            lines.append("Retry-After: 1")
        return lines


def expand(text: str) -> bytes:
    """The bytes that a text of a table stands for."""

    def one(found: re.Match) -> bytes:
        inner = found[1].decode()
        if f"${{{inner}}}" in TOKENS:
            return TOKENS[f"${{{inner}}}"].encode()
        times, star, unit = inner.partition("*")
        return unit.encode() * int(times) if star else bytes.fromhex(inner)

    return re.sub(rb"\$\{(\d+\*\}|[^}]+)\}", one, text.encode())


def read_cases(path: pathlib.Path) -> list[Case]:
    cases: list[Case] = []
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        if line and not line.startswith("#"):
            try:
                if line.startswith("    "):
                    read_change(cases[-1], line[4:])
                else:
                    cases.append(read_head(line))
            except (ValueError, IndexError, KeyError) as error:
                raise SystemExit(f"{path.name}:{number}: {error}") from error
    return cases


def read_head(line: str) -> Case:
    name, _, expected = line.partition(": ")
    status, _, rest = expected.partition(" ")
    if status == "200":
        return Case(name, 200, answer=expand(rest) if rest else GOOD_ANSWER)
    if status == "204":
        return Case(name, 204, answer=b"")
    number, _, place = rest.partition(" ")
    return Case(name, int(status), number=int(number), place=place or None)


def read_change(case: Case, line: str) -> None:
    word, _, rest = line.partition(" ")
    if re.match(r"!\w+$|[\w${}.]+=", line):
        case.changes.append(line)
    elif line == "no body":
        case.body = b""
    elif line in ("eof", "broken"):
        setattr(case, line, True)
    elif word == "body":
        case.body = expand(rest)
    elif word == "before":
        case.before.append(expand(rest))
    elif word == "exit":
        case.exit = int(rest)
    elif word == "argument":
        case.arguments.append(rest)
    elif word == "id":
        case.id = expand(rest).decode()
    elif word == "allows":
        case.origin = rest
    else:
        raise ValueError(f"not a line of a case: {line}")


def all_cases() -> list[Case]:
    return [case for path in sorted(FIXTURES.glob("*.txt")) for case in read_cases(path)]


def write_tokens(path: pathlib.Path) -> None:
    def line(name: str, token: str, rest: str) -> str:
        return f"{name} {hashlib.sha256(token.encode()).hexdigest()}{rest}\n"

    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as tokens:
        tokens.write(line(TOKEN_NAME, TOKEN, ""))
        tokens.write(line("expired", EXPIRED, " 2020-02-29T12:00:00Z"))
        tokens.write("#" + line("revoked", REVOKED, ""))


def stdin_of(case: Case, stack: contextlib.ExitStack) -> int:
    """What a web server hands on as the body: a pipe that takes it in whole."""
    if case.broken:
        # A directory can be opened, but to read it is EISDIR.
        stdin = os.open("/", os.O_RDONLY)
        stack.callback(os.close, stdin)
        return stdin
    stdin, end = os.pipe()
    stack.callback(os.close, stdin)
    fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.set_blocking(end, False)
    if os.write(end, case.body) != len(case.body):
        raise Wrong("the body is larger than the pipe")
    if case.eof:
        os.close(end)
    else:
        stack.callback(os.close, end)
    return stdin


def run(
    command: list[str | os.PathLike], case: Case, variables: dict[str, str]
) -> Answer:
    """One request; Wrong unless the program ends as it should, with an answer."""
    with contextlib.ExitStack() as stack:
        try:
            done = lib_service.run(*command, *case.arguments, env=variables,
                                   stdin=stdin_of(case, stack))
        except subprocess.TimeoutExpired:
            raise Wrong(f"no exit within {WAIT_S} s") from None
    said = done.stderr.decode(errors="replace")
    if done.returncode == VALGRIND_FOUND:
        raise Wrong(f"valgrind found errors\n{said}")
    if done.returncode != case.exit:
        raise Wrong(f"exit status {done.returncode}\nstderr: {said}")
    try:
        return parse_cgi(done.stdout)
    except ValueError as error:
        raise Wrong(f"{error}\nstderr: {said}") from error


def clip(text: str) -> str:
    """A text that one can read in a terminal: some bodies are 64 KiB."""
    return text if len(text) <= 400 else f"{text[:200]} ... {text[-200:]}"


def diff(expected: str, actual: str) -> Wrong:
    return Wrong(f"- {clip(expected)}\n+ {clip(actual)}")


def error_body(number: int, message: str) -> bytes:
    return canonical({"error": number, "message": message})


def check_answer(answer: Answer, case: Case, method: str) -> None:
    """The head and the body; an empty one for HEAD, whose length is given."""
    if answer.status != case.status:
        raise diff(str(case.status), f"{answer.status} {answer.body!r}")
    given = answer.header("X-Request-Id") or ""
    if given != case.id if case.id is not None else not MADE_ID.fullmatch(given):
        raise Wrong(f"the X-Request-Id is {given!r}")
    present = sorted(f"{name}: {value}" for name, value in answer.headers)
    others = ("Status:", "X-Request-Id:", "Content-Length:")
    if [at for at in present if not at.startswith(others)] != sorted(case.headers()):
        raise diff(str(case.headers()), str(present))
    length, body = len(answer.body), answer.body
    if case.status == 204:
        if body or answer.header("Content-Length") is not None:
            raise Wrong(f"a body, or the length of one: {answer}")
        return
    if method == "HEAD":
        if body or case.number is None:
            raise Wrong(f"a body, or no error, for HEAD: {answer}")
        body = error_body(case.number, ERRORS[case.number].message)
        length = len(body)
    if answer.header("Content-Length") != str(length):
        raise Wrong(f"the Content-Length is not {length}: {present}")
    expected = case.expected()
    if not expected.fullmatch(body):
        raise diff(expected.pattern.decode(), repr(body))
    try:
        json.loads(body.decode("utf-8"))
    except ValueError as error:
        raise Wrong(f"the body is not JSON in UTF-8: {error}: {body!r}") from error


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


def create(store: Store, body: bytes) -> None:
    case = Case("a good request", 200, body=body)
    variables = store.environment() | case.variables(store)
    answer = run([store.responder], case, variables)
    if answer.status != 200:
        raise Wrong(f"a good request is answered {answer}: {body!r}")


def check_case(case: Case, store: Store, valgrind: bool) -> None:
    for body in case.before:
        create(store, body)
    before = bytes_of(store.journal)
    variables = case.variables(store)
    command = [*VALGRIND, store.responder] if valgrind else [store.responder]
    answer = run(command, case, store.environment() | variables)
    check_answer(answer, case, variables["REQUEST_METHOD"])
    if case.status == 200:
        check_stored(store.journal, case.body)
        return
    if bytes_of(store.journal) != before:
        raise Wrong(f"the journal has changed: {bytes_of(store.journal)!r}")
    # The store serves on.
    create(store, NEXT)
    check_stored(store.journal, NEXT)


MakeStore = Callable[[pathlib.Path], contextlib.AbstractContextManager[Store]]


def run_case(case: Case, make_store: MakeStore, valgrind: bool) -> str | None:
    """None, or what is wrong; with the store that is made in a folder."""
    with tempfile.TemporaryDirectory(prefix="plant-store-") as root:
        with make_store(pathlib.Path(root)) as store:
            write_tokens(store.tokens)
            try:
                check_case(case, store, valgrind)
            except (Wrong, JournalError) as error:
                return str(error)
    return None


def run_cases(cases: list[Case], make_store: MakeStore, valgrind: bool = False) -> tuple[int, int]:
    """How many passed and failed; each that failed is printed."""
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda case: run_case(case, make_store, valgrind), cases)
        for case, wrong in zip(cases, found):
            if wrong is not None:
                failed += 1
                print(f"not ok - {case.name}")
                print("    " + wrong.replace("\n", "\n    "), flush=True)
    return len(cases) - failed, failed


def uncovered(cases: list[Case]) -> list[str]:
    """What is wrong with the names, and how the cases cover the table of errors."""
    names = [case.name for case in cases]
    wrong = [f"two cases: {name}" for name in set(names) if names.count(name) > 1]
    present = {case.number for case in cases} - {None}
    wrong += [f"no such number: {number}" for number in present - ERRORS.keys()]
    known = {row.name for row in ERRORS.values()}
    wrong += [f"no such error: {name}" for name in WITHOUT_CASE.keys() - known]
    for number, row in ERRORS.items():
        name = row.name
        if name not in WITHOUT_CASE and number not in present:
            wrong.append(f"no case has {name}, {number}")
        if name in WITHOUT_CASE and number in present:
            wrong.append(f"a case has {name}, {number}, though it is to have none")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the CGI fixtures.")
    parser.add_argument("build", help="folder of the build")
    parser.add_argument("--valgrind", action="store_true", help="look for leaks")
    parser.add_argument("pattern", nargs="?", default="*", help="names, as a glob")
    options = parser.parse_intermixed_args()
    build = pathlib.Path(options.build).resolve()
    cases = [case for case in all_cases() if fnmatch.fnmatch(case.name, options.pattern)]
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

    @contextlib.contextmanager
    def make_store(root: pathlib.Path) -> Iterator[Store]:
        store = Store(build, root, TOKEN)
        init_store(build, store.dir)
        yield store

    well, badly = run_cases(cases, make_store, options.valgrind)
    passed, failed = passed + well, failed + badly
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
