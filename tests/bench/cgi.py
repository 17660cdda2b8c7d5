"""Part `cgi`: one request by plain CGI, a process each, without a web server.

The programs take turns.  Each is sent a plant with the good token, `create`, and one
with another, `refuse`: the same start and end without the store.
"""

import itertools
import os
import pathlib
import statistics
import subprocess
import time
from collections.abc import Iterator

from harness import Bench
from report import print_table, spread
from sides import BENCH, BUILD, TOP

import lib_service

REQUESTS_PER_S = 100  # about as many of each kind, whatever the disk
STATIC_AIM = 0.65
STORE_MS_AIM = 0.25
LIBRARIES = ("fcgi", "json-c", "lmdb", "crypto", "seccomp", "c")
# -static-pie keeps what the Makefile asks for, an address that nobody can guess;
# the other saves the work of it.
STATIC = {"static-pie": "-static-pie", "static": "-static -no-pie"}


def build_static(name: str, flags: str) -> pathlib.Path | str:
    """A statically linked program, or why there is none."""
    compiler = os.environ.get("CC", "cc")
    for library in LIBRARIES:
        archive = subprocess.check_output(
            [*compiler.split(), f"-print-file-name=lib{library}.a"], text=True)
        if not os.path.isabs(archive):  # not found: the name as it was asked
            return f"lib{library} has no static archive"
    program = BENCH / name / "plant-store.fcgi"
    done = subprocess.run(
        ["make", "-s", f"BUILD={program.parent}", f"LDFLAGS={flags}", str(program)], cwd=TOP,
        capture_output=True, text=True)
    # The linker warns of what libcrypto and libfcgi could load; we call none.
    return "it does not link: " + done.stderr[-500:] if done.returncode else program


def request(program: pathlib.Path, variables: dict[str, str], body: bytes) -> tuple:
    """The answer, and the milliseconds until it and the process had ended."""
    stdin, body_end = os.pipe()
    answer_end, stdout = os.pipe()
    os.write(body_end, body)  # before the program starts
    os.close(body_end)
    actions = [(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, stdout, 1)]
    began = time.monotonic()
    pid = os.posix_spawn(program, [program], variables, file_actions=actions)
    os.close(stdin)
    os.close(stdout)
    with open(answer_end, "rb") as pipe:
        answer = pipe.read()
    answered = time.monotonic()
    status = os.waitpid(pid, 0)[1]
    ended = time.monotonic()
    return answer if status == 0 else b"", (answered - began) * 1e3, (ended - began) * 1e3


def drive(
    bench: Bench, store: lib_service.Store, programs: list[pathlib.Path], ids: Iterator
) -> list[dict]:
    """A round: of each program and kind the medians."""
    own = store.environment(
        PLANT_STORE_DIR=str(bench.scratch / "cgi"), PLANT_STORE_LOG_LEVEL="warning")
    other = store.token[:-1] + ("A" if store.token[-1] != "A" else "B")
    tokens = {"create": store.token, "refuse": other}
    expected = {"create": b'{"name":"Fern","tag":"indoor"}', "refuse": b'{"error":1005,'}
    found = {(number, kind): [] for number in range(len(programs)) for kind in tokens}
    for _ in range(REQUESTS_PER_S * bench.args.seconds):
        for (number, kind), timed in found.items():
            body = lib_service.new_plant(next(ids), "Fern", "indoor")
            variables = own | store.request(body)
            variables["HTTP_AUTHORIZATION"] = f"Bearer {tokens[kind]}"
            timed.append(request(programs[number], variables, body))
    return [
        {
            "program": number,
            "kind": kind,
            "answered_ms": statistics.median(one[1] for one in timed),
            "ended_ms": statistics.median(one[2] for one in timed),
            "right": sum(expected[kind] in one[0] for one in timed),
            "wrong": sum(expected[kind] not in one[0] for one in timed),
        }
        for (number, kind), timed in found.items()
    ]


def run(bench: Bench) -> None:
    programs = {"dynamic": BUILD / "plant-store.fcgi"}
    for name, flags in STATIC.items():
        bench.progress(f"cgi: linking it {name}")
        program = build_static(name, flags)
        if isinstance(program, str):
            bench.skip(f"cgi: {name}", program)
        else:
            programs[name] = program
    rounds, ids = [], itertools.count(1)
    directory = bench.scratch / "cgi"
    lib_service.init_store(BUILD, directory)
    with lib_service.temporary_store(str(BUILD)) as store:
        for number in range(bench.args.rounds):
            bench.progress(f"cgi: round {number + 1} of {bench.args.rounds}")
            rounds.append(drive(bench, store, list(programs.values()), ids))
    bench.progress("")
    plants = len(lib_service.read_journal(directory / lib_service.JOURNAL_NAME))
    series = [each for round_ in rounds for each in round_]
    created = sum(each["right"] for each in series if each["kind"] == "create")
    bench.check(plants == created, f"cgi: {created} were answered, {plants} are stored")
    wrong = sum(each["wrong"] for each in series)
    bench.check(wrong == 0, f"cgi: {wrong} answers are wrong")
    bench.figures["cgi"] = rounds
    report(bench, list(programs), rounds)


def report(bench: Bench, names: list[str], rounds: list[list[dict]]) -> None:
    def of(name: str, kind: str, figure: str = "ended_ms") -> list[float]:
        return [each[figure] for round_ in rounds for each in round_
                if names[each["program"]] == name and each["kind"] == kind]

    print_table(
        "cgi: one request, milliseconds until answered and until the process ended; "
        "`refuse` is the same without the store",
        ("linking", "kind", "answered", "ended"),
        [
            (name, kind, spread(of(name, kind, "answered_ms"), ".2f"),
             spread(of(name, kind), ".2f"))
            for name in names
            for kind in ("create", "refuse")
        ],
    )
    for name in names:
        pairs = zip(of(name, "create"), of(name, "refuse"), strict=True)
        own = [create - refuse for create, refuse in pairs]
        print(f"{name}: the store's own part {spread(own, '.2f')} ms")
        bench.aim(f"cgi {name}: the store's own part", statistics.median(own),
                  STORE_MS_AIM, at_least=False, unit=" ms")
    for name in names[1:]:
        pairs = zip(of(name, "create"), of("dynamic", "create"), strict=True)
        ratio = [static / dynamic for static, dynamic in pairs]
        print(f"{name} / dynamic: {spread(ratio, '.2f')}")
        bench.aim(f"cgi: {name} / dynamic", statistics.median(ratio), STATIC_AIM,
                  at_least=False)
