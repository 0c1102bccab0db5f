"""What a cache policy is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from collections.abc import Set as AbstractSet


class CachePolicy(ABC):
    """Chooses the expert that leaves a full cache.

    A policy neither counts hits nor moves weights: replay does the first, the offload runtime the second, and both
    drive the same object. All experts of an event are touched before a victim is asked for, so for that moment a policy
    may hold more than the capacity.
    """

    @abstractmethod
    def touch(self, expert: int) -> None:
        """Note a use of `expert`; the first makes it resident."""

    @abstractmethod
    def evict(self, pinned: AbstractSet[int]) -> int:
        """Forget one resident expert outside `pinned` and return it. There is always one."""

    def foresee(self, events: Sequence[Sequence[int]]) -> None:  # noqa: B027
        """Be told all that will be asked for, before the first touch; for bounds that know the future."""
