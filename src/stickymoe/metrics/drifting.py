"""Whether what one sequence uses tells what another will: drift of popularity."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float

from stickymoe.core.errors import TraceError
from stickymoe.core.settings import require_at_least
from stickymoe.metrics.intervals import Resampling
from stickymoe.metrics.popularity import first_uses, of_others, popularity_ranks, uses
from stickymoe.metrics.rows import layer_ids
from stickymoe.metrics.skew import static_hits
from stickymoe.metrics.tally import Figure, Tally, Value, evaluate, ratio
from stickymoe.metrics.units import Units, units_of
from stickymoe.traces import RoutingTrace

LOOKUPS, OWN, HELD_OUT = range(3)


@dataclass(frozen=True)
class Drift:
    """How far a fixed set of experts learned on some sequences serves another.

    Args:
        capacity: Experts a layer in a set.
        kind: What was compared: sequences, groups of them, or blocks of the only one.
        own: Share of a unit's lookups inside the best set for that unit alone.
        held_out: Share inside the best set of all other units; at most `own`.
        drift: own - held_out: what not knowing the unit costs.
        coverage: `held_out` of each unit, layers pooled.
        similarity: Cosine of the units' tokens per expert, mean over the layers that served both; (units, units), in
            [0, 1]. 1: used alike. NaN where no layer served both.
    """

    capacity: int
    kind: str
    own: Value
    held_out: Value
    drift: Value
    coverage: Float[np.ndarray, " units"]
    similarity: Float[np.ndarray, "units units"]


def drift(trace: RoutingTrace, capacity: int, *, resampling: Resampling | None = None) -> Drift:
    """Compare each sequence with all others by what a fixed set of experts learned on them would cover.

    Similarity counts all experts, coverage only the popular ones: two texts can be far apart in the first and still
    share the set that matters.

    Args:
        trace: The routing; one sequence is compared block by block.
        capacity: Experts a layer in a set, >= 1.
        resampling: Makes intervals; none if not given.

    Raises:
        SettingError: `capacity` is below 1.
        TraceError: The trace is one sequence of fewer than 64 tokens.
    """
    units = units_of(trace)
    if units.count < 2:
        raise TraceError("drift needs two sequences, or one of at least 64 tokens, got one of " + str(trace.num_tokens))
    tally = _coverage(capacity)
    found = evaluate(trace, tally, FIGURES, units, resampling)
    sums = np.sum([tally(trace, layer, units) for layer in range(trace.num_layers)], axis=0)
    return Drift(
        capacity=capacity,
        kind=units.kind,
        own=found["own"],
        held_out=found["held_out"],
        drift=found["drift"],
        coverage=ratio(sums[:, HELD_OUT], sums[:, LOOKUPS]),
        similarity=usage_similarity(trace, units),
    )


def usage_similarity(trace: RoutingTrace, units: Units | None = None) -> Float[np.ndarray, "units units"]:
    """Cosine of tokens per expert between every two units, mean over the layers that served both."""
    units = units or units_of(trace)
    total, layers = np.zeros((units.count, units.count)), np.zeros((units.count, units.count))
    for layer in range(trace.num_layers):
        ids, table = layer_ids(trace, layer)
        counts = uses(ids, units.of_row, units.count, table).astype(np.float64)
        norms = np.sqrt((counts**2).sum(axis=1, keepdims=True))
        alike = ratio(counts @ counts.T, norms @ norms.T)
        served = ~np.isnan(alike)
        total += np.where(served, np.minimum(alike, 1.0), 0.0)
        layers += served
    return ratio(total, layers)


def _coverage(capacity: int) -> Tally:
    require_at_least("capacity", capacity, 1)

    def tally(trace: RoutingTrace, layer: int, units: Units) -> np.ndarray:
        ids, table = layer_ids(trace, layer)
        counts, first = uses(ids, units.of_row, units.count, table), first_uses(ids, table)
        ranks = popularity_ranks(of_others(counts), first)
        hits = static_hits(ids, ranks, units.of_row, capacity).sum(axis=1)
        sums = np.empty((units.count, 3))
        sums[:, LOOKUPS] = counts.sum(axis=1)
        # The best set of a unit holds its largest counts, whichever experts they are.
        sums[:, OWN] = np.sort(counts, axis=1)[:, ::-1][:, :capacity].sum(axis=1)
        sums[:, HELD_OUT] = np.bincount(units.of_row, hits, minlength=units.count)
        return sums

    return tally


def _share(column: int, less: int | None, sums: np.ndarray) -> np.ndarray:
    return ratio(sums[..., column] - (0 if less is None else sums[..., less]), sums[..., LOOKUPS])


FIGURES = tuple(
    Figure(name, partial(_share, column, less), "at least one token", pooled=True)
    for name, column, less in (("own", OWN, None), ("held_out", HELD_OUT, None), ("drift", OWN, HELD_OUT))
)
