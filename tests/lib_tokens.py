"""Token changes take effect within two seconds, in any set-up of the service."""

import dataclasses
import pathlib
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from lib_service import TOKEN_PATTERN, WAIT_S, Tally, new_plant

WITHIN_S = 2.0
PAUSE_S = 0.05  # many set-ups may be asked at the same time
# An id that no other test of a set-up takes; the plant is always the same.
PLANT = new_plant(9_007_199_254_740_881, "token change")
CREATED = 200
UNKNOWN = 401


@dataclasses.dataclass
class SetUp:
    """What is asked: base_url is such as http://127.0.0.1:8080/api/v1."""

    base_url: str
    tokens: pathlib.Path
    build: pathlib.Path


def status_of(set_up: SetUp, token: str) -> int:
    request = urllib.request.Request(
        f"{set_up.base_url}/plants",
        data=PLANT,
        headers={
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
        },
    )
    # No proxy that the environment may name.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=WAIT_S) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def token_command(set_up: SetUp, *arguments: str | pathlib.Path) -> str:
    """Run `plant-store token`; the token that it prints, if any."""
    done = subprocess.run(
        [set_up.build / "plant-store", "token", *arguments],
        env={},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=WAIT_S,
    )
    if done.returncode:
        raise RuntimeError(f"token {arguments}: {done.stderr!r}")
    found = TOKEN_PATTERN.search(done.stdout)
    return found[0].decode() if found else ""


def becomes(
    tally: Tally, set_up: SetUp, token: str, status: int, sentence: str
) -> None:
    """`WITHIN_S` after the change the status must hold, if not before."""
    began = time.monotonic()
    found = asked = 0.0
    while found != status and asked < WITHIN_S:
        if asked:
            time.sleep(PAUSE_S)
        asked = time.monotonic() - began
        found = status_of(set_up, token)
    # In one write, since several may print at the same time.
    print(f"# {sentence}: asked after {asked:.2f} s\n", end="", flush=True)
    tally.check(found == status, sentence, found)


def check_token_changes(
    tally: Tally, set_up: SetUp, where: str, absent: int = UNKNOWN
) -> None:
    """Without a restart: one token comes and goes, then all do.

    `absent`: the status while there is no token file.
    """
    name = "token-change"
    file = ("--file", set_up.tokens)
    with tempfile.TemporaryDirectory() as folder:
        elsewhere = pathlib.Path(folder, "tokens")
        token = token_command(set_up, "add", name, "--file", elsewhere)
        line = elsewhere.read_text()
    before = status_of(set_up, token)
    tally.check(before == UNKNOWN, f"{where}: a token is unknown at first", before)
    with open(set_up.tokens, "a", encoding="ascii") as tokens:
        tokens.write(line)
    becomes(tally, set_up, token, CREATED, f"{where}: a line added by hand counts")
    token_command(set_up, "revoke", name, *file)
    becomes(tally, set_up, token, UNKNOWN, f"{where}: a revoked token is refused")
    token = token_command(set_up, "add", name, *file)
    becomes(tally, set_up, token, CREATED, f"{where}: an added token counts")
    text = set_up.tokens.read_bytes()
    set_up.tokens.write_bytes(b"")
    becomes(tally, set_up, token, UNKNOWN, f"{where}: an emptied file revokes all")
    set_up.tokens.write_bytes(text)
    becomes(tally, set_up, token, CREATED, f"{where}: its tokens count again")
    away = set_up.tokens.rename(set_up.tokens.with_name("away"))
    becomes(tally, set_up, token, absent, f"{where}: a removed file revokes all")
    away.rename(set_up.tokens)
    becomes(tally, set_up, token, CREATED, f"{where}: it counts once it is back")
    token_command(set_up, "revoke", name, *file)
    becomes(tally, set_up, token, UNKNOWN, f"{where}: it is refused once revoked")
    left = re.search(rf"^{name} ", set_up.tokens.read_text(), re.MULTILINE)
    tally.check(not left, f"{where}: the file is as before")
