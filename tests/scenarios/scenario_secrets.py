"""Goal: a token shows up nowhere.

usage: scenario_secrets.py BUILD_DIR
"""

import base64
import hashlib
import pathlib
import resource
import secrets
import subprocess
import sys

from lib_service import (
    FastCgiPeer, Store, Tally, fcgi_request, main, new_plant, parse_cgi, responder,
    run, temporary_store, wait_until,
)

PIECE = 16  # characters of a token that are too many to show
LOGS = [
    {"PLANT_STORE_LOG_LEVEL": "error"},
    {"PLANT_STORE_LOG_LEVEL": "debug"},
    {"PLANT_STORE_LOG_LEVEL": "debug", "PLANT_STORE_LOG_FORMAT": "json"},
]
BODY_MAX = 65536


def new_token() -> str:
    return "pst_" + base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()[:43]


def digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


# --- Traces ------------------------------------------------------------------


class Secrets:
    """Tokens of every standing, and a search for what is left of them."""

    def __init__(self, store: Store) -> None:
        self.good = store.token
        self.expired, self.revoked, self.unknown = (new_token() for _ in range(3))
        self.tokens = [self.good, self.expired, self.revoked, self.unknown]
        with open(store.tokens, "a") as tokens:
            old = "2020-02-29T12:00:00Z"
            tokens.write(f"expired {digest_of(self.expired).hex()} {old}\n")
            tokens.write(f"# revoked {digest_of(self.revoked).hex()}\n")

    def found_in(self, data: bytes) -> list[str]:
        """The pieces of tokens in `data`, however they were cut."""
        pieces = (token[at:at + PIECE] for token in self.tokens
                  for at in range(len("pst_"), len(token) - PIECE + 1))
        return [piece for piece in pieces if piece.encode() in data]


def credentials(known: Secrets) -> list[dict[str, str]]:
    """Variables in which tokens are, in all the ways that clients find."""
    values = []
    for token in known.tokens:
        values += [f"Bearer {token}", f"bearer  {token} ", f"Bearer\t{token}", token]
        values += [f"Bearer {token}, Bearer {token}", f"Bearer {token} {token}"]
        values += [f"Basic {token}", f"Bearer {token}x", f"Bearer {token[:-1]}"]
        values += [f'Bearer "{token}"', f"Bearer {token * 150}", f"Bearer %s{token}"]
        values += [f"Bearer {token}\u00fc", f"{token} Bearer", f"B\n{token}"]
    elsewhere = {"HTTP_AUTHORIZATION": "", "QUERY_STRING": f"access_token={known.good}"}
    elsewhere["HTTP_COOKIE"] = f"token={known.good}"
    elsewhere["HTTP_PROXY_AUTHORIZATION"] = f"Bearer {known.good}"
    return [{"HTTP_AUTHORIZATION": value} for value in values] + [elsewhere]


Requests = list[tuple[dict[str, str], bytes]]


