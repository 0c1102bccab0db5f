"""What every router is: from hidden states to the experts that serve each token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import initialization as init


class RouterDecision(NamedTuple):
    """One layer's routing of a batch; expert ids in order of falling weight."""

    router_logits: Float[Tensor, "batch seq experts"]
    gate_probs: Float[Tensor, "batch seq experts"]
    expert_ids: Int[Tensor, "batch seq top_k"]
    expert_weights: Float[Tensor, "batch seq top_k"]


class Router(nn.Module, ABC):
    """Decides which experts serve each token. It neither runs experts nor knows of any loss."""

    @abstractmethod
    def forward(self, hidden_states: Float[Tensor, "batch seq hidden"]) -> RouterDecision:
        """Route every token of the batch."""

    def init_weights(self, std: float) -> None:
        """Draw all own parameters from N(0, std); a router that wants it otherwise overrides this."""
        for parameter in self.parameters(recurse=False):
            init.normal_(parameter, std=std)
