"""What is compared of two subjects: figures by group, how each is counted, and over which units."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from stickymoe.core.settings import require_at_least
from stickymoe.experiments.comparing.parallel import DEVICES, busiest_of_a_pass, pass_loads, pass_units
from stickymoe.experiments.comparing.subject import Subject
from stickymoe.metrics.paired import Counted
from stickymoe.metrics.reuse import layer_places
from stickymoe.metrics.switching import EXPERT_OVERLAP, SET_SWITCH_RATE, SWITCH_RATE, pairs
from stickymoe.metrics.tally import Figure, Tally, ratio
from stickymoe.metrics.units import Units, units_of
from stickymoe.metrics.utilisation import OVERLAP_BY_USE, entropy_figure, load_figures, served_by, tokens_per_expert
from stickymoe.traces import RoutingTrace

SHARES = (0.125, 0.25, 0.5)


class Entry(NamedTuple):
    """One figure.

    Args:
        name: Its key in the JSON.
        group: quality, locality, cache or price.
        label: For readers.
        unit: nats, bits, share or times.
        counted: How it is counted.
    """

    name: str
    group: str
    label: str
    unit: str
    counted: Counted


def entries(subject: Subject) -> Iterator[Entry]:
    """Yield every figure that the subject has numbers for, in reading order."""
    trace, values = subject.trace, subject.values
    units = units_of(trace)

    def entry(name: str, group: str, label: str, unit: str, tally: Tally, figure: Figure) -> Entry:
        return Entry(name, group, label, unit, Counted(trace, tally, figure, units))

    if values is not None:
        nats = Figure("cross_entropy", _mean_of, "two tokens of a sequence", high=float("inf"))
        yield entry("cross_entropy", "quality", "cross-entropy", "nats", means_of(values.cross_entropy), nats)
    neighbours = pairs(1)
    yield entry("switch_rate", "locality", "switch rate, top-1", "share", neighbours, SWITCH_RATE)
    yield entry("set_switch_rate", "locality", "switch rate, set", "share", neighbours, SET_SWITCH_RATE)
    yield entry("expert_overlap", "locality", "expert overlap", "share", neighbours, EXPERT_OVERLAP)
    yield entry("overlap_by_use", "locality", "of it by use alone", "share", served_by, OVERLAP_BY_USE)
    if values is not None:
        bits = Figure("gate_entropy_bits", _mean_of, "a token", high=float("inf"))
        margin = Figure("gate_margin", _mean_of, "a token")
        yield entry("gate_entropy_bits", "locality", "gate entropy", "bits", means_of(values.gate_entropy_bits), bits)
        yield entry("gate_margin", "locality", "gate margin", "share", means_of(values.gate_margin), margin)
    for share in SHARES:
        slots = slots_of(share, trace.num_experts)
        figure = Figure(f"lru_hit_rate_{share:g}", _mean_of, "a token", pooled=True)
        label = f"LRU hits, {100 * share:g} % resident"
        yield entry(figure.name, "cache", label, "share", lru_hits(slots), figure)
    yield entry(
        "utilisation_entropy",
        "price",
        "utilisation entropy",
        "bits",
        tokens_per_expert,
        entropy_figure(trace.num_experts),
    )
    variation, busiest = load_figures(trace.num_experts)
    yield entry("load_variation", "price", "load spread, std / mean", "times", tokens_per_expert, variation)
    yield entry("load_busiest", "price", "busiest expert, whole text", "times", tokens_per_expert, busiest)
    yield from _parallel(trace)


def _parallel(trace: RoutingTrace) -> Iterator[Entry]:
    if trace.event_ids is None:
        return
    units = pass_units(trace)
    alone = trace.num_experts
    counted = Counted(trace, pass_loads(alone), busiest_of_a_pass(alone), units)
    yield Entry("pass_busiest", "price", "busiest expert of a pass", "times", counted)
    if alone > DEVICES and alone % DEVICES == 0:
        counted = Counted(trace, pass_loads(DEVICES), busiest_of_a_pass(DEVICES), units)
        yield Entry("pass_busiest_device", "price", f"busiest of {DEVICES} devices", "times", counted)


def slots_of(share: float, num_experts: int) -> int:
    """Return the slots of a share of the experts, at least one."""
    return max(1, round(share * num_experts))


def means_of(values: np.ndarray) -> Tally:
    """Count values of rows, (tokens) or (tokens, layers): their sum and how many there are; NaN is none."""

    def tally(trace: RoutingTrace, layer: int, units: Units) -> np.ndarray:
        column = values if values.ndim == 1 else values[:, layer]
        known = ~np.isnan(column)
        sums = np.bincount(units.of_row, np.where(known, column, 0).astype(np.float64), minlength=units.count)
        return np.stack([sums, np.bincount(units.of_row, known, minlength=units.count)], axis=1)

    return tally


def lru_hits(capacity: int) -> Tally:
    """Count the lookups that an LRU cache of `capacity` slots a layer, cold at each sequence, serves, and all."""
    require_at_least("capacity", capacity, 1)
    return partial(_lru_hits, capacity)


def _lru_hits(capacity: int, trace: RoutingTrace, layer: int, units: Units) -> np.ndarray:
    distance = layer_places(trace, layer, atomic=True)
    hits = ((distance >= 0) & (distance < capacity)).sum(axis=1)
    columns = (hits, (trace.expert_ids[:, layer] >= 0).sum(axis=1))
    return np.stack([np.bincount(units.of_row, column, minlength=units.count) for column in columns], axis=1)


def _mean_of(sums: np.ndarray) -> np.ndarray:
    return ratio(sums[..., 0], sums[..., 1])
