#!/usr/bin/env python3
"""Goal: another C library and other machines compile and run what this one does.

usage: test_portable.py BUILD_DIR musl|arm64|s390x

musl: everything compiles; the libraries that the tests of the lower layers need are
built from Debian's sources.  Machines: everything is built with Debian's cross compiler
and libraries, and runs under qemu-user; s390x is big-endian.  What is fetched comes from
where apt has its packages, into BUILD_DIR/portable.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from lib_service import TOP, Tally, run_scenario
from test_package import Mirror, needed

# As Debian, the compilers and qemu call them.
MACHINES = {
    "arm64": ("aarch64-linux-gnu", "qemu-aarch64"),
    "s390x": ("s390x-linux-gnu", "qemu-s390x"),
}
LIBRARIES = ("libc6-dev", "libcmocka-dev", "libfcgi-dev", "libjson-c-dev",
             "libpq-dev", "libseccomp-dev", "libssl-dev")
# Tests that fail because of qemu 7.2.  Each of them must fail.
EMULATOR = {
    "truncated_file_harms_no_process_that_counts_in_it":
        ("s390x", "the halves of a signal's si_addr are swapped"),
}
TEST_S = 3600.0  # of the longest, whose forks are slow under qemu

# Without a libc of their own: headers that everything can be compiled with.
FOREIGN = ("fcgi*.h", "openssl", "postgresql", "seccomp*.h",
           "asm", "asm-generic", "linux")
LOWER = ("pure", "ground", "plant", "store", "reader")
WHOLE = ("golden", "reader")  # tests that no module is named after


def objects(build: pathlib.Path, *patterns: str) -> list[str]:
    return [f"{build}/{source.relative_to(TOP).with_suffix('.o')}"
            for pattern in patterns for source in sorted(TOP.glob(pattern))]


def make(*words: object, **variables: str) -> None:
    needed("make", "-s", "-C", TOP, f"-j{os.cpu_count()}", *words,
           env={**os.environ, **variables})


# --- Unit tests --------------------------------------------------------------


def unit_test(program: pathlib.Path, emulator: list[str]) -> tuple[set, set, str]:
    """What passed, what failed, and the output."""
    with tempfile.TemporaryFile("w+") as log:
        status = 124
        try:
            # The disk is no part of this.
            status = subprocess.run(
                [*emulator, program], cwd=TOP, timeout=TEST_S, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, env={**os.environ, "TMPDIR": "/dev/shm"},
            ).returncode
        except subprocess.TimeoutExpired:
            pass
        log.seek(0)
        text = log.read()
    passed = set(re.findall(r"^\[ +OK \] (\w+)$", text, re.M))
    failed = set(re.findall(r"^\[  FAILED  \] (\w+)$", text, re.M))
    total = re.search(r"^\[=+\] Running (\d+) test", text, re.M)
    if total is None or len(passed) + len(failed) != int(total[1]) or (
            status != 0 and not failed):
        failed.add(f"{program.name}: status {status}")
    return passed, failed, text


def unit_tests(tally: Tally, programs: list[pathlib.Path], platform: str,
               *emulator: str) -> None:
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        done = pool.map(lambda program: unit_test(program, [*emulator]), programs)
        for program, (passed, failed, text) in zip(programs, done):
            for name in sorted(passed | failed):
                machines, reason = EMULATOR.get(name, ("", ""))
                if platform not in machines.split():
                    tally.check(name not in failed, f"{program.name}: {name}", text)
                elif tally.check(name in failed, f"{name} fails under qemu: {reason}"):
                    print(f"# {name} is not tested on {platform}")


# --- musl --------------------------------------------------------------------


def musl_libraries(mirror: Mirror, work: pathlib.Path) -> pathlib.Path:
    """json-c and cmocka, built from Debian's sources with musl."""
    prefix = work / "prefix"
    sources = mirror.fetch_sources("json-c", "cmocka")
    for name, *options in (("json-c", "-DBUILD_TESTING=OFF"),
                           ("cmocka", "-DWITH_STATIC_LIB=ON", "-DWITH_EXAMPLES=OFF")):
        built = work / f"build-{name}"
        needed("cmake", "-Wno-dev", "-S", sources[name], "-B", built,
               "-DCMAKE_C_COMPILER=musl-gcc", "-DCMAKE_BUILD_TYPE=Release",
               "-DBUILD_SHARED_LIBS=OFF", f"-DCMAKE_INSTALL_PREFIX={prefix}",
               "-DCMAKE_INSTALL_LIBDIR=lib", *options)
        needed("cmake", "--build", built, "--target", "install")
    return prefix


def foreign_headers(folder: pathlib.Path) -> pathlib.Path:
    """Headers of this system that name no C library."""
    system = pathlib.Path("/usr/include")
    for place in (system, system / needed("gcc", "-print-multiarch").strip()):
        for header in [found for name in FOREIGN for found in place.glob(name)]:
            if header.is_dir():
                shutil.copytree(header, folder / header.name, dirs_exist_ok=True)
            else:
                folder.mkdir(exist_ok=True)
                shutil.copy(header, folder)
    return folder


