#!/usr/bin/env python3
"""Goal: when any allocation fails, once or from then on, nothing crashes or
leaks, no plant that was acknowledged is lost, and the next start serves again.

Those of our own objects, json-c and LMDB fail.  libfcgi ends the process when
one of its own fails, and libcrypto's are made before a request is looked at, so
these two are left out.
"""

import collections
import contextlib
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Iterator

from lib_faults import Store, Tally, compile_driver, compile_shim, preload, run
from syscalls import (
    BOOT_ID,
    CHECK_URL,
    COMMANDS,
    OPERATIONS,
    WORKER,
    Call,
    Template,
    Tools,
    run_cases,
    template_of,
)

FROM = "libjson-c:liblmdb"
PROGRAMS = "plant-store:driver"
# Under valgrind, since each run takes a second: these, and a part of their cases.
VALGRIND_OPERATIONS = ("a new plant", "a failed store", "a long life")
VALGRIND_CASES = 8
VALGRIND = (
    # Ours shall stand before malloc, and only libc's be replaced.
    "valgrind -q --soname-synonyms=somalloc=nouserintercepts "
    "--error-exitcode=99 --leak-check=full "
    "--errors-for-leak-kinds=definite,indirect,possible"
)


class Allocations(Template):
    """Templates whose faults are those of allocations."""

    def environment(self, store: Store, **settings: str) -> dict[str, str]:
        plan = settings.pop("FAULT_PLAN", None)
        trace = settings.pop("FAULT_TRACE", None)
        chosen = {"ALLOC_FROM": FROM, "ALLOC_PROGRAMS": PROGRAMS}
        if plan:
            chosen["ALLOC_PLAN"] = plan
        if trace:
            chosen["ALLOC_TRACE"] = trace
        boot = store.root / "boot"
        if boot.exists():
            chosen["FAULT_BOOT_ID"] = str(boot)
        return preload(self.tools.shim, FAULT_SCOPE=BOOT_ID, **chosen)

    def parse(self, line: str) -> Call:
        number, name, origin = line.split()
        return Call(int(number), name, 0, 0, origin)


def below_valgrind(tools: Tools, place: pathlib.Path) -> Tools:
    """The same programs, each run by valgrind."""
    for program in (
        tools.build / "plant-store",
        tools.build / "plant-store.fcgi",
        tools.driver,
    ):
        wrapper = place / program.name
        wrapper.write_text(f'#!/bin/sh\nexec {VALGRIND} {program} "$@"\n')
        wrapper.chmod(0o755)
    return Tools(place, tools.shim, place / "driver")


def plans_of(calls: list[Call]) -> list[tuple[Call, str]]:
    return [(call, f"{call.number},{times}") for call in calls for times in (1, 0)]


@contextlib.contextmanager
def allocations_of(operation, tools: Tools) -> Iterator[Allocations]:
    with template_of(operation, tools) as template:
        yield Allocations(tools, operation, template.store, template.earlier)


def scenario(tally: Tally, arguments) -> None:
    build = arguments.build
    memory = pathlib.Path("/dev/shm")
    if os.access(memory, os.W_OK):
        tempfile.tempdir = str(memory)
    shims = [str(compile_shim(build, name)) for name in ("allocations", "preload")]
    tools = Tools(build, ":".join(shims), compile_driver(build))
    with tempfile.TemporaryDirectory() as place:
        checked = below_valgrind(tools, pathlib.Path(place))
        for operation in (*OPERATIONS, *COMMANDS, CHECK_URL, WORKER):
            with (
                tally.part(f"{operation.name} runs to its end"),
                allocations_of(operation, tools) as template,
            ):
                calls = template.trace()
                origins = collections.Counter(call.path for call in calls)
                print(f"# {operation.name}: {len(calls)} allocations, {dict(origins)}")
                what = "each allocation failing once and from then on"
                run_cases(tally, template, what, plans_of(calls))
                if operation.name not in VALGRIND_OPERATIONS:
                    continue
                what = "watched by valgrind"
                if "--coverage" in (build / "command").read_text():
                    tally.skip(f"{operation.name}, {what}", "lines are counted")
                    continue
                if shutil.which("valgrind") is None:
                    tally.skip(f"{operation.name}, {what}", "needs valgrind")
                    continue
                plans = plans_of(calls)
                if not arguments.long:
                    # An odd step, so that both kinds are among them.
                    plans = plans[:: len(plans) // VALGRIND_CASES | 1]
                template.tools = checked
                run_cases(tally, template, what, plans)


if __name__ == "__main__":
    sys.exit(run(__doc__, scenario))
