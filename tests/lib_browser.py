"""Chromium without a window, driven over its DevTools protocol, for tests."""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator

from lib_service import passed_on, wait_until

CHROMIUM_S = 60.0  # for whatever it is asked, on a busy machine


class Browser:
    """One page.

    problems  what the console has of errors and warnings, in order; a message
              about an answer's status is of the source "network"
    urls      what was asked for
    """

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._buffer = b""
        self._number = 0
        self._session: dict[str, str] = {}
        self.problems: list[dict] = []
        self.urls: list[str] = []
        made = self.send("Target.createTarget", url="about:blank")
        made = self.send("Target.attachToTarget", flatten=True, **made)
        self._session = made
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: object) -> dict:
        """A command's result; RuntimeError if it fails or does not end."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        os.write(self._write, json.dumps(command | self._session).encode() + b"\0")
        deadline = time.monotonic() + CHROMIUM_S
        while True:
            message = self._message(deadline)
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._event(message.get("method"), message.get("params", {}))

    def _message(self, deadline: float) -> dict:
        while b"\0" not in self._buffer:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._read], [], [], left)[0]:
                raise RuntimeError("Chromium does not answer")
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("Chromium has ended")
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def _event(self, name: str | None, what: dict) -> None:
        if name == "Runtime.exceptionThrown":
            self.problems.append(what)
        elif name == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning"):
            self.problems.append(what)
        elif name == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.problems.append(what["entry"])
        elif name == "Network.requestWillBeSent":
            self.urls.append(what["request"]["url"])

    def js(self, expression: str, *arguments: object) -> object:
        """The value of an expression, or of a function with arguments."""
        if arguments:
            expression = f"({expression})({', '.join(map(json.dumps, arguments))})"
        done = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(f"{expression}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def wait(self, expression: str, *arguments: object) -> None:
        """Until the expression has a value that is true."""
        if not wait_until(lambda: self.js(expression, *arguments), CHROMIUM_S):
            raise RuntimeError(f"it does not become true: {expression} {arguments}")

    def open(self, url: str) -> None:
        self.send("Page.navigate", url=url)

    def click(self, selector: str) -> None:
        """The first such element, once it is there."""
        self.wait("(s) => !!document.querySelector(s)", selector)
        self.js("(s) => document.querySelector(s).click()", selector)

    def fill(self, selector: str, text: str) -> None:
        """Put a text into a field as typing would, which React notices."""
        self.wait("(s) => !!document.querySelector(s)", selector)
        self.js(
            """(s, text) => {
                const field = document.querySelector(s);
                const proto = Object.getPrototypeOf(field);
                Object.getOwnPropertyDescriptor(proto, "value").set.call(field, text);
                field.dispatchEvent(new Event("input", { bubbles: true }));
            }""",
            selector,
            text,
        )

    def picture(self, width: int, height: int, selector: str) -> bytes:
        """So much of the page, from the element on, as WebP."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.js("(s) => document.querySelector(s).scrollIntoView()", selector)
        taken = self.send("Page.captureScreenshot", format="webp", quality=60)
        return base64.b64decode(taken["data"])


def missing() -> str | None:
    """Why there is no browser; None if there is one."""
    return None if shutil.which("chromium") else "chromium is not installed"


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Chromium with a new profile, which asks nothing but 127.0.0.1."""
    with tempfile.TemporaryDirectory(prefix="plant-store-") as home:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        command = [
            "chromium", "--headless", "--no-sandbox", "--no-first-run",
            "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
            "--disable-background-networking", "--remote-debugging-pipe",
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            "--no-proxy-server", f"--user-data-dir={home}", "about:blank",
        ]
        # It has the pipes as 3 and 4.
        script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        process = subprocess.Popen(
            ["sh", "-c", script, "sh", *command],
            env=passed_on() | {"PATH": os.environ["PATH"], "HOME": home},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs_in, theirs_out),
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            it = Browser(ours_in, ours_out)
            yield it
            it.send("Browser.close")
            process.wait(CHROMIUM_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(ours_in)
            os.close(ours_out)
