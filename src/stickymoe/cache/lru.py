"""LRU: the expert unused for longest leaves."""

from collections import OrderedDict
from collections.abc import Set as AbstractSet

from stickymoe.cache.policy import CachePolicy


class LRU(CachePolicy):
    """Least recently used."""

    def __init__(self) -> None:
        """Start empty."""
        self._by_age: OrderedDict[int, None] = OrderedDict()

    def touch(self, expert: int) -> None:
        """Make `expert` the most recent."""
        self._by_age[expert] = None
        self._by_age.move_to_end(expert)

    def evict(self, pinned: AbstractSet[int]) -> int:
        """Forget the resident with the oldest last use outside `pinned`."""
        victim = next(expert for expert in self._by_age if expert not in pinned)
        del self._by_age[victim]
        return victim
