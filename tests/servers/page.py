#!/usr/bin/env python3
"""Goal: the API page works in a browser, behind each web server.

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

from lib_servers import SET_UPS, Running, running
from lib_browser import Browser, browser
from lib_service import TOP, WAIT_S, Tally, run_scenario

SET_UP_NAMES = ("nginx fastcgi /api/v1", "lighttpd fastcgi /", "apache proxy_fcgi /")
LARGE = '{"id": 9007199254740993, "name": "Fern"}'  # JavaScript has ...992 for it
OTHER = LARGE.replace("Fern", "Moss")
TRIED = [
    ("without a token", LARGE, 401, '"error": 1001'),
    ("a large id", LARGE, 200, '{\n  "name": "Fern"\n}'),
    ("another plant with it", OTHER, 409, '"error": 5001'),
    ("no id", '{"name": "Fern"}', 400, '"error": 4101'),
]
STATUS = ".live-responses-table .response .response-col_status"
TEXT = "(selector) => document.querySelector(selector).innerText"
EXPAND = "document.querySelectorAll('[class$=deep-button]').forEach(b => b.click())"
WIDTH, HEIGHT = 760, 812  # of a picture
SEEN = [(375, "dark"), (1280, "light"), (375, "light"), (1280, "dark")]  # long: more than two
FAINT = 1.7  # of contrast: not to be read at all
# What is wrong to see: too wide, too faint, covered, or without a sign of the keyboard.
FAULTS = """(faint) => {
    const all = [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility());
    const faults = all.filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
        .map((e) => `wide ${e.tagName} ${e.className}`);
    const light = (color) => {
        const [r, g, b] = color.match(/[\\d.]+/g).map((n) => (n / 255) ** 2.2);
        return 0.21 * r + 0.72 * g + 0.07 * b + 0.05;
    };
    const ground = (e) => {
        for (; e; e = e.parentElement) {
            const { backgroundColor } = getComputedStyle(e);
            if (backgroundColor.startsWith("rgb(")) return backgroundColor;
        }
        return "rgb(255, 255, 255)";
    };
    for (const e of all.filter((e) => [...e.childNodes].some((n) => n.nodeType == 3 && n.data.trim()))) {
        const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((a, b) => b - a);
        if (a / b < faint) faults.push(`faint ${e.className} ${e.innerText}`.slice(0, 60));
    }
    for (const button of document.querySelectorAll(":is(.highlight-code, .curl-command) .copy-to-clipboard")) {
        const text = document.createRange(), box = button.getBoundingClientRect();
        text.selectNodeContents(button.closest(".highlight-code, .curl-command").querySelector("pre"));
        if ([...text.getClientRects()].some((r) => r.bottom > box.top && r.right > box.left))
            faults.push(`covered ${button.parentElement.innerText}`);
    }
    for (const e of all.filter((e) => e.matches("button, select, textarea, a"))) {
        e.focus();
        if (document.activeElement == e && getComputedStyle(e).outlineStyle == "none")
            faults.push(`no focus ${e.className} ${e.innerText}`);
    }
    return faults;
}"""


@contextlib.contextmanager
def served(name: str, build_dir: str) -> Iterator[tuple[Running, Browser]]:
    """The page, with the operation ready to be tried."""
    (set_up,) = [each for each in SET_UPS if each.name == name]
    with running(set_up, build_dir) as server, browser() as there:
        shutil.copytree(pathlib.Path(build_dir, "docs"), server.docs)
        there.open(f"{server.base_url}/docs/")
        there.click(".opblock-summary-control")
        there.click(".try-out__btn")
        yield server, there


def authorize(there: Browser, token: str) -> None:
    there.click(".auth-wrapper .authorize")
    there.fill(".auth-container input", token)
    there.click(".auth-container .authorize")
    there.click(".auth-container .btn-done")


def execute(there: Browser, body: str) -> str:
    """What is shown then: curl's command, and the answer."""
    there.fill(".opblock textarea", body)
    there.click(".execute")
    there.await_element(STATUS)
    return there.js(TEXT, ".responses-inner > div")


