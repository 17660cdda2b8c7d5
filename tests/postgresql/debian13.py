#!/usr/bin/env python3
"""Goal: the tests of this folder pass with Debian 13's PostgreSQL, libpq and Patroni.

usage: debian13.py BUILD_DIR [--long]

In a Debian 13 of its own, where the module is built; on Debian 13 they have run already.
"""

import pathlib
import sys
import tempfile

from lib_postgresql import lib_service
import lib_faults
import test_places
from lib_service import Tally

PACKAGES = ("libpq-dev", "postgresql", "etcd-server", "patroni", "python3-etcd", "haproxy", "iproute2",
            "systemd")
TESTS = ("single", "hostile", "standby", "feed", "by_hand", "patroni")
TEST = r"""
cd /sources
make -s -j2 all postgresql
exec python3 "tests/postgresql/$1.py" build
"""


def scenario(tally: Tally, arguments) -> None:
    here = lib_service.run("sh", "-c", ". /etc/os-release; echo $VERSION_CODENAME", text=True).stdout
    if here.strip() == "trixie":
        tally.skip("Debian 13", "this is it")
        return
    if tally.lacks("Debian 13", "root", "mounts", "a network of its own", "mmdebstrap"):
        return
    with tempfile.TemporaryDirectory(dir=arguments.build, prefix="debian13-") as name:
        root = test_places.make_root(pathlib.Path(name), "trixie", *PACKAGES)
        for test in TESTS:
            done = test_places.run_inside(root, "1777", "bash", "-ec", TEST, "bash", test)
            print(done.stdout)
            tally.check(done.returncode == 0, f"Debian 13: {test}.py", done.stdout.splitlines()[-1:])


if __name__ == "__main__":
    sys.exit(lib_faults.run_script(__doc__, scenario))
