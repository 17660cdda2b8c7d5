"""Goal: what cannot start well says why in one line and touches no plant.

usage: scenario_start.py BUILD_DIR

Each failure is met by the responder as plain CGI and on a FastCGI socket.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable

from lib_service import (
    JOURNAL_NAME,
    WAIT_S,
    Answer,
    FastCgiPeer,
    Store,
    Tally,
    check_length,
    crc32c,
    fcgi_request,
    main,
    new_plant,
    parse_cgi,
    responder,
    run_cgi,
    seal,
    temporary_store,
    wait_until,
)

NOBODY = 65534
SYSEXITS = range(os.EX_USAGE, os.EX_CONFIG + 1)
BODY = new_plant(1, "Fern", "indoor")

# From what the dynamic linker needs to more than enough.
DESCRIPTORS = range(5, 21)

BAD_SETTINGS = {
    "PLANT_STORE_DIR": ["relative/store"],
    "PLANT_STORE_TOKENS": ["tokens"],
    "PLANT_STORE_BASE_PATH": ["api", "/api/", "//", "/a//b"],
    "PLANT_STORE_BODY_BYTES_MAX": ["63", "1048577", "-1", "64k", "9" * 30],
    "PLANT_STORE_THREADS": ["0", "65", "two", "1.5"],
    "PLANT_STORE_STATUS": ["teapot", "HTTP"],
    "PLANT_STORE_LOG_LEVEL": ["loud"],
}


@dataclasses.dataclass
class Ended:
    status: int
    stdout: bytes
    stderr: str


def command_of(store: Store) -> list[str | pathlib.Path]:
    """The responder; without root's right to pass over the modes of files."""
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        return [store.responder]
    lost = "-dac_override,-dac_read_search"
    return [setpriv, f"--inh-caps={lost}", f"--bounding-set={lost}", store.responder]


def run_as_cgi(store: Store, environment: dict[str, str], body: bytes) -> Ended:
    variables = environment | store.request(body)
    done = run_cgi(command_of(store), variables, body)
    return Ended(done.returncode, done.stdout, done.stderr.decode(errors="replace"))


def run_as_fastcgi(store: Store, environment: dict[str, str]) -> Ended:
    """With a listening socket as standard input, which must not last."""
    path = store.root / "start.sock"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        done = subprocess.run(
            command_of(store),
            env=environment,
            stdin=listener,
            capture_output=True,
            timeout=WAIT_S,
        )
    return Ended(done.returncode, done.stdout, done.stderr.decode(errors="replace"))


def journal_bytes(store: Store) -> bytes | None:
    with contextlib.suppress(OSError):
        return store.journal.read_bytes()
    return None


def create(store: Store, body: bytes = BODY) -> Answer:
    """Create a plant by CGI, which must end well."""
    ended = run_as_cgi(store, store.environment(), body)
    if ended.status:
        raise RuntimeError(f"exit status {ended.status}: {ended.stderr}")
    return check_length(parse_cgi(ended.stdout))


def check_refused(
    tally: Tally,
    store: Store,
    sentence: str,
    names: str,
    statuses: set[int] | range = SYSEXITS,
    **settings: str,
) -> None:
    """Neither CGI nor FastCGI starts, and both name what is wrong."""
    environment = store.environment(**settings)
    before = journal_bytes(store)
    for mode in ("CGI", "FastCGI"):
        with tally.part(f"{sentence}, {mode}"):
            if mode == "CGI":
                ended = run_as_cgi(store, environment, BODY)
            else:
                ended = run_as_fastcgi(store, environment)
            faults = refusal_faults(ended, names, statuses, mode == "CGI")
            if journal_bytes(store) != before:
                faults.append("the journal has changed")
            tally.check(not faults, f"{sentence}, {mode}", f"{faults}, {ended}")


