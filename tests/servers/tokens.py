#!/usr/bin/env python3
"""Goal: in every set-up a token comes and goes within 2 s, without a restart, and no
log has it, although each request can be followed through all logs.

usage: tokens.py BUILD_DIR
"""

import concurrent.futures
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from lib_servers import SET_UPS, Running, SetUp, running
from lib_service import TOKEN_PATTERN, Answer, HttpClient, Tally, main, new_plant, wait_until
from lib_tokens import SetUp as Place
from lib_tokens import check_token_changes


ID = "traced-by.its_client"
NAME = "Fern that no log has"
# Of the access log; the duration is in seconds or in microseconds.
LINE = (
    r"(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:?\d\d 127\.0\.0\.1 "
    r'"POST %s" 200 %d (\d+us|\d+\.\d+s) %s$'
)


class Findings(Tally):
    """Kept, since set-ups are tried at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[bool, str, object]] = []

    def check(self, passed: bool, sentence: str, detail: object = "") -> bool:
        self.found.append((passed, sentence, detail))
        return passed


def check_logs(findings: Findings, server: Running, answer: Answer) -> None:
    """Where a request is found whose answer this is, and what no log has."""
    name = server.set_up.name
    found = answer.header("X-Request-Id")
    findings.check(found == ID, f"{name}: an answer has its client's id", answer)
    line = LINE % (server.path, len(answer.body), re.escape(ID))
    # Some servers write it later.
    written = wait_until(lambda: re.search(line, server.access_log.read_text()))
    text = server.access_log.read_text()
    findings.check(bool(written), f"{name}: the access log has a line of it", text)
    log = server.service_log.read_text()
    written = re.search(f"answered.*{re.escape(ID)}", log)
    findings.check(bool(written), f"{name}: so has the service's log", log)
    for path in {server.access_log, server.server_log, server.service_log}:
        log = path.read_bytes()
        secret = TOKEN_PATTERN.search(log) or NAME.encode() in log or b"Bearer" in log
        findings.check(not secret, f"{name}: {path.name} has no token and no body", log)


def changes(set_up: SetUp, build_dir: str) -> Findings:
    findings = Findings()
    with running(set_up, build_dir, PLANT_STORE_LOG_LEVEL="debug") as server:
        place = Place(server.base_url, server.store.tokens, server.store.build)
        # So that a process is there, where a request starts it.
        traced = {"X-Request-Id": ID}
        query = f"?access_token={server.token}"
        client = HttpClient(server.port, server.token, path=server.path + query)
        answer = client.send(new_plant(1, NAME), headers=traced)
        findings.check(answer.is_plant(NAME), f"{set_up.name}: it serves", answer)
        before = set(server.worker_pids())
        # A process for each request does not start without the file.
        absent = 503 if set_up.cgi else 401
        check_token_changes(findings, place, set_up.name, absent)
        after = set(server.worker_pids())
        if not set_up.cgi:
            same = bool(before) and before <= after
            sentence = f"{set_up.name}: the same processes serve"
            findings.check(same, sentence, (before, after))
        check_logs(findings, server, answer)
    return findings


def scenario(tally: Tally, build_dir: str) -> None:
    present = []
    for set_up in SET_UPS:
        if reason := set_up.missing():
            tally.skip(f"{set_up.name}: tokens come and go", reason)
        else:
            present.append(set_up)
    # All at once: they wait most of the time.
    with concurrent.futures.ThreadPoolExecutor(len(SET_UPS)) as pool:
        jobs = [pool.submit(changes, set_up, build_dir) for set_up in present]
    for set_up, job in zip(present, jobs):
        with tally.part(f"{set_up.name} is tried to the end"):
            for passed, sentence, detail in job.result().found:
                tally.check(passed, sentence, detail)


if __name__ == "__main__":
    sys.exit(main(scenario))
