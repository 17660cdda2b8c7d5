#!/usr/bin/env python3
"""Goal: in every set-up a token comes and goes within 2 s, without a restart.

usage: tokens.py BUILD_DIR
"""

import concurrent.futures
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from lib_servers import SET_UPS, SetUp, running
from lib_service import Tally, main
from lib_tokens import SetUp as Place
from lib_tokens import check_token_changes


class Findings(Tally):
    """Kept, since set-ups are tried at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[bool, str, object]] = []

    def check(self, passed: bool, sentence: str, detail: object = "") -> bool:
        self.found.append((passed, sentence, detail))
        return passed


def changes(set_up: SetUp, build_dir: str) -> Findings:
    findings = Findings()
    with running(set_up, build_dir) as server:
        place = Place(server.base_url, server.store.tokens, server.store.build)
        # So that a process is there, where a request starts it.
        answer = server.client().create(1, "Fern")
        findings.check(answer.is_plant("Fern"), f"{set_up.name}: it serves", answer)
        before = set(server.worker_pids())
        # A process for each request does not start without the file.
        absent = 503 if set_up.cgi else 401
        check_token_changes(findings, place, set_up.name, absent)
        after = set(server.worker_pids())
        if not set_up.cgi:
            same = bool(before) and before <= after
            sentence = f"{set_up.name}: the same processes serve"
            findings.check(same, sentence, (before, after))
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
