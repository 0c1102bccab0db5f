"""Settings of the replays that change what is asked for or held, checked and laid out for their kernels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from stickymoe.cache import scan_kernel
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_one_of
from stickymoe.traces import RoutingTrace
from stickymoe.traces.streams import RESETS, SCOPES

POLICIES = {"lru": scan_kernel.LRU, "fifo": scan_kernel.FIFO, "lfu": scan_kernel.LFU}
MAX_BLOCKS = 2**26

# Slots of every cache, or one number a layer.
Capacity = int | Sequence[int] | np.ndarray


@dataclass(frozen=True)
class ScanSettings:
    """A cache whose victim is found by looking at every slot."""

    capacity: int | list[int]
    policy: str
    scope: str
    reset: str

    @classmethod
    def checked(cls, trace: RoutingTrace, capacity: Any, policy: str, scope: str, reset: str) -> "ScanSettings":
        """Check every setting.

        Raises:
            SettingError: The first broken rule, named `cache.<setting>`.
        """
        require_one_of("cache.policy", policy, POLICIES)
        require_one_of("cache.scope", scope, SCOPES)
        require_one_of("cache.reset", reset, RESETS)
        if trace.num_layers * trace.num_experts > MAX_BLOCKS:
            found = (trace.num_layers, trace.num_experts)
            raise SettingError.broken("trace", f"of at most {MAX_BLOCKS} experts over all layers", found)
        if isinstance(capacity, Sequence | np.ndarray) and not isinstance(capacity, str):
            if scope != "layer" or len(capacity) != trace.num_layers:
                rule = f"one number, or with scope layer one for each of the {trace.num_layers} layers"
                raise SettingError.broken("cache.capacity", rule, list(capacity))
            return cls([_slots(each) for each in capacity], policy, scope, reset)
        return cls(_slots(capacity), policy, scope, reset)

    def capacities(self, trace: RoutingTrace) -> Int[np.ndarray, " caches"]:
        """Return the slots of each cache, no more than there are experts for it."""
        pooled = self.scope == "model"
        experts = trace.num_experts * (trace.num_layers if pooled else 1)
        return np.minimum(np.full(1 if pooled else trace.num_layers, self.capacity, dtype=np.int64), experts)

    @property
    def told(self) -> dict[str, Any]:
        """The settings for a report."""
        return {"capacity": self.capacity, "policy": self.policy, "scope": self.scope, "reset": self.reset}


def sequence_numbers(trace: RoutingTrace) -> Int[np.ndarray, " tokens"]:
    """Return the number of each row's sequence, from 0."""
    starts = trace.sequence_starts()
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def _slots(capacity: object) -> int:
    if isinstance(capacity, bool) or not isinstance(capacity, int | np.integer) or capacity < 0:
        raise SettingError.broken("cache.capacity", "a whole number of slots >= 0", capacity)
    return min(int(capacity), 2**62)
