#!/usr/bin/env python3
"""Hold the manual pages against mandoc, the programs' help and the code.

usage: test_man.py BUILD_DIR
"""

import pathlib
import re
import subprocess
import sys
import tempfile

from lib_service import TOP, Tally, main
from test_openapi import read_errors

MAN = TOP / "deploy" / "man"
COMMAND_PAGE = MAN / "plant-store.1"
RESPONDER_PAGE = MAN / "plant-store.fcgi.8"
JOURNAL_PAGE = MAN / "plant-store-journal.5"
README = TOP / "README.md"
# What of the system's pages is installed is not for our pages to answer.
FOREIGN = "referenced manual not found"
COMMON_OPTIONS = {"--help"}


def run(*command: object) -> str:
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    ).stdout


def rendered(page: pathlib.Path) -> str:
    """The page as it is read, with every run of blanks as one."""
    text = run("mandoc", "-T", "utf8", "-O", "width=1000", page)
    return re.sub(r"\s+", " ", re.sub(r".\x08", "", text))


def check_lint(tally: Tally) -> None:
    for page in sorted(MAN.iterdir()):
        told = run("mandoc", "-T", "lint", page).splitlines()
        faults = [line for line in told if FOREIGN not in line]
        tally.check(not faults, f"{page.name} is clean under mandoc's lint", faults)
    with tempfile.NamedTemporaryFile("w") as broken:
        broken.write(COMMAND_PAGE.read_text().replace(".Sh NAME", ".Sh", 1))
        broken.flush()
        told = run("mandoc", "-T", "lint", broken.name)
        tally.check("NAME" in told, "it would find what is missing", told)


def check_errors(tally: Tally) -> None:
    """The tables of README and of the responder's page are the code's."""
    page = rendered(RESPONDER_PAGE)
    readme = README.read_text()
    for name, text, form in (
        ("the responder's page", page, "{0} {1} {2}"),
        ("README", readme, "| {0} | {1} | {2} |"),
    ):
        missing = [
            row.number
            for row in read_errors()
            if form.format(row.number, row.status, row.message) not in text
        ]
        tally.check(not missing, f"{name} has every error of the table", missing)
        numbers = re.findall(r"(?:^|[ ])([1-5]\d{3}) (?:\| )?[45]\d\d ", text, re.M)
        known = {str(row.number) for row in read_errors()}
        tally.check(
            set(numbers) == known, f"{name} has no other error", set(numbers) ^ known
        )


def check_settings(tally: Tally, build: pathlib.Path) -> None:
    """The settings and their defaults are those of the responder's help."""
    told = run(build / "plant-store.fcgi", "--help")
    page = rendered(RESPONDER_PAGE)
    settings = re.findall(r"^  (PLANT_STORE_\w+)", told, re.M)
    tally.check(len(settings) > 0, "the responder's help names settings")
    for name in settings:
        default = re.search(name + r"[^(]*\(([^)]*)\)", told)
        part = re.search(name + r"((?!PLANT_STORE_).)*?\(([^)]*)\)", page)
        tally.check(
            default is not None
            and part is not None
            and (default[1] or "none") == part[2],
            f"the responder's page has {name} with its default",
            part and part[2],
        )


def check_journal(tally: Tally) -> None:
    """The example is the beginning of the golden journal, folded."""
    example = re.search(r"\.Bd -literal\n(\{.*?)\.Ed", JOURNAL_PAGE.read_text(), re.S)
    golden = (TOP / "tests" / "golden" / "journal-v1.jsonl").read_text()
    lines = example[1].replace("\n ", "") if example else ""
    tally.check(
        lines.count("\n") == 2 and golden.startswith(lines),
        "the journal page's example is a real journal",
        lines,
    )


def options_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def check_command(tally: Tally, build: pathlib.Path) -> None:
    """Each subcommand has a section that names exactly its help's options."""
    command = build / "plant-store"
    told = run(command, "--help")
    names = [
        name for name in re.findall(r"^([a-z]+) {2,}\S", told, re.M) if name != "help"
    ]
    tally.check(len(names) > 0, "the command's help names subcommands")
    page = COMMAND_PAGE.read_text()
    sections = dict(re.findall(r"^\.Ss (\w+)\n(.*?)(?=^\.S[sh] )", page, re.M | re.S))
    tally.check(
        set(sections) == set(names),
        "the command's page has a section for each subcommand and no other",
        set(sections) ^ set(names),
    )
    for name in names:
        text = run(command, name, "--help")
        ours = options_in(text) - COMMON_OPTIONS
        theirs = {
            "--" + word
            for word in re.findall(r"(?:\bFl|\|) -([a-z][a-z-]*)", sections.get(name, ""))
        } - COMMON_OPTIONS
        tally.check(
            ours == theirs,
            f"the page's section on {name} has exactly the options of its help",
            ours ^ theirs,
        )
        for character in sorted(set(re.findall(r"U\+[0-9A-F]{4}", text))):
            tally.check(
                character in sections.get(name, ""),
                f"the page's section on {name} tells of {character} as its help does",
            )


def scenario(tally: Tally, build_dir: str) -> None:
    build = pathlib.Path(build_dir).resolve()
    check_lint(tally)
    check_errors(tally)
    check_settings(tally, build)
    check_journal(tally)
    check_command(tally, build)


if __name__ == "__main__":
    sys.exit(main(scenario))
