"""What a cache policy is: `CachePolicy`, and `CompiledPolicy`, which drives the rules that replay compiles."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from stickymoe.cache.policies.rules_kernel import (
    clear_one,
    evict_one,
    fetch_one,
    open_event_one,
    open_sequence_one,
    touch_one,
)
from stickymoe.core.errors import SettingError


class CachePolicy(ABC):
    """Chooses the expert that leaves a full cache.

    A policy neither counts hits nor moves weights: replay does the first, the offload runtime the second, and both
    drive the same rules. All experts of an event are touched before a victim is asked for, so for that moment a policy
    may hold more than the capacity.
    """

    @abstractmethod
    def touch(self, expert: int) -> None:
        """Note a use of `expert`; the first makes it resident."""

    @abstractmethod
    def evict(self, pinned: AbstractSet[int]) -> int:
        """Forget one resident expert outside `pinned` and return it. There is always one."""

    def fetch(self, expert: int) -> None:
        """Make `expert` resident ahead of its first use; as if it were used, unless a policy knows better."""
        self.touch(expert)

    def foresee(self, events: Sequence[Sequence[int]]) -> None:  # noqa: B027
        """Be told all that will be asked for, before the first touch; for bounds that know the future."""

    def open_event(self, layer: int) -> None:  # noqa: B027
        """Be told that a layer, by its number in the pool, is about to ask for its experts."""

    def open_sequence(self) -> None:  # noqa: B027
        """Be told that a new sequence starts in a cache that stays warm."""


class CompiledPolicy(CachePolicy):
    """A policy of this package: the compiled rules of its state, one step at a time.

    Experts are blocks 0 to `blocks` - 1; in a pool for the whole model, expert e of layer l is l * num_experts + e.

    Args:
        state: From the policy's `new`.
        blocks: How many there are.
        foreseen: Makes the state from the events, for a policy that knows the future.
    """

    def __init__(
        self, state: Any, blocks: int, foreseen: Callable[[Sequence[Sequence[int]]], Any] | None = None
    ) -> None:
        """Start cold."""
        self._foreseen = foreseen
        self._pinned = np.zeros(blocks, dtype=np.uint8)
        self._start(state)

    def _start(self, state: Any) -> None:
        self._state = state
        clear_one(state)

    def touch(self, expert: int, weight: float = 0.0) -> None:
        """Note a use of `expert`, with its gate weight where the policy asks for it; the first makes it resident."""
        touch_one(self._state, self._known(expert), float(weight))

    def fetch(self, expert: int) -> None:
        """Make `expert`, who is not resident, so ahead of its use, which is to come."""
        if self._foreseen is not None:
            raise SettingError.broken("cache.policy", "one that knows no future, where experts are fetched", expert)
        fetch_one(self._state, self._known(expert))

    def _known(self, expert: int) -> int:
        if not 0 <= expert < self._pinned.size:
            raise SettingError.broken("cache.policy", f"told of experts from 0 to {self._pinned.size - 1}", expert)
        return int(expert)

    def evict(self, pinned: AbstractSet[int]) -> int:
        """Forget the resident that the policy likes least outside `pinned` and return it."""
        places = np.fromiter(pinned, dtype=np.int64, count=len(pinned))
        self._pinned[places] = 1
        chosen = int(evict_one(self._state, self._pinned))
        self._pinned[places] = 0
        if chosen < 0:
            raise SettingError.broken("cache.policy", "asked for a victim while it holds one that is not pinned", None)
        return chosen

    def foresee(self, events: Sequence[Sequence[int]]) -> None:
        """Take the future in, where the policy is a bound."""
        if self._foreseen is not None:
            self._start(self._foreseen(events))

    def open_event(self, layer: int) -> None:
        """Note whose turn it is."""
        open_event_one(self._state, layer)

    def open_sequence(self) -> None:
        """Note that a new sequence starts in a cache that stays warm."""
        open_sequence_one(self._state)