def refusal_faults(
    ended: Ended, names: str, statuses: set[int] | range, cgi: bool
) -> list[str]:
    faults = []
    # That an index is built is no refusal.
    lines = [line for line in ended.stderr.splitlines() if "; building it" not in line]
    if len(lines) != 1 or not ended.stderr.endswith("\n"):
        faults.append(f"{len(lines)} lines on stderr")
    # Each line of CGI, and of no other, ends with the request's id.
    message, ids = re.subn(r" \(request=[0-9a-f]{16}-0\)\n", "\n", ended.stderr)
    if ids != (ended.stderr.count("\n") if cgi else 0):
        faults.append(f"{ids} lines name the request")
    if names not in message:
        faults.append(f"stderr does not name {names}")
    if ended.status not in statuses:
        faults.append(f"exit status {ended.status}")
    if not cgi:
        if ended.stdout:
            faults.append("something on stdout")
        return faults
    try:
        answer = check_length(parse_cgi(ended.stdout))
    except ValueError as error:
        return [*faults, str(error)]
    if not answer.is_error(503, 5006):
        faults.append("not answered 503 with 5006")
    if not (answer.header("Retry-After") or "").isdigit():
        faults.append("no Retry-After")
    return faults


def check_settings(tally: Tally, store: Store) -> None:
    create(store)
    for setting, values in BAD_SETTINGS.items():
        for value in values:
            sentence = f"refused: {setting}={value}"
            check_refused(
                tally, store, sentence, setting, {os.EX_CONFIG}, **{setting: value}
            )
    # The plain CGI environment may hold any value of these, not only ours.
    well = create(store).is_plant("Fern", "indoor")
    tally.check(well, "with good settings the plant is still there")


def check_tokens(tally: Tally, store: Store) -> None:
    create(store)
    good = store.tokens.read_text()

    def refused(sentence: str, status: int = os.EX_CONFIG) -> None:
        check_refused(tally, store, sentence, str(store.tokens), {status})

    store.tokens.unlink()
    refused("refused: no token file")
    digest = good.split()[1]
    bad = {
        "a malformed digest": f"{good}other {digest[:-1]}\n",
        "a digest in upper case": f"other {'A' * 64}\n",
        "a malformed name": f"ot/her {digest}\n",
        "a name of 65 characters": f"{'n' * 65} {digest}\n",
        "a malformed expiry": f"other {digest} tomorrow\n",
        "a line of one word": f"{good}other\n",
        "a name twice": good + good,
        "a digest twice": f"{good}other {digest}\n",
    }
    for what, content in bad.items():
        store.tokens.write_text(content)
        store.tokens.chmod(0o600)
        refused(f"refused: a token file with {what}")
    store.tokens.write_text(good)
    for mode in (0o604, 0o602, 0o601):
        store.tokens.chmod(mode)
        refused(f"refused: a token file of mode {mode:o}")
    store.tokens.chmod(0o640)
    mode = store.tokens.parent.stat().st_mode
    store.tokens.parent.chmod(mode | 0o002)
    refused("refused: a token file in a directory that others can write to")
    store.tokens.parent.chmod(mode)
    sentence = "refused: a token file of another user"
    if os.geteuid() == 0:
        os.chown(store.tokens, NOBODY, -1)
        refused(sentence)
        os.chown(store.tokens, 0, -1)
    else:
        tally.skip(sentence, "only root can give a file away")
    for what, text, mode, status, warning in (
        ("without a token", "# none\n", 0o600, 401, "plant-store token add NAME"),
        ("that its group can write to", good, 0o660, 200, "run: chmod g-w"),
    ):
        store.tokens.write_text(text)
        store.tokens.chmod(mode)
        with responder(store, watched=False) as service:
            with FastCgiPeer(service.socket_path) as peer:
                request = store.request(BODY)
                answer = peer.exchange(fcgi_request(request.items(), BODY))
            log = service.log()
        well = answer.status == status and log.count(warning) == 1
        tally.check(well, f"served with a warning: a token file {what}", (answer, log))
    store.tokens.unlink()
    store.tokens.mkdir(mode=0o700)
    refused("refused: a directory as token file")
    store.tokens.rmdir()
    store.tokens.write_text(good)
    sentence = "refused: a token file that cannot be read"
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        tally.skip(sentence, "root may read anything")
    else:
        store.tokens.chmod(0)
        refused(sentence, os.EX_NOPERM)
    store.tokens.chmod(0o640)
    well = create(store).is_plant("Fern", "indoor")
    tally.check(well, "a token file that a group may read is fine")


