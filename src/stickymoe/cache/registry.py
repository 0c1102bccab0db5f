"""The policies by name: a new one is a file under `policies/`, an entry here and a test case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from stickymoe.cache.policies import (
    arc_kernel,
    belady_kernel,
    fifo_kernel,
    lfru_kernel,
    lfu_aged_kernel,
    lfu_cache_kernel,
    lfu_kernel,
    lru_kernel,
    moe_infinity_kernel,
    score_ema_kernel,
    sieve_kernel,
    slru_kernel,
    static_kernel,
)
from stickymoe.cache.policy import CachePolicy, CompiledPolicy
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import nearest, require_one_of

# What a user's own policy comes as: given the capacity in slots, it returns a policy that has seen nothing yet.
PolicyFactory = Callable[[int], CachePolicy]
NO_OPTIONS: Mapping[str, float] = MappingProxyType({})
NO_FUTURE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class PoolFacts:
    """What a policy may know of its pool when it starts.

    Args:
        blocks: Experts that may ask for a slot.
        layers: Layers that share the pool.
        slots: Slots, or the blocks where the budget holds them all.
        options: The policy's options, every one of them.
        chosen: A flag a block: who stays for good; for `static`.
        next_use: The future, from `belady_kernel.next_uses`; for the bounds.
        uses: How many uses may come, where that is known.
    """

    blocks: int
    layers: int = 1
    slots: int = 0
    options: Mapping[str, float] = field(default_factory=dict)
    chosen: np.ndarray | None = None
    next_use: np.ndarray = field(default_factory=lambda: NO_FUTURE)
    uses: int | None = None


@dataclass(frozen=True)
class PolicyKind:
    """A policy as the registry knows it.

    Args:
        what: One line for readers.
        new: Makes the state of a pool.
        options: Names and defaults of its settings; `None` stands for 16 times the blocks.
        needs: Of `weights`, `future`, `profile`, `slots` (a capacity in slots, so that bytes of one size will do).
        admission: Where the policy itself settles which misses are admitted.
    """

    what: str
    new: Callable[[PoolFacts], Any]
    options: Mapping[str, float | None] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()
    admission: str | None = None


def _belady(facts: PoolFacts) -> Any:
    return belady_kernel.new(facts.blocks, facts.next_use)


def _static(facts: PoolFacts) -> Any:
    return static_kernel.new(np.zeros(facts.blocks) if facts.chosen is None else facts.chosen)


POLICIES: dict[str, PolicyKind] = {
    "lru": PolicyKind("the expert unused for longest leaves", lambda facts: lru_kernel.new(facts.blocks)),
    "fifo": PolicyKind("the expert admitted first leaves", lambda facts: fifo_kernel.new(facts.blocks)),
    "lfu": PolicyKind("fewest uses since the cold start", lambda facts: lfu_kernel.new(facts.blocks, facts.uses)),
    "lfu-cache": PolicyKind(
        "fewest uses since its admission", lambda facts: lfu_cache_kernel.new(facts.blocks, facts.uses)
    ),
    "lfu-aged": PolicyKind(
        "fewest uses, each counting half after `half_life` uses of the pool",
        lambda facts: lfu_aged_kernel.new(facts.blocks, facts.options["half_life"]),
        options={"half_life": None},
    ),
    "lfru": PolicyKind("smallest uses / age of the last use", lambda facts: lfru_kernel.new(facts.blocks)),
    "slru": PolicyKind(
        "a second use protects; the oldest of the others leaves",
        lambda facts: slru_kernel.new(facts.blocks, facts.slots, facts.options["protected"]),
        options={"protected": 0.8},
        needs=frozenset({"slots"}),
    ),
    "arc": PolicyKind(
        "once used and used again compete; misses move the border",
        lambda facts: arc_kernel.new(facts.blocks, facts.slots),
        needs=frozenset({"slots"}),
    ),
    "sieve": PolicyKind(
        "a hand goes by age and evicts who was not used since", lambda facts: sieve_kernel.new(facts.blocks)
    ),
    "static": PolicyKind(
        "the most used of a profile stay for good", _static, needs=frozenset({"profile"}), admission="never"
    ),
    "moe-infinity": PolicyKind(
        "smallest layer nearness x share of the sequence's uses x share of all uses",
        lambda facts: moe_infinity_kernel.new(facts.blocks, facts.layers),
    ),
    "score-ema": PolicyKind(
        "smallest running mean of gate weights (HybriMoE)",
        lambda facts: score_ema_kernel.new(facts.blocks, facts.layers, facts.options["decay"]),
        options={"decay": 0.5},
        needs=frozenset({"weights"}),
    ),
    "belady": PolicyKind(
        "farthest next use leaves; the bound where every miss is admitted", _belady, needs=frozenset({"future"})
    ),
    "belady-bypass": PolicyKind(
        "farthest next use leaves, a miss itself too; the bound of all",
        _belady,
        needs=frozenset({"future"}),
        admission="bypass",
    ),
}

# Past these bounds an option means nothing: exclusive below, exclusive above.
OPTION_BOUNDS = {"half_life": (0.0, np.inf), "protected": (0.0, 1.0), "decay": (0.0, 1.0)}


def checked_options(policy: str, given: Mapping[str, float] | None, blocks: int) -> dict[str, float]:
    """Return every option of a policy: as given, else its default for a pool of `blocks`.

    Raises:
        SettingError: The policy has no such option, or its value means nothing.
    """
    kind = POLICIES[policy]
    known = kind.options
    for name, value in (given or {}).items():
        if name not in known:
            rule = "one of " + ", ".join(known) if known else f"none: {policy} has no options"
            raise SettingError.broken("cache.options", rule, name, nearest(name, known))
        low, high = OPTION_BOUNDS[name]
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not low < value < high:
            raise SettingError.broken(f"cache.options.{name}", f"a number above {low:g} and below {high:g}", value)
    usual = {name: 16.0 * blocks if value is None else value for name, value in known.items()}
    return {name: float(value) for name, value in (usual | dict(given or {})).items()}


def make_policy(
    name: str,
    blocks: int,
    *,
    capacity: int = 0,
    layers: int = 1,
    options: Mapping[str, float] | None = None,
    chosen: np.ndarray | None = None,
) -> CachePolicy:
    """Make a policy object that has seen nothing yet, for a runtime or for `replay`.

        policy = make_policy("lru", blocks=128)
        policy.touch(3)
        policy.evict(pinned=set())  # 3

    Args:
        name: A name of `POLICIES`.
        blocks: Experts that may ask for a slot; in a pool for the whole model, layers * num_experts.
        capacity: Slots; `slru` and `arc` divide them.
        layers: Layers that share the pool.
        options: The policy's options; the defaults if not given.
        chosen: A flag a block: who stays for good; for `static`.

    Raises:
        SettingError: There is no such policy or option.
    """
    require_one_of("cache.policy", name, POLICIES)
    told = checked_options(name, options, blocks)

    def facts(next_use: np.ndarray = NO_FUTURE) -> PoolFacts:
        return PoolFacts(blocks, layers, capacity, told, chosen, next_use)

    kind = POLICIES[name]
    if "future" not in kind.needs:
        return CompiledPolicy(kind.new(facts()), blocks)
    return CompiledPolicy(kind.new(facts()), blocks, lambda events: kind.new(facts(_future(events, blocks))))


def _future(events: Sequence[Sequence[int]], blocks: int) -> np.ndarray:
    lengths = [len(event) for event in events]
    ids = np.fromiter((expert for event in events for expert in event), np.int32, sum(lengths)).reshape(-1, 1, 1)
    groups = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    cold = np.zeros(len(lengths), dtype=np.bool_)
    last, found = np.empty(blocks, dtype=np.int64), np.empty(ids.size, dtype=np.int64)
    return belady_kernel.next_uses(ids, blocks, groups, cold, False, False, last, found)
