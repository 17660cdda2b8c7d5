"""Goal: a service that is taken over gets no further than its store.

usage: scenario_sandbox.py BUILD_DIR

A preloaded library makes the calls of an attacker once the service serves.
"""

import contextlib
import errno
import fcntl
import os
import pathlib
import re
import shutil
import signal
import socket
import sys

from lib_service import (
    WAIT_S,
    FastCgiPeer,
    Responder,
    Store,
    Tally,
    fcgi_request,
    listening,
    main,
    new_plant,
    responder,
    start,
    stop_process,
    temporary_store,
    wait_until,
)


from lib_faults import compile_shim  # noqa: E402

KILLED = -signal.SIGSYS
AT_CWD = -100
STORED = os.O_CREAT | os.O_WRONLY
PTRACE_TRACEME = 0
F_SETOWN_EX = 15
# What the log says of a restriction that is missing.
OPEN = re.compile("is accessible|are unrestricted")
# A call, and its errno, 0, or the status of the process that it ends.  ROOT has
# the token file, and the store in its directory.
PROBES = (
    ("reads a file of its user", f"openat {AT_CWD} /etc/passwd 0", errno.EACCES),
    ("reads a file of another process", f"openat {AT_CWD} /proc/1/environ 0", errno.EACCES),
    ("lists the root", f"openat {AT_CWD} / 0", errno.EACCES),
    ("reads the token file", f"openat {AT_CWD} ROOT/tokens 0", 0),
    ("writes to the token file", f"openat {AT_CWD} ROOT/tokens {os.O_WRONLY}", errno.EACCES),
    ("empties the token file", f"openat {AT_CWD} ROOT/tokens {os.O_TRUNC}", errno.ENOSYS),
    ("truncates the token file", "truncate ROOT/tokens 0", errno.ENOSYS),
    ("removes the token file", f"unlinkat {AT_CWD} ROOT/tokens 0", errno.EACCES),
    ("replaces the token file", f"renameat {AT_CWD} ROOT/store/plants.jsonl {AT_CWD} ROOT/tokens",
     errno.EACCES),
    ("makes a file beside the token file", f"openat {AT_CWD} ROOT/new {STORED} 384", errno.EACCES),
    ("makes a directory elsewhere", f"mkdirat {AT_CWD} /tmp/plant-store 448", errno.EACCES),
    ("makes a file in the store", f"openat {AT_CWD} ROOT/store/new {STORED} 384", 0),
    ("lets others into the store", f"chmod ROOT/store {0o777}", errno.ENOSYS),
    ("runs a program", "execve /bin/true 0 0", KILLED),
    ("runs a program by its directory", f"execveat {AT_CWD} /bin/true 0 0 0", KILLED),
    ("traces", f"ptrace {PTRACE_TRACEME} 0 0 0", KILLED),
    ("makes a socket of the network", f"socket {socket.AF_INET} {socket.SOCK_STREAM} 0", KILLED),
    ("makes a socket to connect to a local server",
     f"socket {socket.AF_UNIX} {socket.SOCK_STREAM} 0", errno.ENOSYS),
    ("makes a socket for syslog",
     f"socket {socket.AF_UNIX} {socket.SOCK_DGRAM | socket.SOCK_CLOEXEC} 0", 0),
    ("forks", f"clone {int(signal.SIGCHLD)} 0 0 0 0", errno.ENOSYS),
    ("signals another process", "kill 1 0", errno.ENOSYS),
    ("has the kernel signal another process", f"fcntl 0 {fcntl.F_SETOWN} 1", errno.ENOSYS),
    ("has the kernel signal a thread", f"fcntl 0 {F_SETOWN_EX} 0", errno.ENOSYS),
    ("chooses the signal", f"fcntl 0 {fcntl.F_SETSIG} {int(signal.SIGKILL)}", errno.ENOSYS),
    ("hides a command in the upper half", f"fcntl 0 {1 << 32 | fcntl.F_SETOWN} 1", errno.ENOSYS),
    ("becomes another user", "setuid 65534", errno.ENOSYS),
    ("makes a name space", "unshare 0x10000000", errno.ENOSYS),
    ("aborts", "abort", -signal.SIGABRT),
)


def send(store: Store, service: Responder, plant_id: int) -> int:
    """The status of a plant's answer; 0 if there was none."""
    body = new_plant(plant_id, "Fern")
    with FastCgiPeer(service.socket_path) as peer, contextlib.suppress(OSError):
        return peer.exchange(fcgi_request(store.request(body).items(), body)).status
    return 0


def outcome(store: Store, call: str) -> object:
    """The errno of a call, 0, or the status of the process that it ended."""
    path, log = store.root / "probe.sock", store.root / "probe.log"
    log.write_bytes(b"")
    environment = store.environment(
        LD_PRELOAD=str(compile_shim(store.build, "probe")),
        PROBE=call.replace("ROOT", str(store.root)),
        PLANT_STORE_THREADS="1",  # so that it comes before the answer
    )
    answered = 0
    # Connected before it starts: one that has died has no listener.
    with listening(path) as listener, FastCgiPeer(path) as peer:
        process = start([store.responder], log, env=environment, stdin=listener)
        listener.close()
        with contextlib.suppress(OSError):
            answered = peer.exchange(store.fcgi(new_plant(1, "Fern"))).status
    status = stop_process(process) if answered else process.wait(WAIT_S)
    if not answered:
        return status
    said = log.read_text(errors="replace")
    found = re.search(r"^probe: \S+ (\d+)$", said, re.MULTILINE)
    return int(found[1]) if found and (answered, status) == (200, 0) else f"{answered}, {said}"