def check_directory(tally: Tally, store: Store) -> None:
    missing = store.root / "missing"
    why = "no store here; mount its file system, or make a new store with: plant-store init"
    where = {"PLANT_STORE_DIR": str(missing)}
    sentence = "refused: no store directory"
    check_refused(tally, store, sentence, f"{missing}: {why} {missing}\n", {os.EX_CONFIG}, **where)
    tally.check(not missing.exists(), "a missing store directory is not made")
    missing.mkdir()
    (missing / "lost+found").mkdir()
    sentence = "refused: a file system without a store, as where none is mounted"
    check_refused(tally, store, sentence, f"{missing}: {why} {missing}\n", {os.EX_CONFIG}, **where)
    made = [path.name for path in missing.iterdir()]
    tally.check(made == ["lost+found"], "and no store is begun in it", made)
    file = store.root / "file"
    file.write_text("not a directory\n")
    sentence = "refused: a file as store directory"
    where = {"PLANT_STORE_DIR": str(file)}
    why = f"{file}: cannot open: Not a directory; check its name\n"
    check_refused(tally, store, sentence, why, {os.EX_CONFIG}, **where)
    sentence = "refused: a store directory that cannot be written"
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        tally.skip(sentence, "root may write anywhere")
        return
    create(store)
    paths = [store.dir, *store.dir.rglob("*")]
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    check_refused(tally, store, sentence, str(store.dir), {os.EX_NOPERM})
    for path in paths:
        path.chmod(0o700 if path.is_dir() else 0o600)
    store.journal.chmod(0o400)
    sentence = "refused: a journal that cannot be written"
    check_refused(tally, store, sentence, "Permission denied", {os.EX_NOPERM})
    store.journal.chmod(0o600)
    well = create(store).is_plant("Fern", "indoor")
    tally.check(well, "with its rights restored the store serves again")


def check_version(tally: Tally, store: Store) -> None:
    create(store)
    head, rest = store.journal.read_bytes().split(b"\n", 1)
    uuid = json.loads(head)["store"]
    line = seal(f'{{"plant-store":2,"store":"{uuid}"', uuid)
    store.journal.write_bytes(line + rest)
    shutil.rmtree(store.dir / "index")
    sentence = "refused: a journal of an unknown version"
    check_refused(tally, store, sentence, str(store.journal), {os.EX_CONFIG})


