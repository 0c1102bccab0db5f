"""Routing without a router: trajectories, the limit of locality, and hash layers, their per-layer form."""

from __future__ import annotations

from stickymoe.experiments.variants.variant import Variant

# There are no gates that a term could move.
NO_TERMS = {
    f"objective.{term}": 0.0 for term in ("consistency", "anchor", "load_balancing", "router_z", "cross_layer", "reuse")
}


def trajectory(span: int) -> Variant:
    """Send each `span` tokens one way through all layers; 1 is each token, 0 the whole document. Source: D.4."""
    name, says = {1: ("token", "token"), 0: ("document", "document")}.get(span, (f"span-{span}", f"{span} tokens"))
    overrides = {"model.router_type": "trajectory", "model.router_span": span, **NO_TERMS}
    return Variant(f"trajectory-{name}", f"Trajectory ({says})", overrides)


TRAJECTORIES = tuple(trajectory(span) for span in (1, 4, 16, 0))
# Source: Roller et al. 2021.
HASH = Variant("hash", "Hash layers", {"model.router_type": "hash", **NO_TERMS})
