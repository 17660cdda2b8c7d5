#!/usr/bin/env python3
"""Goal: in every set-up the locations for metrics and health, when they are no longer
comments, answer the addresses of their list, and others 404.

usage: monitored.py BUILD_DIR
"""

import concurrent.futures
import http.client
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from expected import Told
from lib_servers import SET_UPS, Running, SetUp, running
from lib_service import Answer, Tally, main, new_plant, wait_until

NEAR, FAR = "127.0.0.1", "127.0.0.9"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
# The type, and how the body begins.
PATHS = {
    "/metrics": (TEXT, b"# HELP plant_store_"),
    "/health": ("application/json", b'{"status":"ok"}'),
}
# Other ways to write /metrics.
SPELT = ("/%6detrics", "//metrics", "/x/../metrics", "/metrics?x", "/metrics/", "/METRICS",
         "/metrics%00", "/metrics%2f", "/metrics;x", "/x%2f..%2fmetrics")
NOTHING = Told(404, 2001)
Finding = tuple[bool, str, object]


def uncomment(server: Running) -> None:
    """The block about metrics: its comments have a space behind their #."""
    path = server.root / server.set_up.server / f"{server.set_up.mode}.conf"
    blocks = path.read_text().split("\n\n")
    (place,) = [n for n, block in enumerate(blocks) if "# The metrics and the" in block]
    blocks[place] = re.sub(r"(?m)^(\s*)#(?! )", r"\1", blocks[place])
    path.write_text("\n\n".join(blocks))


def ask(server: Running, address: str, method: str, path: str) -> Answer:
    connection = http.client.HTTPConnection(
        server.host, server.port, 30.0, source_address=(address, 0)
    )
    body = new_plant(1, "Fern") if method == "POST" else None
    token = {"Authorization": f"Bearer {server.token}"} if body else {}
    try:
        connection.request(
            method, path, body, {"Content-Type": "application/json"} | token
        )
        answer = connection.getresponse()
        return Answer(answer.status, answer.getheaders(), answer.read())
    finally:
        connection.close()


def findings(set_up: SetUp, build_dir: str) -> list[Finding]:
    settings = {f"PLANT_STORE_{path[1:].upper()}_PATH": path for path in PATHS}
    found: list[Finding] = []
    with running(set_up, build_dir, uncomment, **settings) as server:
        found.append((wait_until(server.answers), "it serves", server.logs()))
        for path, (media_type, beginning) in PATHS.items():
            answer = ask(server, NEAR, "GET", path)
            well = answer.status == 200 and answer.body.startswith(beginning)
            well = well and answer.header("Content-Type") == media_type
            found.append((well, f"{path} is for an address of the list", answer))
            answer = ask(server, FAR, "GET", path)
            found.append((NOTHING.fits(answer), f"{path} is not for others", answer))
        answers = [ask(server, FAR, "GET", path) for path in SPELT]
        well = all(answer.status != 200 for answer in answers)
        found.append((well, "nor for others who write it otherwise", answers))
        answer = ask(server, FAR, "POST", server.path)
        found.append((answer.is_plant("Fern"), "plants are for others, too", answer))
    return found


def scenario(tally: Tally, build_dir: str) -> None:
    present = []
    for set_up in SET_UPS:
        if reason := set_up.missing():
            tally.skip(f"{set_up.name}: metrics and health", reason)
        else:
            present.append(set_up)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(findings, set_up, build_dir) for set_up in present]
    for set_up, job in zip(present, jobs):
        with tally.part(f"{set_up.name} is tried to the end"):
            for passed, sentence, detail in job.result():
                tally.check(passed, f"{set_up.name}: {sentence}", detail)


if __name__ == "__main__":
    sys.exit(main(scenario))
