#!/usr/bin/env python3
"""Goal: the Debian package keeps what it promises, in a fresh Debian of its own.

The package is built, checked with lintian, and installed, used, upgraded, removed
and purged in a new root directory, whose only packages are Debian's essential ones,
apt, and what the package itself depends on.  All that is started or mounted there is
in namespaces which end with this test, however it ends.  In another such directory
systemd runs, and deploy/README.md is followed, command by command.  With --long also
from and back to the packages of 0.1.0 and 1.0.0, and the test that the package has for
autopkgtest.
"""

import concurrent.futures
import contextlib
import fcntl
import http.client
import itertools
import json
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
import threading
import time
from collections.abc import Callable, Iterator

import lib_service
from lib_service import (
    JOURNAL_NAME,
    TOP,
    WAIT_S,
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
STEP_S = 5 * WAIT_S  # of what hangs; a busy machine takes long to build and to install
SOCKET = "/run/plant-store/socket"
RESPONDER = "exec /usr/share/plant-store/plant-store-start"
# What 0.1.0 has left when it was killed: a journal with a torn end, an index, and the
# digests of these two tokens.
OLD = TOP / "tests/golden/0.1.0"
OLD_TOKENS = ("pst_3k0aFi_v_Ee4tGBeQACsnBQF-t401w4lIe5nteiziqE",
              "pst_03Ich-6SpH4KV9rCWvhY9RPpX6bYTHMtac7K-73M7No")
OLD_COMMITS = {"0.1.0": "60a89be1bfd069ad7e7d5cc09df753527be71412",
               "1.0.0": "684e5a04ad28fb5c6e470d699caa72b0fbb15b23"}

clock = time.monotonic()


def lap(what: str) -> None:
    """Say how long the part took that ends here."""
    global clock
    now = time.monotonic()
    print(f"# {what}: {now - clock:.1f} s", flush=True)
    clock = now


def run(*command: object, **options: object) -> subprocess.CompletedProcess:
    """Run to its end; its output, both kinds in one, is kept."""
    return lib_service.run(
        *command, stderr=subprocess.STDOUT, text=True, timeout=STEP_S, **options)


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
                "share/plant-store/www/openapi.json", "share/plant-store/plant-store-check-url",
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
    return needed(TOP / "scripts" / "version", found[1]).strip()


def check_version(tally: Tally, work: pathlib.Path) -> None:
    """A build tells its commit, and apt takes a later one for newer."""
    base = version().partition("~")[0]
    if not (TOP / ".git").exists() or not shutil.which("git"):
        tally.skip("the version has the commit", "no checkout")
        return
    commit = needed("git", "-C", TOP, "rev-parse", "HEAD")[:7]
    shallow, copy, dist = work / "shallow", work / "copy", work / "dist"
    needed("git", "clone", "-q", "--depth", "1", f"file://{TOP}", shallow)
    shutil.copytree(shallow, copy, ignore=shutil.ignore_patterns(".git"))
    needed("make", "-s", "-C", TOP, f"BUILD={dist}", "dist")
    needed("tar", "-xf", next(dist.glob("*.tar.gz")), "-C", dist)
    (unpacked,) = dist.glob("*/version")
    for what, folder, told in (
        ("a checkout", TOP, rf"{base}~dev\.[1-9]\d*\.g{commit}"),
        ("a shallow one", shallow, rf"{base}~dev\.0\.g{commit}"),
        ("a copy", copy, f"{base}~dev"),
        ("a tarball", unpacked.parent, re.escape(version())),
    ):
        found = needed(folder / "scripts/version", f"{base}~dev").strip()
        tally.check(re.fullmatch(told, found), f"the version of {what}", found)
    order = ["1.0.0", f"{base}~dev", f"{base}~dev.1.gf", f"{base}~dev.10000.g0", base]
    wrong = [pair for pair in itertools.pairwise(order)
             if run("dpkg", "--compare-versions", pair[0], "lt", pair[1]).returncode]
    tally.check(not wrong, "apt takes a later build for newer", wrong)


def check_without_apt(tally: Tally, work: pathlib.Path) -> None:
    """scripts/packages where there is neither apt nor anything else."""
    bare = work / "bare"
    bare.mkdir()
    (bare / "bash").symlink_to("/bin/bash")
    done = run(TOP / "scripts/packages", "run", env={"PATH": str(bare)})
    tally.check(done.returncode == os.EX_UNAVAILABLE and "    multiwatch\n" in done.stdout
                and "    the headers of fcgi\n" in done.stdout,
                "scripts/packages: without apt it lists what is missing", done)


def build_package(folder: pathlib.Path, number: str, *variables: str) -> pathlib.Path:
    needed("make", "-s", "-C", TOP, f"BUILD={folder}", f"VERSION={number}", "deb", *variables)
    (package,) = folder.glob("deb/plant-store_*.deb")
    return package


def check_lint(tally: Tally, package: pathlib.Path) -> None:
    (changes,) = package.parent.glob("*.changes")
    if shutil.which("npm"):
        files = needed("dpkg-deb", "--contents", package)
        tally.check("/docs/swagger-ui-bundle.js\n" in files, "the package has the page",
                    files)
    sums = run("sh", "-c", "cat *.sha256 && sha256sum --quiet -c *.sha256", cwd=package.parent)
    well = sums.returncode == 0 and f"  {package.name}\n" in sums.stdout
    tally.check(well, "the packages' sums are beside them", sums.stdout)
    lint = run("lintian", "--allow-root", "--fail-on", "error,warning", changes)
    tally.check(lint.returncode == 0, "lintian finds no error and no warning",
                lint.stdout)


def check_sbom(tally: Tally, package: pathlib.Path) -> None:
    """By the specification of SPDX 2.3, and against what the packages depend on."""
    name = "./usr/share/doc/plant-store/sbom.spdx.json"
    sbom = json.loads(needed(
        "sh", "-c", 'dpkg-deb --fsys-tarfile "$0" | tar -xO "$1"', package, name))
    fields = {"spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace",
              "creationInfo", "packages", "relationships"}
    made = sbom["creationInfo"]
    tally.check(
        set(sbom) == fields and sbom["spdxVersion"] == "SPDX-2.3"
        and sbom["dataLicense"] == "CC0-1.0" and sbom["SPDXID"] == "SPDXRef-DOCUMENT"
        and re.fullmatch(r"https://[^ #]+", sbom["documentNamespace"]) is not None
        and re.fullmatch(r"\d{4}(-\d\d){2}T(\d\d:){2}\d\dZ", made["created"])
        is not None and all(re.match("(Tool|Person|Organization): .", creator)
                            for creator in made["creators"]) and made["creators"] != [],
        "sbom: the document has what SPDX 2.3 requires", sbom)
    required = {"name", "SPDXID", "downloadLocation", "versionInfo", "licenseDeclared"}
    wrong = [one for one in sbom["packages"] if not required <= set(one)
             or not re.fullmatch("SPDXRef-[A-Za-z0-9.-]+", one["SPDXID"])
             or one["licenseDeclared"] == "NOASSERTION" or not one["versionInfo"]]
    tally.check(not wrong, "sbom: each package has id, version, source and license",
                wrong)
    ids = {one["SPDXID"] for one in sbom["packages"]}
    related = {one["relatedSpdxElement"] for one in sbom["relationships"]}
    tally.check(related == ids and len(ids) == len(sbom["packages"]),
                "sbom: each package is related to, and no other", related ^ ids)
    depends = "".join(needed("dpkg-deb", "-f", file, "Depends")
                      for file in package.parent.glob("plant-store*_*.deb")
                      if "dbgsym" not in file.name)
    linked = set(re.findall(r"\blib[a-z0-9.+-]+", depends))
    listed = {one["name"] for one in sbom["packages"]} - {"plant-store"}
    tally.check(linked == listed, "sbom: it lists the libraries that dpkg found",
                linked ^ listed)


# --- A root of its own -----------------------------------------------------------


def debian_sources(codename: str) -> list[str]:
    """Where this machine has its Debian from; not what else it may have."""
    etc = pathlib.Path("/etc/apt")
    files = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*.list")),
             *sorted((etc / "sources.list.d").glob("*.sources"))]
    suite = re.compile(rf"^[^#]*\b{codename}\b", re.M)
    return [str(file) for file in files if file.is_file() and
            suite.search(file.read_text())]


