"""Medians, tables and the verdict."""

import dataclasses
import statistics
from collections.abc import Sequence


def spread(values: Sequence[float], form: str) -> str:
    """The median, and the least and greatest."""
    return "{:{f}} ({:{f}}-{:{f}})".format(
        statistics.median(values), min(values), max(values), f=form
    )


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence]) -> None:
    """Words to the left, figures to the right; a blank line before it."""
    lines = [list(header)] + [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    figures = [
        any(row[i][:1].isdigit() for row in lines[1:]) for i in range(len(widths))
    ]
    print(f"\n{title}")
    for line in lines:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, figures, strict=True)
        )
        print("  ".join(cells).rstrip())


@dataclasses.dataclass(frozen=True)
class Aim:
    """A figure that is aimed at, and the one that was measured."""

    what: str
    value: float
    bound: float
    at_least: bool = True
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        word = "met   " if self.met else "MISSED"
        return f"{word} {self.what}: {self.value:.2f}{self.unit} ({sign} {self.bound:g})"


def print_verdict(aims: Sequence[Aim]) -> None:
    print(f"\nAims, by the medians: {sum(aim.met for aim in aims)} of {len(aims)} met")
    for aim in sorted(aims, key=lambda aim: aim.met):
        print(f"  {aim}")
