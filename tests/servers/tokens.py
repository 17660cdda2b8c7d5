#!/usr/bin/env python3
"""Goal: in every set-up a token comes and goes within 2 s, without a restart, and no
log has it, although each request can be followed through all logs.

usage: tokens.py BUILD_DIR
"""

import contextlib
import functools
import re
import sys
import time

from lib_servers import SET_UPS, Running, SetUp, running, try_set_ups
from lib_service import TOKEN_PATTERN, Answer, HttpClient, Tally, main, new_plant, run, wait_until

WITHIN_S = 2.0
PAUSE_S = 0.05  # many set-ups are asked at the same time
PLANT = new_plant(9_007_199_254_740_881, "token change")
CREATED, UNKNOWN = 200, 401
ID = "traced-by.its_client"
NAME = "Fern that no log has"
# Of the access log; the duration is in seconds or in microseconds.
LINE = (
    r"(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:?\d\d 127\.0\.0\.1 "
    r'"POST %s" 200 %d (\d+us|\d+\.\d+s) %s$'
)


def status_of(server: Running, token: str) -> int:
    client = HttpClient(server.port, token, path=server.path)
    with contextlib.closing(client):
        return client.send(PLANT).status


def token_command(server: Running, *arguments: object) -> str:
    """Run `plant-store token`; the token that it prints, if any."""
    done = run(server.store.build / "plant-store", "token", *arguments, env={}, check=True)
    found = TOKEN_PATTERN.search(done.stdout)
    return found[0].decode() if found else ""


def becomes(tally: Tally, server: Running, token: str, status: int, sentence: str) -> None:
    """`WITHIN_S` after the change the status must hold, if not before."""
    began = time.monotonic()
    found = asked = 0.0
    while found != status and asked < WITHIN_S:
        if asked:
            time.sleep(PAUSE_S)
        asked = time.monotonic() - began
        found = status_of(server, token)
    print(f"# {server.set_up.name}: {sentence}: asked after {asked:.2f} s")
    tally.check(found == status, sentence, found)


def check_changes(tally: Tally, server: Running) -> None:
    """Without a restart: one token comes and goes, then all do."""
    name, tokens = "token-change", server.store.tokens
    file = ("--file", tokens)
    check = functools.partial(becomes, tally, server)
    elsewhere = server.root / "other-tokens"
    token = token_command(server, "add", name, "--file", elsewhere)
    before = status_of(server, token)
    tally.check(before == UNKNOWN, "a token is unknown at first", before)
    with open(tokens, "a", encoding="ascii") as out:
        out.write(elsewhere.read_text())
    check(token, CREATED, "a line added by hand counts")
    token_command(server, "revoke", name, *file)
    check(token, UNKNOWN, "a revoked token is refused")
    token = token_command(server, "add", name, *file)
    check(token, CREATED, "an added token counts")
    text = tokens.read_bytes()
    tokens.write_bytes(b"")
    check(token, UNKNOWN, "an emptied file revokes all")
    tokens.write_bytes(text)
    check(token, CREATED, "its tokens count again")
    away = tokens.rename(tokens.with_name("away"))
    # A process for each request does not start without the file.
    check(token, 503 if server.set_up.cgi else UNKNOWN, "a removed file revokes all")
    away.rename(tokens)
    check(token, CREATED, "it counts once it is back")
    token_command(server, "revoke", name, *file)
    check(token, UNKNOWN, "it is refused once revoked")
    left = re.search(rf"^{name} ", tokens.read_text(), re.MULTILINE)
    tally.check(not left, "the file is as before")


def check_logs(tally: Tally, server: Running, answer: Answer) -> None:
    """Where a request is found whose answer this is, and what no log has."""
    found = answer.header("X-Request-Id")
    tally.check(found == ID, "an answer has its client's id", answer)
    line = LINE % (server.path, len(answer.body), re.escape(ID))
    # Some servers write it later.
    written = wait_until(lambda: re.search(line, server.access_log.read_text()))
    tally.check(written, "the access log has a line of it", server.access_log.read_text())
    log = server.service_log.read_text()
    written = re.search(f"answered.*{re.escape(ID)}", log)
    tally.check(bool(written), "so has the service's log", log)
    for path in {server.access_log, server.server_log, server.service_log}:
        log = path.read_bytes()
        secret = TOKEN_PATTERN.search(log) or NAME.encode() in log or b"Bearer" in log
        tally.check(not secret, f"{path.name} has no token and no body", log)


def check(tally: Tally, set_up: SetUp, build_dir: str) -> None:
    with running(set_up, build_dir, PLANT_STORE_LOG_LEVEL="debug") as server:
        # So that a process is there, where a request starts it.
        query = f"?access_token={server.token}"
        client = HttpClient(server.port, server.token, path=server.path + query)
        answer = client.send(new_plant(1, NAME), headers={"X-Request-Id": ID})
        tally.check(answer.is_plant(NAME), "it serves", answer)
        before = set(server.worker_pids())
        check_changes(tally, server)
        after = set(server.worker_pids())
        if not set_up.cgi:
            same = bool(before) and before <= after
            tally.check(same, "the same processes serve", (before, after))
        check_logs(tally, server, answer)


def scenario(tally: Tally, build_dir: str) -> None:
    # All at once: they wait most of the time.
    try_set_ups(tally, build_dir, check, "tokens come and go", at_once=len(SET_UPS))


if __name__ == "__main__":
    sys.exit(main(scenario))
