"""Services of the fault tests whose processes may be killed one by one.

The listening socket is held here, as systemd holds that of a .socket unit, so
that it outlives a supervisor.  This process adopts the children of those that
die, so that it finds and ends all that it has started.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator

from load import Store, lib_service, wait_until

PR_SET_CHILD_SUBREAPER = 36
SUPERVISOR = "/usr/bin/multiwatch"


def adopt_orphans() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "prctl")


class Pool:
    """multiwatch and its workers on a socket of ours."""

    def __init__(self, store: Store, workers: int, settings: dict[str, str]) -> None:
        self.store = store
        self.workers_wanted = workers
        self.settings = {"PLANT_STORE_THREADS": "1"} | settings
        self.socket_path = store.root / "pool.sock"
        self.log_path = store.root / "pool.log"
        self.supervisor: subprocess.Popen | None = None
        self._known: set[int] = set()
        self.listener = lib_service.listening(self.socket_path)

    def start(self) -> None:
        environment = self.store.environment(PATH="/usr/bin:/bin", **self.settings)
        # We kill more than its default takes for accidents.
        command = [SUPERVISOR, f"--forks={self.workers_wanted}", "--retry=100000",
                   "--signal=TERM", "--", self.store.responder]
        self.supervisor = lib_service.start(
            command, self.log_path, env=environment, stdin=self.listener)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def log_bytes(self) -> int:
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def workers(self) -> list[int]:
        """All workers that live, also those whose supervisor has died."""
        found = self.orphans()
        if self.supervisor is not None and self.supervisor.poll() is None:
            found += lib_service.children_of(self.supervisor.pid)
        self._known.update(found)
        return found

    def orphans(self) -> list[int]:
        """Workers that became our children, told by their program.

        One that was not yet more than a fork of multiwatch is one, too.
        """
        programs = (str(self.store.responder), SUPERVISOR)
        supervisor = self.supervisor.pid if self.supervisor is not None else 0
        found = []
        for pid in lib_service.children_of(os.getpid()):
            with contextlib.suppress(OSError):
                program = os.readlink(f"/proc/{pid}/exe")
                if program in programs and pid != supervisor:
                    found.append(pid)
        return found

    def reap(self) -> None:
        """Take the ends of adopted workers; only of those that we knew."""
        for pid in list(self._known):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == pid:
                    self._known.discard(pid)

    def kill(self, pid: int) -> bool:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.reap()
        return True

    def kill_supervisor(self) -> None:
        if self.supervisor is not None:
            self.workers()
            self.supervisor.kill()
            self.supervisor.wait()

    def stop(self) -> int | None:
        """End all; the supervisor's status."""
        status = None
        self.workers()
        if self.supervisor is not None:
            status = lib_service.stop_process(self.supervisor)
        # A fork that the signal did not reach gets it at the next look.
        if not wait_until(lambda: not self.end_orphans(signal.SIGTERM)):
            wait_until(lambda: not self.end_orphans(signal.SIGKILL))
        return status

    def end_orphans(self, number: int) -> list[int]:
        """Send it to those that are left; whom."""
        self.reap()
        left = self.orphans()
        self._known.update(left)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return left


@contextlib.contextmanager
def pool(store: Store, workers: int = 8, **settings: str) -> Iterator[Pool]:
    running = Pool(store, workers, settings)
    try:
        running.start()
        yield running
    finally:
        running.stop()
        running.listener.close()
        running.socket_path.unlink(missing_ok=True)
