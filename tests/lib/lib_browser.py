"""Chromium without a window, driven over its DevTools protocol, for tests."""

import base64
import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterator

from lib_service import WAIT_S, passed_on, wait_until

# React notices what is typed, and not what a program puts into its field.
FILL = """(selector, text) => {
    const field = document.querySelector(selector);
    const { set } = Object.getOwnPropertyDescriptor(field.__proto__, "value");
    set.call(field, text);
    field.dispatchEvent(new Event("input", { bubbles: true }));
}"""


class Browser:
    """One page.

    problems  the console's errors and warnings, in order; the source of those
              about an answer's status is "network"
    urls      what was asked for
    """

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._buffer = b""
        self._number = 0
        self._session: dict[str, str] = {}
        self.problems: list[dict] = []
        self.urls: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")
        self._session = self.send("Target.attachToTarget", flatten=True, **target)
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: object) -> dict:
        """A command's result; RuntimeError if it fails or does not end."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        os.write(self._write, json.dumps(command | self._session).encode() + b"\0")
        while (message := self._message()).get("id") != self._number:
            self._note(message.get("method"), message.get("params", {}))
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']}")
        return message["result"]

    def _message(self) -> dict:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], WAIT_S)[0]:
                raise RuntimeError("Chromium does not answer")
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("Chromium has ended")
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def _note(self, event: str | None, what: dict) -> None:
        problem = what.get("entry", what)
        severity = problem.get("level", problem.get("type"))
        logged = event in ("Log.entryAdded", "Runtime.consoleAPICalled")
        if event == "Runtime.exceptionThrown" or (
            logged and severity in ("error", "warning")
        ):
            self.problems.append(problem)
        elif event == "Network.requestWillBeSent":
            self.urls.append(what["request"]["url"])

    def js(self, expression: str, *arguments: object) -> object:
        """The value of an expression, or of a function with arguments; awaited."""
        if arguments:
            expression = f"({expression})({', '.join(map(json.dumps, arguments))})"
        done = self.send("Runtime.evaluate", expression=expression, returnByValue=True,
                         awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(f"{expression}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def open(self, url: str) -> None:
        self.send("Page.navigate", url=url)

    def await_element(self, selector: str, there: bool = True) -> None:
        find = "(selector) => !!document.querySelector(selector)"
        if not wait_until(lambda: self.js(find, selector) == there, WAIT_S):
            raise RuntimeError(f"it does not come, or go: {selector}")

    def click(self, selector: str) -> None:
        """The first such element, once it is there."""
        self.await_element(selector)
        self.js("(selector) => document.querySelector(selector).click()", selector)

    def fill(self, selector: str, text: str) -> None:
        """A field, once it is there."""
        self.await_element(selector)
        self.js(FILL, selector, text)

    def picture(self, width: int, height: int, selector: str) -> bytes:
        """So much of the page, from the element on, as WebP."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.js("(selector) => document.querySelector(selector).scrollIntoView()", selector)
        taken = self.send("Page.captureScreenshot", format="webp", quality=60)
        return base64.b64decode(taken["data"])


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Chromium with a new profile, which asks nothing but 127.0.0.1."""
    with tempfile.TemporaryDirectory(prefix="plant-store-") as home:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # It has the pipes as 3 and 4.
        script = f'exec chromium "$@" 3<&{theirs_in} 4>&{theirs_out}'
        process = subprocess.Popen(
            ["sh", "-c", script, "sh", "--headless", "--no-sandbox", "--no-first-run",
             "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--disable-background-networking", "--remote-debugging-pipe",
             "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
             "--no-proxy-server", f"--user-data-dir={home}"],
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
            process.wait(WAIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(ours_in)
            os.close(ours_out)
