"""What replays share that change what a cache holds or is asked for (prefetch, rerouting): settings and pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stickymoe.cache.capacity import MOST_BLOCKS
from stickymoe.cache.order import order_of
from stickymoe.cache.pools import Piece, PoolReplay
from stickymoe.cache.registry import POLICIES
from stickymoe.cache.replay_kernel import Requests
from stickymoe.cache.settings import CacheSettings
from stickymoe.cache.simulation import Simulation, simulations_of
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_one_of
from stickymoe.traces import RoutingTrace

# Slots of every cache, a share of its experts, or the slots of each layer.
Slots = int | float | Sequence[int] | np.ndarray
# Why a policy cannot be driven where what is held or asked for is not what the trace says.
OFFLINE = {
    "future": "knows what will be asked for and when, which is no longer so",
    "profile": "holds what a profile chose for good, whatever is asked for or fetched",
}


def intervention(
    trace: RoutingTrace,
    capacity: Slots,
    policy: str,
    *,
    scope: str,
    reset: str,
    options: Mapping[str, float] | None,
    expert_bytes: Any = None,
) -> Simulation:
    """Return the simulation that the replay departs from: top-k accesses, a token at once, every miss admitted.

    Raises:
        SettingError: The first broken rule, named `cache.<setting>`.
    """
    require_online(policy)
    if trace.num_layers * trace.num_experts > MOST_BLOCKS:
        found = (trace.num_layers, trace.num_experts)
        raise SettingError.broken("trace", f"of at most {MOST_BLOCKS} experts over all layers", found)
    given: Any = capacity
    split = isinstance(given, Sequence | np.ndarray)
    if split and scope != "layer":
        raise SettingError.broken("cache.capacity", "one number unless the scope is layer", list(given))
    settings = CacheSettings.checked(policy, scope=given if split else scope, reset=reset, options=options)
    _, (simulation,) = simulations_of(trace, settings, [(None if split else given, None)], None, expert_bytes)
    return simulation


def replayed_pools(
    simulation: Simulation, trace: RoutingTrace, *, weighted: bool = False
) -> Iterator[tuple[PoolReplay, Requests]]:
    """Yield each pool of a simulation, cold, and all that is asked of it; with the weights where told so."""
    settings = simulation.settings
    piece = Piece.of(trace, order_of(trace, settings), settings, weighted or simulation.weighted)
    for number in simulation.pools:
        pool = simulation.pool(number)
        yield pool, piece.requests(pool.layers, 0, trace.num_tokens)


def require_online(policy: str) -> None:
    """Refuse a policy that goes by more than what it has seen.

    Raises:
        SettingError: It knows the future or a profile, or there is none of that name.
    """
    require_one_of("cache.policy", policy, POLICIES)
    for need, why in OFFLINE.items():
        if need in POLICIES[policy].needs:
            way_out = f"{policy} {why}; take one of {', '.join(sorted(online_policies()))}"
            raise SettingError.broken("cache.policy", "an online policy", policy, way_out)


def online_policies() -> list[str]:
    """Return the names of the policies that go by what they have seen alone."""
    return [name for name, kind in POLICIES.items() if not kind.needs & set(OFFLINE)]
