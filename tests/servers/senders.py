#!/usr/bin/env python3
"""Goal: who sends as deploy/clients does stores each plant once, whatever the service does.

usage: senders.py BUILD_DIR

Behind nginx, with its limit for each token.  Meanwhile the service is killed, its disk is
full, and the senders are killed, too.
"""

import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types

from lib_servers import SET_UPS, Running, running  # and the way to the next ones
from lib_faults import mounted
from lib_service import TOP, WAIT_S, Tally, main, wait_until
from limits import switch_on

FOLDER = TOP / "deploy" / "clients"
EACH = 500
PADDING = "f" * 12000  # so that the journal needs more room than it has prepared
FIRST = {"send.py": 1, "send.mjs": 2 ** 53}  # above it, a number of JavaScript is rounded
KILLED_EVERY_S = 0.7
KILLS = 15  # then the senders, which wait longer each time, come to their end
FULL_S = 4.0
SENDER_LIVES_S = 2.0


def with_limit(server: Running) -> None:
    server.edit("nginx/limits.conf", "rate=100r/s", "rate=200r/s")
    server.edit("nginx/limits.conf", "burst=100", "burst=1")
    switch_on(server, f"nginx/{server.set_up.mode}.conf", "include limits.conf;")


class Sender:
    """Sends its plants, and is killed once; what it has not saved then is given again."""

    def __init__(self, server: Running, program: str, part: int, place: pathlib.Path) -> None:
        self.server, self.program = server, program
        self.first = FIRST[program] + part * 2 ** 40
        self.outbox = place / f"{program}-{part}"  # on another disk than the store
        self.outbox.mkdir()
        (self.outbox / "next").write_text(str(self.first))
        self.names = [f"{program} {part} {number} {PADDING}" for number in range(EACH)]
        self.ends: list[tuple[int, bytes]] = []

    def live(self, names: list[str], seconds: float) -> None:
        command = [shutil.which("node"), FOLDER / self.program] if self.program.endswith("js") \
            else [sys.executable, FOLDER / self.program]
        lines = "".join(json.dumps({"name": name}) + "\n" for name in names).encode()
        environment = {"TOKEN": self.server.token, "no_proxy": "127.0.0.1", "PATH": os.environ["PATH"]}
        process = subprocess.Popen(
            [*map(str, command), str(self.outbox), f"{self.server.base_url}/plants"],
            env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            said = process.communicate(lines, seconds)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            said = process.communicate()[1]
        self.ends.append((process.returncode, said[-500:]))

    def work(self) -> None:
        self.live(self.names, SENDER_LIVES_S)
        saved = {json.loads(path.read_bytes())["name"] for path in self.outbox.glob("*.json")}
        saved |= {plant["name"] for plant in self.server.store.plants()}
        self.live([name for name in self.names if name not in saved], WAIT_S)


def fill(place: pathlib.Path) -> None:
    with contextlib.suppress(OSError), open(place, "wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))


def check(tally: Tally, build_dir: str, place: pathlib.Path) -> None:
    set_up = next(each for each in SET_UPS if each.name == "nginx fastcgi /")
    with running(set_up, build_dir, with_limit) as server:
        wait_until(server.answers)
        senders = [Sender(server, program, part, place) for program in FIRST for part in (0, 1)]
        threads = [threading.Thread(target=sender.work) for sender in senders]
        for thread in threads:
            thread.start()
        began, kills, full = time.monotonic(), 0, 0
        while any(thread.is_alive() for thread in threads) and time.monotonic() < began + WAIT_S:
            time.sleep(KILLED_EVERY_S)
            for pid in server.worker_pids()[:kills < KILLS]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
            if kills == 2 and not full:
                ballast = server.root / "ballast"
                fill(ballast)
                time.sleep(FULL_S)
                ballast.unlink()
                full = 1
        for thread in threads:
            thread.join()
        log = server.service_log.read_text() + server.server_log.read_text()
        wait_until(lambda: '" 429 ' in server.access_log.read_text())
        statuses = set(re.findall(r'" (\d{3}) ', server.access_log.read_text()))
        ends = [sender.ends for sender in senders]
        tally.check(kills > 2 and {"200", "429", "503"} <= statuses and "No space left" in log,
                    "the service is killed, full, and limits", (kills, statuses, log[-500:]))
        tally.check(all(each[-1][0] == 0 for each in ends) and any(each[0][0] == -9 for each in ends),
                    "the senders end well, though they were killed, too", ends)
        stored = [plant for plant in server.store.plants()]
        names = sorted(plant["name"] for plant in stored)
        tally.check(names == sorted(name for sender in senders for name in sender.names),
                    f"{4 * EACH} plants, each is stored once", (len(names), len(set(names))))
        ids = {plant["id"] for plant in stored}
        tally.check(len(ids) == len(stored) and any(n > 2 ** 53 and n % 2 for n in ids),
                    "each with an id of its own, above 2^53 as well", len(ids))
        left = [path for sender in senders for path in sender.outbox.glob("*.json")]
        tally.check(not left, "nothing is left to send", left)


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """Has moved; and a GET of the other address, as of a page, is 200."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(302)
        self.send_header("Location", "/page")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def check_redirected(tally: Tally, place: pathlib.Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        moved = types.SimpleNamespace(token="T", base_url=f"http://127.0.0.1:{server.server_port}")
        for program in FIRST:
            sender = Sender(moved, program, 0, place)
            sender.live(["Fern"], WAIT_S)
            status, said = sender.ends[0]
            tally.check(status == 1 and b"302" in said and len(list(sender.outbox.glob("*.json"))) == 1,
                        f"{program}: a redirection ends it, and the plant is kept", (status, said))
        server.shutdown()


def check_refused(tally: Tally, build_dir: str) -> None:
    """What sending again cannot mend ends it, and the plant stays."""
    set_up = next(each for each in SET_UPS if each.name == "nginx fastcgi /")
    with running(set_up, build_dir) as server:
        for program in FIRST:
            sender = Sender(server, program, 0, server.root)
            server.token = "pst_" + "A" * 43
            sender.live(["Fern"], WAIT_S)
            status, said = sender.ends[0]
            tally.check(status == 1 and b"401" in said and len(list(sender.outbox.glob("*.json"))) == 1,
                        f"{program}: an unknown token ends it, and the plant is kept", (status, said))
            server.token = server.store.token
            sender.live([], WAIT_S)
            tally.check(sender.ends[1][0] == 0 and not list(sender.outbox.glob("*.json")),
                        f"{program}: then it is sent", sender.ends)


def scenario(tally: Tally, build_dir: str) -> None:
    if tally.lacks("2,000 plants, each is stored once", "root", "node", "nginx", "spawn-fcgi"):
        return
    build = str(pathlib.Path(build_dir).resolve())
    check_refused(tally, build)
    with tempfile.TemporaryDirectory() as place:
        check_redirected(tally, pathlib.Path(place))
    with tempfile.TemporaryDirectory(prefix="plant-store-senders-") as folder, \
            mounted("tmpfs", pathlib.Path(folder), "-t", "tmpfs", "-o", "size=96m,mode=0755"):
        before, tempfile.tempdir = tempfile.tempdir, folder
        try:
            with tempfile.TemporaryDirectory(dir=before) as place:
                check(tally, build, pathlib.Path(place))
        finally:
            tempfile.tempdir = before


if __name__ == "__main__":
    sys.exit(main(scenario))
