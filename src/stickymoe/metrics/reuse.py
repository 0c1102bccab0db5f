"""Reuse distances: how many other experts come between two uses of one."""

from functools import partial

import numpy as np
from jaxtyping import Int, Int32

from stickymoe.core.settings import require_one_of
from stickymoe.metrics.reuse_kernel import EMPTY, FIRST_USE, distances, new_recency
from stickymoe.metrics.rows import layer_ids, sequence_firsts
from stickymoe.metrics.tally import Figure, ratio
from stickymoe.metrics.units import Units
from stickymoe.traces import RoutingTrace
from stickymoe.traces.streams import ACCESSES, REPLAYS


def reuse_distances(trace: RoutingTrace, accesses: str = "topk", *, replay: str = "sequential") -> list[dict[int, int]]:
    """Count, for each layer, how many distinct other experts lie between two uses of the same expert.

    Experts count one after the other, slot 0 first, from a fresh start at each sequence. An LRU cache of C slots a
    layer hits exactly the uses at a distance below C when each expert is looked up in turn.

    Args:
        trace: The routing.
        accesses: `topk`: all slots of a token; `top1`: slot 0 alone.
        replay: `sequential`: as said; `atomic`: a token's experts are all looked up before any of them counts as used.

    Returns:
        One `{distance: uses}` a layer; distance -1 holds the first uses. A layer that served nothing has an empty one.
    """
    require_one_of("accesses", accesses, ACCESSES)
    require_one_of("replay", replay, REPLAYS)
    return [_counted(trace, layer, accesses, replay) for layer in range(trace.num_layers)]


def places(
    ids: Int32[np.ndarray, "tokens slots"], firsts: Int[np.ndarray, " tokens"], table: int, atomic: bool
) -> Int32[np.ndarray, "tokens slots"]:
    """Return for each slot how many other experts were used since the last use of its own, FIRST_USE or EMPTY.

    Args:
        ids: One layer's experts, -1 in empty slots.
        firsts: The first row of each row's sequence; all is forgotten there.
        table: More than the largest id.
        atomic: A token's experts are all looked up before any of them counts as used.
    """
    rows = np.arange(len(ids) + 1)
    found = np.full((len(ids), 1, ids.shape[1]), EMPTY, dtype=np.int32)
    distances(new_recency(table), ids[:, None], table, rows, firsts == rows[:-1], atomic, found)
    return found[:, 0]


def layer_places(trace: RoutingTrace, layer: int, *, accesses: str = "topk", atomic: bool = False) -> np.ndarray:
    """Return each slot's reuse distance, FIRST_USE or EMPTY; (tokens, slots) int32."""
    ids, table = layer_ids(trace, layer)
    return places(ids[:, :1].copy() if accesses == "top1" else ids, sequence_firsts(trace), table, atomic)


def _counted(trace: RoutingTrace, layer: int, accesses: str, replay: str) -> dict[int, int]:
    found = layer_places(trace, layer, accesses=accesses, atomic=replay == "atomic")
    each, counts = np.unique(found[found >= FIRST_USE], return_counts=True)
    return dict(zip(each.tolist(), counts.tolist(), strict=True))


def reuse_tally(trace: RoutingTrace, layer: int, units: Units) -> np.ndarray:
    """Count first uses (column 0) and reuses at distance d (column d + 1); a `Tally` over sequential distances."""
    found = layer_places(trace, layer)
    columns = max(1, int(found.max()) + 2)
    looked_up = found >= FIRST_USE
    keys = (found + 1 + units.of_row[:, None] * columns)[looked_up]
    sums: np.ndarray = np.bincount(keys, minlength=units.count * columns).reshape(units.count, columns)
    return sums.astype(np.float64)


def reuse_figures(num_experts: int) -> tuple[Figure, ...]:
    """Share of first uses, and the distances within which half and nine tenths of the reuses lie."""

    def first_uses(sums: np.ndarray) -> np.ndarray:
        return ratio(sums[..., 0], sums.sum(axis=-1))

    def quantile(share: float, sums: np.ndarray) -> np.ndarray:
        within = np.cumsum(sums[..., 1:], axis=-1)
        total = within[..., -1] if within.shape[-1] else np.zeros(sums.shape[:-1])
        place = (within < share * total[..., None]).sum(axis=-1)
        return np.where(total > 0, place, np.nan)

    reused, most = "at least one expert used twice in a sequence", float(num_experts - 1)
    return (
        Figure("first_use_rate", first_uses, "at least one token"),
        Figure("reuse_distance_median", partial(quantile, 0.5), reused, high=most),
        Figure("reuse_distance_90", partial(quantile, 0.9), reused, high=most),
    )
