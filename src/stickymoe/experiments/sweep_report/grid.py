"""A table as data, rendered into Markdown here and into HTML by the template: ours, its interval, the paper's value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stickymoe.experiments.formatting import DASH
from stickymoe.metrics.intervals import Interval


@dataclass(frozen=True)
class Cell:
    """A value.

    Attributes:
        text: Ours.
        small: Half the width of its interval, or another short remark.
        paper: What the paper's text gives; empty if it gives nothing.
        warns: Whether the value speaks against the method.
    """

    text: str
    small: str = ""
    paper: str = ""
    warns: bool = False


@dataclass(frozen=True)
class Line:
    """A row of a table; `variant` and `anchor` are empty where it is about no variant."""

    label: str
    cells: list[Cell]
    variant: str = ""
    anchor: str = ""


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes:
        id: Unique on the page.
        title: With the number of the paper's table.
        caption: How to read it.
        heads: Heading and small print of each column; the first is that of the labels.
        lines: Its rows.
    """

    id: str
    title: str
    caption: str
    heads: list[tuple[str, str]]
    lines: list[Line] = field(default_factory=list)


def over_seeds(found: Interval | None, write: Callable[[float], str], *, paper: str = "", warns: bool = False) -> Cell:
    """Return the cell of a value over seeds; with one seed it has no interval."""
    if found is None:
        return Cell(DASH, paper=paper)
    half = "" if found.high is None else f"±{write(found.high - found.mean).lstrip('+')}"
    return Cell(write(found.mean), half, paper, warns)


def markdown(grid: Grid) -> str:
    """Return a table as Markdown: title, caption, table."""
    heads = [f"{head} ({small})" if small else head for head, small in grid.heads]
    rows = [[line.label, *(_words(cell) for cell in line.cells)] for line in grid.lines]
    lines = [_row(heads), "|" + "---|" * len(heads), *(_row(row) for row in rows)]
    return f"### {grid.title}\n\n{grid.caption}\n\n" + "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Return text that a Markdown table cell shows as it is."""
    for sign in "\\|<`*_[":
        text = text.replace(sign, "\\" + sign)
    return " ".join(text.split())


def _words(cell: Cell) -> str:
    said = f"{cell.text} {cell.small}".strip() + (" ⚠" if cell.warns else "")
    return f"{said} (paper: {cell.paper})" if cell.paper else said


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"
