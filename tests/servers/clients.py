#!/usr/bin/env python3
"""Goal: real clients create plants through each web server, and know a failure.

usage: clients.py BUILD_DIR

A client in TypeScript that is made from the published document, whose wrong uses must
not compile, and README's JavaScript, as it is written there, with ids that a number cannot
hold.  documented.py has curl's, senders.py Python's urllib and Node's fetch.
"""

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

from lib_servers import MINIMAL, MOUNTS, PROGRAMS, SET_UPS, Running, running
from lib_service import TOP, Tally, install_npm, main, run
SOURCES = pathlib.Path(__file__).resolve().parent / "javascript"
DOCUMENT = TOP / "deploy" / "www" / "openapi.json"
UNKNOWN = "pst_" + "A" * 43
README = "README's JavaScript"
# What a client's own JSON may get wrong on its way there or back.
NAME = 'Château-Chalon / "vine" \\ \U0001f33f\u0000'
TAG = "Südseite\n"


@dataclasses.dataclass(frozen=True)
class Request:
    """A plant to create, and what must come back: a plant or an error."""

    what: str
    token: str | None
    plant: dict[str, object]
    status: int
    expected: dict[str, str] | int

    def to_json(self) -> str:
        return json.dumps({"token": self.token, "plant": self.plant})


@dataclasses.dataclass(frozen=True)
class Got:
    status: int
    body: object

    def fits(self, request: Request) -> bool:
        if self.status != request.status or not isinstance(self.body, dict):
            return False
        if isinstance(request.expected, dict):
            return self.body == request.expected
        message = self.body.get("message")
        return (set(self.body) == {"error", "message"} and self.body["error"] == request.expected
                and isinstance(message, str) and message != "")


Client = Callable[[str, list[Request]], list[Got]]  # a base URL, the requests


def requests(first: int, token: str) -> list[Request]:
    """Those of a client, with ids of its own."""
    tagged = {"id": first, "name": NAME, "tag": TAG}
    plain = {"id": first + 1, "name": "Fern"}
    other = {"id": first, "name": "Moss"}
    half = {"id": first + 0.5, "name": "Moss"}
    answer = {"name": NAME, "tag": TAG}
    return [
        Request("a plant with a tag is created", token, tagged, 200, answer),
        Request("a plant without a tag", token, plain, 200, {"name": "Fern"}),
        Request("the same plant again is well", token, tagged, 200, answer),
        Request("another plant with its id is 5001", token, other, 409, 5001),
        Request("an id that is no integer is 4103", token, half, 400, 4103),
        Request("without a token is 1001", None, other, 401, 1001),
        Request("an unknown token is 1005", UNKNOWN, other, 401, 1005),
    ]


# --- The clients -------------------------------------------------------------


def output_of(*command: object, given: str) -> str:
    """Its output; no proxy that the environment may name."""
    environment = {"PATH": os.environ["PATH"], "no_proxy": "*"}
    done = run(*command, input=given, env=environment, encoding="utf-8")
    if done.returncode or done.stderr:
        raise RuntimeError(f"{command[0]}: {done.returncode}, {done.stderr}")
    return done.stdout


def node(program: pathlib.Path) -> Client:
    def client(base_url: str, them: list[Request]) -> list[Got]:
        lines = "".join(f"{request.to_json()}\n" for request in them)
        output = output_of("node", program, base_url, given=lines)
        return [Got(**json.loads(line)) for line in output.splitlines()]

    return client


def write_readme(folder: pathlib.Path) -> Client:
    """README's example as a program, whose requests are its own."""
    text = (TOP / "README.md").read_text()
    example = re.search(r"^ +const plantBody = .*\n(?: {6}.*\n)+", text, re.MULTILINE)[0]
    program = folder / "readme.mjs"
    before, _, after = program.read_text().partition("// README\n")
    program.write_text(before + example + after)

    def client(base_url: str, them: list[Request]) -> list[Got]:
        output = output_of("node", program, base_url, them[0].token, given="")
        return [Got(**json.loads(line)) for line in output.splitlines()]

    return client


def large_ids(token: str) -> list[Request]:
    """What README's example sends, and what goes on with it."""
    plant = {"name": "Monstera", "tag": "indoor"}
    fern = {"name": "Fern"}
    return [
        Request("2^53 + 1 is stored", token, {"id": 2**53 + 1} | plant, 200, plant),
        Request("-2^53 - 1, too", token, {"id": -(2**53) - 1} | fern, 200, fern),
    ]


