"""Shared experts: layers draw on one pool, alone and with the losses that make use of it."""

from __future__ import annotations

from stickymoe.experiments.variants.soft import soft
from stickymoe.experiments.variants.variant import Variant


def shared_experts(how: str) -> Variant:
    """Let `all` layers, or blocks of K of them (`groups:K`), share their experts. Source: Sticky Routing, D.2."""
    name = how.replace(":", "-")
    return Variant(f"shared-{name}", f"Shared experts ({how})", {"model.experts_shared": how})


def cross_layer(coefficient: float) -> Variant:
    """Ask adjacent layers that share experts for the same gates. Source: Sticky Routing, eq. 23."""
    return Variant(f"cross-{coefficient:g}", f"γ={coefficient:g}", {"objective.cross_layer": coefficient})


WAYS = ("groups:2", "all")
SHARED = tuple(shared_experts(how) for how in WAYS)
CROSS_LAYER = tuple(shared_experts(how) + cross_layer(0.1) for how in WAYS)
# The combined objective. Source: Sticky Routing, eq. 24.
COMBINED = tuple(shared_experts(how) + soft(0.1) + cross_layer(0.1) for how in WAYS)
