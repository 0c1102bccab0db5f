"""Who stays in a static cache: the experts most used on a profile, and what that knowledge cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stickymoe.cache.capacity import Capacity
from stickymoe.cache.order import Order
from stickymoe.cache.settings import CacheSettings
from stickymoe.core.errors import SettingError
from stickymoe.traces import RoutingTrace, UsageProfile
from stickymoe.traces.checks import UNASSIGNED

# Where a choice comes from that knows the whole trace it is judged on.
HINDSIGHT = "the same trace (hindsight)"
ProfileSource = RoutingTrace | UsageProfile | float | None


@dataclass(frozen=True)
class Profile:
    """The choice of a static cache.

    Args:
        chosen: Who stays, (layers, experts).
        learning_tokens: Tokens at the start of the trace during which nothing is known yet, so that all lookups miss.
        told: Where the choice comes from and what it cost, as a report tells it.
    """

    chosen: np.ndarray
    learning_tokens: int
    told: dict[str, Any]

    def known_from(self, order: Order) -> int:
        """Return the first group of events at whose start the choice is known."""
        return int(np.searchsorted(order.groups, self.learning_tokens)) if self.learning_tokens else 0


def chosen_by_profile(
    source: ProfileSource, trace: RoutingTrace, settings: CacheSettings, capacity: Capacity
) -> Profile:
    """Choose who stays.

    Args:
        source: Another trace or a usage profile; a share in (0, 1): the first tokens of the trace itself; None: all of
            the trace, which is hindsight.
        trace: The trace to be replayed.
        settings: How to count.
        capacity: The budgets.

    Raises:
        SettingError: The profile is of another model, or no profile at all.
    """
    learning = 0
    if source is None:
        counts, told = _uses(trace, settings), {"from": HINDSIGHT, "tokens": trace.num_tokens}
    elif isinstance(source, float) and not isinstance(source, bool):
        if not 0 < source < 1:
            raise SettingError.broken("cache.profile", "a share above 0 and below 1", source)
        if settings.batch > 1:
            raise SettingError.broken("cache.batch", "1 where the profile is a share of the trace", settings.batch)
        learning = max(1, int(source * trace.num_tokens))
        counts = _uses(trace.head(learning), settings)
        told = {"from": f"the first {learning} tokens, which all miss", "tokens": learning}
    elif isinstance(source, RoutingTrace):
        _require_model(source, trace)
        counts, told = _uses(source, settings), {"from": "another trace", "tokens": source.num_tokens}
    elif isinstance(source, UsageProfile):
        _require_model(source, trace)
        counts, told = source.counts, {"from": "a usage profile", "uses": int(source.counts.sum())}
    else:
        rule = "a trace, a usage profile, a share of the trace, or left out"
        raise SettingError.broken("cache.profile", rule, type(source).__name__)
    chosen = _most_used(counts, capacity, settings.pooled)
    starts = trace.num_sequences if settings.reset == "sequence" and not learning else 1
    told |= {"pinned": int(chosen.sum()), "loads_ahead": int(chosen.sum()), "cold_starts": starts}
    return Profile(chosen, learning, told)


def _require_model(source: RoutingTrace | UsageProfile, trace: RoutingTrace) -> None:
    if (source.num_layers, source.num_experts) != (trace.num_layers, trace.num_experts):
        rule = f"of the trace's model, {trace.num_layers} layers of {trace.num_experts} experts"
        raise SettingError.broken("cache.profile", rule, f"{source.num_layers} of {source.num_experts}")
    if source.layer_names and trace.layer_names and source.layer_names != trace.layer_names:
        rule = f"of the trace's layers, {', '.join(trace.layer_names)}"
        raise SettingError.broken("cache.profile", rule, ", ".join(source.layer_names))


def _uses(trace: RoutingTrace, settings: CacheSettings) -> np.ndarray:
    ids = trace.expert_ids[:, :, :1] if settings.accesses == "top1" else trace.expert_ids
    counts = np.zeros((trace.num_layers, trace.num_experts), dtype=np.int64)
    for layer in range(trace.num_layers):
        used = ids[:, layer]
        counts[layer] = np.bincount(used[used != UNASSIGNED], minlength=trace.num_experts)
    return counts


def _most_used(counts: np.ndarray, capacity: Capacity, pooled: bool) -> np.ndarray:
    """Fill each pool by uses, equals by layer and id; what does not fit a budget of bytes is passed over."""
    chosen = np.zeros(counts.shape, dtype=bool)
    pools = [slice(None)] if pooled else [slice(layer, layer + 1) for layer in range(len(counts))]
    for pool, budget in zip(pools, capacity.budgets, strict=True):
        order = np.argsort(-counts[pool].reshape(-1), kind="stable")
        sizes = np.repeat(capacity.sizes[pool], counts.shape[1])[order]
        flags = np.zeros(order.size, dtype=bool)
        if sizes.min() == sizes.max():
            flags[order[: budget // int(sizes[0])]] = True
        else:
            left = budget
            for block, size in zip(order.tolist(), sizes.tolist(), strict=True):
                if size <= left:
                    flags[block] = True
                    left -= size
        chosen[pool] = flags.reshape(chosen[pool].shape)
    return chosen