def check_probes(tally: Tally, store: Store) -> None:
    for what, call, wanted in PROBES:
        got = outcome(store, call)
        how = "can" if wanted in (0, -signal.SIGABRT) else "cannot"
        end = " and dies" if wanted == KILLED else ""
        tally.check(got == wanted, f"{how}, once it serves: it {what}{end}", got)
        (store.dir / "new").unlink(missing_ok=True)


def seccomp_here() -> str:
    """As a container may begin each process with a filter of its own."""
    return re.search(r"^Seccomp:\s*(\d)$", pathlib.Path("/proc/self/status").read_text(), re.M)[1]


def states(service: Responder) -> set[tuple[str, ...]]:
    """What the kernel has of its threads."""
    found = set()
    for task in pathlib.Path(f"/proc/{service.process.pid}/task").iterdir():
        status = dict(re.findall(r"^(\w+):\s*(\S+)$", (task / "status").read_text(), re.M))
        found.add(tuple(status[name] for name in ("NoNewPrivs", "Seccomp", "CapPrm", "CapEff")))
    return found


def check_state(tally: Tally, store: Store) -> None:
    none = "0" * 16
    with responder(store, watched=False) as service:
        well = send(store, service, 1) == 200 and states(service) == {("1", "2", none, none)}
        tally.check(well, "no thread has a capability, nor gets new rights", states(service))
        quiet = not OPEN.search(service.log())
        tally.check(quiet, "and nothing is said of that", service.log())
    service.log_path.write_bytes(b"")
    with responder(store, watched=False, PLANT_STORE_SANDBOX="off") as service:
        log = service.log() if send(store, service, 1) == 200 else ""
        seccomp = {state[:2] for state in states(service)}
    well = log.count("PLANT_STORE_SANDBOX=off: this process") == 1 and seccomp == {("0", seccomp_here())}
    tally.check(well, "off is off, and one line of the log says so", (log, seccomp))


def check_missing(tally: Tally, store: Store) -> None:
    """A kernel without a part of it, by strace."""
    strace = shutil.which("strace")
    for call, error, what, seccomp in (
        ("landlock_create_ruleset", "ENOSYS", "landlock", "2"),
        ("landlock_create_ruleset", "EOPNOTSUPP", "landlock", "2"),
        ("seccomp", "ENOSYS", "seccomp", seccomp_here()),
    ):
        sentence = f"without {call} ({error}) one line says so, and the rest holds"
        if strace is None:
            tally.skip(sentence, "no strace")
            continue
        tracer = (strace, "-D", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}",
                  "-e", f"inject={call}:error={error}")
        (store.root / "responder.log").write_bytes(b"")
        with responder(store, watched=False, tracer=tracer) as service:
            log = service.log() if send(store, service, 1) == 200 else ""
            found = {state[:2] + state[3:] for state in states(service)}
        well = log.count(f"{what} is not supported") == len(OPEN.findall(log)) == 1
        well = well and found == {("1", seccomp, "0" * 16)}
        tally.check(well, sentence, (log, found))


def check_tokens(tally: Tally, store: Store) -> None:
    """The token file is found where a link leads, and when it is replaced there."""
    there = store.root / "secrets"
    for folder in there, store.root / "etc":
        folder.mkdir(mode=0o700)
    path = there / "tokens"
    path.write_text(store.tokens.read_text())
    path.chmod(0o600)
    link = store.root / "etc" / "tokens"
    link.symlink_to(path)
    with responder(store, watched=False, PLANT_STORE_TOKENS=str(link)) as service:
        well = send(store, service, 1) == 200
        new = there / "tokens.new"
        new.write_text("# none\n")
        new.chmod(0o600)
        new.rename(path)
        revoked = wait_until(lambda: send(store, service, 1) == 401)
    tally.check(well and revoked, "a token file behind a link is read again", service.log())


def check_places(tally: Tally, store: Store) -> None:
    """A token file in a place that opens more than it is told, also behind a link."""
    inside, link = store.dir / "own" / "tokens", store.root / "link"
    inside.parent.mkdir(mode=0o700)
    inside.write_text(store.tokens.read_text())
    inside.chmod(0o600)
    link.symlink_to(inside)
    words = f"{inside.parent}: holds the token file, so the service can write to it"
    for path, words in (inside, words), (link, words), (store.tokens, ""):
        (store.root / "responder.log").write_bytes(b"")
        with responder(store, watched=False, PLANT_STORE_TOKENS=str(path)) as service:
            well = send(store, service, 1) == 200 and words in service.log()
            tally.check(well and bool(words) == service.log().count("holds the token file"),
                        f"a token file in the store is warned of, one beside it not: {path.name}",
                        service.log())
    top = pathlib.Path("/plant-store-test-tokens")
    if tally.lacks("a token file in /", "root"):
        return
    try:
        top.write_text(store.tokens.read_text())
        top.chmod(0o600)
        with responder(store, watched=False, PLANT_STORE_TOKENS=str(top)) as service:
            well = send(store, service, 1) == 200
            tally.check(well and "/: holds the token file, so the service can read all" in service.log(),
                        "one in / is warned of", service.log())
    finally:
        top.unlink()


def scenario(tally: Tally, build_dir: str) -> None:
    with temporary_store(build_dir) as store:
        if "-DNO_SANDBOX" in (store.build / "command").read_text():
            with responder(store, watched=False) as service:
                well = send(store, service, 1) == 200 and {s[1] for s in states(service)} == {"0"}
            tally.check(well, "a build for sanitizers or coverage has no sandbox")
            return
    for part in check_probes, check_state, check_missing, check_tokens, check_places:
        with tally.part(part.__name__), temporary_store(build_dir) as store:
            part(tally, store)


if __name__ == "__main__":
    sys.exit(main(scenario))