class Mirror:
    """Fetches packages as this machine's apt does, into folders of their own."""

    def __init__(self, work: pathlib.Path, release: str = "") -> None:
        """Of this machine's Debian, or another one that this machine's mirror has, too."""
        self.work = work
        here = needed("sh", "-c", ". /etc/os-release; echo $VERSION_CODENAME").strip()
        self.release = release or here
        self.sources = debian_sources(here)
        if self.release != here:
            for number, name in enumerate(self.sources):
                file = work / f"{number}{pathlib.Path(name).suffix}"
                file.write_text(pathlib.Path(name).read_text().replace(here, self.release))
                self.sources[number] = str(file)
        # How this machine reaches its mirror.
        asked = ("Acquire::http", "Acquire::https", "Acquire::Check-",
                 "Acquire::Retries")
        self.options = work / "apt.conf"
        self.options.write_text("".join(
            line for line in needed("apt-config", "dump").splitlines(True)
            if line.startswith(asked)
        ))

    def make_root(self, root: pathlib.Path, *options: str) -> pathlib.Path:
        needed("mmdebstrap", "--quiet", "--mode=root", f"--aptopt={self.options}",
               "--dpkgopt=force-unsafe-io", *options, self.release, root,
               *self.sources)
        return root

    def unpack(self, machine: str, root: pathlib.Path, *packages: str) -> None:
        """Packages of a machine, and what they depend on, unpacked only."""
        self.make_root(root, "--variant=extract", f"--architectures={machine}",
                       f"--include={','.join(packages)}")

    def fetch_sources(self, *packages: str) -> dict[str, pathlib.Path]:
        """The unpacked source of each package."""
        apt = self.work / "apt"
        for folder in ("state/lists/partial", "cache/archives/partial", "from"):
            (apt / folder).mkdir(parents=True)
        for file in map(pathlib.Path, self.sources):
            (apt / "from" / file.name).write_text(re.sub(
                r"^(Types:.*|deb(?= ))", lambda found: "Types: deb-src"
                if found[0].startswith("T") else "deb-src", file.read_text(),
                flags=re.M))
        command = ["apt-get", "-qq", "-o", f"Dir::State={apt}/state",
                   "-o", f"Dir::Cache={apt}/cache", "-o", "Dir::Etc::SourceList=none",
                   "-o", f"Dir::Etc::SourceParts={apt}/from",
                   "-o", "APT::Sandbox::User=root"]
        needed(*command, "update")
        needed(*command, "source", *packages, cwd=apt)
        return {name: next(path for path in apt.glob(f"{name}-*") if path.is_dir())
                for name in packages}


