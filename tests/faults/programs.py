"""Builds and runs the fault tests that are C programs.

They are linked with the library of a build directory, in the way in which that
was built, also with sanitizers.
"""

import os
import pathlib
import shlex
import subprocess
import tempfile
from collections.abc import Sequence

from lib_service import TOP, Tally, memory, run
HERE = pathlib.Path(__file__).resolve().parent

# The sources of stores in memory.
LAB = ("lab.c", "../unit/store_parts.c")


class Programs:
    """The C programs of one build directory."""

    def __init__(self, build: pathlib.Path) -> None:
        self.build = build
        compiling, linking = (self.build / "command").read_text().splitlines()[:2]
        self.compiling = shlex.split(compiling)
        self.linking = shlex.split(linking)[1:]

    def sanitized(self) -> bool:
        return any(word.startswith("-fsanitize") for word in self.compiling)

    def make(self, name: str, *sources: str, libraries: Sequence[str] = ()) -> pathlib.Path:
        """Build the program of these files of this directory."""
        program = self.build / "tests" / "faults" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        # Under another name first: another test may be using the old one.
        fresh = program.with_name(f"{name}.{os.getpid()}")
        folders = ("tests/unit", "tests/faults", "tests/bench")
        command = [*self.compiling, *(f"-I{folder}" for folder in folders)]
        command += ["-o", str(fresh)]
        command += [str(HERE / source) for source in sources]
        command += [str(self.build / "libplant-store.a"), *self.linking, *libraries]
        done = run(*command, cwd=TOP, text=True)
        if done.returncode:
            raise RuntimeError(f"cannot build {name}: {done.stdout}{done.stderr}")
        fresh.rename(program)
        return program


def run_program(tally: Tally, command: list[object], timeout_s: float) -> None:
    """Run a program that prints lines "ok - WHAT" and "not ok - WHAT"."""
    with tempfile.TemporaryDirectory(dir=memory()) as directory:
        run_in(directory, tally, [str(word) for word in command], timeout_s)


def run_in(directory: str, tally: Tally, words: list[str], timeout_s: float) -> None:
    """The same, with that directory for its files."""
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace",
                               start_new_session=True, env={**os.environ, "TMPDIR": directory})
    try:
        out, _ = process.communicate(timeout=timeout_s)
    except BaseException as error:
        # Its workers too: they are its process group.
        subprocess.run(["kill", "--", f"-{process.pid}"], check=False)
        process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        tally.check(False, f"{words[0]} ends in time", f"{timeout_s:.0f} s")
        return
    seen = 0
    for line in out.splitlines():
        if line.startswith("ok - "):
            seen += tally.check(True, line.removeprefix("ok - "))
        elif line.startswith("not ok - "):
            sentence, _, detail = line.removeprefix("not ok - ").partition(": ")
            tally.check(False, sentence, detail)
        else:
            print(line, flush=True)
    if process.returncode or not seen:
        tally.check(
            process.returncode == 0 and seen > 0, f"{pathlib.Path(words[0]).name} succeeds",
            f"exit status {process.returncode}")
