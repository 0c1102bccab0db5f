"""What a router trained for locality would be worth: hit rate against overlap in a model of routing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stickymoe.cache import simulate
from stickymoe.cache.settings import Semantics
from stickymoe.experiments.diagnosis.locality import SkewOrOrder, top1_of
from stickymoe.metrics import expert_overlap
from stickymoe.traces import RoutingTrace

STAYS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9)
LAYERS, TOKENS = 8, 768
MODEL = (
    "a model, not a measurement: each expert of a token is kept with a fixed probability, the rest are drawn by the "
    "popularity measured in this trace; longer memory than one token is left out"
)


@dataclass(frozen=True)
class StickyCurve:
    """Hit rates of LRU at one capacity against the overlap of neighbouring tokens."""

    slots: int
    hit_rates: tuple[float, ...]


@dataclass(frozen=True)
class Stickiness:
    """Model curves, and where the trace itself stands.

    Args:
        slots: Slots a layer of the middle curve: the budget's; with one pool for the model, the pool's over the layers.
        overlaps: Overlap of neighbours in each synthetic trace.
        curves: One a capacity.
        measured_overlap: Of the trace.
        measured: LRU's hit rate on the trace with `slots` a layer, token by token.
        predicted: What the model says at the trace's own overlap and `slots`: how far to trust it.
        model: What was assumed.
    """

    slots: int
    overlaps: tuple[float, ...]
    curves: tuple[StickyCurve, ...]
    measured_overlap: float
    measured: float
    predicted: float
    model: str = MODEL

    def at(self, overlap: float) -> float:
        """Return the model's hit rate with `slots`, interpolated between its points."""
        rates = next(curve.hit_rates for curve in self.curves if curve.slots == self.slots)
        return float(np.interp(overlap, self.overlaps, rates))


def stickiness_of(
    trace: RoutingTrace, order: SkewOrOrder, semantics: Semantics, unanswered: dict[str, str]
) -> Stickiness | None:
    """Synthesise traces of the same popularity and rising stickiness, replay them with a cache a layer.

    Args:
        trace: The trace, whose popularity and overlap are taken.
        order: LRU on the trace at the budget; half and twice of its capacity get curves too.
        semantics: Whether all experts of a token count, or the first alone.
        unanswered: Gets the reason where nothing can be modelled.
    """
    if not trace.valid_pairs().any():
        unanswered["a sticky router"] = "no two tokens are neighbours"
        return None
    asked = top1_of(trace) if semantics.accesses == "top1" else trace
    chosen = np.unique(np.linspace(0, trace.num_layers - 1, min(LAYERS, trace.num_layers)).round().astype(int))
    popularity = _popularity(asked, chosen)
    synthetic = [
        RoutingTrace(rows, np.zeros(len(rows), dtype=np.int64), trace.num_experts)
        for rows in _sample(popularity, _width(asked, chosen))
    ]
    overlaps = tuple(float(expert_overlap(each).mean()) for each in synthetic)
    sizes = sorted({max(1, order.capacity // 2), order.capacity, min(trace.num_experts, order.capacity * 2)})
    curves = tuple(
        StickyCurve(size, tuple(simulate(each, "lru", size).hit_rate for each in synthetic)) for size in sizes
    )
    own = float(expert_overlap(asked).mean())
    found = Stickiness(order.capacity, overlaps, curves, own, order.lru, 0.0)
    return replace(found, predicted=found.at(own))


def _width(trace: RoutingTrace, chosen: np.ndarray) -> int:
    filled = np.count_nonzero(trace.expert_ids[:, chosen] >= 0, axis=2)
    return max(1, round(float(filled[filled > 0].mean())))


def _popularity(trace: RoutingTrace, chosen: np.ndarray) -> np.ndarray:
    counts = np.zeros((len(chosen), trace.num_experts))
    for row, layer in enumerate(chosen):
        ids = trace.expert_ids[:, layer]
        counts[row] = np.bincount(ids[ids >= 0], minlength=trace.num_experts)
    smoothed: np.ndarray = (counts + 0.5) / (counts.sum(axis=1, keepdims=True) + 0.5 * trace.num_experts)
    return smoothed


def _sample(popularity: np.ndarray, width: int) -> np.ndarray:
    """Return ids (stays, tokens, layers, width): Gumbel's trick draws without replacement, kept experts go first."""
    random = np.random.default_rng(0)
    layers, experts = popularity.shape
    stays = np.array(STAYS)[:, None, None]
    log_popularity = np.log(popularity)
    ids = np.empty((len(STAYS), TOKENS, layers, width), dtype=np.int32)
    rows = np.zeros((len(STAYS), layers, width), dtype=np.int64)
    for token in range(TOKENS):
        keys = log_popularity + random.gumbel(size=(len(STAYS), layers, experts))
        if token:
            kept = random.random((len(STAYS), layers, width)) < stays
            held = np.take_along_axis(keys, rows, axis=2)
            np.put_along_axis(keys, rows, np.where(kept, 1e9, held), axis=2)
        rows = np.argpartition(keys, experts - width, axis=2)[..., experts - width :]
        ids[:, token] = rows
    return ids