def make_root(work: pathlib.Path) -> pathlib.Path:
    root = Mirror(work).make_root(
        work / "root", "--variant=apt", "--skip=cleanup/apt/lists")
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
                    lambda: process.poll() is not None or listens(address), WAIT_S
                ) or process.poll() is not None:
                    log.seek(0)
                    raise RuntimeError(f"it does not start: {log.read()}")
                yield
            finally:
                for child in children_of(process.pid):
                    os.kill(child, signal.SIGTERM)
                try:
                    process.wait(WAIT_S)
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
                while select.select([master], [], [], WAIT_S)[0]:
                    shown += os.read(master, 4096).decode(errors="replace")
                    # Earlier it might be thrown away as typed by mistake.
                    if not answered and prompt in shown:
                        os.write(master, answer.encode())
                        answered = True
            if wait_until(lambda: process.poll() is not None, WAIT_S) is False:
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
    # With one of before, plant-store-start listens for a moment to find whether it is used.
    chroot.path(SOCKET).unlink(missing_ok=True)
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
    tally.check(wanted.startswith("Recommends: curl\nSuggests: nginx | lighttpd"),
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
    backup = chroot.path("var/lib/plant-store-backup/1")
    backup.mkdir(parents=True)
    said = chroot.apt("purge", "plant-store")
    well = "the backups stay in /var/lib/plant-store-backup\n" in said
    tally.check(well and backup.exists(), "purged: the backups stay", said)
    backup.rmdir()
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
    left = chroot.path("var/lib/plant-store-backup").exists()
    tally.check(not left, "purged: an empty directory of backups does not")
    check_old_files(tally, chroot, newer, port)
    lap("the files of 0.1.0")


def check_plants(tally: Tally, client: HttpClient, plants: list[dict], what: str) -> None:
    """The service has each of them, and knows it from another with its id."""
    wrong = []
    for plant in plants:
        same = client.create(plant["id"], plant["name"], plant.get("tag")).status
        other = client.create(plant["id"], plant["name"] + " too").status
        if (same, other) != (200, 409):
            wrong.append((plant, same, other))
    tally.check(plants and not wrong, f"{what}: every plant is there", wrong)


def check_old_files(
    tally: Tally, chroot: Chroot, package: pathlib.Path, port: int
) -> None:
    """An upgrade over the store and the token file of 0.1.0."""
    store = chroot.path("var/lib/plant-store")
    shutil.rmtree(store)
    shutil.copytree(OLD, store)
    (store / "tokens").replace(chroot.path("etc/plant-store/tokens"))
    chroot.needed("chown -R plant-store: /var/lib/plant-store; cd /etc/plant-store;"
                  "chown root:plant-store tokens; chmod 640 tokens")
    whole, _, torn = (OLD / JOURNAL_NAME).read_bytes().rpartition(b"\n")
    lines = [json.loads(line) for line in whole.splitlines()]
    chroot.apt("install", "--reinstall", f"/debs/{package.name}")
    with service(chroot, port, OLD_TOKENS[0]) as client:
        check_plants(tally, client, [line["plant"] for line in lines if "plant" in line],
                     "a store of 0.1.0")
        client.token = OLD_TOKENS[1]
        answer = client.create(4, "of another season")
        tally.check(answer.status == 200, "a store of 0.1.0: stores a plant", answer)
    kept = [path.read_bytes() for path in store.glob(JOURNAL_NAME + ".torn-*")]
    tally.check(kept == [torn], "a store of 0.1.0: its torn end is kept", kept)
    verified = chroot.run("plant-store verify")
    tally.check(verified.returncode == 0, "a store of 0.1.0: it verifies",
                verified.stdout)


def build_old(chroot: Chroot, commit: str) -> pathlib.Path | None:
    """An old package, with the libraries of its time; None where the history is not at hand."""
    tree = chroot.path("root/old")
    tree.mkdir()
    archive = f"git -C '{TOP}' archive {commit} | tar -x -C '{tree}'"
    if run("bash", "-c", f"set -o pipefail; {archive}").returncode:
        return None
    control = (tree / "deploy/debian/control").read_text()
    needs = re.search(r"^Build-Depends: (.*(?:\n .*)*)", control, re.M)[1].split(",")
    chroot.apt("install", "gcc", "libc6-dev", "make", "dpkg-dev", "debhelper",
               *(name.strip() for name in needs if "(" not in name))
    chroot.needed("make -s -C /root/old deb")
    (package,) = tree.glob("build/deb/plant-store_*.deb")
    return package


@contextlib.contextmanager
def load(port: int, token: str, stored: list[dict]) -> Iterator[None]:
    """A client that sends one plant after the other, meanwhile; those that are stored are added."""
    ends = threading.Event()

    def send() -> None:
        client, plant_id = HttpClient(port, token), 1000 + len(stored)
        while not ends.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                if client.create(plant_id, f"plant {plant_id}").status == 200:
                    stored.append({"id": plant_id, "name": f"plant {plant_id}"})
                    plant_id += 1
        client.close()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def kill_one_worker(chroot: Chroot) -> None:
    """One of the version before, in whose place one of the version that is installed comes."""
    gone = f"{chroot.path('usr/libexec/plant-store.fcgi')} (deleted)"
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(process / "exe") == gone:
                return os.kill(int(process.name), signal.SIGKILL)
    raise RuntimeError("no worker of the version before")


def check_old_package(
    tally: Tally, chroot: Chroot, number: str, old: pathlib.Path, new: pathlib.Path
) -> None:
    """From an old package to this one, back, and here again, always under load."""
    port = free_port()
    chroot.add(old)
    chroot.apt("install", "lighttpd", "spawn-fcgi", "multiwatch")
    token = chroot.needed("plant-store token add nursery").strip()
    stored: list[dict] = []
    with service(chroot, port, token) as client:
        with load(port, token, stored):
            wait_until(lambda: len(stored) > 100)
            chroot.add(new)
            before = len(stored)
            # 0.1.0 locks another file: there every process ends first.
            if number != "0.1.0":
                kill_one_worker(chroot)
            tally.check(wait_until(lambda: len(stored) > before + 500),
                        f"{number}: plants are stored during the upgrade", len(stored))
        check_plants(tally, client, stored[-200:], f"{number} during the upgrade")
    for what, package, script in (
        (f"upgraded from {number}", new, "true"),
        # 1.0.0 notices by itself that its index is behind.
        (f"back at {number}", old, "rm -r /var/lib/plant-store/index" if number == "0.1.0" else "true"),
        ("upgraded again", new, "true"),
    ):
        chroot.needed(script)
        shutil.copy(package, chroot.root / "debs")
        chroot.apt("install", "--allow-downgrades", f"/debs/{package.name}")
        with service(chroot, port, token) as client:
            check_plants(tally, client, stored[-200:], what)
            before = len(stored)
            with load(port, token, stored):
                tally.check(wait_until(lambda: len(stored) > before + 200),
                            f"{what}: stores plants", len(stored))
            client.close()  # its connection, which lighttpd may have closed meanwhile
            check_plants(tally, client, stored[-300:], what)
        verified = chroot.run("plant-store verify")
        tally.check(verified.returncode == 0, f"{what}: the store verifies",
                    verified.stdout)
    found = sorted(plant["id"] for plant in read_journal(chroot.path(f"var/lib/plant-store/{JOURNAL_NAME}")))
    # What was under way when the load ended may be there, too.
    missing = {plant["id"] for plant in stored} - set(found)
    tally.check(not missing and len(set(found)) == len(found),
                f"{number}, this version, {number}, this version: each plant is there once", missing)


def check_smoke(tally: Tally, chroot: Chroot, package: pathlib.Path) -> None:
    """As autopkgtest runs the package's own test: installed, in a root of its own."""
    tests = TOP / "deploy/debian/tests"
    wanted = re.search(r"^Depends: @, (.*)$", (tests / "control").read_text(), re.M)[1]
    chroot.add(package)
    chroot.apt("install", *wanted.split(", "))
    shutil.copy(tests / "smoke", chroot.path("tmp"))
    done = chroot.run("AUTOPKGTEST_TMP=$(mktemp -d) /tmp/smoke")
    tally.check(done.returncode == 0, "the package's own test passes in a fresh root",
                done.stdout)


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
    enabled = chroot.run("systemctl is-enabled plant-store-backup.timer").stdout
    tally.check(enabled == "disabled\n", "installed: the backups are not", enabled)
    script = chroot.path("var/lib/dpkg/info/plant-store.preinst")
    stops = script.exists() and " stop " in script.read_text()
    tally.check(not stops, "installed: an upgrade leaves the socket as it is")
    # Nothing but what the package depends on is there yet.
    servers = chroot.run("command -v lighttpd nginx apache2")
    tally.check(not servers.stdout, "installed: no web server came with it",
                servers.stdout)
    cgi = chroot.run("REQUEST_METHOD=POST SCRIPT_NAME=/plants "
                     "GATEWAY_INTERFACE=CGI/1.1 setpriv --reuid plant-store "
                     "--regid plant-store --clear-groups /usr/libexec/plant-store.fcgi")
    tally.check("Status: 401 " in cgi.stdout and
                "add one with: plant-store token add NAME" in cgi.stdout,
                "installed: the responder answers 401, and logs how to add a token",
                cgi.stdout)


# --- The page, with systemd ------------------------------------------------------

# In namespaces of its own: the directory becomes the root, and systemd its first
# process.  What of /proc is the machine's cannot be written, and no module is loaded.
BOOT = """
set -e
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,ro,bind proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=755 dev dev
for node in null zero full random urandom tty; do
	touch dev/$node
	mount --bind /dev/$node dev/$node
done
ln -s pts/ptmx dev/ptmx
ip link set lo up
pivot_root . mnt
umount -l /mnt
exec env -i container=other setpriv --bounding-set=-sys_module \
	/lib/systemd/systemd --unit=basic.target --log-target=journal
"""
# Its control group is of its own, too, or it would take over ours.
INTO_GROUP = """echo $$ >"$1/cgroup.procs" && exec unshare --mount --pid --net --uts --ipc \
	--cgroup --fork --kill-child -- sh -c "$2" sh "$3" """
CERTIFICATE = """
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=plants.example \
	-addext subjectAltName=DNS:plants.example \
	-keyout /etc/nginx/key.pem -out /etc/nginx/certificate.pem
cp /etc/nginx/certificate.pem /usr/local/share/ca-certificates/plants.crt
update-ca-certificates
echo 127.0.0.1 plants.example >>/etc/hosts
"""
# For scripts/packages, where there is no network.
APT_GET = """#!/bin/sh
[ "$1" = update ] || exec /usr/bin/apt-get install -y --no-install-recommends lighttpd
"""
# Of what is not there, or was not asked for.
COMPLAINT = re.compile("does not exist|error:|Failed to|timer is a disabled")
Shell = Callable[..., subprocess.CompletedProcess]


def make_group() -> pathlib.Path | None:
    """A control group below ours; None where that is not allowed."""
    mount = re.search(r"^\S+ (\S+) cgroup2 ", pathlib.Path("/proc/mounts").read_text(), re.M)
    ours = re.search(r"^0::(.*)$", pathlib.Path("/proc/self/cgroup").read_text(), re.M)
    if mount and ours:
        group = pathlib.Path(f"{mount[1]}{ours[1]}/plant-store-{os.getpid()}")
        with contextlib.suppress(OSError):
            group.mkdir()
            return group
    return None


def is_removed(group: pathlib.Path) -> bool:
    """It is busy until the last process in it has gone, after its wait, too."""
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


@contextlib.contextmanager
def booted(chroot: Chroot, group: pathlib.Path) -> Iterator[Shell]:
    """systemd, until the end; runs scripts beside it."""
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "sh", "-c", INTO_GROUP, "sh", group, BOOT,
         chroot.root], stdin=subprocess.DEVNULL)

    def shell(script: str, given: str = "") -> subprocess.CompletedProcess:
        enter = ["nsenter", "--all", "--target", str(children_of(process.pid)[0])]
        return run(*enter, "bash", "-ec", script, env=chroot.environment, input=given)

    def runs() -> bool:
        return bool(children_of(process.pid)) and (
            shell("systemctl is-system-running").stdout == "running\n")

    try:
        if not wait_until(runs):
            raise RuntimeError("systemd does not start")
        yield shell
    finally:
        process.kill()
        process.wait()
        for folder in sorted(group.rglob("*/"), reverse=True) + [group]:
            wait_until(lambda: is_removed(folder))


