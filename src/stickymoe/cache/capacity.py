"""How much a cache holds: slots, a share of the experts or bytes, as the budget of each pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stickymoe.cache.settings import CacheSettings
from stickymoe.core.errors import SettingError
from stickymoe.traces import RoutingTrace
from stickymoe.traces.checks import UNASSIGNED

# More slots than any pool has experts; what the compiled loop can count.
MOST_SLOTS = 2**62
# Layers times experts for which tables of every expert are made; a real model has some 10**4 to 10**5.
MOST_BLOCKS = 2**22


@dataclass(frozen=True)
class Layout:
    """What the trace and the settings say of the model's experts.

    Args:
        layers: MoE layers.
        experts: Experts a layer, as they are numbered in replay.
        expert_bytes: Bytes of one expert of each layer, where known.
        declared: Experts a layer that the model has.
    """

    layers: int
    experts: int
    expert_bytes: np.ndarray | None
    declared: int


@dataclass(frozen=True)
class Capacity:
    """The budgets of the pools: one a layer, or one for the model.

    Args:
        budgets: What each pool holds, in units of `sizes`.
        sizes: What an expert of each layer takes: 1 where slots are counted, else its bytes.
        slots: Slots of each pool, where its experts are of one size.
        told: `capacity` and `capacity_bytes` as a report tells them.
    """

    budgets: tuple[int, ...]
    sizes: np.ndarray
    slots: tuple[int, ...] | None
    told: dict[str, Any]


def checked_capacity(capacity: Any, capacity_bytes: Any, settings: CacheSettings, layout: Layout) -> Capacity:
    """Return the budgets that the user's words mean.

    Raises:
        SettingError: They mean none; the message says what would.
    """
    ones = np.ones(layout.layers, dtype=np.int64)
    given = [capacity is not None, capacity_bytes is not None, settings.split is not None]
    if sum(given) != 1:
        found = (capacity, capacity_bytes) if settings.split is None else (settings.split, capacity, capacity_bytes)
        rule = "given once: as capacity (slots or a share), capacity_bytes, or a scope of slots for each layer"
        raise SettingError.broken("cache.capacity", rule, found)
    if settings.split is not None:
        if len(settings.split) != layout.layers:
            rule = f"as long as the trace has layers, {layout.layers}, where it is a split"
            raise SettingError.broken("cache.scope", rule, f"{len(settings.split)} numbers")
        slots = tuple(min(each, MOST_SLOTS) for each in settings.split)
        return Capacity(slots, ones, slots, _told(list(settings.split), None))
    pools = 1 if settings.pooled else layout.layers
    if capacity_bytes is not None:
        return _of_bytes(capacity_bytes, settings, layout)
    told = _slots(capacity, layout.declared * (layout.layers if settings.pooled else 1))
    slots = (min(told, MOST_SLOTS),) * pools
    return Capacity(slots, ones, slots, _told(told, None))


def _slots(capacity: Any, experts: int) -> int:
    rule = "a whole number of slots >= 0 or a share in (0, 1]"
    if isinstance(capacity, bool) or not isinstance(capacity, int | float | np.integer | np.floating):
        raise SettingError.broken("cache.capacity", rule, capacity)
    if isinstance(capacity, int | np.integer):
        if capacity < 0:
            raise SettingError.broken("cache.capacity", rule, capacity)
        return int(capacity)
    if not 0 < capacity <= 1:
        raise SettingError.broken("cache.capacity", rule, float(capacity))
    return int(np.floor(capacity * experts + 0.5))


def _of_bytes(capacity_bytes: Any, settings: CacheSettings, layout: Layout) -> Capacity:
    whole = isinstance(capacity_bytes, int | np.integer) and not isinstance(capacity_bytes, bool)
    if not whole or not 0 <= capacity_bytes < 2**62:
        raise SettingError.broken("cache.capacity_bytes", "a whole number of bytes from 0 to 2**62 - 1", capacity_bytes)
    sizes = layout.expert_bytes
    if sizes is None:
        way_out = "give expert_bytes, or a capacity in slots"
        raise SettingError.broken(
            "cache.capacity_bytes", "used with a trace that knows its experts' bytes", None, way_out
        )
    told = _told(None, int(capacity_bytes))
    ones = np.ones(layout.layers, dtype=np.int64)
    if not settings.pooled:
        slots = tuple(int(capacity_bytes) // layout.layers // size for size in sizes.tolist())
        told["capacity"] = slots[0] if len(set(slots)) == 1 else list(slots)
        return Capacity(slots, ones, slots, told)
    if len(set(sizes.tolist())) == 1:
        pool = int(capacity_bytes) // int(sizes[0])
        told["capacity"] = pool
        return Capacity((pool,), ones, (pool,), told)
    return Capacity((int(capacity_bytes),), sizes, None, told)


def layout_of(
    trace: RoutingTrace, expert_bytes: int | Sequence[int] | np.ndarray | None, declared: int | None = None
) -> Layout:
    """Return the model's experts; bytes given go before those of the trace."""
    given = checked_expert_bytes(expert_bytes, trace.num_layers)
    sizes = trace.expert_bytes if given is None else given
    return Layout(trace.num_layers, trace.num_experts, sizes, declared or trace.num_experts)


def renumbered(trace: RoutingTrace) -> RoutingTrace:
    """Return the trace with its used experts numbered anew where tables of all of them would be too large."""
    if trace.num_layers * trace.num_experts <= MOST_BLOCKS:
        return trace
    used = np.unique(trace.expert_ids)
    used = used[used != UNASSIGNED]
    ids = np.searchsorted(used, trace.expert_ids).astype(np.int32)
    ids[trace.expert_ids == UNASSIGNED] = UNASSIGNED
    return replace(trace, expert_ids=ids, num_experts=int(used.size))


def _told(capacity: int | list[int] | None, capacity_bytes: int | None) -> dict[str, Any]:
    return {"capacity": capacity, "capacity_bytes": capacity_bytes}


def checked_expert_bytes(given: int | Sequence[int] | np.ndarray | None, layers: int) -> np.ndarray | None:
    """Return the bytes of one expert of each layer: one number stands for all.

    Raises:
        SettingError: Not whole numbers >= 1, or not one a layer.
    """
    if given is None:
        return None
    sizes = np.asarray(given)
    if sizes.ndim == 0:
        sizes = np.full(layers, sizes)
    rule = f"whole bytes >= 1, one number or one for each of {layers} layers"
    if sizes.dtype.kind not in "iu" or sizes.shape != (layers,):
        raise SettingError.broken("cache.expert_bytes", rule, given if sizes.size < 8 else f"shape {sizes.shape}")
    if int(sizes.min()) < 1 or int(sizes.max()) >= 2**62 // (layers * 2):
        raise SettingError.broken("cache.expert_bytes", rule, int(sizes.min()))
    return sizes.astype(np.int64)
