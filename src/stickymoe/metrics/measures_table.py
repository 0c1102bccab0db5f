"""`Measures` as plain text, at most 100 columns wide."""

import textwrap
from collections.abc import Iterator, Sequence

from stickymoe.metrics.measures import Measures, Row
from stickymoe.metrics.tally import Value

WIDTH = 100


# Long names by what the field calls them for short.
SHORT = {"segment_routing_best_performance": "SRP", "srp_rho_hat": "SRP rho hat", "segment_cache_best_hit_rate": "SCH"}


def table(measures: Measures) -> str:
    """Return what was measured as plain text: values, intervals, the layers' extremes, what chance would give."""
    parts = [_sizes(measures), *_figures(measures), *_locality(measures), *_drift(measures), *_predictors(measures)]
    if measures.notes:
        parts.append("\n".join(_wrapped(note, "- ") for note in measures.notes))
    return "\n\n".join(parts)


def _sizes(measures: Measures) -> str:
    size = measures.sizes
    experts = f"{_counted(size['layers'], 'layer')} of {_counted(size['num_experts'], 'expert')}"
    if "tokens" not in size:
        return f"{experts}, {_counted(size['uses'], 'use')}"
    tokens = f"{_counted(size['tokens'], 'token')} in {_counted(size['sequences'], 'sequence')}"
    return f"{tokens}, {experts}, top-{size['top_k']}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" + "s" * (number != 1)


def _figures(measures: Measures) -> Iterator[str]:
    for phase in dict.fromkeys(row.phase for row in measures.rows):
        heads = ("all tokens" if phase == "all" else phase, "value", _head(measures), "layers", "chance")
        lines: list[Sequence[str]] = [heads]
        for row in measures.rows:
            if row.phase == phase:
                chance = "" if row.chance is None else _number(row.chance)
                lines.append((_label(row), _number(row.value.mean), _interval(row.value), _extremes(row.value), chance))
        yield _aligned(lines)


def _label(row: Row) -> str:
    name = SHORT.get(row.name, row.name.replace("_", " "))
    words = ", ".join([name, *(f"{what} {number:,}" for what, number in row.parameters.items())])
    return words if row.unit == "share" else f"{words} ({row.unit})"


def _locality(measures: Measures) -> Iterator[str]:
    if not measures.locality:
        return
    heads = ("hit rate at capacity", "chance", "static", "held out", "LRU", "shuffled", "from order", "lives on")
    lines: list[Sequence[str]] = [heads]
    for phase, each in measures.locality:
        rates = (each.static, each.static_held_out, each.lru, each.lru_shuffled, each.order_gain)
        name = f"{each.capacity}" if phase == "all" else f"{each.capacity}, {phase}"
        lines.append((name, _number(each.chance), *(_number(rate.mean) for rate in rates), each.verdict))
    yield _aligned(lines)


def _drift(measures: Measures) -> Iterator[str]:
    if not measures.drift:
        return
    lines: list[Sequence[str]] = [("fixed set of", "learned on itself", "on the others", "drift", _head(measures))]
    for each in measures.drift:
        values = (_number(each.own.mean), _number(each.held_out.mean), _number(each.drift.mean), _interval(each.drift))
        lines.append((f"{each.capacity} experts a layer", *values))
    yield _aligned(lines)


def _predictors(measures: Measures) -> Iterator[str]:
    if not measures.predictions:
        return
    lines: list[Sequence[str]] = [("predictor", "budget", "recall", _head(measures), "over-fetch", "chance")]
    for each in measures.predictions:
        if each.recall is not None and each.over_fetch is not None:
            found = (_number(each.recall.mean), _interval(each.recall), _number(each.over_fetch.mean))
            lines.append((each.predictor, str(each.budget), *found, _number(each.chance)))
    if len(lines) > 1:
        yield _aligned(lines)


def _head(measures: Measures) -> str:
    return "" if measures.resampling is None else f"{100 * float(measures.resampling['confidence']):g} % interval"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) < 100:
        return f"{value:.3f}"
    return f"{value:,.1f}" if abs(value) < 1e5 else f"{value:.2e}"


def _interval(value: Value) -> str:
    return "" if value.interval is None else f"{_number(value.interval[0])} to {_number(value.interval[1])}"


def _extremes(value: Value) -> str:
    known = [each for each in value.per_layer if each is not None]
    return f"{_number(min(known))} .. {_number(max(known))}" if len(known) > 1 else ""


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    # The first column to the left, numbers to the right; columns in which nothing stands are left out.
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = []
    for first, *others in lines:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True) if width]
        rows.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(rows)


def _wrapped(text: str, bullet: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=bullet, subsequent_indent=" " * len(bullet))