def musl(tally: Tally, work: pathlib.Path) -> None:
    prefix = musl_libraries(Mirror(work), work)
    headers = foreign_headers(work / "headers")
    build = work / "build"
    system = [prefix / "include", prefix / "include/json-c", headers,
              headers / "postgresql"]
    options = [
        f"BUILD={build}", "CC=musl-gcc", "PKG_CONFIG=true",
        "CPPFLAGS=" + " ".join(f"-isystem {folder}" for folder in system),
        f"LIBS={prefix}/lib/libjson-c.a",
        f"TEST_LIBS={prefix}/lib/libcmocka-static.a",
    ]
    make("-k", *options, *objects(build, "src/*/*.c", "tests/unit/*.c"))
    tally.check(True, "everything compiles with musl without a warning")
    modules = {path.stem for layer in LOWER for path in (TOP / "src" / layer).glob("*.c")}
    programs = [build / source.relative_to(TOP).with_suffix("")
                for source in sorted(TOP.glob("tests/unit/test_*.c"))
                if source.stem.removeprefix("test_") in modules | set(WHOLE)]
    make(*options, *programs)
    unit_tests(tally, programs, "musl")


# --- Other machines ----------------------------------------------------------


class Store:
    """A journal alone, which each program of this test gets a copy of."""

    def __init__(self, work: pathlib.Path) -> None:
        self.work = work
        self.journal = b""

    def run(self, program: list[object], *words: str, plants: bytes = b"") -> bytes:
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            journal = pathlib.Path(folder, "plants.jsonl")
            if self.journal:
                journal.write_bytes(self.journal)
                journal.chmod(0o600)
            done = subprocess.run([*program, *words, "--dir", folder], input=plants,
                                  capture_output=True, timeout=TEST_S)
            if done.returncode:
                raise RuntimeError(f"{words}: {done.stderr.decode()}")
            self.journal = journal.read_bytes()
            return done.stdout


def one_format(tally: Tally, work: pathlib.Path, ours: list, theirs: list) -> None:
    """Each continues the journal of the other, and reads the same of it."""
    golden = sorted((TOP / "tests/golden").rglob("*.jsonl"))
    for journal in golden:
        store = Store(work)
        store.journal = journal.read_bytes()
        exported = {store.run(program, "export", "--full") for program in (ours, theirs)}
        tally.check(len(exported) == 1 and len(exported.pop()) > 0,
                    f"{journal.relative_to(TOP)}: both machines read the same plants",
                    exported)
    tally.check(bool(golden), "there are golden journals")
    store = Store(work)
    store.run(theirs, "init")
    for number, program in enumerate((ours, theirs, ours, theirs)):
        plant = b'{"id":%d,"name":"Fern \xc3\xa9","tag":"%d"}\n' % (number - 2, number)
        store.run(program, "import", plants=plant)
    for program in (ours, theirs):
        store.run(program, "verify")
    exported = [store.run(program, "export", "--full") for program in (ours, theirs)]
    tally.check(exported[0] == exported[1] and exported[0].count(b"\n") == 4,
                "a journal that both have written reads the same on both", exported)


def machine(tally: Tally, work: pathlib.Path, name: str, native: str) -> None:
    triplet, emulator = MACHINES[name]
    root, build = work / "root", work / "build"
    Mirror(work).unpack(name, root, *LIBRARIES)
    places = (f"usr/lib/{triplet}/pkgconfig", "usr/share/pkgconfig")
    make("all", "postgresql", "tests", f"BUILD={build}", f"AR={triplet}-ar",
         f"CC={triplet}-gcc --sysroot={root}",
         PKG_CONFIG_LIBDIR=":".join(f"{root}/{place}" for place in places),
         PKG_CONFIG_SYSROOT_DIR=str(root))
    tally.check(True, f"everything is built for {name} without a warning")
    run = [emulator, "-L", str(root)]
    with tally.part("one format"):
        one_format(tally, work, [f"{native}/plant-store"],
                   [*run, build / "plant-store"])
    tally.skip(f"test_catch_up, {name}", "it forks so often that qemu takes hours")
    unit_tests(tally, [build / source.relative_to(TOP).with_suffix("")
                       for source in sorted(TOP.glob("tests/unit/test_*.c"))
                       if source.stem != "test_catch_up"], name, *run)


def scenario(tally: Tally, native: str, platform: str) -> None:
    work = pathlib.Path(native).resolve() / "portable" / platform
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    if platform == "musl":
        musl(tally, work)
    else:
        machine(tally, work, platform, native)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[2] not in ("musl", *MACHINES):
        print(__doc__, file=sys.stderr)
        sys.exit(os.EX_USAGE)
    sys.exit(run_scenario(lambda tally: scenario(tally, sys.argv[1], sys.argv[2])))
