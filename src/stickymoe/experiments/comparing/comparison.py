"""`compare`: the figures of two subjects side by side, differences over the same units, curves and documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from stickymoe.cache import hit_rate_curve
from stickymoe.core.errors import TraceError
from stickymoe.data.progress import ProgressCallback, silent
from stickymoe.experiments.comparing.catalogue import SHARES, Entry, entries, slots_of
from stickymoe.experiments.comparing.record import Comparison, DocumentLine, Estimate, Line, Side, perplexity
from stickymoe.experiments.comparing.subject import Pair, Subject
from stickymoe.experiments.diagnosis.curves import Curve, curve_of
from stickymoe.metrics import Resampling, Value, chance_overlap, predictor_recall
from stickymoe.metrics.paired import figure_difference
from stickymoe.metrics.tally import evaluate
from stickymoe.metrics.units import units_of
from stickymoe.traces import DECODE, RoutingTrace

ALL_UP_TO, SOME = 256, 64  # capacities of LRU: every one, or this many
BELADY_POINTS = 10
GROUPS = ("quality", "locality", "cache", "price")
LOOKAHEAD = {"previous": "the token before", "markov": "what followed", "next-layer": "the layer before"}


def compare(pair: Pair, progress: ProgressCallback = silent) -> Comparison:
    """Compare B with A: quality, locality, hit rates and the price of locality, each difference with its interval.

    Intervals are drawn over sequences, the same ones for both where both routed the same tokens.

    Raises:
        TraceError: A trace has no two neighbouring tokens.
    """
    first, second = pair.first, pair.second
    resampling, paired = Resampling(), pair.is_paired
    progress("measuring", 0, None)
    lines = [*_lines(first, second, paired, resampling), *_lookahead(first, second, resampling)]
    if not any(line.name == "expert_overlap" for line in lines):
        raise TraceError(
            "a comparison needs sequences of two tokens or more, which routed side by side; got none in A or B"
        )
    curves = []
    for number, subject in enumerate((first, second)):
        progress(f"replaying {'AB'[number]}", 0, None)
        curves.append(_curves(subject.trace))
    lines += _bounds(first, second, *curves)
    lines.sort(key=lambda line: GROUPS.index(line.group))
    return Comparison(
        first=_side(first),
        second=_side(second),
        text=pair.text or f"{first.trace.num_tokens:,} and {second.trace.num_tokens:,} recorded tokens",
        lines=lines,
        curves=(curves[0], curves[1]),
        documents=list(_documents(pair)) if paired else [],
        counted="one cache a layer, every expert of a token looked up together, cold at each sequence",
        units=units_of(first.trace).kind,
        notes=list(_notes(first.trace, second.trace, paired)),
    )


def _lines(first: Subject, second: Subject, paired: bool, resampling: Resampling) -> Iterator[Line]:
    others: Mapping[str, Entry] = {entry.name: entry for entry in entries(second)}
    for entry in entries(first):
        if entry.name not in others:
            continue
        sides, values = [entry.counted, others[entry.name].counted], []
        for side in sides:
            figure = side.figure
            values.append(evaluate(side.trace, side.tally, [figure], side.units, resampling)[figure.name])
        if any(value.mean is None for value in values):
            continue
        one, other = _estimate(values[0]), _estimate(values[1])
        if paired and sides[0].units.count == sides[1].units.count:
            found = figure_difference(sides[0], sides[1], resampling)
            difference = Estimate(found.mean, found.low, found.high)
        else:
            difference = Estimate(other.value - one.value)
        per_layer = ((), ()) if entry.group == "quality" else (values[0].per_layer, values[1].per_layer)
        line = Line(entry.name, entry.group, entry.label, entry.unit, one, other, difference, per_layer)
        if entry.name == "cross_entropy":
            yield _perplexity(line)
        yield line


def _perplexity(nats: Line) -> Line:
    return Line(
        "perplexity",
        "quality",
        "perplexity",
        "perplexity",
        nats.first.mapped(perplexity),
        nats.second.mapped(perplexity),
        nats.difference.mapped(lambda change: perplexity(change) - 1),
    )


def _lookahead(first: Subject, second: Subject, resampling: Resampling) -> Iterator[Line]:
    """Yield how well simple predictors foretell as many experts as a token needs."""
    recalls = []
    for subject in (first, second):
        trace = subject.trace
        if trace.phases is not None and not (trace.phases == DECODE).any():
            trace = replace(trace, phases=None)  # a text that was read stands for one that is written
        found = predictor_recall(trace, [trace.top_k], resampling=resampling)
        recalls.append({each.predictor: each.recall for each in found if each.recall is not None})
    for name, label in LOOKAHEAD.items():
        one, other = recalls[0].get(name), recalls[1].get(name)
        if one is not None and other is not None:
            before, after = _estimate(one), _estimate(other)
            change, layers = Estimate(after.value - before.value), (one.per_layer, other.per_layer)
            yield Line(f"recall_{name}", "price", f"foretold by {label}", "share", before, after, change, layers)


def _bounds(first: Subject, second: Subject, one: list[Curve], other: list[Curve]) -> Iterator[Line]:
    """Yield what no cache that must load what it runs can do better than."""
    for share in SHARES:
        rates = []
        for subject, curves in ((first, one), (second, other)):
            belady = next(curve for curve in curves if curve.policy == "belady")
            rates.append(belady.at(slots_of(share, subject.trace.num_experts)))
        estimates = Estimate(rates[0]), Estimate(rates[1]), Estimate(rates[1] - rates[0])
        yield Line(
            f"belady_hit_rate_{share:g}", "cache", f"Belady hits, {100 * share:g} % resident", "share", *estimates
        )


def _estimate(value: Value) -> Estimate:
    assert value.mean is not None
    low, high = value.interval or (None, None)
    return Estimate(value.mean, low, high)


def _curves(trace: RoutingTrace) -> list[Curve]:
    experts, marked = trace.num_experts, {slots_of(share, trace.num_experts) for share in SHARES}
    every = set(range(1, experts + 1)) if experts <= ALL_UP_TO else _spread(1, experts, SOME)
    some = _spread(min(trace.top_k, experts), experts, BELADY_POINTS)
    found = []
    for policy, capacities in (("lru", every | marked), ("belady", some | marked)):
        sizes = sorted(capacities)
        reports = hit_rate_curve(trace, policy, sizes)
        found.append(curve_of(dict(zip(sizes, reports, strict=True)), policy))
    return found


def _spread(low: int, high: int, count: int) -> set[int]:
    return {int(size) for size in np.geomspace(low, high, count).round()}


def _documents(pair: Pair) -> Iterator[DocumentLine]:
    one, other = pair.first.values, pair.second.values
    numbers = pair.first.trace.document_ids
    if one is None or other is None or numbers is None:
        return
    known = ~np.isnan(one.cross_entropy)
    tokens = np.bincount(numbers[known], minlength=len(pair.documents))
    sums = [np.bincount(numbers[known], each.cross_entropy[known], len(pair.documents)) for each in (one, other)]
    for number, name in enumerate(pair.documents):
        if tokens[number]:
            nats = [float(each[number] / tokens[number]) for each in sums]
            yield DocumentLine(name, int(tokens[number]), perplexity(nats[0]), perplexity(nats[1]))


def _notes(one: RoutingTrace, other: RoutingTrace, paired: bool) -> Iterator[str]:
    if not paired:
        yield "the two did not route the same tokens: differences have no intervals"
    if (one.num_experts, one.top_k) != (other.num_experts, other.top_k):
        a, b = (f"{100 * chance_overlap(trace):.1f} %" for trace in (one, other))
        yield f"routed at random, neighbouring tokens would share {a} of their experts under A, {b} under B"


def _side(subject: Subject) -> Side:
    trace = subject.trace
    told = trace.provenance
    words = [str(told[name]) for name in ("model_type", "dtype") if told.get(name)]
    return Side(
        subject.name,
        ", ".join(words),
        trace.num_layers,
        trace.num_experts,
        trace.top_k,
        trace.num_tokens,
        trace.num_sequences,
        trace.names,
    )
