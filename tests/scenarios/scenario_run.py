#!/usr/bin/env python3
"""Goal: scripts/run keeps every word of what it promises to a newcomer."""

import contextlib
import json
import os
import pathlib
import pty
import select
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator

from lib_service import (
    JOURNAL_NAME, TOP, WAIT_S, Tally, free_port, listens, main, processes, read_journal, run,
    wait_until,
)

DOCS = TOP / os.environ.get("BUILD", "build") / "docs" / "index.html"


@contextlib.contextmanager
def started(
    directory: pathlib.Path, port: int, *arguments: str, stderr: int = subprocess.PIPE
) -> Iterator[subprocess.Popen]:
    """scripts/run in a session of its own, as a terminal would have it."""
    process = subprocess.Popen(
        [TOP / "scripts/run", "--dir", directory, "--port", str(port), *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True,
        start_new_session=True)
    try:
        yield process
    finally:
        for pid in session_of(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        if process.stderr:
            process.stderr.close()


def said(process: subprocess.Popen, last: str) -> str:
    """What it prints up to a line that begins with `last`."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(last):
            return "".join(lines)
    raise RuntimeError(f"it ended: {process.stderr.read()}")


def session_of(pid: int) -> list[int]:
    """The processes of the session that `pid` leads."""
    return [found for found, fields in processes().items() if int(fields[3]) == pid]


def check_life(tally: Tally, directory: pathlib.Path, sign: signal.Signals, again: bool) -> None:
    name = f"{sign.name}{', started again' if again else ''}"
    port = free_port()
    before = (directory / "token").read_text() if again else ""
    terminal, stderr = pty.openpty()
    with started(directory, port, stderr=stderr) as process:
        output = said(process, "Ctrl-C")
        lines = output.splitlines()
        tally.check(lines[0].startswith("The Plant Store is running")
                    and not select.select([terminal], [], [], 0)[0],
                    f"{name}: nothing comes before that it runs", output)
        curl = next(i for i, line in enumerate(lines) if line.startswith("curl "))
        request = "\n".join(lines[curl : curl + 3])
        tally.check(
            "the response was 200" in output and '{"name":"Fern","tag":"indoor"}' in lines,
            f"{name}: a sample plant is stored, and its answer shown", output)
        pasted = run("bash", "-c", request, text=True)
        tally.check(pasted.stdout == '{"name":"Fern","tag":"indoor"}',
                    f"{name}: the request can be pasted", pasted)
        page = f"http://127.0.0.1:{port}/docs/"
        if DOCS.exists():
            with urllib.request.urlopen(page) as shown:
                found = f"page   {page}" in lines and shown.read() == DOCS.read_bytes()
            tally.check(found, f"{name}: the page is there, and its address shown", lines)
        else:
            found = any(line.startswith('page   not built; "make docs"') for line in lines)
            tally.check(found, f"{name}: how to build the page is shown", lines)
        mode = (directory / "socket").stat().st_mode & 0o777
        tally.check(mode == 0o660, f"{name}: the socket has mode 0660", oct(mode))
        if again:
            same = (directory / "token").read_text() == before
            tally.check(same, f"{name}: the token is found again")
        else:
            check_shown(tally, directory)
            log = directory / "access.log"
            log.write_bytes(b"." * (1 << 20))
            emptied = wait_until(lambda: log.stat().st_size < 1 << 20)
            tally.check(emptied, f"{name}: the access log stays small", log.stat())
            check_refusals(tally, directory, port)
        os.kill(process.pid, sign)
        status = process.wait(WAIT_S)
        tally.check(status == 0, f"{name}: it exits with 0", status)
        gone = wait_until(lambda: not session_of(process.pid))
        tally.check(gone, f"{name}: nothing is left running", session_of(process.pid))
        tally.check(not listens(port), f"{name}: the port is free again")
    os.close(terminal)
    os.close(stderr)
    journal = directory / "store" / JOURNAL_NAME
    plants = [plant["id"] for plant in read_journal(journal)]
    tally.check(plants == [1], f"{name}: the store stays, the plant there once", plants)
    tally.check(
        not journal.read_bytes().endswith(b"\n\n"), f"{name}: the store was closed cleanly")


def check_shown(tally: Tally, directory: pathlib.Path) -> None:
    """The journal of a live store ends in blank lines, but README has a way."""
    shown = re.search(r"`(grep .*plants\.jsonl[^`]*)`", (TOP / "README.md").read_text())
    command = shown[1].replace("run/store", "store") if shown else "false"
    last = run("sh", "-c", command, cwd=directory, text=True)
    found = [json.loads(line).get("plant") for line in last.stdout.splitlines()]
    blank = (directory / "store" / JOURNAL_NAME).read_bytes().endswith(b"\n\n\n")
    tally.check(blank and {"id": 1, "name": "Fern", "tag": "indoor"} in found,
                "README's command shows the last lines of a live journal", last)


def check_refusals(tally: Tally, directory: pathlib.Path, port: int) -> None:
    """While one runs."""
    for place, at, words, expected, error, sentence in (
        ("other", port, [], 1, f"port {port} is in use", "a busy port is an error that says so"),
        ("", free_port(), [], 1, "another scripts/run uses", "a folder in use is one, too"),
        ("", port, ["--wrong"], 64, "usage:", "a wrong argument is answered with the usage"),
    ):
        with started(directory / place, at, *words) as process:
            status = process.wait(WAIT_S)
            said = process.stderr.read()
        tally.check(status == expected and error in said, sentence, (status, said))
    tally.check(not (directory / "other").exists(), "which makes no folder")


def scenario(tally: Tally, _: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        # A space in the path, and an ordinary place that lighttpd may pass.
        directory = pathlib.Path(root) / "a folder"
        for sign, again in ((signal.SIGINT, False), (signal.SIGTERM, True)):
            with tally.part(f"scripts/run until {sign.name}"):
                check_life(tally, directory, sign, again)


if __name__ == "__main__":
    sys.exit(main(scenario))
