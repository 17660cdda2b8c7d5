"""What the fault tests share: their own programs, answers as events, cases."""

import argparse
import concurrent.futures
import contextlib
import ctypes
import io
import multiprocessing
import os
import pathlib
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

HERE = pathlib.Path(__file__).resolve().parent

from history import Content, Event, check
from lib_service import (
    TOP, WAIT_S, Answer, Store, Tally, check_length, new_plant, parse_cgi, run, run_scenario,
)
import lib_place  # which lib_service finds

SANITIZER_WORDS = ("Sanitizer", "runtime error:", "Assertion", "*** ")
# Failed, no answer behind a web server, a database that did not confirm.
NOT_KNOWN = (5003, 5007, 5009)
WORKERS = os.cpu_count() or 1


# --- Work side by side ---------------------------------------------------------


_work: Callable[[int], object]  # what the forked processes do


def _do(number: int) -> object:
    return _work(number)


def side_by_side(work: Callable, cases: Sequence, workers: int = WORKERS) -> Iterator:
    """work(case) of all cases, some at a time; the results in order.

    In forked processes, so `work` may be anything and what it needs is there.
    """
    global _work
    _work = lambda number: work(cases[number])  # noqa: E731
    if not os.access("/dev/shm", os.W_OK):  # of which multiprocessing makes its locks
        yield from map(work, cases)
        return
    fork = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(min(workers, len(cases) or 1), fork) as pool:
        yield from pool.map(_do, range(len(cases)))


Part = tuple[str, Callable[[Tally], None]]


def parts_side_by_side(tally: Tally, parts: list[Part], workers: int = WORKERS) -> None:
    """Parts that share nothing, each a sentence and what checks it."""

    def run_part(part: Part) -> tuple[str, Tally]:
        own, out = Tally(), io.StringIO()
        with contextlib.redirect_stdout(out), own.part(part[0]):
            part[1](own)
        return out.getvalue(), own

    for text, own in side_by_side(run_part, parts, workers):
        print(text, end="", flush=True)
        tally.passed += own.passed
        tally.failed += own.failed
        tally.skipped += own.skipped


# --- Programs ----------------------------------------------------------------


def compile_shim(build: pathlib.Path, name: str = "preload") -> pathlib.Path:
    """A library for LD_PRELOAD."""
    made = build / "tests" / "faults" / f"{name}.so"
    made.parent.mkdir(parents=True, exist_ok=True)
    source = HERE / f"{name}.c"
    command = "cc -std=gnu17 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -fPIC -shared"
    # Under another name first: another test may be using the old one.
    fresh = made.with_suffix(f".{os.getpid()}")
    subprocess.run([*command.split(), "-o", fresh, source], check=True)
    fresh.rename(made)
    return made


def compile_program(build: pathlib.Path, name: str, *sources: str, libraries: Sequence[str] = ()
                    ) -> pathlib.Path:
    """A program of these files, by default NAME.c, of this directory, with the library of a
    build and in the way in which that was built, also with sanitizers."""
    compiling, linking = (build / "command").read_text().splitlines()[:2]
    program = build / "tests" / "faults" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    # Under another name first: another test may be using the old one.
    fresh = program.with_name(f"{name}.{os.getpid()}")
    done = run(*shlex.split(compiling), "-Itests/unit", "-o", fresh,
               *(HERE / source for source in sources or [f"{name}.c"]), build / "libplant-store.a",
               *shlex.split(linking)[1:], *libraries, cwd=TOP, text=True)
    if done.returncode:
        raise RuntimeError(f"cannot build {name}: {done.stdout}{done.stderr}")
    fresh.rename(program)
    return program


def is_sanitized(build: pathlib.Path) -> bool:
    return "-fsanitize" in (build / "command").read_text()


def compile_driver(build: pathlib.Path) -> pathlib.Path:
    return compile_program(build, "driver")


def preload(shim: pathlib.Path, **settings: str) -> dict[str, str]:
    """The environment of a program that runs with a shim."""
    options = os.environ.get("ASAN_OPTIONS", "")
    return {
        "LD_PRELOAD": str(shim),
        "ASAN_OPTIONS": f"{options}:verify_asan_link_order=0",
        **settings,
    }


# --- Outcomes ----------------------------------------------------------------


def outcome_of(answer: Answer | None) -> str:
    """What an answer, or none, says of the plant, as history.Event wants it."""
    if answer is None:
        return "maybe"
    if answer.status == 200:
        return "created_or_same"
    if answer.status == 409:
        return "conflict"
    # A web server's own page leaves it open, too.
    unknown = answer.error() in (*NOT_KNOWN, None) or answer.status == 500
    return "maybe" if unknown else "refused"


def read_answer(raw: bytes) -> Answer | None:
    """The answer of a CGI program; None if it is not a whole one."""
    try:
        return check_length(parse_cgi(raw))
    except ValueError:
        return None


def event(start: float, plant_id: int, content: Content, outcome: str) -> Event:
    """An event that ends now."""
    return Event(start, time.monotonic(), plant_id, content, outcome)


