"""Matplotlib figures as inline SVG that follows the page's theme: same bytes every time, unique ids, no own fonts."""

from __future__ import annotations

import io
import re
from contextlib import AbstractContextManager
from typing import Any

import matplotlib
from matplotlib.figure import Figure

# Colours drawn as these hex values become CSS variables, so that one figure serves light and dark pages.
INK, MUTED, GRID, PAPER = "#1b2026", "#5c6670", "#e2e5e8", "#fffffe"
SERIES = ("#3d464f", "#0067b0", "#c2500a", "#00805c", "#9c4a86", "#8a6d00", "#3f6f8f", "#a32a2a")
_FONT = "DejaVu Sans"
_VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "card"} | {
    colour: f"series-{index}" for index, colour in enumerate(SERIES)
}

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": [_FONT],
    "font.size": 9.5,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": PAPER,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}


def house_style(**more: Any) -> AbstractContextManager[None]:
    """Draw and save under the house's settings; matplotlib's own are back afterwards. Write `__` for a name's dot."""
    settings: Any = _STYLE | {key.replace("__", "."): value for key, value in more.items()}
    return matplotlib.rc_context(settings)


def inline_svg(figure: Figure, name: str) -> str:
    """Return a figure as an `<svg>` element to stand inside HTML.

    Args:
        figure: Drawn under `house_style`.
        name: Unique on the page; every id is prefixed with it.
    """
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with house_style(svg__hashsalt=name):
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<style type=\"text/css\">.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r"(\bid=\"|href=\"#|url\(#)", rf"\g<1>{name}-", text)
    text = re.sub(r"<svg [^>]*viewBox=\"([^\"]*)\"[^>]*>", r'<svg viewBox="\1" aria-hidden="true">', text, count=1)
    text = text.replace(f"'{_FONT}'", "var(--sans)").replace("xlink:href", "href")
    return re.sub(r"#[0-9a-f]{6}\b", _themed, text)


def _themed(match: re.Match[str]) -> str:
    name = _VARIABLES.get(match[0])
    return f"var(--{name})" if name else match[0]
