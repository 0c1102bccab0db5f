"""LRU hit rates at many capacities from one pass over the trace."""

from collections.abc import Iterable

import numpy as np

from stickymoe.cache.replay import simulate
from stickymoe.cache.report import CacheReport
from stickymoe.cache.settings import CacheSettings, slots
from stickymoe.core.errors import SettingError
from stickymoe.metrics.reuse import stack_distances
from stickymoe.traces import RoutingTrace, streams

# The paper's cache hit rate: `lru_hit_rates(trace, [2], **PAPER_SEMANTICS)`.
PAPER_SEMANTICS = {"scope": "layer", "accesses": "top1", "replay": "sequential", "reset": "sequence"}


def lru_hit_rates(
    trace: RoutingTrace,
    capacities: Iterable[int],
    *,
    scope: str = "layer",
    accesses: str = "topk",
    replay: str = "atomic",
    reset: str = "sequence",
) -> list[CacheReport]:
    """Count what LRU caches of several capacities would have found, as `simulate` would for each, in one pass.

    A larger LRU cache holds all that a smaller one holds, so an expert's place among the recently used tells which
    capacities hit. The time of a lookup grows with the largest capacity (or the number of experts, if that is less).
    Only a cache smaller than one event breaks the rule, for its experts then drive each other out; such a capacity is
    replayed on its own.

    Args:
        trace: The routing.
        capacities: Whole slots >= 1, in any order.
        scope: See `simulate`, as for the others.
        accesses: Which experts of a token are looked up.
        replay: Whether a token's experts are looked up together.
        reset: When the cache starts cold.

    Returns:
        One report a capacity, in the order given.

    Raises:
        SettingError: A setting breaks its rule, or no capacity is given.
    """
    wanted = [slots(capacity) for capacity in capacities]
    if not wanted:
        raise SettingError.broken("cache.capacities", "at least one number of slots", wanted)
    settings = [CacheSettings.checked("lru", size, scope, accesses, replay, reset, "assignments") for size in wanted]
    event_size = trace.top_k if (accesses, replay) == ("topk", "atomic") else 1
    sizes = np.unique([size for size in wanted if size >= event_size] or [event_size])
    hits = np.zeros((trace.num_layers, sizes.size + 1), dtype=np.int64)
    for stream in streams(trace, scope=scope, accesses=accesses, replay=replay, reset=reset):
        places = np.array(stack_distances(stream.events, limit=int(sizes[-1])), dtype=np.int64)
        layers = np.repeat(stream.layers, [len(event) for event in stream.events])
        # The smallest capacity that hits is the first above the place; a first use hits none.
        smallest = np.where(places < 0, sizes.size, np.searchsorted(sizes, places, side="right"))
        np.add.at(hits, (layers, smallest), 1)
    hits = np.cumsum(hits[:, :-1], axis=1)
    return [
        each.report(trace, hits[:, np.searchsorted(sizes, each.capacity)])
        if each.capacity >= event_size
        else simulate(trace, "lru", each.capacity, scope=scope, accesses=accesses, replay=replay, reset=reset)
        for each in settings
    ]
