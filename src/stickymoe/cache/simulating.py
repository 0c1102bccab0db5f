"""`simulate`: what a cache of a given size would have found on a trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from stickymoe.cache.lru import count_whole
from stickymoe.cache.pieces import simulate_pieces
from stickymoe.cache.profile import ProfileSource
from stickymoe.cache.registry import PolicyFactory
from stickymoe.cache.report import CacheReport
from stickymoe.cache.settings import CacheSettings
from stickymoe.cache.simulation import simulations_of
from stickymoe.traces import RoutingTrace


def simulate(
    trace: RoutingTrace | Iterable[RoutingTrace],
    policy: str | PolicyFactory = "lru",
    capacity: int | float | None = None,
    *,
    capacity_bytes: int | None = None,
    scope: str | Sequence[int] = "layer",
    accesses: str = "topk",
    replay: str = "atomic",
    prefill: str = "token",
    count: str = "assignments",
    reset: str = "sequence",
    admission: str = "always",
    batch: int = 1,
    profile: ProfileSource = None,
    options: Mapping[str, float] | None = None,
    expert_bytes: int | Sequence[int] | np.ndarray | None = None,
) -> CacheReport:
    """Count what a cache would have found on a trace.

        simulate(trace, "lru", 32).hit_rate
        simulate(trace, "belady", capacity_bytes=3 * 2**30, scope="model", prefill="pass")

    Args:
        trace: The routing; or its pieces, one after the other, for a trace larger than memory (online policies only).
        policy: A name of `POLICIES`, or a function from the slots to a fresh `CachePolicy`.
        capacity: Whole slots, or a share of the experts in (0, 1]: a layer's, or the model's if that is the scope. 0
            keeps nothing, so that every lookup misses; more slots than experts keep everything.
        capacity_bytes: Bytes for the whole model in place of `capacity`; shared out evenly where each layer has its own
            cache. Experts of different size share a pool to the byte.
        scope: `layer`: one cache a layer; `model`: one pool, a slot holding one expert of one layer; or the slots of
            each layer, in place of a capacity.
        accesses: `topk`: all experts of a token are looked up; `top1`: the one of slot 0.
        replay: `atomic`: the experts of an event are looked up together, then the misses are admitted in request order,
            and experts of the running event leave only when nothing else is left; `sequential`: one by one.
        prefill: `token`: an event is one token at a layer; `pass`: the tokens of one forward pass, their experts
            united in the order of their first use.
        count: `assignments`: an expert wanted by several tokens of one event is looked up by each; `unique`: once.
        reset: `sequence`: cold at each sequence; `never`: one cache through the whole trace.
        admission: `always`: a miss gets a slot. `whole`: the running event is never split, so that a pool may hold more
            than its capacity until the next event comes. `bypass`: a miss may itself be the one that leaves.
        batch: Sequences run side by side: an event unites the n-th event of each; the next ones start when all ended.
        profile: For `static`: a trace or usage profile to choose by, or the share of this trace's first tokens, which
            all miss; hindsight over the whole trace if not given.
        options: The policy's own settings; see `POLICIES`.
        expert_bytes: Bytes of one expert, or of one of each layer, where the trace does not say or says wrongly.

    Returns:
        Hits and misses per layer and phase with their semantics. First uses are misses.

    Raises:
        SettingError: A setting breaks its rule.
        TraceError: The pieces do not belong together.
    """
    settings = CacheSettings.checked(
        policy,
        scope=scope,
        accesses=accesses,
        replay=replay,
        prefill=prefill,
        count=count,
        reset=reset,
        admission=admission,
        batch=batch,
        options=options,
    )
    if not isinstance(trace, RoutingTrace):
        return simulate_pieces(trace, settings, capacity, capacity_bytes, profile, expert_bytes)
    sizes = [(capacity, capacity_bytes)]
    trace, (simulation,) = simulations_of(trace, settings, sizes, profile, expert_bytes)
    count_whole([simulation], trace)
    return simulation.report()
