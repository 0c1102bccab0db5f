"""`Measured`: what a pass over held-out text amounts to, with intervals, in a form that can be kept."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from stickymoe.cache import hit_rate_curve
from stickymoe.core.errors import DataError
from stickymoe.experiments.tuning.measuring import Pass
from stickymoe.metrics import summarise
from stickymoe.metrics.intervals import Interval, Resampling, resampled

SHARES = (0.125, 0.25, 0.5)  # of the experts of a layer, held by the cache
ROUTING = {
    "switch_rate": "switch_rate",
    "expert_overlap": "expert_overlap",
    "utilisation_entropy_bits": "utilisation_entropy",
    "load_cv": "load_variation",
    "load_busiest_over_mean": "load_busiest",
}


@dataclass(frozen=True)
class Measured:
    """One model on the held-out text.

    Attributes:
        nats: Summed cross-entropy of each unit that intervals are drawn over.
        targets: Targets of each.
        unit: What a unit is: `documents`, or `pieces` of few documents.
        routing: Measures by name, each with its mean over layers and the layers' own.
        hit_rates: By share of the experts held: slots and hit rate of an LRU cache a layer.
        chance_overlap: Overlap of a router that chooses at random, k / N.
        sizes: `tokens`, `layers`, `num_experts`, `top_k`.
    """

    nats: list[float]
    targets: list[float]
    unit: str
    routing: dict[str, dict[str, Any]]
    hit_rates: list[dict[str, float]]
    chance_overlap: float
    sizes: dict[str, int]

    @property
    def cross_entropy(self) -> Interval:
        """Mean over all targets, nats, with an interval over units."""
        return _interval(np.array([self.nats, self.targets]).T)

    @property
    def perplexity(self) -> Interval:
        """Exponential of the cross-entropy, ends included."""
        found = self.cross_entropy
        low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
        return Interval(math.exp(found.mean), low, high, found.n)

    def mean(self, name: str) -> float:
        """Return a measure of routing, meaned over layers."""
        return float(self.routing[name]["mean"])

    @property
    def overlap_by_use(self) -> float:
        """Overlap of the same tokens in random order: `metrics.overlap_by_use`, from what is kept."""
        variation = np.array(self.routing["load_cv"]["per_layer"], dtype=np.float64)
        return self.chance_overlap * float(np.nanmean(1 + variation**2))

    def hit_rate(self, share: float) -> float:
        """Return the hit rate of the cache that holds this share of the experts."""
        return next(found["hit_rate"] for found in self.hit_rates if found["share"] == share)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        return {"cross_entropy": asdict(self.cross_entropy), "perplexity": asdict(self.perplexity), **asdict(self)}

    @classmethod
    def from_dict(cls, content: dict[str, Any], where: str) -> Measured:
        """Read what `as_dict` returned; `where` names the file in errors.

        Raises:
            DataError: Something is missing.
        """
        try:
            return cls(**{name: content[name] for name in cls.__dataclass_fields__})
        except (KeyError, TypeError) as error:
            raise DataError(f"{where} must hold what a tuning measured, {error} is missing; start again") from error


def measured_of(found: Pass) -> Measured:
    """Return what a pass amounts to."""
    summary = summarise(found.trace)
    routing = {name: summary[source] for name, source in ROUTING.items()}
    for name in ("gate_entropy_bits", "gate_margin"):
        by_layer: list[float] = getattr(found, name)
        routing[name] = {"mean": float(np.mean(by_layer)), "per_layer": by_layer}
    caches = hit_rate_curve(found.trace, "lru", SHARES)
    hits = [
        {"share": share, "capacity": report.semantics["capacity"], "hit_rate": report.hit_rate}
        for share, report in zip(SHARES, caches, strict=True)
    ]
    sizes = {name: summary[name] for name in ("tokens", "layers", "num_experts", "top_k")}
    return Measured(
        found.nats.tolist(), found.targets.tolist(), found.unit, routing, hits, float(summary["chance_overlap"]), sizes
    )


def price(before: Measured, after: Measured) -> Interval:
    """Return by how much cross-entropy rose, nats a token, with an interval over the same units of both."""
    columns = [before.nats, before.targets, after.nats, after.targets]
    return _interval(np.array(columns).T)


def _interval(sums: np.ndarray, resampling: Resampling | None = None) -> Interval:
    """Return a ratio of sums over units, or the difference of two, with its interval."""
    resampling = resampling or Resampling()
    value, n = float(_ratio(sums.sum(axis=0, keepdims=True))[0]), len(sums)
    if n < 2:
        return Interval(value, None, None, n)
    spread = resampled(sums, _ratio, resampling.draws(n))
    half = float(resampling.half_width(spread[np.isfinite(spread)].std(), n))
    return Interval(value, value - half, value + half, n)


def _ratio(sums: np.ndarray) -> np.ndarray:
    ratios = sums[:, 0::2] / np.maximum(sums[:, 1::2], 1)
    found: np.ndarray = ratios[:, -1] - (ratios[:, 0] if ratios.shape[1] > 1 else 0)
    return found
