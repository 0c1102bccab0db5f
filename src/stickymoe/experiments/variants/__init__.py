"""The variants of the comparison: what each changes in a recipe. One file a variant, one registry."""

from stickymoe.experiments.variants.boundary import boundary, document_reset
from stickymoe.experiments.variants.controls import DENSE, VANILLA
from stickymoe.experiments.variants.fixed import HASH, trajectory
from stickymoe.experiments.variants.hard_window import hard_window
from stickymoe.experiments.variants.hysteresis import hysteresis
from stickymoe.experiments.variants.oracle import ORACLE
from stickymoe.experiments.variants.registry import FAMILIES, VARIANTS, choose_variants, resolve
from stickymoe.experiments.variants.remoe import REMOE
from stickymoe.experiments.variants.reuse import reuse
from stickymoe.experiments.variants.shared_experts import cross_layer, shared_experts
from stickymoe.experiments.variants.soft import soft
from stickymoe.experiments.variants.soft_hard import soft_hard
from stickymoe.experiments.variants.variant import Variant

__all__ = [
    "DENSE",
    "FAMILIES",
    "HASH",
    "ORACLE",
    "REMOE",
    "VANILLA",
    "VARIANTS",
    "Variant",
    "boundary",
    "choose_variants",
    "cross_layer",
    "document_reset",
    "hard_window",
    "hysteresis",
    "resolve",
    "reuse",
    "shared_experts",
    "soft",
    "soft_hard",
    "trajectory",
]
