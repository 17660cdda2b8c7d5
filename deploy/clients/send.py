#!/usr/bin/env python3
"""send.py OUTBOX URL: save the plants from stdin, JSON Lines without ids, and send them.

TOKEN is in the environment.  Each plant is in OUTBOX, on disk, before it is sent and until
its 200: run this again after a crash.  OUTBOX/next has the next id: start with the first
id of this sender's range."""
import http.client, itertools, json, os, pathlib, random, re, sys, time, urllib.parse

AGAIN = {3004, 3008, *range(5002, 5012), 5101, 5102}
outbox, url = pathlib.Path(sys.argv[1]), urllib.parse.urlsplit(sys.argv[2])
folder = os.open(outbox, os.O_RDONLY)
server = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}[url.scheme](url.netloc, timeout=30)
head = {"Authorization": f"Bearer {os.environ['TOKEN']}", "Content-Type": "application/json"}


def put(name: str, text: str) -> None:
    with open(outbox / "new", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(outbox / "new", outbox / name)
    os.fsync(folder)


def send(path: pathlib.Path) -> None:
    for attempt in itertools.count():
        after = 0.0
        try:
            server.request("POST", url.path, path.read_bytes(), head)
            answer = server.getresponse()
            text = answer.read().decode(errors="replace")
            retry = answer.headers["Retry-After"] or ""
            after = float(retry) if retry.isdigit() else 0.0
            if answer.status == 200:
                return path.unlink()
            number = re.search(r'"error": *(\d+)', text)
            if not (number and int(number[1]) in AGAIN) and answer.status != 429 and (number or answer.status < 500):
                sys.exit(f"{path}: {answer.status}: {text}")  # a person must decide
        except (OSError, http.client.HTTPException):
            server.close()  # no response: stored or not, it is safe to resend
        time.sleep(after + random.uniform(0, min(2 ** attempt, 60)))


for line in sys.stdin:
    number = int((outbox / "next").read_text())
    put("next", str(number + 1))
    put(f"{number}.json", json.dumps({"id": number, **json.loads(line)}))
    send(outbox / f"{number}.json")
for left in sorted(outbox.glob("*.json")):
    send(left)
