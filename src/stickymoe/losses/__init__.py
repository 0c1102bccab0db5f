"""Training terms, one pure function a file, and `Objective`, which weighs and adds them."""

from stickymoe.losses.anchor import anchor_loss
from stickymoe.losses.boundary import boundary_pair_weights
from stickymoe.losses.consistency import consistency_loss
from stickymoe.losses.cross_layer import cross_layer_loss
from stickymoe.losses.diagnostics import diagnose, gate_entropy_bits, gate_margin, switch_rate
from stickymoe.losses.distributed import sum_across_ranks
from stickymoe.losses.load_balancing import load_balancing_loss
from stickymoe.losses.objective import Objective, ObjectiveResult
from stickymoe.losses.registry import TERMS
from stickymoe.losses.reuse import reuse_loss
from stickymoe.losses.router_z import router_z_loss
from stickymoe.losses.sums import Sums
from stickymoe.losses.symmetric_kl import lag_loss, smoothness_loss
from stickymoe.losses.term import LayerStack, Term
from stickymoe.losses.trust import trust_loss
from stickymoe.losses.working_set import working_set_loss

__all__ = [
    "TERMS",
    "LayerStack",
    "Objective",
    "ObjectiveResult",
    "Sums",
    "Term",
    "anchor_loss",
    "boundary_pair_weights",
    "consistency_loss",
    "cross_layer_loss",
    "diagnose",
    "gate_entropy_bits",
    "gate_margin",
    "lag_loss",
    "load_balancing_loss",
    "reuse_loss",
    "router_z_loss",
    "smoothness_loss",
    "sum_across_ranks",
    "switch_rate",
    "trust_loss",
    "working_set_loss",
]
