#!/usr/bin/env python3
"""Goal: when any allocation fails, once or from then on, nothing crashes or
leaks, no plant that was acknowledged is lost, and the next start serves again.

Those of our own objects and json-c fail.  libfcgi ends the process when
one of its own fails, and libcrypto's are made before a request is looked at, so
these two are left out.
"""

import collections
import errno
import pathlib
import shutil
import sys
import tempfile

from lib_faults import Tally, compile_driver, compile_shim, run_script
from lib_service import memory
from syscalls import (
    COMMANDS, OPERATIONS, WORKER, Call, Template, Tools, run_cases, template_of,
)

COUNTING = {"FAULT_ALLOC": "libjson-c", "FAULT_PROGRAMS": "plant-store:driver"}
# Under valgrind, since each run takes a second: these, and a part of their cases.
VALGRIND_OPERATIONS = ("a new plant", "a journal that 1.0.0 renamed", "a long life")
VALGRIND_CASES = 8
VALGRIND = (
    # Ours shall stand before malloc, and only libc's be replaced.
    "valgrind -q --soname-synonyms=somalloc=nouserintercepts "
    "--error-exitcode=99 --leak-check=full "
    "--errors-for-leak-kinds=definite,indirect,possible"
)


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
    """Each fails once, and each with all behind it."""
    return [
        (call, f"{call.number}:error={errno.ENOMEM},{times}") for call in calls for times in (1, 0)]


def check_answered(tally: Tally, template: Template, calls: list[Call]) -> None:
    """A worker that cannot keep a request for the commit answers it."""
    growing = [call for call in calls if call.path == "realloc of program"]
    unanswered = []
    for call in growing:
        with template.copy() as store:
            plan = f"{call.number}:error={errno.ENOMEM},1"
            environment = template.environment(store, FAULT_PLAN=plan)
            outcome = template.operation.run(template.tools, store, environment)
        # Some are of the start, which then is refused.
        if outcome.status == 0:
            unanswered.append(outcome.unanswered)
    well = unanswered and not any(unanswered)
    tally.check(bool(well), "without memory to keep it, a request is answered",
                (unanswered, growing))


def scenario(tally: Tally, arguments) -> None:
    build = arguments.build
    tempfile.tempdir = memory()
    tools = Tools(build, compile_shim(build), compile_driver(build))
    with tempfile.TemporaryDirectory() as place:
        checked = below_valgrind(tools, pathlib.Path(place))
        for operation in (*OPERATIONS, *COMMANDS, WORKER):
            with (
                tally.part(f"{operation.name} runs to its end"),
                template_of(operation, tools) as template,
            ):
                template.counting = COUNTING
                calls = template.trace()
                counted = "--coverage" in (build / "command").read_text()
                if counted and operation.name == "an empty store":
                    tally.skip(operation.name, "gcov's allocations fail before its own")
                    continue
                origins = collections.Counter(call.path for call in calls)
                print(f"# {operation.name}: {len(calls)} allocations, {dict(origins)}")
                what = "each allocation failing once and from then on"
                run_cases(tally, template, what, plans_of(calls))
                if operation is WORKER:
                    check_answered(tally, template, calls)
                if operation.name not in VALGRIND_OPERATIONS:
                    continue
                what = "watched by valgrind"
                if counted:
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
    sys.exit(run_script(__doc__, scenario))
