"""Soft: the consistency loss alone."""

from __future__ import annotations

from stickymoe.experiments.variants.variant import Variant


def soft(coefficient: float) -> Variant:
    """Consistency loss alone. Source: Sticky Routing, eq. 15."""
    return Variant(f"soft-{coefficient:g}", f"Soft λ={coefficient:g}", {"objective.consistency": coefficient})


SOFTS = tuple(soft(coefficient) for coefficient in (0.01, 0.05, 0.1, 0.2, 0.5))
