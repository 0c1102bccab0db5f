"""Causal self-attention on transformers' attention kernels, and one kernel written out, faster to train on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import Cache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from stickymoe.model.config import StickyMoEConfig


class ResidualProjection(nn.Linear):
    """A linear layer that writes into the residual stream; its name tells initialisation to start it smaller."""


class CausalSelfAttention(nn.Module):
    """Multi-head self-attention as in GPT-2; the kernel is transformers' (`config._attn_implementation`)."""

    is_causal = True

    def __init__(self, config: StickyMoEConfig, layer_idx: int) -> None:
        """Create the fused query-key-value projection and the output projection."""
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.num_heads = config.num_attention_heads
        self.qkv_proj = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out_proj = ResidualProjection(config.hidden_size, config.hidden_size)

    def forward(
        self,
        hidden_states: Float[Tensor, "batch seq hidden"],
        attention_mask: Tensor | None,
        cache: Cache | None,
    ) -> tuple[Float[Tensor, "batch seq hidden"], Float[Tensor, "batch seq hidden"]]:
        """Attend to the allowed earlier positions of this call and of the cache.

        Returns:
            The output, and the attended values before the output projection.
        """
        batch, seq, hidden = hidden_states.shape
        qkv = self.qkv_proj(hidden_states).view(batch, seq, 3, self.num_heads, hidden // self.num_heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind()
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
        attend: Callable[..., tuple[Tensor, Tensor | None]]
        if query.device.type == "cpu" and (self.training or query.requires_grad):
            attend = explicit_attention  # the fused kernel's backward is slow on the CPU: benchmarks/cpu_choices.py
        else:
            attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, explicit_attention)
        dropout = self.config.dropout if self.training else 0.0
        attended, _ = attend(self, query, key, value, attention_mask, dropout=dropout)
        attended = attended.reshape(batch, seq, hidden)
        return self.out_proj(attended), attended


def explicit_attention(
    module: nn.Module,
    query: Float[Tensor, "batch heads queries width"],
    key: Float[Tensor, "batch heads keys width"],
    value: Float[Tensor, "batch heads keys width"],
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Float[Tensor, "batch queries heads width"], None]:
    """Attention written out, (queries, keys) scores and all; the signature is transformers' attention interface.

    Args:
        module: The calling layer.
        query: Queries, at the end of the keys' positions.
        key: Keys.
        value: Values.
        attention_mask: True or 0 where a query may look, False or the lowest number elsewhere; causal if not given.
        dropout: Probability of dropping a score.
    """
    batch, heads, queries, width = query.shape
    keys = key.shape[2]
    if attention_mask is None:
        place = torch.arange(keys, device=query.device)  # compared, not tril, which is slow on booleans
        attention_mask = place <= place[keys - queries :, None]
    if attention_mask.dtype == torch.bool:
        # Not -inf: where nothing is allowed, as in front of left padding, softmax would make it NaN
        lowest = torch.finfo(query.dtype).min / 2
        attention_mask = torch.zeros_like(attention_mask, dtype=query.dtype).masked_fill_(~attention_mask, lowest)
    bias = attention_mask.to(query.dtype)
    if bias.ndim == 2:  # one mask for all rows need not be copied for each
        bias = bias.expand(batch * heads, queries, keys)
    else:
        bias = bias.expand(batch, heads, queries, keys).reshape(-1, queries, keys)
    flat_query, flat_key, flat_value = (x.flatten(0, 1) for x in (query, key, value))
    scores = torch.baddbmm(bias, flat_query, flat_key.transpose(1, 2), alpha=width**-0.5)
    probs = nn.functional.dropout(scores.softmax(dim=-1), dropout, training=dropout > 0)
    return torch.bmm(probs, flat_value).view(batch, heads, queries, width).transpose(1, 2), None
