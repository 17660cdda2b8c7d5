"""Goal: what cannot start well says why in one line and touches no plant.

usage: scenario_start.py BUILD_DIR

Each kind of failure is met by the responder as plain CGI and on a FastCGI socket.  What
is malformed is in test_config's and test_tokens' tables, what is damaged in damage.py.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

from lib_service import (
    WAIT_S, Answer, FastCgiPeer, Store, Tally, check_length, listening, main, new_plant, parse_cgi,
    responder, run, temporary_store,
)

NOBODY = 65534
BODY = new_plant(1, "Fern", "indoor")

# From what the dynamic linker needs to more than enough.
DESCRIPTORS = range(5, 21)


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


def lacks_a_user(tally: Tally, sentence: str) -> bool:
    """Whether this place has none for whom a mode counts."""
    lacks = os.geteuid() == 0 and not shutil.which("setpriv")
    if lacks:
        tally.skip(sentence, "root may read and write anything")
    return lacks


def check_files(tally: Tally, store: Store) -> None:
    """A bad setting, and a token file of each kind of fault."""
    create(store)
    good = store.tokens.read_text()
    sentence = "a setting that is none of its words"
    check_refused(tally, store, sentence, "PLANT_STORE_STATUS", PLANT_STORE_STATUS="teapot")

    def refused(sentence: str, status: int = os.EX_CONFIG) -> None:
        check_refused(tally, store, sentence, str(store.tokens), status)

    store.tokens.unlink()
    refused("no token file")
    store.tokens.write_text(good + "other\n")
    store.tokens.chmod(0o600)
    refused("a malformed token file")
    store.tokens.write_text(good)
    store.tokens.chmod(0o604)
    refused("a token file that others can read")
    if not lacks_a_user(tally, "a token file that cannot be read"):
        store.tokens.chmod(0)
        refused("a token file that cannot be read", os.EX_NOPERM)
    store.tokens.chmod(0o640)
    check_created(tally, store, "a token file that a group may read is fine")
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


def check_directory(tally: Tally, store: Store) -> None:
    missing = store.root / "missing"
    why = "no store here; mount its file system, or create a new store with: plant-store init"
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
    if lacks_a_user(tally, sentence):
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
        check_files, check_directory, check_owner, check_by_hand, check_descriptors,
        check_address_space,
    )
    for part in parts:
        with tally.part(part.__name__), temporary_store(build_dir) as store:
            part(tally, store)


if __name__ == "__main__":
    sys.exit(main(scenario))
