"""Routing that is settled before training: trajectories through the whole network, and hash layers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_at_least
from stickymoe.model.config import StickyMoEConfig
from stickymoe.model.hashing import hash_to_experts
from stickymoe.model.router import Router, RouterDecision
from stickymoe.model.stream import TokenStream


@dataclass(frozen=True, eq=False)
class Assignment:
    """What one layer's tokens were given, and what is to be kept of them."""

    expert_ids: Int[Tensor, "batch seq top_k"]
    to_keep: Int[Tensor, "batch seq 1"] | None


class FixedRouter(Router):
    """Has no parameters and learns nothing: the experts of a token follow from token ids alone.

    The k experts weigh 1/k each. The gates are 1/k on them and 0 elsewhere, which is what happened but no probability
    that a loss could move; terms on the routing are refused where such a model is trained.
    """

    reads_stream: ClassVar[bool] = True
    is_fixed: ClassVar[bool] = True

    def __init__(self, config: StickyMoEConfig) -> None:
        """Note how many experts there are."""
        super().__init__()
        self.num_experts = config.num_experts

    @classmethod
    def contexts(cls, config: StickyMoEConfig, stream: TokenStream) -> Sequence[Assignment]:
        """Return each layer's experts."""
        if stream.token_ids is None:
            rule = "given to a model that chooses experts by token, not inputs_embeds"
            raise SettingError.broken("input_ids", rule, None, f"its router is {config.router_type!r}")
        by_layer = cls.assign(config, stream)
        kept = [stream.token_ids[..., None], *[None] * (len(by_layer) - 1)]  # one layer keeps them for all
        return [Assignment(ids, facts) for ids, facts in zip(by_layer, kept, strict=True)]

    @classmethod
    @abstractmethod
    def assign(cls, config: StickyMoEConfig, stream: TokenStream) -> list[Int[Tensor, "batch seq top_k"]]:
        """Return the experts of every token in every layer."""

    def forward(self, hidden_states: Float[Tensor, "batch seq hidden"], context: Any = None) -> RouterDecision:
        """Hand out what `contexts` assigned."""
        assigned: Assignment = context
        expert_ids = assigned.expert_ids
        top_k = expert_ids.shape[-1]
        dtype = torch.promote_types(hidden_states.dtype, torch.float32)
        shape = (*expert_ids.shape[:-1], self.num_experts)
        gates = torch.zeros(shape, dtype=dtype, device=expert_ids.device).scatter_(-1, expert_ids, 1 / top_k)
        logits = torch.zeros_like(gates).masked_fill_(gates == 0, torch.finfo(dtype).min)  # their softmax is the gates
        weights = torch.full_like(expert_ids, 1 / top_k, dtype=dtype)
        return RouterDecision(logits, gates, expert_ids, weights, assigned.to_keep)


class TrajectoryRouter(FixedRouter):
    """One path for a whole span of tokens: the same experts in every layer, by the hash of the span's first token.

        experts(t) = hash(first token of t's span),   span = floor(position in the document / S)

    `router_span` is S: 1 hashes every token, 0 gives a document one path, and its first token decides. Spans are known
    by their first token, not by a number, since that is there in training and while decoding alike. The set switch rate
    is exactly how often the hash changes at a span's start; inside a span it is 0.

    Source: Sticky Routing, appendix D.4.
    """

    settings: ClassVar[dict[str, Any]] = {"router_span": 0}

    @classmethod
    def check(cls, config: StickyMoEConfig) -> None:
        """Check the span."""
        assert config.router_span is not None
        require_at_least("model.router_span", config.router_span, 0, "0 is the whole document")

    @classmethod
    def assign(cls, config: StickyMoEConfig, stream: TokenStream) -> list[Int[Tensor, "batch seq top_k"]]:
        """Return one assignment for all layers."""
        assert config.router_span is not None
        keys = stream.span_starts(config.router_span)
        expert_ids = hash_to_experts(keys, 0, config.num_experts, config.num_experts_per_tok)
        return [expert_ids] * config.num_hidden_layers


class HashRouter(FixedRouter):
    """Hash layers: the hash of the token chooses, in every layer another.

    Source: Roller et al. 2021, Hash Layers For Large Sparse Models.
    """

    @classmethod
    def assign(cls, config: StickyMoEConfig, stream: TokenStream) -> list[Int[Tensor, "batch seq top_k"]]:
        """Return an assignment for each layer; the trajectories' salt is 0, those of layers start at 1."""
        tokens = stream.span_starts(1)
        return [
            hash_to_experts(tokens, layer + 1, config.num_experts, config.num_experts_per_tok)
            for layer in range(config.num_hidden_layers)
        ]