def make_page_root(fresh: concurrent.futures.Future, root: pathlib.Path) -> Chroot:
    chroot = Chroot(root)
    needed("cp", "-a", fresh.result(), root)
    chroot.apt("install systemd apt-listchanges ca-certificates curl openssl")
    return chroot


# A restore that forgot the "/." behind the link "latest".
WRONG_LINK = """systemctl stop plant-store.socket plant-store.service
mv /var/lib/plant-store /var/lib/aside
ln -s 1-20260101T000000Z /var/lib/plant-store
systemctl start plant-store.socket
curl -s -m 10 -o /dev/null https://plants.example/plants || true
while systemctl is-active -q plant-store.socket; do sleep 0.1; done
systemctl show -P NRestarts -P ExecMainStatus plant-store.service
plant-store check || true
rm /var/lib/plant-store
mv /var/lib/aside /var/lib/plant-store
systemctl start plant-store.socket
"""
CONSUMER = """cp /usr/share/plant-store/consumer/plant-store-consumer.* /etc/systemd/system/
systemctl enable --now plant-store-consumer.timer
until systemctl is-failed -q plant-store-consumer.service; do sleep 0.1; done
"""  # its user is missing
# As at the next boot.
WHAT_RUNS = """systemctl start plant-store-consumer.timer
systemctl list-units --all --plain --no-legend --state=active,failed,activating 'plant-store*'
systemctl is-system-running
"""


