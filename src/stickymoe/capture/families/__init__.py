"""Model families by transformers' name: how their routers and experts are read."""

from __future__ import annotations

from torch import nn

from stickymoe.capture.families.common import COMMON
from stickymoe.capture.families.family import Decision, Family
from stickymoe.capture.families.own import OwnFamily

__all__ = ["FAMILIES", "Decision", "Family", "OwnFamily", "family_of"]

FAMILIES: dict[str, Family] = {name: Family(name, gate) for name, gate in COMMON.items()}


def family_of(module: nn.Module) -> str:
    """Return transformers' name of the family that a module's class belongs to; empty if it is not transformers'."""
    for kind in type(module).__mro__:  # sharding puts a class of its own in front
        if kind.__module__.startswith("transformers.models."):
            return kind.__module__.split(".")[2]
    return ""
