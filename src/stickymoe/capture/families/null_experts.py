"""longcat_flash and zaya: some of what the router chooses from are no experts but a way past them."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from stickymoe.capture.families.family import Family


class LongcatFlashFamily(Family):
    """Zero experts hand their input through; their ids follow those of the real experts."""

    note: str = "ids from the number of real experts on are zero experts: chosen, but nothing to load"

    def num_experts(self, experts: nn.Module | None, scored: int) -> int:
        """Return how many experts hold weights."""
        real: Any = getattr(experts, "num_routed_experts", scored)
        return int(real)


class ZayaFamily(Family):
    """The last class skips the layer; the experts are told expert 0 with weight 0 in its place."""

    note: str = "the last id skips the layer; such tokens have weight 0"

    def num_experts(self, experts: nn.Module | None, scored: int) -> int:
        """Return how many experts hold weights: all but the last class."""
        return scored - 1

    def chosen(self, router: nn.Module, output: Any, given: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        """Give skipped tokens the id of the class that skips."""
        ids, weights = super().chosen(router, output, given)
        return ids.masked_fill(weights == 0, output[0].shape[-1] - 1), weights
