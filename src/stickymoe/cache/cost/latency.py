"""Expected time per token from counted misses and measured constants."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from stickymoe.cache.calibration import Calibration, CalibrationError, Link
from stickymoe.cache.calibration.record import PERCENTILES
from stickymoe.cache.report import CacheReport
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_at_least

MS = 1000.0


class Tier(NamedTuple):
    """A cache and the link over which its misses come from the next slower memory."""

    report: CacheReport
    link: str = "disk-random"


@dataclass(frozen=True, eq=False)
class LatencyPrediction:
    """Milliseconds a token, expected from misses and a calibration: a prediction, to be shown beside a measured value.

    Each pair or triple is the range of the measured constants: fast (p20), middle (p50), slow (p80).

    Args:
        compute_ms: Time of the experts' matrix products, and what was given for the rest of the model.
        load_ms: Time of all loads.
        ms_per_token: One after the other: compute + load.
        overlapped_ms_per_token: Loads hidden behind computing as far as they fit: max(compute, load). A bound; it takes
            a prefetch that is always right and in time.
        percentiles_ms: 50th and 95th percentile over tokens without overlap; None where misses a token are not known.
        semantics: Links, queue depths and sizes behind the numbers.
    """

    compute_ms: tuple[float, float, float]
    load_ms: tuple[float, float, float]
    ms_per_token: tuple[float, float, float]
    overlapped_ms_per_token: tuple[float, float, float]
    percentiles_ms: dict[str, float] | None
    semantics: dict[str, Any]

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second without overlap, at the middle of the measured constants."""
        return MS / self.ms_per_token[1]

    @property
    def overlapped_tokens_per_second(self) -> float:
        """Tokens a second with full overlap, at the middle of the measured constants."""
        return MS / self.overlapped_ms_per_token[1]

    def describe(self) -> str:
        """Say in one line where the numbers come from."""
        told = self.semantics
        links = " + ".join(f"{tier['link']} at depth {tier['queue_depth']}" for tier in told["tiers"])
        return f"predicted from {told['misses_per_token']} misses a token over {links}, compute {told['compute']}"

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        names = ("compute_ms", "load_ms", "ms_per_token", "overlapped_ms_per_token")
        spreads = {name: dict(zip(PERCENTILES, getattr(self, name), strict=True)) for name in names}
        return spreads | {
            "tokens_per_second": self.tokens_per_second,
            "overlapped_tokens_per_second": self.overlapped_tokens_per_second,
            "percentiles_ms": self.percentiles_ms,
            "semantics": dict(self.semantics),
            "description": self.describe(),
        }


