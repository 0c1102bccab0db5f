"""Refuses inputs the model cannot answer for, in one line each, before they become an index error deep inside.

Values are looked at on the CPU only: on an accelerator looking would wait for the device at every step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import nearest

# What tokenizers and collators hand to every model and this one rightly leaves unread
IGNORABLE = {"token_type_ids", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx"}
WAY_OUT = {
    "past_key_values": "transformers 5.24 calls it cache",
    "output_attentions": "attention scores are not kept",
}


def refuse_unknown(arguments: dict[str, Any], known: set[str]) -> None:
    """Refuse a keyword nobody reads: a misspelt `labels` would else train on nothing."""
    for name, value in arguments.items():
        if name in IGNORABLE or value is None or value is False:
            continue
        way_out = WAY_OUT.get(name) or nearest(name, known) or "leave it out"
        raise SettingError(f"{name} is no argument of the model; {way_out}")


def require_token_ids(input_ids: Tensor, vocab_size: int) -> None:
    """Refuse empty sequences and, on the CPU, ids outside the vocabulary."""
    if input_ids.shape[1] == 0:
        raise SettingError.broken("sequence length", ">= 1", 0, "give at least one token")
    if _values_are_at_hand(input_ids) and len(input_ids):
        lowest, highest = (int(extreme) for extreme in input_ids.aminmax())
        if lowest < 0 or highest >= vocab_size:
            worst = lowest if lowest < 0 else highest
            way_out = "use the tokenizer the model was made for"
            raise SettingError.broken("input_ids", f"in [0, {vocab_size})", worst, way_out)


def require_mask_shape(attention_mask: Tensor | None, batch: int, length: int) -> None:
    """Refuse a two-dimensional mask that does not cover cache and input."""
    if attention_mask is not None and attention_mask.ndim == 2 and attention_mask.shape != (batch, length):
        raise SettingError.broken(
            "attention_mask", f"of shape {(batch, length)}, cache and input", tuple(attention_mask.shape)
        )


def require_positions(position_ids: Tensor, length: int, limit: int) -> None:
    """Refuse positions that have no embedding; on an accelerator only where the length lets one suspect it."""
    if length <= limit and not _values_are_at_hand(position_ids):
        return
    highest = int(position_ids.max())
    if highest >= limit:
        way_out = "shorten or split the text"
        raise SettingError.broken("sequence length", f"<= max_position_embeddings ({limit})", highest + 1, way_out)


def _values_are_at_hand(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()
