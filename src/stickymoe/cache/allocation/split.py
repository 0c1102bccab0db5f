"""How to divide a budget among layers, given what each would miss with how many slots."""

from typing import Any

import numpy as np
from jaxtyping import Int

from stickymoe.cache.allocation import allocation_kernel
from stickymoe.core.errors import SettingError

MAX_UNITS = 2**17
# misses[l, c]: misses of layer l with c slots, from c = 0 on
MissCurves = Int[np.ndarray, "layers slots"]


def best_split(misses: MissCurves, slots: int, *, at_least: int = 1) -> Int[np.ndarray, " layers"]:
    """Return the slots of each layer that make the misses of all layers together smallest.

    Exact for curves of any shape. Fewer slots than given are used where more would not help.

    Args:
        misses: Column c holds the misses with c slots; the last column is the most a layer may get.
        slots: To divide among the layers.
        at_least: What every layer gets.

    Raises:
        SettingError: `slots` does not give every layer `at_least`.
    """
    _check(misses, slots, at_least, slots_needed=at_least * len(misses), unit="slots")
    budget = min(slots, len(misses) * (misses.shape[1] - 1))
    return allocation_kernel.split(misses.astype(np.float64), np.ones(len(misses), np.int64), at_least, budget)


def best_split_of_bytes(
    misses: MissCurves, budget_bytes: int, expert_bytes: Int[np.ndarray, " layers"], *, at_least: int = 1
) -> Int[np.ndarray, " layers"]:
    """Return the slots of each layer that make the bytes loaded smallest within a budget of bytes.

    Bytes are counted in the largest unit that divides every size. Where that makes more than 2**17 units a coarser one
    is taken, sizes rounded up: the budget still holds, the split may be off the best by the rounding.

    Args:
        misses: See `best_split`.
        budget_bytes: To divide among the layers.
        expert_bytes: Bytes of one expert of each layer.
        at_least: Slots every layer gets.

    Raises:
        SettingError: The budget does not give every layer `at_least` slots.
    """
    sizes = np.asarray(expert_bytes, dtype=np.int64)
    _check(misses, budget_bytes, at_least, slots_needed=int(at_least * sizes.sum()), unit="bytes")
    budget = min(budget_bytes, int(sizes.sum()) * (misses.shape[1] - 1))
    unit = int(np.gcd.reduce(sizes))
    if budget // unit > MAX_UNITS:
        unit = -(-budget // MAX_UNITS)
    units = -(-sizes // unit)
    if at_least * int(units.sum()) > budget // unit:  # so tight that the rounding alone would refuse it
        return np.full(len(sizes), at_least, dtype=np.int64)
    return allocation_kernel.split(misses * sizes[:, None].astype(np.float64), units, at_least, budget // unit)


def equal_split(layers: int, slots: int, most: int) -> Int[np.ndarray, " layers"]:
    """Return the same number of slots for every layer, the remainder to the first ones, none above `most`."""
    found = np.full(layers, slots // layers, dtype=np.int64)
    found[: slots % layers] += 1
    return np.minimum(found, most)


def misses_of(misses: MissCurves, slots: Int[np.ndarray, " layers"]) -> Int[np.ndarray, " layers"]:
    """Return the misses of each layer under a split; past the end of its curve a layer keeps the last value."""
    return np.take_along_axis(misses, np.minimum(slots, misses.shape[1] - 1)[:, None], axis=1)[:, 0]


def _check(misses: np.ndarray, budget: Any, at_least: Any, *, slots_needed: int, unit: str) -> None:
    for name, value in (("allocation.budget", budget), ("allocation.at_least", at_least)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise SettingError.broken(name, "a whole number >= 0", value)
    if at_least >= misses.shape[1]:
        raise SettingError.broken("allocation.at_least", f"<= {misses.shape[1] - 1}, the experts of a layer", at_least)
    if budget < slots_needed:
        rule = f">= {slots_needed} {unit}, {at_least} slots for each of {len(misses)} layers"
        raise SettingError.broken("allocation.budget", rule, budget)
