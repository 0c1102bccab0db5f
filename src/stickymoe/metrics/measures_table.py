"""`Measures` as plain text, at most 100 columns wide."""

from collections.abc import Iterable, Iterator, Sequence

from stickymoe.metrics.measures import Measures
from stickymoe.metrics.tally import Value

WIDTH = 100


def table(measures: Measures) -> str:
    """Return what was measured as plain text: values, intervals, the layers' extremes, what chance would give."""
    sizes = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in measures.sizes.items())
    parts = [_wrapped(sizes), *_figures(measures), *_locality(measures), *_drift(measures), *_predictors(measures)]
    if measures.notes:
        parts.append("\n".join(_wrapped(note, "- ") for note in measures.notes))
    return "\n\n".join(parts)


def _figures(measures: Measures) -> Iterator[str]:
    for phase in dict.fromkeys(row.phase for row in measures.rows):
        lines = [("all tokens" if phase == "all" else phase, "value", _head(measures), "layers", "chance", "")]
        for row in measures.rows:
            if row.phase == phase:
                chance = "" if row.chance is None else _number(row.chance)
                found = (_number(row.value.mean), _interval(row.value), _extremes(row.value))
                lines.append((row.label, *found, chance, row.unit))
        yield _aligned(lines)


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
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.1f}"


def _interval(value: Value) -> str:
    return "" if value.interval is None else f"{_number(value.interval[0])} to {_number(value.interval[1])}"


def _extremes(value: Value) -> str:
    known = [each for each in value.per_layer if each is not None]
    return f"{_number(min(known))} .. {_number(max(known))}" if len(known) > 1 else ""


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    # First column to the left, the last of a table of figures too (units are words), the rest to the right.
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(_line(line, widths) for line in lines)


def _line(line: Iterable[str], widths: Sequence[int]) -> str:
    words = [word.ljust(width) if not column else word.rjust(width) for column, (word, width) in _cells(line, widths)]
    return "  ".join(word for word, width in zip(words, widths, strict=True) if width).rstrip()


def _cells(line: Iterable[str], widths: Sequence[int]) -> Iterator[tuple[int, tuple[str, int]]]:
    return enumerate(zip(line, widths, strict=True))


def _wrapped(text: str, bullet: str = "") -> str:
    import textwrap

    return textwrap.fill(text, WIDTH, initial_indent=bullet, subsequent_indent=" " * len(bullet))
