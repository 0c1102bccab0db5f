"""Hit rates at many capacities: LRU at all of them in one pass, other policies with what they share done once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from stickymoe.cache.lru import count_whole
from stickymoe.cache.profile import ProfileSource
from stickymoe.cache.registry import PolicyFactory
from stickymoe.cache.report import CacheReport
from stickymoe.cache.settings import CacheSettings
from stickymoe.cache.simulation import simulations_of
from stickymoe.core.errors import SettingError
from stickymoe.traces import RoutingTrace

# The paper's cache hit rate: `hit_rate_curve(trace, "lru", [2], **PAPER_SEMANTICS)`.
PAPER_SEMANTICS: dict[str, Any] = {
    "scope": "layer",
    "accesses": "top1",
    "replay": "sequential",
    "reset": "sequence",
}


def hit_rate_curve(
    trace: RoutingTrace,
    policy: str | PolicyFactory,
    capacities: Iterable[int | float],
    *,
    in_bytes: bool = False,
    profile: ProfileSource = None,
    expert_bytes: int | Sequence[int] | np.ndarray | None = None,
    **semantics: Any,
) -> list[CacheReport]:
    """Count what caches of several capacities would have found, as `simulate` would for each.

    One pass tells all LRU caches (`cache/lru.py`, which names two cases that are replayed on their own). For other
    policies the trace is made ready, and the future found, once.

    Args:
        trace: The routing, whole.
        policy: As for `simulate`, and so all that follows.
        capacities: Slots or shares, in any order.
        in_bytes: The capacities are `capacity_bytes`.
        profile: What a static cache chooses by.
        expert_bytes: Bytes of one expert, or of one of each layer.
        **semantics: As for `simulate`, `options` among them; but a scope that is a split has its capacities already.

    Returns:
        One report a capacity, in the order given.

    Raises:
        SettingError: A setting breaks its rule, or no capacity is given.
    """
    settings = CacheSettings.checked(policy, **semantics)
    if settings.split is not None:
        raise SettingError.broken("cache.scope", "layer or model, for a curve", settings.split)
    sizes = [(None, size) if in_bytes else (size, None) for size in capacities]
    if not sizes:
        raise SettingError.broken("cache.capacities", "at least one capacity", sizes)
    trace, simulations = simulations_of(trace, settings, sizes, profile, expert_bytes)
    count_whole(simulations, trace)
    return [each.report() for each in simulations]
