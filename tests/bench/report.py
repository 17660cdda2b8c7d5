"""A run: options, scratch, what is wrong; medians, tables, aims and pictures."""

import argparse
import itertools
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence

PALETTE = "set linetype cycle 4; " + "; ".join(
    f"set linetype {number} lc rgb '{colour}' lw 2 pt 7 ps 0.6"
    for number, colour in enumerate(("#207040", "#c05020", "#7050a0", "#909090"), 1))


def spread(values: Sequence[float], form: str = ".0f") -> str:
    """The median, and the least and greatest."""
    return "{:{f}} ({:{f}}-{:{f}})".format(
        statistics.median(values), min(values), max(values), f=form)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence]) -> None:
    """Words to the left, figures to the right; a blank line before it."""
    lines = [list(header)] + [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    figures = [any(row[i][:1].isdigit() for row in lines[1:]) for i in range(len(widths))]
    print(f"\n{title}")
    for line in lines:
        cells = (cell.rjust(width) if right else cell.ljust(width)
                 for cell, width, right in zip(line, widths, figures, strict=True))
        print("  ".join(cells).rstrip(), flush=True)


class Bench:
    """A run of scripts/bench.

    args     quick, seconds, rounds, millions
    scratch  a folder on a disk
    wrong    sentences about counts that are not right; none in a good run
    figures  of each part, for --json
    """

    def __init__(self, args: argparse.Namespace, scratch: pathlib.Path) -> None:
        self.args = args
        self.scratch = scratch
        self.wrong: list[str] = []
        self.figures: dict[str, object] = {}
        self._aims: list[tuple[bool, str]] = []
        self._numbers = itertools.count()

    def aim(self, what: str, value: float, bound: float, least: bool = True) -> None:
        """`value` is to be at least `bound`, or at most."""
        met = value >= bound if least else value <= bound
        self._aims.append((met, f"{what}: {value:.3g} ({'>=' if least else '<='} {bound:g})"))

    def skip(self, what: str, reason: str) -> None:
        print(f"\nskipped: {what}: {reason}", flush=True)

    def check(self, right: bool, wrong: str) -> None:
        if not right:
            self.wrong.append(wrong)
            print(f"bench: {wrong}", file=sys.stderr)

    def progress(self, text: str) -> None:
        """One line that the next one overwrites; "" takes it away."""
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\033[K{text[:width]}", end="", file=sys.stderr, flush=True)

    def folder(self) -> pathlib.Path:
        """A new name on a disk."""
        return self.scratch / str(next(self._numbers))

    def print_verdict(self) -> None:
        met = sum(met for met, _ in self._aims)
        print(f"\nAims, by the medians: {met} of {len(self._aims)} met")
        for met, sentence in sorted(self._aims):
            print(f"  {'met   ' if met else 'MISSED'} {sentence}")
        self.figures["aims"] = self._aims
        self.figures["wrong"] = self.wrong


def machine(directory: pathlib.Path) -> str:
    out = subprocess.check_output(["df", "--output=source,fstype", str(directory)], text=True)
    return (f"{os.cpu_count()} CPUs, Linux {platform.release()}, {' '.join(out.split()[-2:])}; "
            f"load at the beginning {os.getloadavg()[0]:.1f}")


def draw(path: pathlib.Path, title: str, lines: dict[str, dict[int, float]]) -> None:
    """A picture: for each name, a figure at each number of connections; both axes
    logarithmic.  On one line, since nobody reads it."""
    ticks = sorted({x for points in lines.values() for x in points})
    script = [
        f"set terminal svg size 640,360 font 'sans,13' background 'white'; {PALETTE}",
        f"set title '{title}'; set logscale xy; set grid",
        f"set xrange [{ticks[0] / 1.3}:{ticks[-1] * 1.3}]",
        "set xlabel 'connections'; set key outside right top; set format y '%.6g'",
        f"set xtics ({', '.join(map(str, ticks))})",
        "plot " + ", ".join(f"'-' with linespoints title '{name}'" for name in lines),
    ]
    for points in lines.values():
        script += [*(f"{x} {y:.4g}" for x, y in sorted(points.items())), "e"]
    drawn = subprocess.run(["gnuplot"], input="\n".join(script), text=True, check=True,
                           stdout=subprocess.PIPE).stdout
    path.write_text(" ".join(drawn.split()) + "\n")
