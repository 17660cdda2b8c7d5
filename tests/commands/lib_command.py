"""What the tests of plant-store's subcommands share."""

import contextlib
import os
import pty
import subprocess
import termios
from collections.abc import Callable

from lib_service import WAIT_S as TIMEOUT_S
from lib_service import Store, Tally

USAGE, DATAERR, NOINPUT, UNAVAILABLE, CANTCREAT = 64, 65, 66, 69, 73
IOERR, TEMPFAIL, NOPERM, CONFIG = 74, 75, 77, 78
INTERRUPTED = 130


def expect(
    tally: Tally, done: subprocess.CompletedProcess, sentence: str, status: int = 0,
    out: object = None, err: object = None
) -> bool:
    """How a command ended: its status, all of its output, and words that its stderr has;
    empty words: it has none."""
    well = done.returncode == status and out in (None, done.stdout)
    for words in err if isinstance(err, (list, tuple)) else [err]:
        if words is not None:
            well = well and (words in done.stderr if words else not done.stderr)
    expected = f"status {status}, stdout {out!r}, stderr with {err!r}"
    return tally.check(well, sentence, f"expected: {expected}; came: {done}")


def start(store: Store, *words: object, **options: object) -> subprocess.Popen:
    """`plant-store WORDS...` on this store."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([store.build / "plant-store", *map(str, words)],
                            env=store.environment(), stdin=subprocess.DEVNULL, **options)


def read_to_end(fd: int) -> bytes:
    """All that comes from a pipe or a terminal, which is closed then."""
    said = b""
    with contextlib.suppress(OSError):  # so a terminal ends
        while part := os.read(fd, 10000):
            said += part
    os.close(fd)
    return said


def through_terminal(call: Callable[[int], object]) -> tuple[object, bytes]:
    """The result of a call that is given a terminal, and what comes through that."""
    master, slave = pty.openpty()
    attributes = termios.tcgetattr(slave)
    attributes[1] &= ~termios.OPOST  # bytes come as they are
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    result = call(slave)
    os.close(slave)
    return result, read_to_end(master)
