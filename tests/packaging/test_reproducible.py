#!/usr/bin/env python3
"""Goal: the same commit gives the same bytes, whoever builds it, where and when.

usage: test_reproducible.py BUILD_DIR

Two users build the tarball, the programs and the package: in other folders, more than
a year apart, with another umask, time zone and language; a third one builds the package
in a fresh Debian.  The tarball, unpacked without git, then passes its own tests.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from lib_service import TOP, Tally, main, run
from test_package import needed, version

PROGRAMS = ("plant-store", "plant-store.fcgi", "postgresql.so")
STEP_S = 900.0
TESTS_S = 3600.0


class Builder:
    """Somebody, with a folder of their own."""

    def __init__(self, folder: pathlib.Path, user: int, umask: int,
                 prefix: tuple[str, ...] = (), **environment: str) -> None:
        self.folder = folder
        self.user = user
        self.umask = umask
        self.prefix = prefix
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder),
                            **environment}
        folder.mkdir(parents=True)
        os.chown(folder, user, user)

    def run(self, *command: object, cwd: pathlib.Path, **how) -> None:
        how = {"timeout": STEP_S, **how}
        done = run(*self.prefix, *command, cwd=cwd, env=self.environment, umask=self.umask,
                   stderr=subprocess.STDOUT, text=True, **how)
        if done.returncode:
            raise RuntimeError(f"{command}: status {done.returncode}: {done.stdout}")

    def unpack(self, tarball: pathlib.Path) -> pathlib.Path:
        self.run("tar", "-xf", tarball, cwd=self.folder, user=self.user,
                 group=self.user, extra_groups=())
        (tree,) = self.folder.glob("plant-store-*/")
        return tree

    def build(self, tarball: pathlib.Path) -> dict[str, str]:
        """Digests of what comes of it."""
        tree = self.unpack(tarball)
        self.run("make", "-s", f"-j{os.cpu_count()}", "all", "postgresql", "deb",
                 cwd=tree, user=self.user, group=self.user, extra_groups=())
        made = [*(tree / "build" / name for name in PROGRAMS),
                *(tree / "build/deb").glob("*.deb")]
        return {file.name: digest(file) for file in made}


def digest(file: pathlib.Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def check_same(tally: Tally, one: Builder, other: Builder) -> pathlib.Path:
    name = f"plant-store-{version()}.tar.gz"
    for builder in (one, other):
        # Only the owner of a repository may use it.
        builder.run("make", "-s", f"BUILD={builder.folder}", "dist", cwd=TOP)
    tarball = one.folder / name
    tarball.chmod(0o644)
    tally.check(digest(tarball) == digest(other.folder / name),
                "two tarballs of a commit are the same")
    other.run("sha256sum", "--quiet", "-c", f"{name}.sha256", cwd=other.folder)
    first, second = one.build(tarball), other.build(tarball)
    for number, sums in enumerate(("", one.folder / "0/rebuilt" / f"plant-store_{version()}.sha256")):
        one.environment["BUILD"] = str(one.folder / str(number))
        one.run(TOP / "scripts/rebuild", tarball, sums, cwd=TOP, timeout=TESTS_S)
    tally.check(True, "a fresh Debian builds the same packages again")
    tally.check(len(first) >= len(PROGRAMS) + 2, "two packages are built", first)
    for file in sorted(first | second):
        tally.check(first.get(file) == second.get(file), f"{file}: two are the same",
                    f"{first.get(file)} {second.get(file)}")
    return tarball


def check_tests(tally: Tally, builder: Builder, tarball: pathlib.Path) -> None:
    shutil.rmtree(builder.folder)
    builder.folder.mkdir()
    # npm may need settings of this machine.
    builder.environment = dict(os.environ)
    # It ends what it has started only if it is asked to.
    builder.run("timeout", "-k", "20", TESTS_S, "scripts/test",
                cwd=builder.unpack(tarball), timeout=TESTS_S + 30)
    tally.check(True, "the unpacked tarball passes its own tests")


def scenario(tally: Tally, build: str) -> None:
    work = pathlib.Path(tempfile.mkdtemp(prefix="plant-store-"))
    work.chmod(0o755)  # for the other user
    try:
        needed("localedef", "-i", "tr_TR", "-f", "UTF-8", work / "tr_TR.UTF-8")
        proxies = {name: value for name, value in os.environ.items()
                   if name.endswith("_proxy")}
        one = Builder(work / "one", os.getuid(), 0o022, LC_ALL="C.UTF-8", **proxies)
        other = Builder(
            work / "others" / "a-longer-folder",
            65534 if os.geteuid() == 0 else os.getuid(), 0o077,
            ("faketime", "-f", "+400d"), LC_ALL="tr_TR.UTF-8", LOCPATH=str(work),
            TZ="Pacific/Kiritimati", NO_FAKE_STAT="1", FAKETIME_DONT_RESET="1")
        tarball = check_same(tally, one, other)
        with tally.part("its own tests"):
            shutil.move(tarball, work)
            check_tests(tally, one, work / tarball.name)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(main(scenario))