def alter(path: pathlib.Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    if content.count(old) != 1 or len(old) != len(new):
        raise RuntimeError(f"{old!r} is not there once")
    path.write_bytes(content.replace(old, new))


def three_plants(store: Store) -> None:
    for plant_id, name in enumerate(("Fern", "Moss", "Reed"), 1):
        if not create(store, new_plant(plant_id, name)).is_plant(name):
            raise RuntimeError(f"{name} was not created")


def check_damage(tally: Tally, store: Store) -> None:
    three_plants(store)
    good = store.journal.read_bytes()
    header = json.loads(good.split(b"\n", 1)[0])
    damages = {
        "a damaged first plant": (b'"Fern"', b'"Fers"'),
        "a damaged number": (b'{"seq":1,', b'{"seq":7,'),
        "a damaged header": (header["crc"].encode(), b"00000000"),
        "a line that is no JSON": (b'{"seq":1,', b"\0" * 9),
    }
    for what, (old, new) in damages.items():
        # A header's checksum is in the next line, too, as its `prev`.
        at = good.index(old)
        store.journal.write_bytes(good[:at] + new + good[at + len(old):])
        shutil.rmtree(store.dir / "index", ignore_errors=True)
        sentence = f"refused: a journal with {what}"
        check_refused(tally, store, sentence, str(store.journal), {os.EX_DATAERR})
    store.journal.write_bytes(good)
    shutil.rmtree(store.dir / "index", ignore_errors=True)
    well = create(store, new_plant(1, "Fern")).is_plant("Fern")
    tally.check(well, "with its bytes restored the store serves again")


def check_lost_end(tally: Tally, store: Store) -> None:
    """The last page is lost with the power: what an idle service has noted refuses."""
    mark, backup = store.dir / f"{JOURNAL_NAME}.end", store.root / "backup"

    def command(*words: object) -> int:
        program = store.build / "plant-store"
        return subprocess.run([program, *words], env=store.environment(),
                              capture_output=True, timeout=WAIT_S).returncode

    with responder(store, watched=False) as service:
        with FastCgiPeer(service.socket_path) as peer:
            for plant_id in range(50):
                body = new_plant(plant_id, "n" * 100)
                request = fcgi_request(store.request(body).items(), body, keep=True)
                if not peer.exchange(request).is_plant("n" * 100):
                    raise RuntimeError("no plants to begin with")
                if plant_id == 9 and command("backup", backup):
                    raise RuntimeError("no backup to restore")
        tally.check(wait_until(lambda: mark.exists() and mark.stat().st_size > 0),
                    "an idle service writes the end mark")
        service.process.kill()
        service.process.wait()
    whole = store.journal.read_bytes()
    end = len(whole.rstrip(b"\n")) + 1
    sealed, _, crc = mark.read_text().rpartition(" ")
    well = (sealed == f"{json.loads(whole[:82])['store']} {end:020}"
            and crc == f"{crc32c(0, sealed.encode()):08x}\n")
    tally.check(well, "which is as plant-store-journal(5) has it", (sealed, crc, end))
    first = whole.rindex(b"\n", 0, end - 4096) + 1  # the first line that is damaged
    store.journal.write_bytes(whole[:end - 4096] + bytes(4096) + whole[end:])
    boot = store.dir / "index" / "boot"
    boot.write_bytes(b"0" * 36 + boot.read_bytes()[36:])
    sentence = "refused: a journal whose last page was lost with the power"
    check_refused(tally, store, sentence, f"damaged at byte {first}: ", {os.EX_DATAERR})
    status = command("verify", store.dir)
    tally.check(status == os.EX_DATAERR, "and by verify", status)
    tally.check(not list(store.dir.glob("*.torn-*")), "and nothing was cut off as torn")
    # The manual's restore, into a new directory; and its remedy for this one.
    made = [path.name for path in backup.iterdir()]
    tally.check(made == [JOURNAL_NAME], "a backup has no end mark", made)
    tally.check(command("verify", backup) == 0, "and passes verify without", made)
    shutil.copy(backup / JOURNAL_NAME, store.journal)
    sentence = "refused: an earlier copy in the place of a journal"
    check_refused(tally, store, sentence, f"`{mark.name}` beside it first", {os.EX_DATAERR})
    mark.unlink()
    shutil.rmtree(store.dir / "index", ignore_errors=True)
    well = create(store, new_plant(9, "n" * 100)).is_plant("n" * 100)
    tally.check(well and len(store.plants()) == 10, "it serves once the mark is removed")


def remove_index(index: pathlib.Path) -> None:
    shutil.rmtree(index)


def remove_data(index: pathlib.Path) -> None:
    (index / "data.mdb").unlink()


def junk_data(index: pathlib.Path) -> None:
    data = index / "data.mdb"
    data.write_bytes(b"junk" * (data.stat().st_size // 4))


def empty_data(index: pathlib.Path) -> None:
    (index / "data.mdb").write_bytes(b"")


def cut_data(index: pathlib.Path) -> None:
    os.truncate(index / "data.mdb", 5000)


def check_index(tally: Tally, store: Store) -> None:
    three_plants(store)
    before = store.plants()
    harms: dict[str, Callable[[pathlib.Path], None]] = {
        "removed": remove_index,
        "removed but for its directory": remove_data,
        "overwritten with junk": junk_data,
        "emptied": empty_data,
        "cut off": cut_data,
    }
    for what, harm in harms.items():
        with tally.part(f"an index {what}"):
            harm(store.dir / "index")
            conflict = create(store, new_plant(2, "Sedge"))
            same = create(store, new_plant(1, "Fern"))
            well = conflict.is_error(409, 5001) and same.is_plant("Fern")
            tally.check(well, f"an index {what} heals by itself", (conflict, same))
            plants = store.plants()
            sentence = f"an index {what} changes no plant"
            tally.check(plants == before, sentence, plants)


def check_by_hand(tally: Tally, store: Store) -> None:
    for option in ("--help", "--version"):
        done = subprocess.run(
            [store.responder, option],
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=WAIT_S,
        )
        well = done.returncode == 0 and done.stdout and not done.stderr
        tally.check(bool(well), f"{option} is answered", done)
    done = run_cgi([store.responder], store.environment())
    well = done.returncode == os.EX_USAGE and b"--help" in done.stderr
    tally.check(well and not done.stdout, "started by hand it tells of its help", done)
    sentence = "an unknown option is refused with the usage"
    done = run_cgi([store.responder, "--frobnicate"], store.environment())
    tally.check(done.returncode == os.EX_USAGE and bool(done.stderr), sentence, done)


def serves_with(store: Store, limit: str) -> bool:
    """Whether it serves with the limit; else it says that descriptors are few."""
    path = store.root / "start.sock"
    path.unlink(missing_ok=True)
    body = new_plant(2, "Moss")
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen()
        peer = stack.enter_context(FastCgiPeer(path))
        process = subprocess.Popen(
            ["prlimit", limit, "--", store.responder],
            env=store.environment(),
            stdin=listener,
            stderr=subprocess.PIPE,
        )
        # Nobody else answers the peer when the process ends.
        listener.close()
        try:
            answer = peer.exchange(fcgi_request(store.request(body).items(), body))
        except ConnectionError:
            answer = None
        process.terminate()
        log = process.communicate(timeout=WAIT_S)[1]
    if answer is None and process.returncode and log.count(b"oo many open files") == 1:
        return False
    if answer and answer.is_plant("Moss") and process.returncode == 0:
        return True
    raise RuntimeError(f"{limit}: {answer}, {process.returncode}, {log!r}")


def check_descriptors(tally: Tally, store: Store) -> None:
    create(store)
    serves = [serves_with(store, f"--nofile={limit}") for limit in DESCRIPTORS]
    well = serves == sorted(serves) and len(set(serves)) == 2
    tally.check(well, "with too few descriptors it refuses to start", serves)


def check_address_space(tally: Tally, store: Store) -> None:
    if "-fsanitize" in (store.build / "command").read_text():
        tally.skip("1 GiB of address space", "a sanitizer needs more")
        return
    create(store)
    well = serves_with(store, f"--as={1 << 30}")
    tally.check(well, "1 GiB of address space is enough to serve")


def scenario(tally: Tally, build_dir: str) -> None:
    parts = (
        check_settings,
        check_tokens,
        check_directory,
        check_version,
        check_damage,
        check_lost_end,
        check_index,
        check_by_hand,
        check_descriptors,
        check_address_space,
    )
    for part in parts:
        with tally.part(part.__name__), temporary_store(build_dir) as store:
            part(tally, store)


if __name__ == "__main__":
    sys.exit(main(scenario))
