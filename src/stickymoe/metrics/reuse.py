"""Reuse distances: how many other experts come between two uses of one."""

from collections import Counter
from collections.abc import Iterable, Sequence

from stickymoe.core.settings import require_one_of
from stickymoe.traces import RoutingTrace, streams
from stickymoe.traces.streams import ACCESSES

FIRST_USE = -1


def reuse_distances(trace: RoutingTrace, accesses: str = "topk") -> list[dict[int, int]]:
    """Count, for each layer, how many distinct other experts lie between two uses of the same expert.

    Experts count one after the other, slot 0 first, from a fresh start at each sequence. An LRU cache of C slots a
    layer hits exactly the uses at a distance below C when each expert is looked up in turn.

    Args:
        trace: The routing.
        accesses: `topk`: all slots of a token; `top1`: slot 0 alone.

    Returns:
        One `{distance: uses}` a layer; distance -1 holds the first uses.
    """
    require_one_of("accesses", accesses, ACCESSES)
    counts: list[Counter[int]] = [Counter() for _ in range(trace.num_layers)]
    for stream in streams(trace, accesses=accesses, replay="sequential"):
        if stream.events:
            counts[int(stream.layers[0])].update(stack_distances(stream.events))
    return [dict(sorted(count.items())) for count in counts]


def stack_distances(events: Iterable[Sequence[int]], limit: int | None = None) -> list[int]:
    """Return, for every expert asked for, its place among the recently used when its event starts.

    All experts of an event are looked up before any of them moves to the front, in request order. This is the state of
    LRU caches of every capacity at once: the C first places are what a cache of C slots holds.

    Args:
        events: Experts asked for, an event's in request order.
        limit: Places to remember; an expert further back counts as a first use. All are remembered if not given.

    Returns:
        One place a lookup, 0 for the most recent, -1 for a first use.
    """
    recent: list[int] = []
    known: set[int] = set()
    places: list[int] = []
    for event in events:
        places += [recent.index(expert) if expert in known else FIRST_USE for expert in event]
        for expert in event:
            if expert in known:
                recent.remove(expert)
            else:
                known.add(expert)
            recent.insert(0, expert)
        while limit is not None and len(recent) > limit:
            known.discard(recent.pop())
    return places
