#!/usr/bin/env python3
"""Goal: the Debian package keeps what it promises, in a fresh Debian of its own.

The package is built, checked with lintian, and installed, used, upgraded, removed
and purged in a new root directory, whose only packages are Debian's essential ones,
apt, and what the package itself depends on.  All that is started or mounted there is
in namespaces which end with this test, however it ends.
"""

import concurrent.futures
import contextlib
import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator

from lib_service import (
    JOURNAL_NAME,
    TOP,
    HttpClient,
    Tally,
    answer_body,
    children_of,
    free_port,
    listens,
    main,
    read_journal,
    wait_until,
)

# In a chroot there is no systemd to ask, and nothing may start by itself.
POLICY = "#!/bin/sh\nexit 101\n"
STEP_S = 300.0  # mostly the network's
SILENT_S = 30.0
STOP_S = 10.0
SOCKET = "/run/plant-store/socket"
RESPONDER = "exec /usr/share/plant-store/plant-store-start"

clock = time.monotonic()


def lap(what: str) -> None:
    """Say how long the part took that ends here."""
    global clock
    now = time.monotonic()
    print(f"# {what}: {now - clock:.1f} s", flush=True)
    clock = now


def run(*command: object, **options: object) -> subprocess.CompletedProcess:
    """Run to its end; its output, both kinds in one, is kept."""
    return subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=STEP_S,
        **options,
    )


def needed(*command: object, **options: object) -> str:
    """The same, of something without which the test cannot go on."""
    done = run(*command, **options)
    if done.returncode:
        raise RuntimeError(f"{command}: status {done.returncode}: {done.stdout}")
    return done.stdout


# --- make install ----------------------------------------------------------------


def tree(root: pathlib.Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def check_install(tally: Tally, build: pathlib.Path, work: pathlib.Path) -> None:
    root = work / "install"
    there = {"opt", "opt/ps", "opt/ps/bin", "opt/ps/bin/other", "opt/ps/share"}
    for path in sorted(there - {"opt/ps/bin/other"}):
        (root / path).mkdir(parents=True)
    (root / "opt/ps/bin/other").touch()

    def make(target: str) -> None:
        needed("make", "-s", "-C", TOP, f"BUILD={build}", f"DESTDIR={root}",
               "PREFIX=/opt/ps", target)

    make("install")
    made = tree(root) - there
    expected = {"bin/plant-store", "libexec/plant-store.fcgi",
                "share/doc/plant-store/LICENSE", "share/doc/plant-store/README.md",
                "share/plant-store/www/openapi.json",
                "share/bash-completion/completions/plant-store"}
    if (build / "docs").is_dir():
        expected.add("share/plant-store/docs/index.html")
    missing = expected - {path.removeprefix("opt/ps/") for path in made}
    tally.check(not missing, "install: everything is in its place", missing)
    outside = [path for path in made if not path.startswith("opt/ps/")]
    tally.check(not outside, "install: nothing is outside of the prefix", outside)
    wrong = [
        str(path) for path in root.rglob("*")
        if path.is_file() and path.name != "README.md" and "bin" not in path.parts
        and path.suffix not in (".fcgi", ".md") and b"/usr/local" in path.read_bytes()
    ]
    tally.check(not wrong, "install: no installed file names another prefix", wrong)
    make("install")
    make("uninstall")
    left = tree(root)
    tally.check(left == there, "uninstall: what was there is all that is left",
                left ^ there)


# --- Building --------------------------------------------------------------------


def version() -> str:
    found = re.search(r"^VERSION := (\S+)$", (TOP / "Makefile").read_text(), re.M)
    return found[1]


def build_package(folder: pathlib.Path, number: str) -> pathlib.Path:
    needed("make", "-s", "-C", TOP, f"BUILD={folder}", f"VERSION={number}", "deb")
    (package,) = folder.glob("deb/plant-store_*.deb")
    return package


def check_lint(tally: Tally, package: pathlib.Path) -> None:
    (changes,) = package.parent.glob("*.changes")
    if shutil.which("npm"):
        files = needed("dpkg-deb", "--contents", package)
        tally.check("/docs/swagger-ui-bundle.js\n" in files, "the package has the page",
                    files)
    lint = run("lintian", "--allow-root", "--fail-on", "error,warning", changes)
    tally.check(lint.returncode == 0, "lintian finds no error and no warning",
                lint.stdout)


# --- A root of its own -----------------------------------------------------------


def debian_sources(codename: str) -> list[str]:
    """Where this machine has its Debian from; not what else it may have."""
    etc = pathlib.Path("/etc/apt")
    files = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*.list")),
             *sorted((etc / "sources.list.d").glob("*.sources"))]
    suite = re.compile(rf"^[^#]*\b{codename}\b", re.M)
    return [str(file) for file in files if file.is_file() and
            suite.search(file.read_text())]


