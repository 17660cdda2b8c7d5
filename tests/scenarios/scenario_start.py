"""Goal: what cannot start well says why in one line and touches no plant.

usage: scenario_start.py BUILD_DIR

Each failure is met by the responder as plain CGI and on a FastCGI socket.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable

from lib_service import (
    JOURNAL_NAME, WAIT_S, Answer, FastCgiPeer, Store, Tally, check_length, crc32c, listening, main,
    new_plant, parse_cgi, responder, run, seal, temporary_store, wait_until,
)

NOBODY = 65534
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
    "PLANT_STORE_SANDBOX": ["no", "Off"],
}


def command_of(store: Store) -> list[str | pathlib.Path]:
    """The responder; without root's right to pass over the modes of files."""
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        return [store.responder]
    lost = "-dac_override,-dac_read_search"
    return [setpriv, f"--inh-caps={lost}", f"--bounding-set={lost}", store.responder]


def run_as_cgi(
    store: Store, environment: dict[str, str], body: bytes = BODY
) -> subprocess.CompletedProcess:
    return run(*command_of(store), env=environment | store.request(body), input=body)


def run_as_fastcgi(store: Store, environment: dict[str, str]) -> subprocess.CompletedProcess:
    """With a listening socket as standard input, which must not last."""
    with listening(store.root / "start.sock") as listener:
        return run(*command_of(store), env=environment, stdin=listener)


def journal_bytes(store: Store) -> bytes | None:
    with contextlib.suppress(OSError):
        return store.journal.read_bytes()
    return None


def create(store: Store, body: bytes = BODY) -> Answer:
    """Create a plant by CGI, which must end well."""
    ended = run_as_cgi(store, store.environment(), body)
    if ended.returncode:
        raise RuntimeError(f"not created: {ended}")
    return check_length(parse_cgi(ended.stdout))


def check_created(tally: Tally, store: Store, sentence: str) -> None:
    answer = create(store)
    tally.check(answer.is_plant("Fern", "indoor"), sentence, answer)


def check_refused(
    tally: Tally, store: Store, sentence: str, names: str, status: int = os.EX_CONFIG,
    **settings: str
) -> None:
    """Neither CGI nor FastCGI starts, and both name what is wrong."""
    environment = store.environment(**settings)
    before = journal_bytes(store)
    for mode, start in ("CGI", run_as_cgi), ("FastCGI", run_as_fastcgi):
        sentence_of_mode = f"refused: {sentence}, {mode}"
        with tally.part(sentence_of_mode):
            ended = start(store, environment)
            faults = refusal_faults(ended, names, mode == "CGI")
            if ended.returncode != status:
                faults.append("the exit status")
            if journal_bytes(store) != before:
                faults.append("the journal has changed")
            tally.check(not faults, sentence_of_mode, f"{faults}, {ended}")


def refusal_faults(ended: subprocess.CompletedProcess, names: str, cgi: bool) -> list[str]:
    faults = []
    said = ended.stderr.decode(errors="replace")
    # That an index is built is no refusal.
    lines = [line for line in said.splitlines() if "; building it" not in line]
    if len(lines) != 1 or not said.endswith("\n"):
        faults.append(f"{len(lines)} lines on stderr")
    # Each line of CGI, and of no other, ends with the request's id.
    message, ids = re.subn(r" \(request=[0-9a-f]{16}-0\)\n", "\n", said)
    if ids != (said.count("\n") if cgi else 0):
        faults.append(f"{ids} lines name the request")
    if names not in message:
        faults.append(f"stderr does not name {names}")
    if not cgi:
        return faults + ["something on stdout"] * bool(ended.stdout)
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
            check_refused(tally, store, f"{setting}={value}", setting, **{setting: value})
    # The plain CGI environment may hold any value of these, not only ours.
    check_created(tally, store, "with good settings the plant is still there")


def check_tokens(tally: Tally, store: Store) -> None:
    create(store)
    good = store.tokens.read_text()

    def refused(sentence: str, status: int = os.EX_CONFIG) -> None:
        check_refused(tally, store, sentence, str(store.tokens), status)

    store.tokens.unlink()
    refused("no token file")
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
        refused(f"a token file with {what}")
    store.tokens.write_text(good)
    for mode in (0o604, 0o602, 0o601):
        store.tokens.chmod(mode)
        refused(f"a token file of mode {mode:o}")
    store.tokens.chmod(0o640)
    mode = store.tokens.parent.stat().st_mode
    store.tokens.parent.chmod(mode | 0o002)
    refused("a token file in a directory that others can write to")
    store.tokens.parent.chmod(mode)
    sentence = "a token file of another user"
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
            answer = store.ask(service.socket_path, BODY)
            log = service.log()
        well = answer.status == status and log.count(warning) == 1
        tally.check(well, f"served with a warning: a token file {what}", (answer, log))
    store.tokens.unlink()
    store.tokens.mkdir(mode=0o700)
    refused("a directory as token file")
    store.tokens.rmdir()
    store.tokens.write_text(good)
    sentence = "a token file that cannot be read"
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        tally.skip(sentence, "root may read anything")
    else:
        store.tokens.chmod(0)
        refused(sentence, os.EX_NOPERM)
    store.tokens.chmod(0o640)
    check_created(tally, store, "a token file that a group may read is fine")


