"""How many parameters a model has, and how many of them one token uses."""

from __future__ import annotations

from stickymoe.model import StickyMoEForCausalLM
from stickymoe.model.experts import Experts


def count_parameters(model: StickyMoEForCausalLM) -> dict[str, int]:
    """Return `total`, with tied weights and shared experts counted once, and `active`: without the idle experts.

    Idle are N - k experts of each layer; of a pool that several layers share, those that remain when every layer takes
    k different ones.
    """
    total = sum(parameter.numel() for parameter in model.parameters())
    num_experts, top_k = model.config.num_experts, model.config.num_experts_per_tok
    experts = [module for module in model.modules() if isinstance(module, Experts)]
    in_experts = sum(parameter.numel() for module in experts for parameter in module.parameters())
    idle = max(num_experts - top_k * model.config.layers_per_pool, 0)
    return {"total": total, "active": total - in_experts // num_experts * idle}
