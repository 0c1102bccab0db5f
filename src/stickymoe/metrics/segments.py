"""Local routing consistency: what one fixed choice a segment, or a cache that looks a segment ahead, could do."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from jaxtyping import Float

from stickymoe.core.settings import require_at_least, require_one_of
from stickymoe.metrics.rows import layer_ids, sequence_firsts
from stickymoe.metrics.segment_cache_kernel import segment_cache_sums
from stickymoe.metrics.tally import Figure, Tally, ratio, require_defined
from stickymoe.metrics.units import Units, whole
from stickymoe.metrics.windows import windows
from stickymoe.traces import RoutingTrace

# How a first use counts: as the miss that it is, or as Liang et al.'s published code has it.
COLD_STARTS = ("miss", "liang-2025")


@dataclass(frozen=True)
class SegmentRouting:
    """The best fixed choice of experts for each segment.

    Args:
        value: SRP, the F1 score reached, in (0, 1]. 1: some threshold tells which experts serve the whole segment.
        rho_hat: Experts marked over experts used, weighted by tokens: the size of the choice in units of k.
        threshold: Uses in a segment from which on an expert is marked.
        per_layer: The value of each layer alone, at its own best threshold.
    """

    value: float
    rho_hat: float
    threshold: int
    per_layer: Float[np.ndarray, " layers"]


@dataclass(frozen=True)
class SegmentCache:
    """The hit rate of a cache that knows the next tokens.

    Args:
        value: Hits over lookups, all layers pooled, in [0, 1).
        hits: Hits.
        lookups: Lookups.
        cold_start: How first uses were counted.
        per_layer: The hit rate of each layer.
    """

    value: float
    hits: int
    lookups: int
    cold_start: str
    per_layer: Float[np.ndarray, " layers"]


def segment_routing_best_performance(trace: RoutingTrace, segment: int) -> SegmentRouting:
    """How well one fixed set of experts a segment could stand for the router's choices (SRP).

        c(e, s)  = tokens of window s (segment consecutive tokens, stride 1) that use expert e
        F1(p)    = 2 * sum of c over marked / (segment * #marked + sum of c over all),   marked: c(e, s) >= p
        SRP      = max over p of F1(p);   rho_hat = segment * #marked(p*) / sum of c;   the smallest p among equals

    Windows stay within a run of neighbouring tokens of one sequence and document; layers are pooled.

    Args:
        trace: The routing.
        segment: Tokens a window, >= 1. At 1 every router scores 1.

    Returns:
        Value, rho_hat and threshold of the whole trace, and the value of each layer.

    Raises:
        SettingError: `segment` is below 1.
        TraceError: No run is that long, or some layer served no token of such a run.

    Source: Liang et al. 2025, segment routing best performance.
    """
    require_at_least("segment", segment, 1)
    one = whole(trace)
    sums = np.stack([windows(segment)(trace, layer, one)[0] for layer in range(trace.num_layers)])
    value, _ = srp_figures(segment)
    per_layer = value.of(sums)
    require_defined(trace.names, value, per_layer)
    best, rho_hat, threshold = best_threshold(sums.sum(axis=0, keepdims=True))
    return SegmentRouting(float(best[0]), float(rho_hat[0]), int(threshold[0]), per_layer)


def segment_cache_best_hit_rate(
    trace: RoutingTrace, segment: int, capacity: int, *, cold_start: str = "miss"
) -> SegmentCache:
    """Hit rate of a cache that evicts what the next `segment` tokens use least (SCH).

    Per layer, `capacity` slots, cold at each sequence. All experts of a token are looked up before any update; misses
    are loaded; then residents with the fewest uses in the next `segment` tokens leave until `capacity` remain (ties:
    the one whose last token lies further back, then the larger id: other names for the experts may move a few hits).
    With a segment longer than any sequence it knows the whole future, yet is no upper bound: it counts uses and not how
    soon they come.

    Args:
        trace: The routing.
        segment: Tokens to look ahead, >= 1.
        capacity: Slots a layer, >= 1; fewer than k are allowed, more than num_experts leave only first uses to miss.
        cold_start: `miss`: every first use is a miss, as in `simulate`. `liang-2025`: as the code published with the
            paper counts, a first use is a hit while fewer experts than slots have been seen; higher by up to
            capacity / lookups of a sequence, so compare only like with like.

    Returns:
        Hits over lookups of the whole trace and of each layer.

    Raises:
        SettingError: A setting breaks its rule.
        TraceError: Some layer served no token.

    Source: Liang et al. 2025, segment cache best hit rate.
    """
    require_one_of("cold_start", cold_start, COLD_STARTS)
    one = whole(trace)
    sums = np.stack([segment_cache(segment, capacity)(trace, layer, one)[0] for layer in range(trace.num_layers)])
    figure = sch_figure(segment, cold_start)
    per_layer = figure.of(sums)
    require_defined(trace.names, figure, per_layer)
    lookups, hits = int(sums[:, 0].sum()), int(_segment_hits(sums, cold_start).sum())
    return SegmentCache(hits / lookups, hits, lookups, cold_start, per_layer)


def best_threshold(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return SRP, rho_hat and threshold of rows (1 + segment) of window counts; NaN, NaN, 0 where nothing was used."""
    counts = np.arange(1, sums.shape[-1], dtype=np.float64)
    backwards = sums[..., :0:-1]
    marked = np.cumsum(backwards, axis=-1) * counts[-1]
    matched = np.cumsum(backwards * counts[::-1], axis=-1)
    total = matched[..., -1:]
    nothing = total[..., 0] == 0
    f1 = matched / np.where(total > 0, marked + total, 1.0)
    # The last of equals is the smallest threshold.
    best = f1.shape[-1] - 1 - f1[..., ::-1].argmax(axis=-1)
    value = 2 * np.take_along_axis(f1, best[..., None], axis=-1)[..., 0]
    size = ratio(np.take_along_axis(marked, best[..., None], axis=-1)[..., 0], total[..., 0])
    return np.where(nothing, np.nan, value), size, np.where(nothing, 0, f1.shape[-1] - best)


def srp_figures(segment: int) -> tuple[Figure, Figure]:
    """SRP and rho_hat of window counts; see `windows`."""
    needs = f"a run of {segment} neighbouring tokens"
    value = Figure(
        "segment_routing_best_performance", lambda sums: best_threshold(sums)[0], needs, pooled=True, reach=segment
    )
    size = replace(value, name="srp_rho_hat", of=lambda sums: best_threshold(sums)[1], high=float("inf"))
    return value, size


def segment_cache(segment: int, capacity: int) -> Tally:
    """Count lookups, hits, and first uses that found room; see `segment_cache_sums`."""
    require_at_least("segment", segment, 1)
    require_at_least("capacity", capacity, 1)

    def tally(trace: RoutingTrace, layer: int, units: Units) -> np.ndarray:
        ids, table = layer_ids(trace, layer)
        # More slots than experts are as good as one for each.
        slots = min(capacity, table)
        return segment_cache_sums(
            ids, sequence_firsts(trace), units.of_row, units.count, min(segment, trace.num_tokens), slots, table
        )

    return tally


def sch_figure(segment: int, cold_start: str = "miss") -> Figure:
    """SCH of lookups, hits and first uses that found room."""
    hit_rate = partial(_segment_hit_rate, cold_start=cold_start)
    return Figure("segment_cache_best_hit_rate", hit_rate, "at least one token", pooled=True, reach=segment)


def _segment_hits(sums: np.ndarray, cold_start: str) -> np.ndarray:
    hits: np.ndarray = sums[..., 1] + (sums[..., 2] if cold_start == "liang-2025" else 0)
    return hits


def _segment_hit_rate(sums: np.ndarray, cold_start: str) -> np.ndarray:
    return ratio(_segment_hits(sums, cold_start), sums[..., 0])
