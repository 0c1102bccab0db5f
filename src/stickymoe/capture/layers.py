"""What capture knows of one MoE layer before the model runs: its router, its experts, and how to read them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from stickymoe.capture.families.family import Family


@dataclass(frozen=True, eq=False)
class MoELayer:
    """One router of a model with its experts.

    Attributes:
        name: The layer's number in the model, as in "3", dense layers counted; "3.mlp" where layers have two routers.
        path: Where the model holds the router.
        family: Reads what router and experts were called with.
        routers: The modules that may decide: more than one where a wrapper keeps a copy of the router.
        index: Where the router's outputs hold the logits.
        experts: The module that runs the chosen experts; None where the router alone tells.
    """

    name: str
    path: str
    family: Family
    routers: tuple[nn.Module, ...]
    index: int
    experts: nn.Module | None

    @property
    def is_fixed(self) -> bool:
        """Whether the choice is settled before training, so that no objective can move it."""
        kind = type(self.routers[0])
        return kind.__name__ in self.family.fixed_routers or bool(getattr(kind, "is_fixed", False))
