"""Medians, tables and the verdict."""

import dataclasses
import statistics
from collections.abc import Sequence


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
    met: bool = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        met = self.value >= self.bound if self.at_least else self.value <= self.bound
        object.__setattr__(self, "met", met)

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        return f"{self.what}: {self.value:.3g}{self.unit} ({sign} {self.bound:g})"


def print_verdict(aims: Sequence[Aim], said: Sequence[tuple[bool, str]]) -> None:
    """`said`: of the programs that judge themselves, whether met and a sentence."""
    lines = [(aim.met, str(aim)) for aim in aims] + list(said)
    print(f"\nAims, by the medians: {sum(met for met, _ in lines)} of {len(lines)} met")
    for met, sentence in sorted(lines, key=lambda line: line[0]):
        print(f"  {'met   ' if met else 'MISSED'} {sentence}")
