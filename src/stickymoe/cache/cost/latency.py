"""Expected time per token from counted misses and measured constants."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from stickymoe.cache.calibration import Calibration
from stickymoe.cache.calibration.record import PERCENTILES
from stickymoe.cache.cost.constants import (
    compute_range,
    compute_told,
    load_ms,
    load_range,
    loads_at_once,
    sizes_of_layers,
)
from stickymoe.cache.cost.prediction import LatencyPrediction, Range
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_at_least


@runtime_checkable
class Counted(Protocol):
    """What a replay counted: `CacheReport`, `RerouteReport`, or anything else that knows hits and misses a layer."""

    @property
    def hits_per_layer(self) -> np.ndarray:
        """Lookups that found their expert resident."""

    @property
    def misses_per_layer(self) -> np.ndarray:
        """Lookups that had to load."""

    @property
    def semantics(self) -> dict[str, Any]:
        """How it was counted."""


class Tier(NamedTuple):
    """A cache and the link over which its misses come from the next slower memory."""

    report: Counted
    link: str = "disk-random"


def predict_latency(
    report: Counted | Sequence[Tier],
    calibration: Calibration,
    *,
    tokens: int,
    expert_bytes: Any,
    link: str = "disk-random",
    queue_depth: int | None = None,
    other_ms: float = 0.0,
    compute_ms: float | None = None,
    misses_by_token: Int[np.ndarray, "tokens layers"] | None = None,
) -> LatencyPrediction:
    """Turn misses into milliseconds a token.

        tau = compute + sum over misses (latency + bytes / bandwidth)        one after the other
        tau = max(compute, sum over misses (...))                            loads behind computing

    Several misses of one expert in one event are one load. Computing is the measured time of one expert's products
    times the lookups, by size; attention, the head and the rest of the model are not in it unless `other_ms` says what
    they take.

    Args:
        report: What a replay counted; or several tiers from fast to slow, as in VRAM over RAM over SSD: a miss of each
            pays that tier's link. Replay each tier on the whole trace; for LRU, where a larger cache holds what a
            smaller one does, that is exact for tiers that see every use.
        calibration: Of the machine.
        tokens: Tokens replayed.
        expert_bytes: Bytes of one expert, or of one of each layer.
        link: How a miss is served, where `report` is one.
        queue_depth: Loads under way at once; an event's mean misses, rounded down but 1 at least, if not given.
        other_ms: Milliseconds a token of everything that is no expert.
        compute_ms: Milliseconds a token of all computing, measured with everything resident; replaces both.
        misses_by_token: Misses of each token and layer, for percentiles over tokens and the overlap of each.

    Raises:
        SettingError: A setting breaks its rule.
        CalibrationError: The link or the time of an expert was not measured.

    Source: Sticky Routing, eq. 7.
    """
    tiers = list(report) if isinstance(report, Sequence) else [Tier(report, link)]
    if not tiers:
        raise SettingError.broken("cost.tiers", "at least one", tiers)
    require_at_least("cost.tokens", tokens, 1)
    counted = tiers[0].report
    misses = [loads_of(tier.report) for tier in tiers]
    sizes = sizes_of_layers(expert_bytes, len(misses[0]))
    links = [
        calibration.link(tier.link, queue_depth or loads_at_once(each, tokens))
        for tier, each in zip(tiers, misses, strict=True)
    ]
    compute = compute_range(
        calibration, counted.hits_per_layer + counted.misses_per_layer, tokens, sizes, other_ms, compute_ms
    )
    load = summed(load_range(over, each, tokens, sizes) for over, each in zip(links, misses, strict=True))
    percentiles, overlapped = None, larger(compute, load)
    if misses_by_token is not None:
        by_token = _checked(misses_by_token, tiers, tokens)
        costs = [by_token @ load_ms(links[0], sizes, each) for each in PERCENTILES]
        percentiles = dict(zip(("p50", "p95"), np.percentile(compute[1] + costs[1], [50, 95]).tolist(), strict=True))
        fast, middle, slow = (float(np.maximum(*pair).mean()) for pair in zip(compute, costs, strict=True))
        overlapped = (fast, middle, slow)
    semantics = {
        "tiers": [
            {"link": over.name, "queue_depth": over.queue_depth, "misses": int(each.sum())} | tier.report.semantics
            for tier, over, each in zip(tiers, links, misses, strict=True)
        ],
        "loads_per_token": round(sum(int(each.sum()) for each in misses) / tokens, 3),
        "expert_bytes": sizes.tolist(),
        "compute": compute_told(other_ms, compute_ms),
        "overlap": "by mean" if misses_by_token is None else "token by token",
        "calibrated": calibration.date,
    }
    return LatencyPrediction(compute, load, summed((compute, load)), overlapped, percentiles, semantics)


def loads_of(report: Counted) -> Int[np.ndarray, " layers"]:
    """Return the experts loaded for misses, one for several misses of one event where the report tells them apart."""
    loads: np.ndarray | None = getattr(report, "loads_per_layer", None)
    return report.misses_per_layer if loads is None else loads


def summed(ranges: Any) -> Range:
    """Add ranges end by end."""
    fast, middle, slow = (sum(values) for values in zip(*ranges, strict=True))
    return fast, middle, slow


def larger(one: Range, other: Range) -> Range:
    """Take the larger of two ranges end by end."""
    fast, middle, slow = (max(pair) for pair in zip(one, other, strict=True))
    return fast, middle, slow


def _checked(given: np.ndarray, tiers: list[Tier], tokens: int) -> Float[np.ndarray, "tokens layers"]:
    misses = loads_of(tiers[0].report)
    if len(tiers) > 1:
        raise SettingError.broken("cost.misses_by_token", "left out with several tiers", given.shape)
    if given.shape != (tokens, len(misses)) or (given.sum(axis=0) != misses).any():
        rule = f"shaped {(tokens, len(misses))} and sum to the report's {int(misses.sum())} loads layer by layer"
        raise SettingError.broken("cost.misses_by_token", rule, (given.shape, int(given.sum())))
    return given.astype(np.float64)