def predict_latency(
    report: CacheReport | Sequence[Tier],
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

    Computing is the measured time of one expert's products times the lookups, by size; attention, the head and the rest
    of the model are not in it unless `other_ms` says what they take.

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
        misses_by_token: Misses of each token and layer, for percentiles over tokens; of the first tier.

    Raises:
        SettingError: A setting breaks its rule.
        CalibrationError: The link or the time of an expert was not measured.

    Source: Sticky Routing, eq. 7.
    """
    tiers = [Tier(report, link)] if isinstance(report, CacheReport) else list(report)
    if not tiers:
        raise SettingError.broken("cost.tiers", "at least one", tiers)
    require_at_least("cost.tokens", tokens, 1)
    for name, value in (("cost.other_ms", other_ms), ("cost.compute_ms", compute_ms or 0.0)):
        require_at_least(name, value, 0.0)
    sizes = sizes_of_layers(expert_bytes, len(tiers[0].report.misses_per_layer))
    links = [calibration.link(tier.link, queue_depth or _depth(tier.report, tokens)) for tier in tiers]
    lookups = (tiers[0].report.hits_per_layer + tiers[0].report.misses_per_layer) / tokens
    compute = [_compute_ms(calibration, lookups, sizes, other_ms, compute_ms, each) for each in PERCENTILES]
    costs = [[_load_ms(each, sizes, percentile) for each in links] for percentile in PERCENTILES]
    loads = [
        sum(float(tier.report.misses_per_layer / tokens @ cost) for tier, cost in zip(tiers, per_tier, strict=True))
        for per_tier in costs
    ]
    percentiles, overlapped = None, [max(pair) for pair in zip(compute, loads, strict=True)]
    if misses_by_token is not None:
        by_token = _checked(misses_by_token, tiers, tokens)
        percentiles = _percentiles(compute[1] + by_token @ costs[1][0])
        overlapped = [
            float(np.maximum(busy, by_token @ cost[0]).mean()) for busy, cost in zip(compute, costs, strict=True)
        ]
    semantics = {
        "tiers": [
            {"link": each.name, "queue_depth": each.queue_depth, "misses": tier.report.misses} | tier.report.semantics
            for each, tier in zip(links, tiers, strict=True)
        ],
        "misses_per_token": round(sum(tier.report.misses for tier in tiers) / tokens, 3),
        "expert_bytes": sizes.tolist(),
        "compute": _told(other_ms, compute_ms),
        "overlap": "by mean" if misses_by_token is None else "token by token",
        "calibrated": calibration.date,
    }
    sequential = [busy + load for busy, load in zip(compute, loads, strict=True)]
    return LatencyPrediction(
        _triple(compute), _triple(loads), _triple(sequential), _triple(overlapped), percentiles, semantics
    )


def sizes_of_layers(expert_bytes: Any, layers: int) -> Float[np.ndarray, " layers"]:
    """Return the bytes of one expert of each layer."""
    sizes = np.asarray(expert_bytes)
    if sizes.dtype.kind not in "iu" or sizes.shape not in ((), (layers,)) or (sizes < 1).any():
        found = expert_bytes if sizes.ndim == 0 else sizes.tolist()
        raise SettingError.broken(
            "cost.expert_bytes", f"a whole number of bytes >= 1, or one for each of the {layers} layers", found
        )
    return np.broadcast_to(sizes, (layers,)).astype(np.float64)


def expert_ms(calibration: Calibration, expert_bytes: Any, percentile: str = "p50") -> Any:
    """Return the measured milliseconds of one expert's products for one token, scaled by size."""
    if calibration.matmul is None:
        raise CalibrationError("the calibration must have measured an expert's products, found none; give compute_ms")
    return MS * getattr(calibration.matmul, percentile) * expert_bytes / calibration.expert_bytes


def _depth(report: CacheReport, tokens: int) -> int:
    """An event's mean misses, rounded down: at most k, at least 1."""
    events = tokens * len(report.misses_per_layer)
    wide = int(report.semantics.get("top_k", 1))
    return max(1, min(wide, report.misses // events))


def _compute_ms(
    calibration: Calibration,
    lookups: Float[np.ndarray, " layers"],
    sizes: Float[np.ndarray, " layers"],
    other_ms: float,
    compute_ms: float | None,
    percentile: str,
) -> float:
    if compute_ms is not None:
        return float(compute_ms)
    return float(lookups @ expert_ms(calibration, sizes, percentile)) + other_ms


def _load_ms(link: Link, sizes: Float[np.ndarray, " layers"], percentile: str) -> Float[np.ndarray, " layers"]:
    return MS * (link.latency_s(percentile) + sizes / link.bandwidth_bytes_s(percentile))


def _percentiles(per_token_ms: Float[np.ndarray, " tokens"]) -> dict[str, float]:
    middle, high = np.percentile(per_token_ms, [50, 95]).tolist()
    return {"p50": middle, "p95": high}


def _checked(given: np.ndarray, tiers: list[Tier], tokens: int) -> Float[np.ndarray, "tokens layers"]:
    misses = tiers[0].report.misses_per_layer
    if len(tiers) > 1:
        raise SettingError.broken("cost.misses_by_token", "left out with several tiers", given.shape)
    if given.shape != (tokens, len(misses)) or (given.sum(axis=0) != misses).any():
        rule = f"shaped {(tokens, len(misses))} and sum to the report's {int(misses.sum())} misses layer by layer"
        raise SettingError.broken("cost.misses_by_token", rule, (given.shape, int(given.sum())))
    return given.astype(np.float64)


def _told(other_ms: float, compute_ms: float | None) -> str:
    if compute_ms is not None:
        return f"given as {compute_ms:g} ms a token"
    return f"experts as measured, the rest {other_ms:g} ms" if other_ms else "experts alone, nothing else of the model"


def _triple(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = values
    return low, middle, high
