"""What a forward pass of the reference model returns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import Cache
from transformers.utils.generic import ModelOutput

from stickymoe.routing import Routing


@dataclass
class StickyMoEOutput(ModelOutput):
    """Output of the reference model.

    Attributes:
        loss: Mean cross-entropy of the targets alone, no auxiliary term; None without targets.
        logits: (batch, kept positions, vocabulary); None when a loss was asked for, since it is computed in chunks.
        cache: Keys and values seen so far, if `use_cache`.
        last_hidden_state: After the final norm, (batch, seq, hidden); times the embedding's transpose, the logits.
        hidden_states: If asked for: the embeddings, then the output of every layer, the last one normed.
        routing: What the routers of all layers decided for the tokens of this call.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    cache: Cache | None = None
    last_hidden_state: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    routing: Routing | None = None
