#!/usr/bin/env python3
"""send.py OUTBOX URL: save the plants of stdin, JSON lines without ids, and send them.

TOKEN in the environment.  A plant is in OUTBOX, on the disk, before it is sent, and until
its 200: run this again after a crash.  OUTBOX/next has the next id: begin with the first
of this sender's range."""
import http.client, json, os, pathlib, random, sys, time, urllib.error, urllib.request

AGAIN = {3004, 3008, *range(5002, 5012), 5101, 5102}
outbox, url = pathlib.Path(sys.argv[1]), sys.argv[2]
head = {"Authorization": f"Bearer {os.environ['TOKEN']}", "Content-Type": "application/json"}


def put(name: str, text: str) -> None:
    with open(outbox / "new", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(outbox / "new", outbox / name)
    folder = os.open(outbox, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def send(path: pathlib.Path) -> None:
    wait = 1.0
    while True:
        number, status, after = 0, 0, 0.0
        try:
            request = urllib.request.Request(url, path.read_bytes(), head)
            with urllib.request.urlopen(request, timeout=30):
                return path.unlink()
        except urllib.error.HTTPError as error:
            status, after = error.code, float(error.headers["Retry-After"] or 0)
            text = error.read()
            number = json.loads(text)["error"] if text[:1] == b"{" else 0
            if number not in AGAIN and status != 429 and (number or status < 500):
                sys.exit(f"{path}: {status}: {text.decode()}")  # a person must decide
        except (OSError, http.client.HTTPException):
            pass  # no answer: stored or not, it is safe to send it again
        time.sleep(after + random.uniform(0, wait))
        wait = min(2 * wait, 60)


for line in sys.stdin:
    number = int((outbox / "next").read_text())
    put("next", str(number + 1))
    put(f"{number}.json", json.dumps({"id": number, **json.loads(line)}))
    send(outbox / f"{number}.json")
for left in sorted(outbox.glob("*.json")):
    send(left)
