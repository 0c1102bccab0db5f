"""ReMoE as the paper simulates it: Vanilla's own model, then a short training of the gates alone."""

from __future__ import annotations

from stickymoe.experiments.variants.controls import VANILLA
from stickymoe.experiments.variants.variant import Variant

# Phase 2 of S steps of phase 1: 0.1 S more, its warm-up shortened alike, with the consistency loss and a lower rate.
# Source: Sticky Routing, section 5.3.
REMOE = Variant(
    "remoe",
    "ReMoE (gates alone)",
    {
        "objective.consistency": 0.1,
        "objective.warmup_steps": 0,  # the gates it starts with are specialised already
        "training.peak_learning_rate": 1e-4,
        "training.train_only": "routers",
        "training.start_from": VANILLA.name,
    },
    scaled={"training.steps": 0.1, "training.warmup_steps": 0.1},
)
