"""The budget that is judged, in slots and, where experts have a size, in bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from stickymoe.cache.capacity import MOST_SLOTS
from stickymoe.core.errors import SettingError

GIB = 2**30
_UNASKED = 0.25


@dataclass(frozen=True)
class ModelSizes:
    """What a budget is measured against.

    Args:
        num_experts: Experts a layer.
        layers: MoE layers.
        top_k: Experts that a token asks a layer for; 1 where it is not known.
        expert_bytes: Bytes of one expert of each layer, or None.
    """

    num_experts: int
    layers: int
    top_k: int
    expert_bytes: tuple[int, ...] | None


@dataclass(frozen=True)
class Budget:
    """A cache size.

    Args:
        slots: A layer's, or the pool's where one pool serves the model.
        experts: Experts that the slots are for: those of one layer, or of the model.
        slot_bytes: Bytes that one more slot takes (a slot in every layer, or one of the pool, whose experts count with
            their mean size); None where no size is known.
        asked: The user's own words, or why this size was taken; may be empty.
        scope: `layer` or `model`.
        asked_bytes: What was asked for where it was bytes: layers whose experts differ in size then get different
            slots, and `slots` is the number that every layer could have.
    """

    slots: int
    experts: int
    slot_bytes: float | None
    asked: str
    scope: str = "layer"
    asked_bytes: int | None = None

    def keywords(self) -> dict[str, Any]:
        """Return the argument that `cache.simulate` takes for it."""
        return {"capacity": self.slots} if self.asked_bytes is None else {"capacity_bytes": self.asked_bytes}

    @property
    def share(self) -> float:
        """Share of all experts that fit, at most 1."""
        return min(1.0, self.slots / self.experts)

    @property
    def total_bytes(self) -> int | None:
        """Bytes of the whole cache."""
        return self.bytes_of(self.slots)

    def bytes_of(self, slots: int) -> int | None:
        """Return the bytes that a cache of `slots` takes."""
        return None if self.slot_bytes is None else round(slots * self.slot_bytes)


def budget_for(
    sizes: ModelSizes,
    scope: str,
    *,
    slots: int | None = None,
    share: float | None = None,
    total_bytes: int | None = None,
    asked: str = "",
) -> Budget:
    """Return the budget in slots, shares rounded as `simulate` does; a quarter of the experts if nothing is asked for.

    Args:
        sizes: The model's.
        scope: `layer`: every layer gets the same slots, rounded down; `model`: one pool.
        slots: Slots, >= 1.
        share: Share of the experts, above 0.
        total_bytes: Bytes for the whole cache; needs the experts' sizes.
        asked: How the user put it.

    Raises:
        SettingError: The budget holds no expert, or bytes are asked for and no size is known.
    """
    pool = 1 if scope == "layer" else sizes.layers
    experts, demand = sizes.num_experts * pool, sizes.top_k * pool
    slot_bytes = None if sizes.expert_bytes is None else sum(sizes.expert_bytes) / pool
    if total_bytes is not None:
        slots = _from_bytes(total_bytes, slot_bytes, scope, asked)
    elif share is not None:
        slots = max(1, math.floor(share * experts + 0.5))
    elif slots is None:
        slots = min(experts, max(demand, round(_UNASKED * experts)))
        asked = (
            "none given, " + ("one token's demand" if slots == demand else "a quarter of the experts") + " is judged"
        )
    if slots < 1:
        raise SettingError.broken("budget", "at least one slot", slots)
    return Budget(min(slots, MOST_SLOTS), experts, slot_bytes, asked, scope, total_bytes)


def _from_bytes(total: int, slot_bytes: float | None, scope: str, asked: str) -> int:
    if slot_bytes is None:
        raise SettingError(
            f"budget {asked or total} is in bytes and the trace names no expert sizes; "
            "add --expert-bytes, or give the budget as --capacity"
        )
    slots = int(total // slot_bytes)
    if slots < 1:
        least = "one expert of every layer" if scope == "layer" else "one expert"
        raise SettingError.broken(
            "budget",
            f"at least {math.ceil(slot_bytes)} bytes, {least}",
            asked or total,
            "one pool takes less: --scope model" if scope == "layer" else "",
        )
    return slots