def create_by_cgi(
    store: Store, plant_id: int, name: str, environment: dict[str, str] | None = None,
    timeout_s: float = WAIT_S, *, escaped: bool = False
) -> tuple[Event, subprocess.CompletedProcess, Answer | None]:
    """One plant through one process; `escaped`: as no canonical form has it."""
    body = new_plant(plant_id, name)
    if escaped:
        letters = "".join(f"\\u{ord(letter):04x}" for letter in name)
        body = f'{{"id":{plant_id},"name":"{letters}"}}'.encode()
    start = time.monotonic()
    done = run(store.responder, input=body, timeout=timeout_s,
               env={**store.environment(), **store.request(body), **(environment or {})})
    answer = read_answer(done.stdout)
    return event(start, plant_id, (name, None), outcome_of(answer)), done, answer


def judge(store: Store, events: Iterable[Event]) -> list[str]:
    """What of the promises does not hold; the journal must be whole."""
    try:
        return check(events, store.plants())
    except Exception as error:
        return [f"the journal: {type(error).__name__}: {error}"]


# --- Large stores --------------------------------------------------------------

SAMPLE_BATCH = 20_000


def import_samples(program: pathlib.Path, store: pathlib.Path, count: int) -> None:
    """Plants as clients number them: half of the ids follow each other, half are anywhere,
    since an odd factor reaches each number once; as in callers.c."""
    with subprocess.Popen([program, "import", "--quiet", "--dir", store],
                          stdin=subprocess.PIPE) as process:
        for first in range(0, count, SAMPLE_BATCH):
            lines = []
            for i in range(first, min(count, first + SAMPLE_BATCH)):
                anywhere = (i * 0x9E3779B97F4A7C15 | 1) + (1 << 63) & (1 << 64) - 1
                plant_id = anywhere - (1 << 63) if i % 2 else i
                lines.append(b'{"id":%d,"name":"Plant no. %d","tag":"indoor"}\n' % (plant_id, i))
            process.stdin.write(b"".join(lines))
    if process.returncode:
        raise RuntimeError(f"import: {process.returncode}")


def own_kib(pid: int) -> int:
    """Memory of a process without pages of files; 0 if it has ended."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.M)
    return int(found[1]) if found else 0


# --- Scripts -----------------------------------------------------------------


def run_script(goal: str, scenario: Callable[[Tally, argparse.Namespace], None],
        *options: tuple[str, dict]) -> int:
    """The body of each script: BUILD_DIR, --long and options of its own."""
    parser = argparse.ArgumentParser(description=goal)
    parser.add_argument("build", type=pathlib.Path, help="folder of the build")
    parser.add_argument("--long", action="store_true", help="many more rounds")
    for name, settings in options:
        parser.add_argument(name, **settings)
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    have_own_mounts()

    def timed(tally: Tally) -> None:
        start = time.monotonic()
        try:
            scenario(tally, arguments)
        finally:
            print(f"# took {time.monotonic() - start:.1f} s")

    return run_scenario(timed)


# --- File systems ------------------------------------------------------------

CLONE_NEWNS = 0x00020000


def have_own_mounts() -> None:
    """Let nobody else see what we mount, where we can.

    Who begins a mount namespace of its own meanwhile, as a test of the package
    does, would keep a copy of the mount, and with it the file system's state.
    """
    if lib_place.allows("mounts") and ctypes.CDLL(None).unshare(CLONE_NEWNS) == 0:
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)


@contextlib.contextmanager
def mounted(device: str, place: pathlib.Path, *options: str):
    """Mount an image or a file system of none, and always unmount it."""
    mount(device, place, *options)
    try:
        yield place
    finally:
        unmount(place)


def mount(device: str | pathlib.Path, place: pathlib.Path, *options: str) -> None:
    done = run("mount", *options, device, place, text=True)
    if done.returncode:
        raise OSError(f"mount: {done.stderr.strip()}")


def unmount(place: pathlib.Path, seconds: float = 20.0) -> None:
    """Unmount; whoever still ends there is waited for."""
    deadline = time.monotonic() + seconds
    while is_mounted(place):
        done = run("umount", place, text=True)
        if done.returncode == 0:
            continue
        if time.monotonic() > deadline:
            # Goes when the last user of it does; the loop device with it.
            subprocess.run(["umount", "-l", str(place)], check=False)
            raise OSError(f"umount: {done.stderr.strip()}")
        time.sleep(0.05)


def is_mounted(place: pathlib.Path) -> bool:
    """Also of a file system that has gone down and answers nothing."""
    lines = pathlib.Path("/proc/self/mounts").read_text().splitlines()
    return any(line.split(" ")[1] == str(place) for line in lines)


MIB = 1 << 20
# The least that mkfs.xfs makes.
IMAGE_BYTES = {"ext4": 64 * MIB, "xfs": 300 * MIB}


def make_image(path: pathlib.Path, kind: str, size: int = 0) -> pathlib.Path:
    """A sparse file with an empty file system in it."""
    with open(path, "wb") as image:
        image.truncate(size or IMAGE_BYTES[kind])
    quiet = ["-q", "-F"] if kind == "ext4" else ["-q"]
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    run(f"mkfs.{kind}", *quiet, path, env=environment, check=True)
    return path

