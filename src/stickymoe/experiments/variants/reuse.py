"""The reuse term: gate mass on the experts that served the token before."""

from __future__ import annotations

from stickymoe.experiments.variants.variant import Variant


def reuse(coefficient: float, load_balancing: float) -> Variant:
    """Train with ReMoE's reuse mass from the first step, with a stronger load balancing against its pull.

    Source: ReMoE, reuse mass.
    """
    overrides = {"objective.reuse": coefficient, "objective.load_balancing": load_balancing}
    return Variant(f"reuse-{coefficient:g}", f"Reuse {coefficient:g} μ={load_balancing:g}", overrides)


REUSES = (reuse(0.05, 0.1),)
