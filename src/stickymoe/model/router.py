"""What every router is: from hidden states to the experts that serve each token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import initialization as init

from stickymoe.model.stream import TokenStream

if TYPE_CHECKING:
    from stickymoe.model.config import StickyMoEConfig


class RouterDecision(NamedTuple):
    """One layer's routing of a batch; expert ids in order of falling weight.

    `to_keep` is what the router wants to know of these tokens when the sequence goes on; None if nothing.
    """

    router_logits: Float[Tensor, "batch seq experts"]
    gate_probs: Float[Tensor, "batch seq experts"]
    expert_ids: Int[Tensor, "batch seq top_k"]
    expert_weights: Float[Tensor, "batch seq top_k"]
    to_keep: Int[Tensor, "batch seq facts"] | None = None


class Router(nn.Module, ABC):
    """Decides which experts serve each token. It neither runs experts nor knows of any loss.

    One that decides by more than the hidden state sets `reads_stream`; it then gets a context, its layer's entry of
    `contexts`, as a second argument, and what it returns as `to_keep` comes back in the next call's stream.

    Attributes:
        reads_stream: Whether it looks at the tokens around a token.
        is_fixed: Whether its choice is settled before training, so that no objective can move it.
        settings: The config's fields that are its own, with their defaults.
    """

    reads_stream: ClassVar[bool] = False
    is_fixed: ClassVar[bool] = False
    settings: ClassVar[dict[str, Any]] = {}

    @classmethod
    def check(cls, config: StickyMoEConfig) -> None:
        """Raise `SettingError` where a field of its own breaks a rule."""
        return

    @classmethod
    def contexts(cls, config: StickyMoEConfig, stream: TokenStream) -> Sequence[Any]:
        """Return what each layer's router gets beside its hidden states; asked for once a forward pass."""
        raise NotImplementedError

    @abstractmethod
    def forward(self, hidden_states: Float[Tensor, "batch seq hidden"]) -> RouterDecision:
        """Route every token of the batch."""

    def init_weights(self, std: float) -> None:
        """Draw all own parameters from N(0, std); a router that wants it otherwise overrides this."""
        for parameter in self.parameters(recurse=False):
            init.normal_(parameter, std=std)
