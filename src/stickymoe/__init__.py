"""StickyMoE: Mixture-of-Experts routers that stay put, measured, predicted and run inside a memory budget.

Importing the package is light: no torch, no transformers. The public names below load their room at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stickymoe.core import autoregister

if TYPE_CHECKING:
    from stickymoe.cache import simulate as simulate
    from stickymoe.capture import capture_routing as capture_routing
    from stickymoe.core.errors import StickyMoEError as StickyMoEError
    from stickymoe.data import Corpus as Corpus
    from stickymoe.data import TokenChunks as TokenChunks
    from stickymoe.data import load_corpus as load_corpus
    from stickymoe.losses import Objective as Objective
    from stickymoe.losses import ObjectiveResult as ObjectiveResult
    from stickymoe.losses import anchor_loss as anchor_loss
    from stickymoe.losses import consistency_loss as consistency_loss
    from stickymoe.losses import cross_layer_loss as cross_layer_loss
    from stickymoe.losses import load_balancing_loss as load_balancing_loss
    from stickymoe.losses import reuse_loss as reuse_loss
    from stickymoe.losses import router_z_loss as router_z_loss
    from stickymoe.metrics import expert_overlap as expert_overlap
    from stickymoe.metrics import set_switch_rate as set_switch_rate
    from stickymoe.metrics import summarise as summarise
    from stickymoe.metrics import switch_rate as switch_rate
    from stickymoe.metrics import utilisation_entropy as utilisation_entropy
    from stickymoe.model import StickyMoEConfig as StickyMoEConfig
    from stickymoe.model import StickyMoEForCausalLM as StickyMoEForCausalLM
    from stickymoe.model import StickyMoEOutput as StickyMoEOutput
    from stickymoe.routing import Routing as Routing
    from stickymoe.traces import RoutingTrace as RoutingTrace
    from stickymoe.training import StickyArguments as StickyArguments
    from stickymoe.training import StickyObjective as StickyObjective
    from stickymoe.training import StickyTrainer as StickyTrainer
    from stickymoe.training import StickyTrainerMixin as StickyTrainerMixin
    from stickymoe.training import evaluate as evaluate

__version__ = "0.1.0"

# Public name -> the room it comes from; the block above says the same to type checkers, a test keeps them alike.
_ROOM_OF = {
    "simulate": "cache",
    "capture_routing": "capture",
    "StickyMoEError": "core.errors",
    "Corpus": "data",
    "TokenChunks": "data",
    "load_corpus": "data",
    "Objective": "losses",
    "ObjectiveResult": "losses",
    "anchor_loss": "losses",
    "consistency_loss": "losses",
    "cross_layer_loss": "losses",
    "load_balancing_loss": "losses",
    "reuse_loss": "losses",
    "router_z_loss": "losses",
    "expert_overlap": "metrics",
    "set_switch_rate": "metrics",
    "summarise": "metrics",
    "switch_rate": "metrics",
    "utilisation_entropy": "metrics",
    "StickyMoEConfig": "model",
    "StickyMoEForCausalLM": "model",
    "StickyMoEOutput": "model",
    "Routing": "routing",
    "RoutingTrace": "traces",
    "StickyArguments": "training",
    "StickyObjective": "training",
    "StickyTrainer": "training",
    "StickyTrainerMixin": "training",
    "evaluate": "training",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its room at first use (PEP 562)."""
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOM_OF})


autoregister.install()