def check_directory(tally: Tally, store: Store) -> None:
    missing = store.root / "missing"
    why = "no store here; mount its file system, or make a new store with: plant-store init"
    where = {"PLANT_STORE_DIR": str(missing)}
    sentence = "no store directory"
    check_refused(tally, store, sentence, f"{missing}: {why} {missing}\n", **where)
    tally.check(not missing.exists(), "a missing store directory is not made")
    missing.mkdir()
    (missing / "lost+found").mkdir()
    sentence = "a file system without a store, as where none is mounted"
    check_refused(tally, store, sentence, f"{missing}: {why} {missing}\n", **where)
    made = [path.name for path in missing.iterdir()]
    tally.check(made == ["lost+found"], "and no store is begun in it", made)
    file = store.root / "file"
    file.write_text("not a directory\n")
    sentence = "a file as store directory"
    where = {"PLANT_STORE_DIR": str(file)}
    why = f"{file}: cannot open: Not a directory; check its name\n"
    check_refused(tally, store, sentence, why, **where)
    sentence = "a store directory that cannot be written"
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        tally.skip(sentence, "root may write anywhere")
        return
    create(store)
    paths = [store.dir, *store.dir.rglob("*")]
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    check_refused(tally, store, sentence, str(store.dir), os.EX_NOPERM)
    for path in paths:
        path.chmod(0o700 if path.is_dir() else 0o600)
    store.journal.chmod(0o400)
    sentence = "a journal that cannot be written"
    check_refused(tally, store, sentence, "Permission denied", os.EX_NOPERM)
    store.journal.chmod(0o600)
    check_created(tally, store, "with its rights restored the store serves again")


def check_owner(tally: Tally, store: Store) -> None:
    """In its sandbox, root has no right to another user's store."""
    sentence = "root does not serve another user's store"
    if tally.lacks(sentence, "root"):
        return

    def files() -> list[tuple[str, int]]:
        return sorted((path.name, path.stat().st_uid) for path in store.dir.rglob("*"))

    for path in (store.dir, *store.dir.rglob("*")):
        os.chown(path, NOBODY, -1)
    before = files()
    with listening(store.root / "start.sock") as listener:
        done = run(store.responder, env=store.environment(), stdin=listener)
    names = f"{store.dir}: belongs to user {NOBODY}, "
    faults = refusal_faults(done, names, cgi=False)
    well = not faults and done.returncode == os.EX_NOPERM and files() == before
    tally.check(well, sentence, f"{faults}, {done}, {files()}")


def check_version(tally: Tally, store: Store) -> None:
    create(store)
    head, rest = store.journal.read_bytes().split(b"\n", 1)
    uuid = json.loads(head)["store"]
    line = seal(f'{{"plant-store":2,"store":"{uuid}"', uuid)
    store.journal.write_bytes(line + rest)
    shutil.rmtree(store.dir / "index")
    sentence = "a journal of an unknown version"
    check_refused(tally, store, sentence, str(store.journal))


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
        sentence = f"a journal with {what}"
        check_refused(tally, store, sentence, str(store.journal), os.EX_DATAERR)
    store.journal.write_bytes(good)
    shutil.rmtree(store.dir / "index", ignore_errors=True)
    well = create(store, new_plant(1, "Fern")).is_plant("Fern")
    tally.check(well, "with its bytes restored the store serves again")


