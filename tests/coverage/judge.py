"""Prints what share of the sources the tests reached, and judges what is left.

usage: judge.py COUNTS LEFT

COUNTS is gcovr's JSON.  LEFT names what no test reaches, each with its reason:

    line FILE FUNCTION: TEXT | REASON
    branch FILE FUNCTION: TEXT | REASON

where TEXT is the line's text, so that the entry outlives lines that move; it
stands for every such line of the function.  A line of any module that is neither
reached nor in LEFT is an error.  In the strict modules so is a branch, and an entry
that was reached; of the others both are told, since some depend on the machine.
"""

import bisect
import dataclasses
import json
import pathlib
import re
import sys

# Those that read hostile or damaged bytes, or secrets.
STRICT = {
    "src/pure/json_scan.c", "src/pure/json_string.c", "src/pure/utf8.c", "src/pure/record.c",
    "src/store/recovery.c", "src/store/replay.c", "src/http/credential.c", "src/http/tokens.c",
}
ENTRY = re.compile(r"(line|branch) (\S+) (\w+): (.+) \| (.+)")


@dataclasses.dataclass(frozen=True)
class Place:
    """What may not have been reached: a line, or a branch that leaves it."""

    kind: str
    file: str
    function: str
    text: str


@dataclasses.dataclass
class Source:
    """A file's counts: of each kind how many there are, and which are not reached."""

    name: str
    total: dict[str, int]
    missing: dict[str, int]
    places: dict[Place, list[int]]  # their lines


def read_left(path: pathlib.Path) -> dict[Place, str]:
    """The places that are known not to be reached, and why."""
    left = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = ENTRY.fullmatch(line)
        if match is None:
            sys.exit(f"coverage: {path}: line {number} is not of the format; see judge.py")
        place = Place(*match.groups()[:4])
        if place in left:
            sys.exit(f"coverage: {path}: line {number} is there twice; remove it")
        left[place] = match.group(5)
    return left


def read_source(counts: dict) -> Source:
    """One file of gcovr's report."""
    name = counts["file"]
    texts = pathlib.Path(name).read_text().splitlines()
    functions = sorted((row["lineno"], row["name"]) for row in counts["functions"])
    source = Source(name, {"line": 0, "branch": 0}, {"line": 0, "branch": 0}, {})
    for row in counts["lines"]:
        if row["gcovr/noncode"] or row["gcovr/excluded"]:
            continue
        number = row["line_number"]
        at = bisect.bisect(functions, (number, "\x7f")) - 1
        function = functions[at][1] if at >= 0 else "-"
        text = texts[number - 1].strip()
        untaken = sum(branch["count"] == 0 for branch in row["branches"])
        source.total["line"] += 1
        source.total["branch"] += len(row["branches"])
        source.missing["line"] += row["count"] == 0
        source.missing["branch"] += untaken
        # A line that is not reached says all of its branches.
        if row["count"] == 0 or untaken > 0:
            kind = "line" if row["count"] == 0 else "branch"
            place = Place(kind, name, function, text)
            source.places.setdefault(place, []).append(number)
    return source


def print_row(name: str, sources: list[Source]) -> None:
    shares = []
    for kind in ("line", "branch"):
        total = sum(source.total[kind] for source in sources)
        reached = total - sum(source.missing[kind] for source in sources)
        share = 100 * reached / (total or 1) if total else 100.0
        shares.append(f"{reached}/{total} {share:5.1f} %")
    print(f"{name:<34} {shares[0]:>17} {shares[1]:>17}")


def print_places(title: str, places: list[tuple[Place, str]]) -> None:
    if places:
        print(f"\n{title}:")
    for place, what in places:
        print(f"    {place.kind} {place.file} {place.function}: {place.text} | {what}")


def judge(sources: list[Source], left: dict[Place, str]) -> int:
    """Print both tables; return the exit status."""
    print(f"{'file':<34} {'lines':>17} {'branches':>17}")
    for source in sources:
        print_row(source.name, [source])
    print_row("all", sources)
    print_row("all strict modules", [source for source in sources if source.name in STRICT])
    found = {place: lines for source in sources for place, lines in source.places.items()}
    unlisted: dict[bool, list[tuple[Place, str]]] = {True: [], False: []}
    for place, lines in found.items():
        if place not in left:
            numbers = ", ".join(map(str, lines))
            judged = place.file in STRICT or place.kind == "line"
            unlisted[judged].append((place, numbers))
    known = [(place, left[place]) for place in found if place in left]
    stale = [(place, "reached now, or gone") for place in left if place not in found]
    print_places("known not to be reached, and why", known)
    print_places("branches that are not reached, at these lines", unlisted[False])
    print_places("listed, but reached now or gone: remove the entry", stale)
    print_places("neither reached nor listed: test, remove or list it", unlisted[True])
    wrong = len(unlisted[True]) + sum(place.file in STRICT for place, _ in stale)
    print(f"\n{len(known)} places listed, {len(unlisted[False])} branches not, {wrong} wrong")
    return 1 if wrong else 0


def main() -> int:
    counts, left = sys.argv[1:]
    files = json.loads(pathlib.Path(counts).read_text())["files"]
    sources = [read_source(row) for row in files]
    missing = STRICT - {source.name for source in sources}
    if missing:
        sys.exit(f"coverage: no counts of strict modules: {sorted(missing)}")
    return judge(sources, read_left(pathlib.Path(left)))


if __name__ == "__main__":
    sys.exit(main())
