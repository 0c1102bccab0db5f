"""How evenly the experts of a layer are used: what locality may cost."""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

from stickymoe.core.settings import require_at_least
from stickymoe.metrics.popularity import uses
from stickymoe.metrics.rows import layer_ids
from stickymoe.metrics.tally import Figure, by_layer, ratio, require_defined
from stickymoe.metrics.units import Units, whole
from stickymoe.traces import RoutingTrace, UsageProfile
from stickymoe.traces.checks import UNASSIGNED

SERVED = "at least one token"
# Measures that need no order take counts alone as well.
Usage: TypeAlias = RoutingTrace | UsageProfile


class LoadSpread(NamedTuple):
    """How far the tokens per expert are from even, one number a layer each."""

    variation: Float[np.ndarray, " layers"]
    busiest: Float[np.ndarray, " layers"]


def utilisation_entropy(usage: Usage) -> Float[np.ndarray, " layers"]:
    """Entropy in bits of which experts a layer uses, all slots of all tokens pooled.

        entropy[l] = -sum_e p[e] log2 p[e],   p[e] = tokens_per_expert[e] / sum of tokens_per_expert

    Pooled over the whole trace: a router that keeps one expert for a sequence and then changes still scores high. Short
    traces score too low, by about (used experts - 1) / (2 ln 2 * lookups) bits.

    Returns:
        One number a layer in [0, log2(num_experts)]. 0: one expert does everything; log2(num_experts): all do the same.

    Raises:
        TraceError: Some layer served no token.

    Source: Sticky Routing, eq. 20.
    """
    return of_counts(usage, entropy_figure(usage.num_experts))


def load_spread(usage: Usage) -> LoadSpread:
    """Coefficient of variation of tokens per expert, and the busiest expert's load over the mean.

        variation[l] = std_e(tokens_per_expert) / mean_e(tokens_per_expert)      (over all experts, used or not)
        busiest[l]   = max_e(tokens_per_expert) / mean_e(tokens_per_expert)

    Returns:
        `variation` in [0, sqrt(num_experts - 1)], `busiest` in [1, num_experts]; the low ends mean an even load, the
        high ends one expert for everything.

    Raises:
        TraceError: Some layer served no token.
    """
    variation, busiest = load_figures(usage.num_experts)
    return LoadSpread(of_counts(usage, variation), of_counts(usage, busiest))


def overlap_by_use(trace: RoutingTrace) -> Float[np.ndarray, " layers"]:
    """Overlap of two tokens drawn from the whole trace: what is left of `expert_overlap` if tokens change places.

        overlap[l] = k * sum_e p[e]^2 = k / num_experts * (1 + variation[l]^2)      (p as in `utilisation_entropy`)

    Both tokens are drawn with replacement; k is the mean number of filled slots of a token that the layer served.
    Overlap above it comes from the order of the tokens. Use that is left to few experts raises both, and a fixed set of
    experts would serve that part as well.

    Returns:
        One number a layer in [k / num_experts, 1]; the low end means an even load.

    Raises:
        TraceError: Some layer served no token.
    """
    return by_layer(trace, served_by, OVERLAP_BY_USE)


def static_coverage(usage: Usage, capacity: int) -> Float[np.ndarray, " layers"]:
    """Share of a layer's lookups that its `capacity` most used experts serve.

        coverage[l] = sum of the capacity largest tokens_per_expert[e] / sum of all

    The best that any fixed set can hit on this very usage; another text may use others (see `drift`).

    Args:
        usage: A trace, or counts alone.
        capacity: Experts a layer, >= 1.

    Returns:
        One number a layer in (0, 1]; capacity / num_experts where all are used alike.

    Raises:
        SettingError: `capacity` is below 1.
        TraceError: Some layer served no token.
    """
    require_at_least("capacity", capacity, 1)
    return of_counts(usage, coverage_figure(capacity))


def tokens_per_expert(trace: RoutingTrace, layer: int, units: Units) -> np.ndarray:
    """Count the uses of each expert; a `Tally`."""
    ids, table = layer_ids(trace, layer)
    return uses(ids, units.of_row, units.count, table).astype(np.float64)


def served_by(trace: RoutingTrace, layer: int, units: Units) -> np.ndarray:
    """Count the tokens that a layer served, then the uses of each expert; a `Tally`."""
    served = np.bincount(units.of_row, trace.expert_ids[:, layer, 0] != UNASSIGNED, minlength=units.count)
    return np.column_stack([served, tokens_per_expert(trace, layer, units)])


def of_counts(usage: Usage, figure: Figure) -> np.ndarray:
    """Return a figure of each layer's counts.

    Raises:
        TraceError: Some layer served no token.
    """
    values = np.concatenate([figure.of(counts) for counts in _layer_counts(usage)])
    require_defined(usage.names, figure, values)
    return values


def _layer_counts(usage: Usage) -> Iterator[np.ndarray]:
    for layer in range(usage.num_layers):
        if isinstance(usage, UsageProfile):
            yield usage.counts[layer : layer + 1].astype(np.float64)
        else:
            yield tokens_per_expert(usage, layer, whole(usage))


def entropy_figure(num_experts: int) -> Figure:
    """Utilisation entropy of counts (..., experts), bits."""
    return Figure("utilisation_entropy", _entropy_bits, SERVED, high=float(np.log2(num_experts)))


def load_figures(num_experts: int) -> tuple[Figure, Figure]:
    """Variation and busiest load of counts (..., experts), of which experts beyond the table are 0."""

    def variation(counts: np.ndarray) -> np.ndarray:
        mean = counts.sum(axis=-1) / num_experts
        absent = num_experts - counts.shape[-1]
        squares = ((counts - mean[..., None]) ** 2).sum(axis=-1) + absent * mean**2
        return ratio(np.sqrt(squares / num_experts), mean)

    def busiest(counts: np.ndarray) -> np.ndarray:
        return ratio(counts.max(axis=-1), counts.sum(axis=-1) / num_experts)

    return (
        Figure("load_variation", variation, SERVED, high=float(np.sqrt(num_experts - 1))),
        Figure("load_busiest", busiest, SERVED, high=float(num_experts)),
    )


def coverage_figure(capacity: int) -> Figure:
    """Share of the `capacity` largest of counts (..., experts)."""

    def coverage(counts: np.ndarray) -> np.ndarray:
        largest = np.sort(counts, axis=-1)[..., ::-1][..., :capacity]
        return ratio(largest.sum(axis=-1), counts.sum(axis=-1))

    return Figure("static_coverage", coverage, SERVED)


def _overlap_by_use(sums: np.ndarray) -> np.ndarray:
    tokens, counts = sums[..., 0], sums[..., 1:]
    return ratio((counts**2).sum(axis=-1), tokens * counts.sum(axis=-1))


OVERLAP_BY_USE = Figure("overlap_by_use", _overlap_by_use, SERVED)


def _entropy_bits(counts: np.ndarray) -> np.ndarray:
    total = counts.sum(axis=-1, keepdims=True)
    share = ratio(counts, np.broadcast_to(total, counts.shape))
    # An expert without use adds nothing; a layer without use has no entropy.
    logs = np.log2(share, out=np.zeros_like(share), where=share > 0)
    bits: np.ndarray = np.maximum(0.0, -(share * logs).sum(axis=-1))
    return bits
