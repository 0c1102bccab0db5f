"""The two controls: the ordinary MoE, and a dense model that does as much work a token."""

from __future__ import annotations

from stickymoe.experiments.variants.variant import Variant

# Source: Sticky Routing, section 5.3, eq. 14.
VANILLA = Variant("vanilla", "Vanilla")
# N = k: as many active parameters, same data and steps. What Vanilla gains over it is what experts are worth.
DENSE = Variant("dense", "Dense control", dense=True)
