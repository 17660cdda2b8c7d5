#!/usr/bin/env python3
"""Goal: in every set-up metrics and health are for the addresses of a list, others get
404; at any other path a setting alone opens them to nobody.

usage: monitored.py BUILD_DIR
"""

import http.client
import sys

from expected import Told
from lib_servers import MINIMAL, SET_UPS, Running, SetUp, running, try_set_ups
from lib_service import Answer, Tally, main, new_plant

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


def ask(server: Running, address: str, method: str, path: str, **headers: str) -> Answer:
    connection = http.client.HTTPConnection(
        server.host, server.port, 30.0, source_address=(address, 0))
    body = new_plant(1, "Fern") if method == "POST" else None
    token = {"Authorization": f"Bearer {server.token}"} if body else {}
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} | token | headers)
        answer = connection.getresponse()
        return Answer(answer.status, answer.getheaders(), answer.read())
    finally:
        connection.close()


def check(tally: Tally, set_up: SetUp, build_dir: str) -> None:
    settings = {f"PLANT_STORE_{path[1:].upper()}_PATH": path for path in PATHS}
    with running(set_up, build_dir, **settings) as server:
        for path, (media_type, beginning) in PATHS.items():
            answer = ask(server, NEAR, "GET", path)
            well = answer.status == 200 and answer.body.startswith(beginning)
            well = well and answer.header("Content-Type") == media_type
            tally.check(well, f"{path} is for an address of the list", answer)
            answer = ask(server, FAR, "GET", path)
            tally.check(NOTHING.fits(answer), f"{path} is not for others", answer)
        answers = [ask(server, FAR, "GET", path) for path in SPELT]
        well = all(answer.status != 200 for answer in answers)
        tally.check(well, "nor for others who write it otherwise", answers)
        headers = {"PLANT_STORE_CHECK": "1", "Plant-Store-Check": "1"}
        answer = ask(server, FAR, "GET", server.path + "?PLANT_STORE_CHECK=1", **headers)
        tally.check(answer.status == 401, "nor can a client ask as check does", answer)
        answer = ask(server, FAR, "POST", server.path)
        tally.check(answer.is_plant("Fern"), "plants are for others, too", answer)
    with running(set_up, build_dir, **{name: "/x" + path for name, path in settings.items()}) as it:
        answers = [ask(it, NEAR, "GET", f"/x{path}") for path in PATHS]
        well = all(map(NOTHING.fits, answers))
        tally.check(well, "another path needs more than a setting", answers)


def scenario(tally: Tally, build_dir: str) -> None:
    try_set_ups(tally, build_dir, check, "metrics and health", SET_UPS + MINIMAL)


if __name__ == "__main__":
    sys.exit(main(scenario))
