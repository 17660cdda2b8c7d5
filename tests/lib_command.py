"""What the tests of plant-store's subcommands share."""

import contextlib
import fcntl
import os
import pathlib
import struct
import subprocess

from lib_service import Tally

USAGE, DATAERR, NOINPUT, UNAVAILABLE, CANTCREAT = 64, 65, 66, 69, 73
IOERR, TEMPFAIL, NOPERM, CONFIG = 74, 75, 77, 78
INTERRUPTED = 130
TIMEOUT_S = 60


def expect(
    tally: Tally, done: subprocess.CompletedProcess, sentence: str, status: int = 0,
    out: object = None, err: object = None,
) -> bool:
    """How a command ended: its status, all of its output, and words that its stderr has;
    empty words: it has none."""
    well = done.returncode == status and out in (None, done.stdout)
    for words in err if isinstance(err, (list, tuple)) else [err]:
        if words is not None:
            well = well and (words in done.stderr if words else not done.stderr)
    return tally.check(well, sentence, done)


def take_lock(journal: pathlib.Path) -> int:
    """Take the store's lock, as another process does; closing gives it back."""
    fd = os.open(journal, os.O_RDWR)
    whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, whole)
    return fd


def read_to_end(fd: int) -> bytes:
    """All that comes from a pipe or a terminal, which is closed then."""
    said = b""
    with contextlib.suppress(OSError):  # so a terminal ends
        while part := os.read(fd, 10000):
            said += part
    os.close(fd)
    return said