def check_end_of_life(tally: Tally, chroot: Chroot, shell: Shell) -> None:
    """Of a package whose store is elsewhere, with backups and a consumer that fails."""
    shell(CONSUMER)
    done = shell("apt-get remove -y plant-store")
    tally.check("plant-store: the plants are in /srv/plants\n" in done.stdout,
                "the page, removed: it names the store", done.stdout)
    found = shell(WHAT_RUNS).stdout
    tally.check(found == "running\n", "the page, removed: nothing runs, and nothing has failed", found)
    shell("apt-get install -y /work/build/deb/plant-store_*.deb")
    done = shell("systemctl is-active plant-store.socket plant-store-{backup,consumer}.timer")
    tally.check(done.stdout == 3 * "active\n", "the page, installed again: the timers run", done)
    shell(CONSUMER)
    done = shell("apt-get purge -y plant-store")
    well = "plant-store: the plants stay in /srv/plants\n" in done.stdout
    tally.check(well and chroot.path("srv/plants/plants.jsonl").exists()
                and not chroot.path("var/lib/plant-store").exists(),
                "the page, purged: it names the store, and asks for no other", done.stdout)
    found = shell(WHAT_RUNS).stdout
    tally.check(found == "running\n", "the page, purged: nothing runs, and nothing has failed", found)


