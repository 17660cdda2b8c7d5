"""Prints what share of the sources the tests reached, and judges what is left.

usage: judge.py COUNTS LEFT

COUNTS is gcovr's JSON.  LEFT names the functions of which no test reaches all:

    FUNCTION: N lines | REASON
    FUNCTION: N branches | REASON

N is of lines, or of lines from which a branch is not taken.  A line of any module
that is neither reached nor in LEFT is an error.  In the strict modules so is a
branch, and an entry for more than is left; of the others both are told, since some
depend on the machine.
"""

import bisect
import dataclasses
import json
import pathlib
import re
import sys

# Those that read hostile or damaged bytes, or secrets.
STRICT = {"json.c", "record.c", "engine_file.c", "replay.c", "request.c", "tokens.c"}
ENTRY = re.compile(r"(\w+): (\d+) (line|branch)e?s? \| (.+)")


Place = tuple[str, str]  # a function, and "line" or "branch"


@dataclasses.dataclass
class Source:
    """A file's counts: of each kind how many there are, and which are not reached."""

    name: str
    total: dict[str, int]
    missing: dict[str, int]
    places: dict[Place, list[int]]  # their lines

    def strict(self) -> bool:
        return pathlib.Path(self.name).name in STRICT


def read_left(path: pathlib.Path) -> dict[Place, tuple[int, str]]:
    """How much of which function is known not to be reached, and why."""
    left = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = ENTRY.fullmatch(line)
        if match is None:
            sys.exit(f"coverage: {path}: line {number} is not of the format; see judge.py")
        function, count, kind, reason = match.groups()
        if (function, kind) in left:
            sys.exit(f"coverage: {path}: line {number} is there twice; remove it")
        left[function, kind] = int(count), reason
    return left


def read_source(counts: dict) -> Source:
    """One file of gcovr's report."""
    name = counts["file"]
    functions = sorted((row["lineno"], row["name"]) for row in counts["functions"])
    source = Source(name, {"line": 0, "branch": 0}, {"line": 0, "branch": 0}, {})
    for row in counts["lines"]:
        if row["gcovr/noncode"] or row["gcovr/excluded"]:
            continue
        number = row["line_number"]
        at = bisect.bisect(functions, (number, "\x7f")) - 1
        function = functions[at][1] if at >= 0 else "-"
        untaken = sum(branch["count"] == 0 for branch in row["branches"])
        source.total["line"] += 1
        source.total["branch"] += len(row["branches"])
        source.missing["line"] += row["count"] == 0
        source.missing["branch"] += untaken
        # A line that is not reached says all of its branches.
        if row["count"] == 0 or untaken > 0:
            kind = "line" if row["count"] == 0 else "branch"
            source.places.setdefault((function, kind), []).append(number)
    return source


def print_row(name: str, sources: list[Source]) -> None:
    shares = []
    for kind in ("line", "branch"):
        total = sum(source.total[kind] for source in sources)
        reached = total - sum(source.missing[kind] for source in sources)
        share = 100 * reached / (total or 1) if total else 100.0
        shares.append(f"{reached}/{total} {share:5.1f} %")
    print(f"{name:<34} {shares[0]:>17} {shares[1]:>17}")


def print_places(title: str, lines: list[str]) -> None:
    if lines:
        print(f"\n{title}:")
    for line in sorted(lines):
        print(f"    {line}")


def judge(sources: list[Source], left: dict[Place, tuple[int, str]]) -> int:
    """Print both tables; return the exit status."""
    print(f"{'file':<34} {'lines':>17} {'branches':>17}")
    for source in sources:
        print_row(source.name, [source])
    print_row("all", sources)
    print_row("all strict modules", [source for source in sources if source.strict()])
    known, fewer, branches, wrong = [], [], [], []
    found: dict[Place, int] = {}
    for source in sources:
        for (function, kind), numbers in source.places.items():
            count, reason = left.get((function, kind), (0, ""))
            what = f"{source.name} {function}: {kind} {', '.join(map(str, numbers))}"
            found[function, kind] = max(found.get((function, kind), 0), len(numbers))
            if len(numbers) <= count:
                known.append(f"{what} | {reason}")
            elif source.strict() or kind == "line":
                wrong.append(f"{what} | listed: {count}")
            else:
                branches.append(what)
            if source.strict() and len(numbers) < count:
                wrong.append(f"{what} | listed: {count}")
    for (function, kind), (count, _) in left.items():
        if found.get((function, kind), 0) < count:
            fewer.append(f"{function}: {count} {kind}")
    print_places("known not to be reached, and why", known)
    print_places("branches that are not reached, at these lines", branches)
    print_places("listed for more than is left: correct the entry", fewer)
    print_places("not as listed: test, remove or list it", wrong)
    print(f"\n{len(known)} places listed, {len(branches)} branches not, {len(wrong)} wrong")
    return 1 if wrong else 0


def main() -> int:
    counts, left = sys.argv[1:]
    files = json.loads(pathlib.Path(counts).read_text())["files"]
    sources = [read_source(row) for row in files]
    missing = STRICT - {pathlib.Path(source.name).name for source in sources}
    if missing:
        sys.exit(f"coverage: no counts of strict modules: {sorted(missing)}")
    return judge(sources, read_left(pathlib.Path(left)))


if __name__ == "__main__":
    sys.exit(main())
