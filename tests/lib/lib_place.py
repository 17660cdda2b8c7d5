"""What this place allows a test to do, found out by trying it, once in each program.

A place that forbids something is no failure of the service: the test says `skipped` there, and
for which need (Tally.lacks).  A test in which the service fails is never skipped.
"""

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable

SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
OTHER = "nobody"  # a user whom every machine has


def _succeeds(*command: str) -> bool:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False,
                          env={**os.environ, "PATH": f"{os.environ['PATH']}:{SYSTEM_PATH}"})
    return done.returncode == 0


def _is_root() -> bool:
    """Who is root only of a name space of one user can be no other."""
    return os.geteuid() == 0 and _succeeds("setpriv", f"--reuid={OTHER}", "--clear-groups", "true")


def _can_trace() -> bool:
    """The processes of another user, who can be one's own."""
    user = {"user": OTHER} if os.geteuid() == 0 else {}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                          **user) as other, \
            subprocess.Popen(["strace", "-o", "/dev/null", "-p", str(other.pid)],
                             stderr=subprocess.PIPE, text=True) as strace:
        attached = "attached" in strace.stderr.readline()
        other.stdin.close()
        strace.stderr.read()
    return attached


def _in_own_mounts(script: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="plant-store-") as folder:
        return _succeeds("unshare", "--mount", "sh", "-ec", f'cd "$1"; {script}', "sh", folder)


def _mounts_image(kind: str, size: str, *words: str) -> bool:
    return _in_own_mounts(f"truncate -s {size} image; mkfs.{kind} -q {' '.join(words)} image; "
                          f"mkdir place; mount -o loop image place; umount place")


NEEDS: dict[str, Callable[[], bool]] = {
    "root": _is_root,
    "strace of other processes": lambda: bool(shutil.which("strace")) and _can_trace(),
    "mounts": lambda: _in_own_mounts("mount -t tmpfs none ."),
    # Of which multiprocessing makes its locks.
    "a writable /dev/shm": lambda: os.access("/dev/shm", os.W_OK),
    "a network of its own": lambda: _succeeds("unshare", "--net", "true"),
    "ext4 on a loop device": lambda: _mounts_image("ext4", "64M", "-F"),
    "xfs on a loop device": lambda: _mounts_image("xfs", "300M"),  # the least of mkfs.xfs
    "FUSE": lambda: _succeeds("pkg-config", "--exists", "fuse3")
    and _succeeds("sh", "-c", ": <>/dev/fuse") and allows("mounts"),
}


@functools.cache
def allows(need: str) -> bool:
    """Whether there is this need: one of those above, or else a program."""
    if need in NEEDS:
        return NEEDS[need]()
    return shutil.which(need, path=f"{os.environ['PATH']}:{SYSTEM_PATH}") is not None