def check_page(
    tally: Tally, chroot: Chroot, package: pathlib.Path, newer: pathlib.Path
) -> None:
    """deploy/README.md, from its first command to its last."""
    group = make_group()
    if not group:
        tally.skip("the page with systemd", "no control group can be made")
        return
    debs = chroot.path("work/build/deb")
    debs.mkdir(parents=True)
    shutil.copy(package, debs)
    shutil.copytree(TOP / "scripts", chroot.path("work/scripts"))
    chroot.path("work/bin").mkdir()
    chroot.path("work/bin/apt-get").write_text(APT_GET)
    chroot.path("work/bin/apt-get").chmod(0o755)
    chroot.needed("apt-get install -y --download-only lighttpd nginx /work/build/deb/*.deb")
    chroot.path("usr/sbin/policy-rc.d").unlink()
    page = (TOP / "deploy/README.md").read_text()
    commands = {
        section.partition("\n")[0]: "\n".join(re.findall("^    (.*)$", section, re.M))
        for section in re.split("^## ", page, flags=re.M) if "\n    " in section
    }
    # The package is built already.
    commands["Install"] = commands["Install"].partition("make deb\n")[2]
    with booted(chroot, group) as shell:

        def step(title: str, given: str = "") -> str:
            done = shell("cd /work\n" + commands.pop(title), given)
            well = done.returncode == 0 and not COMPLAINT.search(done.stdout)
            tally.check(well, f"the page: {title}", done.stdout)
            return done.stdout

        def create(number: int, name: str) -> str:
            plant = json.dumps({"id": number, "name": name})
            return shell(
                f"curl -s -o /dev/null -w '%{{http_code}}' https://plants.example/plants"
                f" -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json'"
                f" -d '{plant}'").stdout

        done = shell("PATH=/work/bin:$PATH /work/scripts/packages run\n"
                     "! systemctl is-enabled lighttpd && ! systemctl is-active lighttpd")
        well = done.returncode == 0 and done.stdout.endswith("\ndisabled\ninactive\n")
        well = well and not COMPLAINT.search(done.stdout)
        tally.check(well, "scripts/packages: a server is installed, not started",
                    done.stdout)
        step("Install")
        token = step("A token for each client").strip()
        shell(CERTIFICATE)
        step("nginx with TLS")
        step("Check", token)
        answers = [create(1, "Fern")]
        step("Back up")
        answers += [create(number, "Ivy") for number in range(2, 7)]
        step("Restore")
        # What came after the backup is there, too.
        answers += [create(1, "Fern"), create(1, "Ivy"), create(2, "Moss")]
        kept = shell("plant-store export --quiet").stdout
        tally.check(kept.count('"id"') == kept.count('Ivy') + 1 == 6, "the page: each plant is there once", kept)
        tally.check(answers == ["200"] * 7 + ["409", "409"],
                    "the page: plants are stored, backed up and restored", answers)
        found = shell(WRONG_LINK).stdout
        tally.check(found.startswith("0\n238\n") and "is a link to 1-2026" in found,
                    "the page: a link that leads nowhere ends the service, and check names it", found)
        for old in debs.iterdir():
            old.unlink()
        shutil.copy(newer, debs)
        shown = step("Upgrade")
        news = re.search(r"Before you upgrade\n\n\* (.{40})",
                         (TOP / "CHANGELOG.md").read_text())[1]
        # Of a release it was shown with the release.
        entry = f"plant-store ({version()}+1)"
        tally.check((entry in shown and news in shown) == ("~" in version()),
                    "the page: apt shows the news of an upgrade", shown)
        step("Move the data")
        shown = step("Watch")
        answers = [create(1, "Ivy"), create(2, "Ivy"), create(7, "Fern")]
        tally.check(answers == ["409", "200", "200"] and "plants     6; the last one " in shown
                    and chroot.path("srv/plants").exists(),
                    "the page: the data is moved", (answers, shown))
        tally.check(not commands, "the page: each command is run", commands)
        check_end_of_life(tally, chroot, shell)


