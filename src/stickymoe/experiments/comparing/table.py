"""The comparison in the terminal: at most 30 lines."""

from __future__ import annotations

import textwrap

from stickymoe.experiments.comparing.record import Comparison
from stickymoe.experiments.comparing.wording import GROUPS, change, interval, price, value, verdict

MOST_LINES = 30
WIDTH = 100


def summary(found: Comparison) -> list[str]:
    """Return the lines, none wider than 100 characters."""
    lines = [f"A  {found.first.line}", f"B  {found.second.line}", f"on {found.text}"]
    heads = ("", "A", "B", "B − A", "95 % interval")
    rows: list[tuple[str, ...]] = [heads]
    group = ""
    for line in found.lines:
        begins = line.group != group
        group = line.group
        label = f"{GROUPS[group].lower().split()[0]:<9}{line.label}" if begins else f"{'':<9}{line.label}"
        unit, difference = line.unit, line.difference
        rows.append(
            (
                label,
                value(unit, line.first.value),
                value(unit, line.second.value),
                change(unit, difference.value),
                interval(unit, difference),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    said = [verdict(found), f"{price(found)}."]
    if found.documents:
        worse = sum(each.second > each.first for each in found.documents)
        said.append(f"B predicts {worse} of {len(found.documents)} documents worse.")
    closing = textwrap.wrap(" ".join([*said, *(f"Note: {note}." for note in found.notes)]), WIDTH)
    room = MOST_LINES - len(closing)
    return [_cut(line) for line in lines[:room]] + closing


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
