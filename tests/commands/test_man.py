#!/usr/bin/env python3
"""Hold the manual pages against mandoc, the programs' help and the code, and the
documents against what they link to.

usage: test_man.py BUILD_DIR
"""

import pathlib
import re
import sys
import tempfile

from lib_service import TOP, Tally, main, read_errors, run

MAN = TOP / "deploy" / "man"
COMMAND_PAGE = MAN / "plant-store.1"
RESPONDER_PAGE = MAN / "plant-store.fcgi.8"
JOURNAL_PAGE = MAN / "plant-store-journal.5"
README = TOP / "README.md"
# Of what everybody reads.
LINES_MAX = {README: 120, TOP / "deploy/README.md": 150}
COLUMNS_MAX = 120
# What of the system's pages is installed is not for our pages to answer.
FOREIGN = "referenced manual not found"
COMMON_OPTIONS = {"--help"}


def output(*command: object) -> str:
    return run(*command, text=True).stdout


def rendered(page: pathlib.Path) -> str:
    """The page as it is read, with every run of blanks as one."""
    text = output("mandoc", "-T", "utf8", "-O", "width=1000", page)
    return re.sub(r"\s+", " ", re.sub(r".\x08", "", text))


def check_lint(tally: Tally) -> None:
    for page in sorted(MAN.iterdir()):
        told = output("mandoc", "-T", "lint", page).splitlines()
        faults = [line for line in told if FOREIGN not in line]
        tally.check(not faults, f"{page.name} is clean under mandoc's lint", faults)
    with tempfile.NamedTemporaryFile("w") as broken:
        broken.write(COMMAND_PAGE.read_text().replace(".Sh NAME", ".Sh", 1))
        broken.flush()
        told = output("mandoc", "-T", "lint", broken.name)
        tally.check("NAME" in told, "it would find what is missing", told)


def check_errors(tally: Tally) -> None:
    """The table of the responder's page is the code's."""
    page = rendered(RESPONDER_PAGE)
    rows = read_errors()
    missing = [row for row in rows if not re.search(
        rf"\b{row.number} (?:\d{{3}} )+{re.escape(row.message)}", page)]
    tally.check(not missing, "the responder's page has every error", missing)
    numbers = set(re.findall(r" ([1-5]\d{3}) [45]\d\d ", page))
    others = numbers ^ {str(row.number) for row in rows}
    tally.check(not others, "the responder's page has no other error", others)
    again = [row for row in rows if row.number == 3008 and "again" in row.message]
    tally.check(not again, "what a retry cannot help is not to be sent again", again)


def check_settings(tally: Tally, build: pathlib.Path) -> None:
    """The page has exactly the settings and defaults of both programs' help."""
    told = output(build / "plant-store.fcgi", "--help")
    table = dict(re.findall(r"^  (PLANT_STORE_\w+) \((.*)\)$", told, re.M))
    tally.check(len(table) > 0, "the responder's help has the settings")
    part = told[told.index("Settings, "):]
    tally.check(output(build / "plant-store", "--help").endswith(part),
                "the command's help has the same ones")
    text = rendered(RESPONDER_PAGE)
    section = text[text.index(" ENVIRONMENT "):text.index(" FILES ")]
    page = dict(re.findall(r"(PLANT_STORE_\w+) [^(]*\(([^)]*)\)", section))
    ours = {name: default or "none" for name, default in table.items()}
    tally.check(
        page == ours, "the responder's page has exactly these, and their defaults", page)
    for program in ("plant-store", "plant-store.fcgi"):
        done = run(build / program, env={"PLANT_STORE_DRI": "/srv", "REQUEST_METHOD": "GET"},
                   text=True)
        tally.check(f"{program}: PLANT_STORE_DRI: " in done.stderr,
                    f"{program} warns of a name that is no setting", done.stderr)


