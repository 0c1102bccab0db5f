"""Soft-Hard: the consistency loss, and an anchor for each window."""

from __future__ import annotations

from stickymoe.experiments.variants.variant import Variant


def soft_hard(coefficient: float, anchor: float, window: int = 4) -> Variant:
    """Consistency and anchor loss. Source: Sticky Routing, eq. 13."""
    return Variant(
        f"soft-hard-{coefficient:g}-{anchor:g}",
        f"Soft-Hard λ={coefficient:g} α={anchor:g}",
        {"objective.consistency": coefficient, "objective.anchor": anchor, "objective.window": window},
    )


SOFT_HARDS = tuple(soft_hard(0.1, anchor) for anchor in (0.05, 0.1, 0.5, 1.0))