def check_page(tally: Tally, server: Running, there: Browser) -> None:
    name = server.set_up.name
    tally.check(not there.problems, f"{name}: the console has no error", there.problems)
    there.js(EXPAND)
    shown = there.js(TEXT, ".models")
    well = "int64" in shown and "9223372036854776000" not in shown
    tally.check(well, f"{name}: no bound of the id is shown rounded", shown)
    for what, body, status, answer in TRIED:
        shown = execute(there, body)
        well = body in shown and f"\n{status}\t" in shown and answer in shown
        tally.check(well, f"{name}: {what}: {status}, and the body as typed", shown)
        there.click(".btn-clear")
        there.await_element(STATUS, False)
        if status == 401:
            authorize(there, server.token)
    plants = server.store.plants()
    well = plants == [{"id": 9007199254740993, "name": "Fern"}]
    tally.check(well, f"{name}: the journal has the id as typed", plants)
    # The console has a line for each refusal.
    others = [each for each in there.problems if each.get("source") != "network"]
    tally.check(not others, f"{name}: nor after answers", others)
    here = (f"http://{server.host}:{server.port}/", "data:")
    strangers = [url for url in there.urls if not url.startswith(here)]
    tally.check(not strangers, f"{name}: no other site is asked", strangers)


def check_sight(tally: Tally, server: Running, there: Browser, seen: list) -> None:
    """On a phone and a screen, in the light and the dark, by keyboard."""
    for width, scheme in seen:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        there.send("Emulation.setEmulatedMedia", features=[feature])
        there.send("Emulation.setDeviceMetricsOverride", width=width, height=800,
                   deviceScaleFactor=1, mobile=width < 600)
        there.open(f"{server.base_url}/docs/?{width}{scheme}")
        there.click(".opblock-summary-control")
        there.click(".try-out__btn")
        execute(there, '{"name": "Fern"}')
        for kind in ("keyDown", "keyUp"):
            there.send("Input.dispatchKeyEvent", type=kind, key="Tab", windowsVirtualKeyCode=9)
        faults = there.js(FAULTS, FAINT)
        faults += [] if there.js("innerWidth") == width else [there.js("innerWidth")]
        tally.check(not faults, f"{server.set_up.name}: {width} {scheme}: all is to be seen", faults)
        found = there.js("getComputedStyle(document.documentElement).colorScheme")
        tally.check((found == "dark") == (scheme == "dark"), f"it is {scheme}", found)
    shown = there.js(TEXT, ".servers")
    tally.check(shown.strip() == server.base_url, "the server is the page's own", shown)


def make_docs(build_dir: str) -> None:
    environment = os.environ | {"BUILD": os.path.abspath(build_dir)}
    subprocess.run([TOP / "scripts/docs"], env=environment, timeout=WAIT_S, check=True)


def scenario(tally: Tally, names: tuple[str, ...], build_dir: str) -> None:
    text = (TOP / "deploy/docs/index.html").read_text()
    inline = re.findall(r"<script[^>]*>[^<]|<style|style=|\bon\w+=|//", text)
    tally.check(not inline, "no script, style or site is in the page itself", inline)
    if tally.lacks("the page works in a browser", "npm", "chromium"):
        return
    make_docs(build_dir)
    for name in names:
        with tally.part(f"{name}: the page is tried to the end"):
            with served(name, build_dir) as (server, there):
                check_page(tally, server, there)
                check_sight(tally, server, there, SEEN if len(names) > 1 else SEEN[:2])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build_dir")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--picture", metavar="FILE")
    options = parser.parse_args()
    names = SET_UP_NAMES if options.long else SET_UP_NAMES[:1]
    if not options.picture:
        return run_scenario(lambda tally: scenario(tally, names, options.build_dir))
    make_docs(options.build_dir)
    with served(SET_UP_NAMES[1], options.build_dir) as (server, there):
        authorize(there, server.token)
        execute(there, LARGE)
        picture = there.picture(WIDTH, HEIGHT, ".examples-select")
    pathlib.Path(options.picture).write_bytes(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