def check_lost_end(tally: Tally, store: Store) -> None:
    """The last page is lost with the power: what an idle service has noted refuses."""
    mark, backup = store.dir / f"{JOURNAL_NAME}.end", store.root / "backup"

    def command(*words: object) -> int:
        return store.command(*words).returncode

    def is_marked() -> bool:
        """Up to the end: an idle moment before that has left an earlier mark."""
        end = len(store.journal.read_bytes().rstrip(b"\n")) + 1
        return mark.exists() and f" {end:020} " in mark.read_text()

    with responder(store, watched=False) as service:
        with FastCgiPeer(service.socket_path) as peer:
            for plant_id in range(50):
                body = new_plant(plant_id, "n" * 100)
                if not peer.exchange(store.fcgi(body, keep=True)).is_plant("n" * 100):
                    raise RuntimeError("no plants to begin with")
                if plant_id == 9 and command("backup", backup):
                    raise RuntimeError("no backup to restore")
        tally.check(wait_until(is_marked), "an idle service writes the end mark")
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
    shutil.rmtree(store.dir / "index")
    sentence = "a journal whose last page was lost with the power"
    check_refused(tally, store, sentence, f"damaged at byte {first}: ", os.EX_DATAERR)
    status = command("verify", store.dir)
    tally.check(status == os.EX_DATAERR, "and by verify", status)
    tally.check(not list(store.dir.glob("*.torn-*")), "and nothing was cut off as torn")
    # The manual's restore, into a new directory; and its remedy for this one.
    made = [path.name for path in backup.iterdir()]
    tally.check(made == [JOURNAL_NAME], "a backup has no end mark", made)
    tally.check(command("verify", backup) == 0, "and passes verify without", made)
    shutil.copy(backup / JOURNAL_NAME, store.journal)
    sentence = "an earlier copy in the place of a journal"
    check_refused(tally, store, sentence, f"`{mark.name}` beside it first", os.EX_DATAERR)
    mark.unlink()
    shutil.rmtree(store.dir / "index", ignore_errors=True)
    well = create(store, new_plant(9, "n" * 100)).is_plant("n" * 100)
    tally.check(well and len(store.plants()) == 10, "it serves once the mark is removed")


def junk(data: pathlib.Path) -> None:
    data.write_bytes(b"junk" * (data.stat().st_size // 4))


# What happens to the index's file.
HARMS: dict[str, Callable[[pathlib.Path], object]] = {
    "removed": lambda data: shutil.rmtree(data.parent),
    "removed but for its directory": lambda data: data.unlink(),
    "overwritten with junk": junk,
    "emptied": lambda data: data.write_bytes(b""),
    "cut off": lambda data: os.truncate(data, 500),
}


def check_index(tally: Tally, store: Store) -> None:
    three_plants(store)
    before = store.plants()
    for what, harm in HARMS.items():
        with tally.part(f"an index {what}"):
            harm(store.dir / "index" / "manifest")
            conflict = create(store, new_plant(2, "Sedge"))
            same = create(store, new_plant(1, "Fern"))
            well = conflict.is_error(409, 5001) and same.is_plant("Fern")
            tally.check(well, f"an index {what} heals by itself", (conflict, same))
            plants = store.plants()
            tally.check(plants == before, f"an index {what} changes no plant", plants)


def check_by_hand(tally: Tally, store: Store) -> None:
    for option in ("--help", "--version"):
        done = run(store.responder, option, env={})
        well = done.returncode == 0 and done.stdout and not done.stderr
        tally.check(bool(well), f"{option} is answered", done)
    done = run(store.responder, env=store.environment())
    well = done.returncode == os.EX_USAGE and b"--help" in done.stderr
    tally.check(well and not done.stdout, "started by hand it tells of its help", done)
    done = run(store.responder, "--frobnicate", env=store.environment())
    tally.check(done.returncode == os.EX_USAGE and bool(done.stderr),
                "an unknown option is refused with the usage", done)


def serves_with(store: Store, limit: str) -> bool:
    """Whether it serves with the limit; else it says that descriptors are few."""
    path = store.root / "start.sock"
    with listening(path) as listener, FastCgiPeer(path) as peer:
        process = subprocess.Popen(
            ["prlimit", limit, "--", store.responder], env=store.environment(), stdin=listener,
            stderr=subprocess.PIPE)
        # Nobody else answers the peer when the process ends.
        listener.close()
        try:
            answer = peer.exchange(store.fcgi(new_plant(2, "Moss")))
        except ConnectionError:
            answer = None
        process.terminate()
        log = process.communicate(timeout=WAIT_S)[1]
    # Besides, the index may wait for room to be written.
    cause = [line for line in log.splitlines() if b"oo many open files" in line
             and b"index: cannot write" not in line]
    if answer is None and process.returncode and len(cause) == 1:
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
    tally.check(serves_with(store, f"--as={1 << 30}"), "1 GiB of address space is enough to serve")


def scenario(tally: Tally, build_dir: str) -> None:
    parts = (
        check_settings, check_tokens, check_directory, check_owner, check_version,
        check_damage, check_lost_end, check_index, check_by_hand, check_descriptors, check_address_space,
    )
    for part in parts:
        with tally.part(part.__name__), temporary_store(build_dir) as store:
            part(tally, store)


if __name__ == "__main__":
    sys.exit(main(scenario))
