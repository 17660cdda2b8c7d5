#!/usr/bin/env python3
"""Goal: the page of the interface works in a browser, behind each web server.

usage: page.py BUILD_DIR [--long | --picture FILE]

--long: behind each web server, and not just one.  --picture: no test, but a
picture of the page, as WebP.
"""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from lib_browser import Browser, browser
from lib_servers import SET_UPS, Running, running
from lib_service import TOP, Tally, run_scenario

DOCS_S = 300.0
SET_UP_NAMES = ("nginx fastcgi /api/v1", "lighttpd fastcgi /", "apache proxy_fcgi /")
LARGE = '{"id": 9007199254740993, "name": "Fern"}'  # JavaScript has ...992 for it
WIDTH, HEIGHT = 760, 745  # of a picture
STATUS = ".live-responses-table .response .response-col_status"
SHOWN = "document.querySelector('.responses-inner > div').innerText"


class Page:
    """The page in a browser, with the operation ready to be tried."""

    def __init__(self, server: Running, there: Browser) -> None:
        self.there = there
        there.open(f"{server.base_url}/docs/")
        there.click(".opblock-summary-control")
        there.click(".try-out__btn")
        there.wait("!!document.querySelector('.opblock textarea')")

    def authorize(self, token: str) -> None:
        self.there.click(".auth-wrapper .authorize")
        self.there.fill(".auth-container input", token)
        self.there.click(".auth-container .authorize")
        self.there.click(".auth-container .btn-done")

    def execute(self, body: str) -> str:
        """What is shown then: curl's command, and the answer."""
        self.there.fill(".opblock textarea", body)
        self.there.click(".execute")
        self.there.wait("(s) => !!document.querySelector(s)", STATUS)
        return self.there.js(SHOWN)

    def clear(self) -> None:
        self.there.click(".btn-clear")
        self.there.wait("(s) => !document.querySelector(s)", STATUS)


def missing() -> str | None:
    """Why there is no page or no browser; None if there are both."""
    for program in ("npm", "chromium"):
        if not shutil.which(program):
            return f"{program} is not installed"
    return None


def make_docs(build_dir: str) -> None:
    subprocess.run(
        [TOP / "scripts" / "docs"],
        env=os.environ | {"BUILD": os.path.abspath(build_dir)},
        timeout=DOCS_S,
        check=True,
    )


@contextlib.contextmanager
def served(name: str, build_dir: str) -> Iterator[tuple[Running, Browser]]:
    (set_up,) = [each for each in SET_UPS if each.name == name]
    with running(set_up, build_dir) as server, browser() as there:
        shutil.copytree(pathlib.Path(build_dir, "docs"), server.docs)
        yield server, there


def check_page(tally: Tally, server: Running, there: Browser) -> None:
    name = server.set_up.name
    page = Page(server, there)
    tally.check(not there.problems, f"{name}: the console has no error", there.problems)
    there.js("document.querySelectorAll('[class$=deep-button]').forEach(b => b.click())")
    shown = there.js("document.querySelector('.models').innerText")
    tally.check(
        "int64" in shown and "9223372036854776000" not in shown,
        f"{name}: no bound of the id is shown rounded",
        shown,
    )
    tried = [("without a token", LARGE, 401, 1001), ("a large id", LARGE, 200, None),
             ("another plant with it", LARGE.replace("Fern", "Moss"), 409, 5001),
             ("no id", '{"name": "Fern"}', 400, 4101)]
    for what, body, status, number in tried:
        shown = page.execute(body)
        answer = f'"error": {number}' if number else '{\n  "name": "Fern"\n}'
        tally.check(
            body in shown and f"\n{status}\t" in shown and answer in shown,
            f"{name}: {what}: {status} is shown, and the body as it was typed",
            shown,
        )
        page.clear()
        if status == 401:
            page.authorize(server.token)
    plants = server.store.plants()
    tally.check(
        plants == [{"id": 9007199254740993, "name": "Fern"}],
        f"{name}: the journal has the id as it was typed",
        plants,
    )
    # The console has a line for each refusal.
    others = [each for each in there.problems if each.get("source") != "network"]
    tally.check(not others, f"{name}: nor after answers", others)
    base = server.base_url.removesuffix(server.mount) + "/"
    strangers = [url for url in there.urls if not url.startswith((base, "data:"))]
    tally.check(not strangers, f"{name}: no other site is asked", strangers)


def take_picture(build_dir: str, path: str) -> None:
    with served(SET_UP_NAMES[1], build_dir) as (server, there):
        page = Page(server, there)
        page.authorize(server.token)
        page.execute(LARGE)
        picture = there.picture(WIDTH, HEIGHT, ".examples-select")
        pathlib.Path(path).write_bytes(picture)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build_dir")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--picture", metavar="FILE")
    options = parser.parse_args()

    def scenario(tally: Tally) -> None:
        text = (TOP / "deploy" / "docs" / "index.html").read_text()
        inline = re.findall(r"<script[^>]*>[^<]|<style|style=|\bon\w+=|//", text)
        tally.check(not inline, "no script or style is in the page itself", inline)
        if reason := missing():
            tally.skip("the page works in a browser", reason)
            return
        make_docs(options.build_dir)
        for name in SET_UP_NAMES if options.long else SET_UP_NAMES[:1]:
            with (
                tally.part(f"{name}: the page is tried to the end"),
                served(name, options.build_dir) as (server, there),
            ):
                check_page(tally, server, there)

    if options.picture:
        make_docs(options.build_dir)
        take_picture(options.build_dir, options.picture)
        return 0
    return run_scenario(scenario)


if __name__ == "__main__":
    sys.exit(main())