def make_root(work: pathlib.Path) -> pathlib.Path:
    release = needed("sh", "-c", ". /etc/os-release; echo $VERSION_CODENAME").strip()
    # How this machine reaches its mirror.
    asked = ("Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::Retries")
    options = work / "apt.conf"
    options.write_text("".join(
        line for line in needed("apt-config", "dump").splitlines(True)
        if line.startswith(asked)
    ))
    root = work / "root"
    needed(
        "mmdebstrap", "--quiet", "--mode=root", "--variant=apt",
        "--skip=cleanup/apt/lists", f"--aptopt={options}",
        "--dpkgopt=force-unsafe-io", release, root, *debian_sources(release),
    )
    (root / "usr/sbin/policy-rc.d").write_text(POLICY)
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    (root / "debs").mkdir()
    return root


class Chroot:
    """Runs commands in the root, each in namespaces of its own.

    The kernel ends a namespace's processes and mounts with its first process, and
    that one with whoever waits for it.
    """

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/root",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        for name in ("http_proxy", "https_proxy", "no_proxy"):
            if name in os.environ:
                self.environment[name] = os.environ[name]

    def command(self, script: str) -> list[str]:
        return [
            "setpriv", "--pdeathsig", "KILL",
            "unshare", "--mount", "--pid", "--fork", "--kill-child", "--",
            "sh", "-c", 'mount -t proc proc "$1/proc" && exec chroot "$1" sh -c "$2"',
            "sh", str(self.root), script,
        ]

    def run(self, script: str) -> subprocess.CompletedProcess:
        return run(*self.command(script), env=self.environment)

    def needed(self, script: str) -> str:
        return needed(*self.command(script), env=self.environment)

    def apt(self, *words: str) -> str:
        return self.needed(f"apt-get -y --no-install-recommends {' '.join(words)}")

    def add(self, package: pathlib.Path) -> str:
        shutil.copy(package, self.root / "debs")
        return self.apt("install", f"/debs/{package.name}")

    def path(self, name: str) -> pathlib.Path:
        return self.root / name.lstrip("/")

    @contextlib.contextmanager
    def started(self, script: str, address: object) -> Iterator[None]:
        """A program that stays, from when it listens until it is terminated."""
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(
                self.command(script), env=self.environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log,
            )
            try:
                if not wait_until(
                    lambda: process.poll() is not None or listens(address), STOP_S
                ) or process.poll() is not None:
                    log.seek(0)
                    raise RuntimeError(f"it does not start: {log.read()}")
                yield
            finally:
                for child in children_of(process.pid):
                    os.kill(child, signal.SIGTERM)
                try:
                    process.wait(STOP_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def answer_at_terminal(self, script: str, prompt: str, answer: str) -> str:
        """Run it on a terminal, where somebody answers; what the terminal shows."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 50, 100, 0, 0))
        environment = {**self.environment, "DEBIAN_FRONTEND": "teletype", "TERM": "dumb"}
        process = subprocess.Popen(self.command(script), env=environment, stdin=slave,
                                   stdout=slave, stderr=slave, start_new_session=True)
        os.close(slave)
        shown = ""
        answered = False
        try:
            # How a terminal whose last user has gone ends.
            with contextlib.suppress(OSError):
                while select.select([master], [], [], SILENT_S)[0]:
                    shown += os.read(master, 4096).decode(errors="replace")
                    # Earlier it might be thrown away as typed by mistake.
                    if not answered and prompt in shown:
                        os.write(master, answer.encode())
                        answered = True
            if wait_until(lambda: process.poll() is not None, STOP_S) is False:
                raise RuntimeError(f"it does not end: {shown}")
        finally:
            process.kill()
            process.wait()
            os.close(master)
        return shown


@contextlib.contextmanager
def service(chroot: Chroot, port: int, token: str) -> Iterator[HttpClient]:
    """The responder as its user, behind lighttpd; a client of theirs."""
    directory = chroot.path("usr/share/plant-store/lighttpd")
    config, found = re.subn(r"^(var\.port\s*=).*$", rf"\1 {port}",
                            (directory / "fastcgi.conf").read_text(), flags=re.M)
    if found != 1:
        raise RuntimeError("fastcgi.conf does not set var.port once")
    # As the operator copies them; all paths in them stay.
    shutil.copy(directory / "common.conf", chroot.path("etc/lighttpd"))
    chroot.path("etc/lighttpd/plant-store.conf").write_text(config)
    server = "exec lighttpd -D -f /etc/lighttpd/plant-store.conf"
    with chroot.started(RESPONDER, chroot.path(SOCKET)):
        with chroot.started(server, port):
            client = HttpClient(port, token)
            try:
                yield client
            finally:
                client.close()


# --- The life of a package -------------------------------------------------------


def check_life(
    tally: Tally, chroot: Chroot, package: pathlib.Path, newer: pathlib.Path
) -> None:
    store = chroot.path("var/lib/plant-store")
    journal = store / JOURNAL_NAME
    settings = chroot.path("etc/plant-store/environment")
    tokens = chroot.path("etc/plant-store/tokens")
    program = chroot.path("usr/bin/plant-store")
    port = free_port()

    def plants() -> list[int]:
        return [plant["id"] for plant in read_journal(journal)]

    wanted = needed("dpkg-deb", "-f", package, "Recommends", "Suggests")
    tally.check(wanted.startswith("Suggests: nginx | lighttpd"),
                "a web server, which may open port 80, is only suggested", wanted)
    said = chroot.add(package)
    tally.check("add one with: plant-store token add NAME" in said,
                "installed: it asks for a first token", said)
    lap("install, with what it depends on")
    check_fresh(tally, chroot, store)
    chroot.apt("install", "lighttpd", "spawn-fcgi", "multiwatch")
    lap("install lighttpd and spawn-fcgi")
    token = chroot.needed("plant-store token add nursery").strip()
    with service(chroot, port, token) as client:
        answer = client.create(1, "Fern", "indoor")
        tally.check(answer.status == 200 and answer.body == answer_body("Fern", "indoor"),
                    "installed: a plant is stored", answer)
        settings.write_text(settings.read_text() + "PLANT_STORE_THREADS=2\n")
        chroot.add(newer)
        number = chroot.needed("plant-store --version").split()[1]
        tally.check(number == version() + "+1", "upgraded: the program is the new one",
                    number)
        client.close()  # its connection, which lighttpd may have closed meanwhile
        answer = client.create(2, "Monstera")
        tally.check(answer.status == 200, "upgraded: the service still answers", answer)
    with service(chroot, port, token) as client:
        answers = [client.create(1, "Fern", "indoor").status,
                   client.create(1, "Another").status, client.create(3, "Ivy").status]
        tally.check(answers == [200, 409, 200],
                    "upgraded: the new responder has the plants", answers)
    tally.check("PLANT_STORE_THREADS=2" in settings.read_text(),
                "upgraded: the settings that were changed stay")
    lap("use and upgrade")

    chroot.apt("remove", "plant-store")
    tally.check(not program.exists(), "removed: the program is gone")
    tally.check(plants() == [1, 2, 3] and tokens.exists() and settings.exists(),
                "removed: store, tokens and settings stay")
    aside = store.rename(store.with_name("aside"))
    chroot.add(newer)
    tally.check(store.exists() and not any(store.iterdir()),
                "installed again where the store is not mounted: none is made")
    store.rmdir()
    aside.rename(store)
    with service(chroot, port, token) as client:
        answers = [client.create(2, "Monstera").status, client.create(2, "X").status]
        tally.check(answers == [200, 409], "installed again: the plants are there, and "
                    "the token is good", answers)

    before = journal.read_bytes()
    said = chroot.apt("purge", "plant-store")
    tally.check("plant-store: the plants stay in /var/lib/plant-store\n" in said,
                "purged without an answer: it says that the plants stay", said)
    tally.check(journal.read_bytes() == before,
                "purged without an answer: the store stays, byte for byte")
    tally.check(not chroot.path("etc/plant-store").exists(),
                "purged: the settings and tokens are gone")
    chroot.add(newer)
    owner = store.stat().st_uid, store.stat().st_mode & 0o777
    user = int(chroot.needed("id -u plant-store"))
    tally.check(owner == (user, 0o700), "installed after it: the store has its owner",
                owner)
    lap("remove, install, purge, install")
    for answer, kept in (("no", True), ("yes", False)):
        chroot.apt("remove", "plant-store")
        shown = chroot.answer_at_terminal("dpkg --purge plant-store", "[yes/no]",
                                          answer + "\n")
        tally.check("Delete all plants" in shown, f"purged, answer {answer}: it asks",
                    shown)
        tally.check(journal.exists() == kept and store.exists() == kept,
                    f"purged, answer {answer}: the store {'stays' if kept else 'is gone'}",
                    shown)
        chroot.add(newer)
    lap("purge at a terminal, twice")


def check_fresh(tally: Tally, chroot: Chroot, store: pathlib.Path) -> None:
    """What an installation alone has made."""
    user = int(chroot.needed("id -u plant-store"))
    group = int(chroot.needed("id -g plant-store"))
    made = store.stat()
    tally.check((made.st_uid, made.st_mode & 0o777) == (user, 0o700),
                "installed: the store is its user's alone", made)
    made = (store / JOURNAL_NAME).stat()
    tally.check((made.st_uid, made.st_mode & 0o777) == (user, 0o600),
                "installed: a new store is made, as its user", made)
    made = chroot.path("etc/plant-store").stat()
    tally.check(made.st_gid == group and made.st_mode & 0o777 == 0o750,
                "installed: the settings are for its group", made)
    broken = chroot.run("dpkg --audit")
    tally.check(broken.returncode == 0 and not broken.stdout,
                "installed: dpkg finds nothing amiss", broken.stdout)
    enabled = chroot.run("systemctl is-enabled plant-store.socket").stdout
    tally.check(enabled == "enabled\n", "installed: the socket is enabled", enabled)
    script = chroot.path("var/lib/dpkg/info/plant-store.preinst")
    stops = script.exists() and " stop " in script.read_text()
    tally.check(not stops, "installed: an upgrade leaves the socket as it is")
    # Nothing but what the package depends on is there yet.
    cgi = chroot.run("REQUEST_METHOD=POST SCRIPT_NAME=/plants "
                     "GATEWAY_INTERFACE=CGI/1.1 setpriv --reuid plant-store "
                     "--clear-groups /usr/libexec/plant-store.fcgi")
    tally.check('"error":5006' in cgi.stdout,
                "installed: the responder runs, and wants a token first", cgi.stdout)


def scenario(tally: Tally, build_dir: str) -> None:
    build = pathlib.Path(build_dir).resolve()
    build.mkdir(parents=True, exist_ok=True)
    # An interrupted test leaves no more than this folder.
    with tempfile.TemporaryDirectory(dir=build, prefix="package-") as name:
        work = pathlib.Path(name)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            fresh = pool.submit(make_root, work) if os.geteuid() == 0 else None
            with tally.part("make install and uninstall"):
                check_install(tally, build, work)
            lap("make install and uninstall")
            if shutil.which("npm"):
                needed("make", "-s", "-C", TOP, f"BUILD={work / 'one'}", "docs")
            else:
                tally.skip("the package has the page", "npm is not installed")
            package = build_package(work / "one", version())
            newer = build_package(work / "newer", version() + "+1")
            lap("two builds")
            check_lint(tally, package)
            lap("lintian")
            if fresh is None:
                tally.skip("the package in a root of its own", "needs root")
                return
            chroot = Chroot(fresh.result())
            lap("a fresh root")
        with tally.part("the package's life"):
            check_life(tally, chroot, package, newer)


if __name__ == "__main__":
    sys.exit(main(scenario))
