"""Is it skew or is it locality? What of LRU's hits is owed to popular experts, and what to the order of tokens."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from stickymoe.cache.settings import Semantics
from stickymoe.experiments.diagnosis.budget import Budget
from stickymoe.metrics import Resampling, locality
from stickymoe.traces import RoutingTrace

SAID = {
    "recency": "mostly locality",
    "popularity": "mostly skew",
    "neither": "neither, no cache of this size beats chance by two points",
}


@dataclass(frozen=True)
class SkewOrOrder:
    """Hit rates of one cache a layer, each explaining a part of the next; see `metrics.Locality`.

    Args:
        capacity: Slots a layer; with one pool for the model, the pool's over the layers.
        chance: Slots over experts.
        shuffled: LRU on the same tokens in random order within each sequence.
        lru: LRU on the tokens as they are.
        order_interval: 95 % interval of `lru - shuffled` over sequences; None for a single short one.
        pinned: The most used experts of this very trace: no fixed choice hits more.
        pinned_held_out: The same, learned on the other sequences: what pinning from a profile would hit.
        verdict: `recency`, `popularity` or `neither`.
    """

    capacity: int
    chance: float
    shuffled: float
    lru: float
    order_interval: tuple[float, float] | None
    pinned: float
    pinned_held_out: float | None
    verdict: str

    @property
    def from_order(self) -> float:
        """Hit rate that LRU owes to the order of tokens."""
        return self.lru - self.shuffled


def skew_or_order(trace: RoutingTrace, budget: Budget, semantics: Semantics) -> SkewOrOrder:
    """Measure at the budget, token by token, cold at each sequence."""
    share = budget.slots if budget.scope == "layer" else round(budget.slots / trace.num_layers)
    capacity = min(trace.num_experts, max(1, share))
    found = locality(top1_of(trace) if semantics.accesses == "top1" else trace, [capacity], resampling=Resampling())[0]
    return SkewOrOrder(
        capacity,
        found.chance,
        found.lru_shuffled.mean or 0.0,
        found.lru.mean or 0.0,
        found.order_gain.interval,
        found.static.mean or 0.0,
        found.static_held_out.mean,
        found.verdict,
    )


def top1_of(trace: RoutingTrace) -> RoutingTrace:
    """Return the trace with slot 0 alone."""
    return dataclasses.replace(trace, expert_ids=trace.expert_ids[:, :, :1], expert_weights=None, resident=None)