def requests(store: Store, known: Secrets) -> Requests:
    """Requests of all kinds, none of which asks for a token to be kept."""
    plant = b'{"id":1,"name":"Fern"}'
    token = known.good.encode()
    bodies = [
        plant,
        b'{"id":1,"name":"Moss"}',
        b'{"id":2,"name":"Fern","access_token":"' + token + b'"}',
        b'{"id":3,"name":"Fern","' + token + b'":1}',
        b'{"id":"' + token + b'","name":"Fern"}',
        b'{"id":4,"name":["' + token + b'"]}',
        b'{"id":5,"name":"' + token,
        b'{"id":6,"name":"' + token + b'\xff"}',
        b"access_token=" + token,
        b'["' + token + b'"]',
        token,
        token * (BODY_MAX // len(token) + 1),
        b"",
    ]
    variables = [
        {"SCRIPT_NAME": f"/{known.good}"},
        {"REQUEST_METHOD": known.good},
        {"REQUEST_METHOD": "TRACE"},
        {"CONTENT_TYPE": f"text/plain; {known.good}"},
        {"CONTENT_LENGTH": known.good},
        {"HTTP_CONTENT_ENCODING": known.good},
        {"PATH_INFO": f"/{known.good}"},
        {"HTTP_X_REQUEST_ID": known.good},
        {"HTTP_ORIGIN": f"https://{known.good}"},
    ]
    made = [(store.request(body), body) for body in bodies]
    made += [(store.request(plant, **more), plant) for more in variables]
    made += [(store.request(plant, **more), plant) for more in credentials(known)]
    return made


def answers_by_cgi(store: Store, made: Requests) -> tuple[set[int], bytes]:
    """The statuses, and every byte that came out."""
    statuses, said = set(), b""
    for log in LOGS:
        environment = store.environment(**log)
        for variables, body in made:
            done = run(store.responder, env=environment | variables, input=body)
            statuses.add(parse_cgi(done.stdout).status)
            said += done.stdout + done.stderr
        # What it says when it cannot start.
        for name in ("PLANT_STORE_TOKENS", "PLANT_STORE_DIR", "PLANT_STORE_THREADS"):
            done = store.cgi(b"", {**log, name: "/dev/null"})
            said += done.stdout + done.stderr
    return statuses, said


def answers_by_fastcgi(store: Store, made: Requests) -> tuple[set[int], bytes]:
    statuses, said = set(), b""
    for log in LOGS:
        with responder(store, **log) as service:
            for variables, body in made:
                request = fcgi_request(variables.items(), body)
                with FastCgiPeer(service.socket_path) as peer:
                    answer = peer.exchange(request)
                statuses.add(answer.status)
                said += repr(answer.headers).encode() + answer.body
                # The same, broken off.
                with FastCgiPeer(service.socket_path) as peer:
                    peer.send(request[: len(request) * 2 // 3])
    return statuses, said


def check_traces(tally: Tally, store: Store) -> None:
    known = Secrets(store)
    made = requests(store, known)
    for how, answers, word in (("CGI", answers_by_cgi, b"answered"),
                               ("FastCGI", answers_by_fastcgi, b"X-Request-Id")):
        statuses, said = answers(store, made)
        tally.check(statuses >= {200, 400, 401, 404, 405, 409, 413},
                    f"{how} answers in all ways", statuses)
        found = known.found_in(said)
        tally.check(word in said and not found, f"no token is in what {how} says", found[:3])
    left = [path for path in store.root.rglob("*") if path.is_file()]
    names = {path.name for path in left}
    tally.check(names >= {"plants.jsonl", "manifest", "tokens", "responder.log"},
                "there is a store, a token file and a log to look through", names)
    for path in sorted(left):
        found = known.found_in(path.read_bytes())
        tally.check(not found, f"no token is in {path.relative_to(store.root)}", found)
    # The search must be able to find: a token's name is stored, if sent.
    store.cgi(new_plant(9, known.unknown))
    found = known.found_in(store.journal.read_bytes())
    tally.check(bool(found), "a token that is sent as a name is found", found)


# --- Cores -------------------------------------------------------------------


def core_limits(pid: int) -> list[str]:
    for line in pathlib.Path(f"/proc/{pid}/limits").read_text().splitlines():
        if line.startswith("Max core file size"):
            return line.split()[4:6]
    raise ValueError("no core limit in /proc")


def check_cores(tally: Tally, store: Store) -> None:
    """Even where its parent allows cores."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        with responder(store, watched=False) as service:
            store.ask(service.socket_path, new_plant(10, "before the first token"))
            limits = core_limits(service.process.pid)
            hard = str(before[1]) if before[1] >= 0 else "unlimited"
            # 0 would let a program at the end of a pipe have one.
            soft = "0" if hard == "0" else "1"
            sentence = "a responder that crashes leaves no core with tokens in it"
            tally.check(limits[0] == soft, sentence, limits)
            sentence = "the hard limit is left, so that prlimit can allow cores"
            tally.check(limits[1] == hard, sentence, limits)
        # CGI waits for its body for as long as its input stays open.
        environment = store.environment() | store.request(b"", CONTENT_LENGTH="9")
        with subprocess.Popen([store.responder], env=environment, stdin=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            well = wait_until(lambda: core_limits(process.pid)[0] == soft)
            tally.check(well, "CGI leaves no core either", core_limits(process.pid))
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)


def scenario(tally: Tally, build_dir: str) -> None:
    with temporary_store(build_dir) as store:
        with tally.part("traces"):
            check_traces(tally, store)
        with tally.part("cores"):
            check_cores(tally, store)


if __name__ == "__main__":
    sys.exit(main(scenario))
