"""Part `cgi`: one request by plain CGI, a process each, without a web server.

The programs take turns: each is sent a plant with the good token, `create`, and one
with another, `refuse`: the same start and end without the store.
"""

import itertools
import os
import pathlib
import statistics
import subprocess
import time

from report import Bench, print_table, spread
from sides import BENCH, BUILD, TOP

from lib_service import Store, new_plant, temporary_store

REQUESTS_PER_S = 100  # about as many of each kind, whatever the disk
STATIC_AIM, STORE_MS_AIM = 0.65, 0.25
# -static-pie keeps what the Makefile asks for, an address that nobody can guess;
# the other saves the work of it.
STATIC = {"static-pie": "-static-pie", "static": "-static -no-pie"}
EXPECTED = {"create": b'{"name":"Fern","tag":"indoor"}', "refuse": b'{"error":1005,'}


def programs(bench: Bench) -> dict[str, pathlib.Path]:
    made = {"dynamic": BUILD / "plant-store.fcgi"}
    for name, flags in STATIC.items():
        bench.progress(f"cgi: linking it {name}")
        program = BENCH / name / "plant-store.fcgi"
        done = subprocess.run(
            ["make", "-s", f"BUILD={program.parent}", f"LDFLAGS={flags}", str(program)], cwd=TOP,
            capture_output=True, text=True)
        # The linker warns of what libcrypto and libfcgi could load; we call none.
        if done.returncode:
            bench.skip(f"cgi: {name}", done.stderr[-500:])
        else:
            made[name] = program
    bench.progress("")
    return made


def request(program: pathlib.Path, variables: dict[str, str], body: bytes) -> tuple[bytes, float]:
    """The answer, and the milliseconds until the process had ended."""
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
    status = os.waitpid(pid, 0)[1]
    return answer if status == 0 else b"", (time.monotonic() - began) * 1e3


def round_of(bench: Bench, store: Store, made: dict[str, pathlib.Path], ids: itertools.count
             ) -> dict[tuple[str, str], float]:
    """The medians of each program and kind."""
    other = store.token[:-1] + ("A" if store.token[-1] != "A" else "B")
    tokens = {"create": store.token, "refuse": other}
    own = store.environment(PLANT_STORE_LOG_LEVEL="warning")
    found: dict[tuple[str, str], list] = {(name, kind): [] for name in made for kind in tokens}
    for _ in range(REQUESTS_PER_S * bench.args.seconds):
        for (name, kind), timed in found.items():
            body = new_plant(next(ids), "Fern", "indoor")
            variables = own | store.request(body, HTTP_AUTHORIZATION=f"Bearer {tokens[kind]}")
            answer, took_ms = request(made[name], variables, body)
            timed.append(took_ms)
            bench.check(EXPECTED[kind] in answer, f"cgi: {name}, {kind}: {answer!r}")
    return {key: statistics.median(timed) for key, timed in found.items()}


def run_cgi(bench: Bench) -> None:
    made, ids = programs(bench), itertools.count(1)
    with temporary_store(str(BUILD)) as store:
        rounds = [round_of(bench, store, made, ids) for _ in range(bench.args.rounds)]
        created = bench.args.rounds * REQUESTS_PER_S * bench.args.seconds * len(made)
        bench.check(len(store.plants()) == created, f"cgi: not {created} are stored")
    bench.figures["cgi"] = [{" ".join(key): ms for key, ms in each.items()} for each in rounds]
    rows = []
    for name in made:
        own = [each[name, "create"] - each[name, "refuse"] for each in rounds]
        ratio = [each[name, "create"] / each["dynamic", "create"] for each in rounds]
        rows.append((name, *(spread([each[name, kind] for each in rounds], ".2f")
                             for kind in EXPECTED), spread(own, ".2f"), spread(ratio, ".2f")))
        bench.aim(f"cgi {name}: the store's own part, ms", statistics.median(own), STORE_MS_AIM,
                  least=False)
        if name != "dynamic":
            bench.aim(f"cgi: {name} / dynamic", statistics.median(ratio), STATIC_AIM, least=False)
    print_table("cgi: milliseconds of one request", ("linked", "create", "refuse", "the store's",
                                                     "/ dynamic"), rows)