def scenario(tally: Tally, build_dir: str, long: bool) -> None:
    build = pathlib.Path(build_dir).resolve()
    build.mkdir(parents=True, exist_ok=True)
    # An interrupted test leaves no more than this folder.
    with tempfile.TemporaryDirectory(dir=build, prefix="package-") as name:
        work = pathlib.Path(name)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            fresh = pool.submit(make_root, work) if os.geteuid() == 0 else None
            paged = fresh and pool.submit(make_page_root, fresh, work / "page-root")
            with tally.part("make install and uninstall"):
                check_install(tally, build, work)
            lap("make install and uninstall")
            if shutil.which("npm"):
                needed("make", "-s", "-C", TOP, f"BUILD={work / 'one'}", "docs")
            else:
                tally.skip("the package has the page", "npm is not installed")
            with tally.part("the version"):
                check_version(tally, work)
                check_without_apt(tally, work)
            package = build_package(work / "one", version())
            named = "Rosa O'Hara & Söhne <plants@example.org>"
            # apt-listchanges of Debian 13 shows no entry of the news again that is the same.
            newer = build_package(work / "newer", version() + "+1", f"MAINTAINER={named}",
                                  f"SOURCE_DATE_EPOCH={int(time.time())}")
            found = needed("dpkg-deb", "-f", newer, "Maintainer").strip()
            tally.check(found == named, "the package names who built it, if told", found)
            lap("two builds")
            check_lint(tally, package)
            check_sbom(tally, package)
            lap("lintian")
            if fresh is None:
                tally.skip("the package in a root of its own", "needs root")
                return
            chroot = Chroot(fresh.result())
            roots = [Chroot(work / f"{name}-root") for name in (*OLD_COMMITS, "smoke") if long]
            for other in roots:
                needed("cp", "-a", chroot.root, other.root)
            lap("a fresh root")
        with tally.part("the package's life"):
            check_life(tally, chroot, package, newer)
        with tally.part("the page"):
            check_page(tally, paged.result(), package, newer)
        lap("the page")
        if not long:
            return
        for other, (number, commit) in zip(roots, OLD_COMMITS.items()):
            with tally.part(f"the package of {number}"):
                if old := build_old(other, commit):
                    check_old_package(tally, other, number, old, package)
                else:
                    tally.skip(f"the package of {number}", "its commit is not in this copy")
        with tally.part("autopkgtest"):
            check_smoke(tally, roots[-1], package)
        lap("old packages, autopkgtest")


if __name__ == "__main__":
    long = "--long" in sys.argv[2:]
    sys.argv = sys.argv[:2]
    sys.exit(main(lambda tally, build_dir: scenario(tally, build_dir, long)))
