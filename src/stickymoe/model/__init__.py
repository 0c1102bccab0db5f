"""The reference model: the paper's GPT with Mixture-of-Experts layers, native to Hugging Face transformers."""

from stickymoe.model.causal_lm import StickyMoEForCausalLM
from stickymoe.model.config import PRESETS, StickyMoEConfig
from stickymoe.model.decoder import StickyMoEModel
from stickymoe.model.linear_cross_entropy import token_cross_entropy
from stickymoe.model.output import StickyMoEOutput
from stickymoe.model.router import Router, RouterDecision
from stickymoe.model.routers import ROUTERS

__all__ = [
    "PRESETS",
    "ROUTERS",
    "Router",
    "RouterDecision",
    "StickyMoEConfig",
    "StickyMoEForCausalLM",
    "StickyMoEModel",
    "StickyMoEOutput",
    "token_cross_entropy",
]
