"""Routers that favour the experts of the last few tokens by a bonus on their logits: Hard-Window and Hysteresis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_at_least
from stickymoe.model.config import StickyMoEConfig
from stickymoe.model.router import RouterDecision
from stickymoe.model.softmax_router import SoftmaxRouter
from stickymoe.model.stream import NEVER, TokenStream


@dataclass(frozen=True, eq=False)
class Window:
    """What one layer knows of the tokens before each token, in ranks: real tokens of this call counted from 0.

    Attributes:
        ranks: Each token's rank; `NEVER` at padding, whose experts nobody remembers.
        oldest: The lowest rank that still lies in a token's window.
        last_used: Rank of each expert's last use before this call, counted back from -1; `NEVER` for none.
    """

    ranks: Int[Tensor, "rows seq"]
    oldest: Int[Tensor, "windows seq"]
    last_used: Int[Tensor, "batch experts"]


class WindowRouter(SoftmaxRouter):
    """Softmax routing with a bonus for every expert that the last W tokens had in any of their k slots.

        z'[t, e] = z[t, e] + beta * 1[ e in H(t, W) ],   H(t, W) = experts of tokens t-W .. t-1
        g = softmax(z'),  the k largest serve, weighed by their renormalised g

    H is made of what each earlier token would have chosen *without* the bonus, as in the paper; `router_recursive`
    makes it of what really served, as a cache would hold it. No gradient flows through H, the logits' own passes the
    bonus unchanged. The gates that weigh the experts, and that every loss sees, are those after the bonus: in eq. 16 it
    comes before the softmax. H starts empty at each document and skips padding; with a cache it is remembered.

    Source: Sticky Routing, eq. 16 and section 5.3.
    """

    reads_stream: ClassVar[bool] = True

    def __init__(self, config: StickyMoEConfig) -> None:
        """Create the gate matrix; window and bonus are no parameters."""
        super().__init__(config)
        self.bonus = float(config.router_bonus or 0.0)
        # A tensor, lest a compiled step be compiled anew for each value; no buffer, since it is no state of the model
        self.bonus_scale = torch.ones((), device="cpu")
        self.recursive = bool(config.router_recursive)

    @classmethod
    def check(cls, config: StickyMoEConfig) -> None:
        """Check window and bonus."""
        assert config.router_window is not None
        assert config.router_bonus is not None
        require_at_least("model.router_window", config.router_window, 1)
        if config.router_window > config.max_position_embeddings:
            raise SettingError.broken(
                "model.router_window",
                f"<= model.max_position_embeddings ({config.max_position_embeddings})",
                config.router_window,
                "no sequence is longer",
            )
        if not 0 <= config.router_bonus < float("inf"):
            raise SettingError.broken("model.router_bonus", "a finite number >= 0", config.router_bonus)

    @classmethod
    def contexts(cls, config: StickyMoEConfig, stream: TokenStream) -> Sequence[Window]:
        """Return each layer's window; all but the experts' last use before this call is the same for all."""
        assert config.router_window is not None
        window, ranks = config.router_window, stream.ranks
        oldest = ranks - window
        document_ranks = stream.document_ranks
        if document_ranks is not None:
            oldest = torch.maximum(oldest, document_ranks)
        if stream.token_mask is not None:
            ranks = torch.where(stream.token_mask, ranks, NEVER)
        batch, layers, top_k = stream.like.shape[0], config.num_hidden_layers, config.num_experts_per_tok
        last_used = ranks.new_full((layers, batch, config.num_experts), NEVER)
        kept = stream.last_kept(window)
        if kept is not None:
            ids = kept.view(batch, window, layers, top_k).permute(2, 0, 1, 3).flatten(2).long()
            back = torch.arange(-window, 0, device=ids.device).repeat_interleave(top_k)
            back = torch.where(ids >= 0, back, NEVER)
            last_used.scatter_reduce_(2, ids.clamp(min=0), back, "amax")
        return [Window(ranks, oldest, of_layer) for of_layer in last_used.unbind()]

    def forward(self, hidden_states: Float[Tensor, "batch seq hidden"], context: Any = None) -> RouterDecision:
        """Route every token of the batch, with the layer's `Window` as context."""
        window: Window = context
        with torch.autocast(hidden_states.device.type, enabled=False):
            scores = self.scores(hidden_states)
            bonus = self.bonus * self.bonus_scale if self.training else self.bonus
            if self.recursive:
                expert_ids, recent = follow(scores.detach(), bonus, self.top_k, window)
                decision = self.choose(scores + bonus * recent, expert_ids)
                return decision._replace(to_keep=expert_ids)
            alone = scores.detach().topk(self.top_k, dim=-1).indices
            recent = recently_used(alone, window, scores.shape[-1])
            return self.choose(scores + bonus * recent)._replace(to_keep=alone)


class HardWindowRouter(WindowRouter):
    """The paper's ablation: a bonus so large that the window's experts always win."""

    settings: ClassVar[dict[str, Any]] = {"router_window": 2, "router_bonus": 10.0, "router_recursive": False}


class HysteresisRouter(WindowRouter):
    """The same bonus made small: a new expert must be better by `router_bonus` to take over."""

    settings: ClassVar[dict[str, Any]] = {"router_window": 1, "router_bonus": 1.0, "router_recursive": False}


def scale_bonus(model: nn.Module, scale: float) -> None:
    """Multiply the bonus of every window router of `model` by `scale` while it trains.

    Gates that favour the last token's experts while they are still equal never learn to differ: like the coefficients
    of the locality terms, the bonus may grow from 0 over the first steps.

    Args:
        model: Any model; without a window router nothing happens.
        scale: Factor in [0, 1]; 1 is where a new model stands.
    """
    for module in model.modules():
        if isinstance(module, WindowRouter):
            module.bonus_scale.fill_(scale)


def recently_used(
    expert_ids: Int[Tensor, "batch seq top_k"], window: Window, num_experts: int
) -> Bool[Tensor, "batch seq experts"]:
    """Mark the experts that the tokens of each token's window chose, all tokens at once."""
    batch, seq, top_k = expert_ids.shape
    used = window.ranks.new_full((batch, seq, num_experts), NEVER)
    used.scatter_(2, expert_ids, window.ranks[..., None].expand(batch, seq, top_k))
    before = torch.cat([window.last_used[:, None], used[:, :-1]], dim=1)
    return before.cummax(dim=1).values >= window.oldest[..., None]


# Compiled, the loop would be unrolled into thousands of operations
@torch.compiler.disable  # type: ignore[untyped-decorator]
def follow(
    scores: Float[Tensor, "batch seq experts"], bonus: float | Float[Tensor, ""], top_k: int, window: Window
) -> tuple[Int[Tensor, "batch seq top_k"], Bool[Tensor, "batch seq experts"]]:
    """Choose token after token, each favouring what really served the ones before it.

    Returns:
        The chosen experts, the best first, and which experts had the bonus.
    """
    batch, seq, _ = scores.shape
    ranks = window.ranks.expand(batch, seq)[..., None].expand(batch, seq, top_k).unbind(1)
    oldest = window.oldest.expand(batch, seq)[..., None].unbind(1)
    last_used = window.last_used.clone()
    chosen, recent = [], []
    for place, score in enumerate(scores.unbind(1)):
        near = last_used >= oldest[place]
        ids = (score + near * bonus).topk(top_k, dim=-1).indices
        last_used.scatter_reduce_(1, ids, ranks[place], "amax")
        chosen.append(ids)
        recent.append(near)
    return torch.stack(chosen, dim=1), torch.stack(recent, dim=1)
