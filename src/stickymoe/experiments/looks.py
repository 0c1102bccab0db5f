"""The colour and marker of each run, the same in every figure of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stickymoe.experiments.comparison import Row
from stickymoe.experiments.svg import MUTED, SERIES

_MARKERS = "osD^vPX*"


@dataclass(frozen=True)
class Look:
    """How a run is drawn. Colour never stands alone: the marker or the dashes tell the runs apart as well."""

    colour: str
    marker: str
    dashes: str | tuple[int, tuple[int, int]] = "-"


DENSE = Look(MUTED, "", (0, (5, 4)))


def looks_of(rows: Sequence[Row]) -> dict[str, Look]:
    """Give the baseline the first, neutral colour, dense controls dashes, and every other run a colour of its own."""
    looks, following = {}, 1
    for row in rows:
        if row.is_dense:
            looks[row.name] = DENSE
        elif row.is_baseline:
            looks[row.name] = Look(SERIES[0], _MARKERS[0])
        else:
            looks[row.name] = Look(SERIES[following % len(SERIES)], _MARKERS[following % len(_MARKERS)])
            following += 1
    return looks
