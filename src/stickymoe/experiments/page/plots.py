"""Plots as data for plotly.js: plain dictionaries, colours named as the page's CSS variables (`var:accent`).

The script of the page puts colours in, so that one plot serves light, dark and print.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SERIES = 8
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "triangle-down", "star")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "solid", "dash", "dot")


def axes(x: str, y: str) -> dict[str, Any]:
    """Return the layout of a plot with these axis titles."""
    axis = {"gridcolor": "var:grid", "linecolor": "var:rule", "tickcolor": "var:rule", "zeroline": False,
            "automargin": True, "fixedrange": False}  # fmt: skip
    return {
        "xaxis": axis | {"title": {"text": x, "standoff": 8}},
        "yaxis": axis | {"title": {"text": y, "standoff": 8}},
        "hovermode": "closest",
    }


def colour_of(number: int) -> str:
    """Return the name of a series' colour."""
    return f"var:series-{number % SERIES}"


def framed(values: Sequence[float], share: float, least: float) -> tuple[float, float]:
    """Return an axis' limits: those of the values with `share` of their spread as room, `least` where all are equal."""
    room = share * (max(values) - min(values)) or least
    return min(values) - room, max(values) + room


def in_percent(rate: float) -> float:
    """Return a rate in percent, rounded to what a plot shows."""
    return round(100 * rate, 2)


def percents(rates: Sequence[float]) -> list[float]:
    """Return rates in percent, rounded to what a plot shows."""
    return [in_percent(rate) for rate in rates]
