"""The settings of a replay, checked, and the report they label."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from stickymoe.cache.registry import POLICIES
from stickymoe.cache.report import CacheReport
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_one_of
from stickymoe.traces import RoutingTrace
from stickymoe.traces.checks import UNASSIGNED
from stickymoe.traces.streams import ACCESSES, REPLAYS, RESETS, SCOPES

COUNTS = ("assignments", "unique")


@dataclass(frozen=True)
class CacheSettings:
    """How a replay counts; every report carries it."""

    policy: str
    capacity: int
    scope: str
    accesses: str
    replay: str
    reset: str
    count: str

    @classmethod
    def checked(
        cls,
        policy: str | Callable[[int], Any],
        capacity: object,
        scope: str,
        accesses: str,
        replay: str,
        reset: str,
        count: str,
    ) -> "CacheSettings":
        """Check every setting.

        Raises:
            SettingError: The first broken rule, named `cache.<setting>`.
        """
        if isinstance(policy, str):
            require_one_of("cache.policy", policy, POLICIES)
        require_one_of("cache.scope", scope, SCOPES)
        require_one_of("cache.accesses", accesses, ACCESSES)
        require_one_of("cache.replay", replay, REPLAYS)
        require_one_of("cache.reset", reset, RESETS)
        require_one_of("cache.count", count, COUNTS)
        name = policy if isinstance(policy, str) else getattr(policy, "__name__", type(policy).__name__)
        return cls(name, slots(capacity), scope, accesses, replay, reset, count)

    def report(self, trace: RoutingTrace, hits: Int[np.ndarray, " layers"]) -> CacheReport:
        """Complete the hits of each layer to a report."""
        ids = trace.expert_ids[:, :, :1] if self.accesses == "top1" else trace.expert_ids
        lookups = np.count_nonzero(ids != UNASSIGNED, axis=(0, 2))
        semantics = asdict(self) | {"prefill": "token", "top_k": trace.top_k}
        return CacheReport(hits, lookups - hits, self._first_uses(trace, ids), semantics)

    def _first_uses(self, trace: RoutingTrace, ids: np.ndarray) -> Int[np.ndarray, " layers"]:
        starts = np.zeros(trace.num_tokens, dtype=np.int64)
        if self.reset == "sequence":
            starts[trace.sequence_starts()[1:-1]] = 1
        start_of_row = np.cumsum(starts)[:, None]
        uses = np.empty(trace.num_layers, dtype=np.int64)
        for layer in range(trace.num_layers):
            keys = start_of_row * trace.num_experts + ids[:, layer]
            uses[layer] = np.unique(keys[ids[:, layer] != UNASSIGNED]).size
        return uses


def slots(capacity: object) -> int:
    """Return a capacity in whole slots, >= 1."""
    if isinstance(capacity, bool) or not isinstance(capacity, int | np.integer) or capacity < 1:
        raise SettingError.broken("cache.capacity", "a whole number of slots >= 1", capacity)
    return int(capacity)