def check_journal(tally: Tally) -> None:
    """The example is the beginning of the golden journal, folded."""
    example = re.search(r"\.Bd -literal\n(\{.*?)\.Ed", JOURNAL_PAGE.read_text(), re.S)
    golden = (TOP / "tests" / "golden" / "journal-v1.jsonl").read_text()
    lines = example[1].replace("\n ", "") if example else ""
    tally.check(lines.count("\n") == 2 and golden.startswith(lines),
                "the journal page's example is a real journal", lines)


def options_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def check_command(tally: Tally, build: pathlib.Path) -> None:
    """Each subcommand has a section that names exactly its help's options."""
    command = build / "plant-store"
    told = output(command, "--help")
    names = [name for name in re.findall(r"^([a-z]+) {2,}\S", told, re.M) if name != "help"]
    tally.check(len(names) > 0, "the command's help names subcommands")
    page = COMMAND_PAGE.read_text()
    sections = dict(re.findall(r"^\.Ss (\w+)\n(.*?)(?=^\.S[sh] )", page, re.M | re.S))
    tally.check(set(sections) == set(names),
                "the command's page has a section for each subcommand and no other",
                set(sections) ^ set(names))
    for name in names:
        text = output(command, name, "--help")
        ours = options_in(text) - COMMON_OPTIONS
        theirs = {
            "--" + word
            for word in re.findall(r"(?:\bFl|\|) -([a-z][a-z-]*)", sections.get(name, ""))
        } - COMMON_OPTIONS
        tally.check(
            ours == theirs, f"the page's section on {name} has exactly the options of its help",
            ours ^ theirs)
        for character in sorted(set(re.findall(r"U\+[0-9A-F]{4}", text))):
            tally.check(character in sections.get(name, ""),
                        f"the page's section on {name} tells of {character} as its help does")


def is_place(file: pathlib.Path, heading: str) -> bool:
    """Whether it exists, with this heading as GitHub names it."""
    if not heading:
        return file.exists()
    found = re.findall(r"^#+ (.*)$", file.read_text(), re.M) if file.is_file() else []
    return heading in {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in found}


def check_documents(tally: Tally) -> None:
    """Two pages stay short, and every link within the project leads to a place."""
    for page, most in LINES_MAX.items():
        lines = page.read_text().splitlines()
        longest = max(map(len, lines))
        tally.check(len(lines) <= most and longest <= COLUMNS_MAX,
                    f"{page.relative_to(TOP)}: at most {most} lines of {COLUMNS_MAX} columns",
                    (len(lines), longest))
    version = re.search(r"^VERSION := (.*)$", (TOP / "Makefile").read_text(), re.M)[1]
    newest = re.search(r"^## (\d[^,\n]*)", (TOP / "CHANGELOG.md").read_text(), re.M)[1]
    changes = (TOP / "CHANGELOG.md").read_text()
    tally.check(f"**Status**: {newest}. " in README.read_text()
                and ("\n## Unreleased\n" in changes if version.endswith("~dev") else newest == version),
                "README and CHANGELOG are of the Makefile's version", (version, newest))
    pages = [*TOP.glob("*.md"), *TOP.glob("deploy/**/*.md")]
    pages.append(TOP / "tests/bench/RESULTS.md")
    for page in sorted(pages):
        links = re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text())
        dead = [link for link in links if "://" not in link[0]
                and not is_place(page.parent / link[0] if link[0] else page, link[1])]
        name = page.relative_to(TOP)
        tally.check(not dead, f"{name}: every link within the project is good", dead)


def check_scripts(tally: Tally) -> None:
    for script in sorted((TOP / "scripts").iterdir()):
        for option in "-h", "--help":
            done = run(script, option, text=True)
            tally.check(done.returncode == 0 and script.name in done.stdout and not done.stderr,
                        f"{script.name} {option} tells its usage", done)


def scenario(tally: Tally, build_dir: str) -> None:
    build = pathlib.Path(build_dir).resolve()
    check_lint(tally)
    check_errors(tally)
    check_settings(tally, build)
    check_journal(tally)
    check_command(tally, build)
    check_documents(tally)
    check_scripts(tally)


if __name__ == "__main__":
    sys.exit(main(scenario))
