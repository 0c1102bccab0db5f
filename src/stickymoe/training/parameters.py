"""How many parameters a model has, and how many of them one token uses."""

from __future__ import annotations

from stickymoe.model import StickyMoEForCausalLM
from stickymoe.model.experts import Experts


def count_parameters(model: StickyMoEForCausalLM) -> dict[str, int]:
    """Return `total`, with tied weights counted once, and `active`: without the N - k idle experts of each layer."""
    total = sum(parameter.numel() for parameter in model.parameters())
    num_experts, top_k = model.config.num_experts, model.config.num_experts_per_tok
    experts = [module for module in model.modules() if isinstance(module, Experts)]
    in_experts = sum(parameter.numel() for module in experts for parameter in module.parameters())
    return {"total": total, "active": total - in_experts // num_experts * (num_experts - top_k)}
