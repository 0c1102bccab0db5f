"""Oracle-MoE, simplified as in the paper: the router reads what attention gathered."""

from __future__ import annotations

from stickymoe.experiments.variants.variant import Variant

# The attended values before attention's output projection. Source: Sticky Routing, section 5.3.
ORACLE = Variant("oracle", "Oracle-MoE", {"model.router_input": "attended"})
