"""How the figures of a comparison are worded, in the terminal and on the page alike."""

from __future__ import annotations

import math

from stickymoe.experiments.comparing.record import Comparison, Estimate, Line
from stickymoe.experiments.formatting import DASH, fixed, percent, signed_percent

_MINUS = "\N{MINUS SIGN}"
GROUPS = {
    "quality": "Quality",
    "locality": "Locality",
    "cache": "Cache",
    "price": "Price of locality",
}


def value(unit: str, number: float) -> str:
    """Return a figure's value in its unit."""
    if not math.isfinite(number):
        return "∞" if number > 0 else DASH
    if unit == "share":
        return percent(number, 1)
    if unit == "times":
        return f"{number:.2f}×"
    return fixed(number, 2 if unit == "perplexity" else 3)


def change(unit: str, number: float) -> str:
    """Return a difference in its unit, with its sign; shares in points."""
    if not math.isfinite(number):
        return DASH
    if unit == "perplexity":
        return signed_percent(number, 1)
    text = f"{100 * number:+.1f}" if unit == "share" else f"{number:+.3f}" if unit != "times" else f"{number:+.2f}"
    return text.replace("-", _MINUS)


def interval(unit: str, estimate: Estimate) -> str:
    """Return a difference's interval as `+0.1 to +0.3`; empty where there is none."""
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{change(unit, estimate.low)} to {change(unit, estimate.high)}"


def spread(unit: str, estimate: Estimate) -> str:
    """Return a value's interval as `20.1 to 22.3`; empty where there is none."""
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{value(unit, estimate.low)} to {value(unit, estimate.high)}"


def verdict(found: Comparison) -> str:
    """Return what there is to say in one sentence or two."""
    overlap, hits = found.find("expert_overlap"), found.find("lru_hit_rate_0.25")
    said = [
        f"B {_more(overlap, 'shares')} of its experts between neighbouring tokens",
        f"and {_more(hits, 'finds')} of them in a cache of a quarter",
    ]
    text = " ".join(said)
    if not found.has("perplexity"):
        return f"{text}."
    quality = found.find("perplexity")
    return f"{text}; {_quality(quality)}."


def price(found: Comparison) -> str:
    """Return what locality costs beside quality, in one sentence."""
    load = found.find("pass_busiest") if found.has("pass_busiest") else found.find("load_busiest")
    what = "of a pass" if load.name == "pass_busiest" else "of the whole text"
    one, other = value("times", load.first.value), value("times", load.second.value)
    return f"The busiest expert {what} does {other} the mean work under B, {one} under A"


def _more(line: Line, verb: str) -> str:
    difference = line.difference
    if difference.low is not None and not difference.is_clear:
        return f"{verb} no clearly different share ({change('share', difference.value)} points)"
    word = "more" if difference.value > 0 else "less"
    return f"{verb} {abs(100 * difference.value):.1f} points {word}"


def _quality(line: Line) -> str:
    difference = line.difference
    text = signed_percent(abs(difference.value), 1).lstrip("+")
    inside = interval("perplexity", difference)
    if difference.low is not None and not difference.is_clear:
        return f"this text shows no clear difference in perplexity ({change('perplexity', difference.value)}, {inside})"
    word = "higher" if difference.value > 0 else "lower"
    return f"its perplexity is {text} {word}" + (f" ({inside})" if inside else "")