# --- The client that is made of the document ---------------------------------


@contextlib.contextmanager
def workshop(tally: Tally) -> Iterator[pathlib.Path | None]:
    """A folder with the sources, from which npm's packages are found."""
    installed = install_npm()
    if not tally.check(installed.returncode == 0, "npm's packages are installed", installed.stderr):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="client-", dir=installed.stdout.strip()) as place:
        folder = pathlib.Path(place)
        shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
        (folder / "package.json").write_text('{"type": "module"}')
        yield folder


def tool(folder: pathlib.Path, name: str, *arguments: str) -> tuple[int, str]:
    """Run a program of npm; its exit status and output."""
    done = run(folder.parent / "node_modules" / ".bin" / name, *arguments, cwd=folder,
               stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def compile_all(tally: Tally, folder: pathlib.Path) -> Client | None:
    """What is well typed compiles, and each wrong use is an error."""
    status, output = tool(folder, "openapi-typescript", str(DOCUMENT), "-o", "plants.ts")
    if not tally.check(status == 0, "types are made of the document", output):
        return None
    with concurrent.futures.ThreadPoolExecutor() as pool:
        well = pool.submit(tool, folder, "tsc", "-p", "tsconfig.json")
        wrong = pool.submit(tool, folder, "tsc", "-p", "wrong.json")
    status, output = wrong.result()
    check_errors(tally, folder / "wrong.ts", output)
    tally.check(status != 0, "tsc fails for them", status)
    status, output = well.result()
    made = folder / "typed.js"
    if tally.check(status == 0, "a well-typed client compiles", output):
        return node(made)
    return None


def check_errors(tally: Tally, source: pathlib.Path, output: str) -> None:
    """The errors of tsc are those that the lines end in, and no others."""
    lines = source.read_text().splitlines()
    marked = re.compile(r"\s*(.*\S)\s+// (TS\d+)$")
    errors: dict[int, set[str]] = {}
    elsewhere = []
    for name, line, code in re.findall(
        r"^([^\s(]+)\((\d+),\d+\): error (TS\d+)", output, re.MULTILINE
    ):
        if name == source.name:
            errors.setdefault(int(line), set()).add(code)
        else:
            elsewhere.append(name)
    tally.check(not elsewhere, "what they use has no error of its own", output)
    seen = 0
    for number, line in enumerate(lines, 1):
        found = errors.get(number, set())
        if mark := marked.match(line):
            seen += 1
            tally.check(found == {mark[2]}, f"does not compile: {mark[1]}", (found, output))
        elif found:
            tally.check(False, f"compiles: {line.strip()}", (found, output))
    tally.check(seen > 0, "there are wrong uses", seen)


# --- Through the web servers -------------------------------------------------


def through(server: Running, clients: dict[str, Client]) -> list[tuple]:
    """For each client and request: a sentence and what came."""
    name = server.set_up.name
    found = []
    expected = []
    for index, (who, client) in enumerate(clients.items()):
        them = requests(1000 * index, server.token)
        if who == README:
            them = large_ids(server.token)
        expected += [them[0].plant, them[1].plant]
        got = client(server.base_url, them)
        found.append((len(got) == len(them), f"{who}, {name}: all answered", got))
        for request, answer in zip(them, got):
            sentence = f"{who}, {name}: {request.what}"
            found.append((answer.fits(request), sentence, answer))
    plants = server.store.plants()
    found.append((plants == expected, f"{name}: just these are stored", plants))
    return found


def scenario(tally: Tally, build_dir: str) -> None:
    with workshop(tally) as folder:
        if folder is None:
            return
        clients = {README: write_readme(folder)}
        if typed := compile_all(tally, folder):
            clients["TypeScript"] = typed
        # Of each server the one to choose, below a path.
        for server in PROGRAMS:
            set_up = next(each for each in SET_UPS + MINIMAL if each.server == server
                          and each.own_socket and each.mount == MOUNTS[-1])
            if reason := set_up.missing():
                tally.skip(f"{set_up.name}: clients create plants", reason)
                continue
            with tally.part(f"{set_up.name} is tried to the end"):
                with running(set_up, build_dir) as place:
                    for passed, sentence, detail in through(place, clients):
                        tally.check(passed, sentence, detail)


if __name__ == "__main__":
    sys.exit(main(scenario))
