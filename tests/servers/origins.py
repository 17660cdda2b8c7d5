#!/usr/bin/env python3
"""Goal: in a browser, pages of the origins that are named can send plants, others not.

usage: origins.py BUILD_DIR
"""

import contextlib
import functools
import http.server
import sys
import threading
from collections.abc import Iterator

from lib_servers import SET_UPS, running
from lib_browser import Browser, browser
from lib_service import Tally, main, wait_until

SET_UP_NAME = "nginx keep /api/v1"
ID = "made.by-a_page"
SEND = """async (url, token, id, body) => {
    const authorization = "Bearer " + token, type = "application/json";
    const headers = { authorization, "content-type": type, "x-request-id": id };
    try {
        const answer = await fetch(url, { method: "POST", headers, body });
        const found = answer.headers.get("x-request-id");
        return [answer.status, found, await answer.text(), answer.headers.get("retry-after")];
    } catch (error) {
        return [0, null, error.name];
    }
}"""


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def origin() -> Iterator[str]:
    """A site with an empty page."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{site.server_port}"
        finally:
            site.shutdown()
            thread.join()


def visit(there: Browser, site: str) -> None:
    there.open(f"{site}/")
    if not wait_until(lambda: there.js("location.origin") == site):
        raise RuntimeError(f"the page does not come: {site}")


def scenario(tally: Tally, build_dir: str) -> None:
    if tally.lacks("pages of other origins send plants", "chromium"):
        return
    (set_up,) = [each for each in SET_UPS if each.name == SET_UP_NAME]
    with origin() as named, origin() as other, browser() as there, running(
        set_up, build_dir, PLANT_STORE_CORS_ORIGINS=f"https://a.example {named}"
    ) as server:
        url = f"{server.base_url}/plants"
        send = functools.partial(there.js, SEND, url, server.token, ID)
        visit(there, named)
        answer = send('{"id":1,"name":"Fern"}')
        well = answer == [200, ID, '{"name":"Fern"}', None]
        tally.check(well, "a named origin sends a plant, and reads the answer", answer)
        answer = send('{"name":"Fern"}')
        well = answer[:2] == [400, ID] and '"error":4101' in answer[2]
        tally.check(well, "it reads an Error, too", answer)
        server.stop_backend()
        answer = send('{"id":1,"name":"Fern"}')
        well = answer[0] == 503 and '"error":5007' in answer[2] and answer[3] == "1"
        tally.check(well, "and what the web server refuses, and when to try again", answer)
        server.start_backend()
        visit(there, other)
        answer = send('{"id":2,"name":"Moss"}')
        tally.check(answer == [0, None, "TypeError"], "another origin reads nothing", answer)
        plants = server.store.plants()
        tally.check(plants == [{"id": 1, "name": "Fern"}], "nor does it store anything", plants)


if __name__ == "__main__":
    sys.exit(main(scenario))
