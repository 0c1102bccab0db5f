"""One captured forward pass, and how the calls seen in it become a `Routing`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stickymoe.capture.families.family import Decision
from stickymoe.capture.inputs import PassInputs
from stickymoe.capture.layers import MoELayer
from stickymoe.core.errors import CaptureError
from stickymoe.routing import Routing

# A call as the hooks saw it: of a router or of experts, the module, its output or arguments, gradients on or off.
# A plain tuple, since hooks may run inside a compiled graph.
Call = tuple[bool, nn.Module, Any, bool]


@dataclass(eq=False)
class Turn:
    """One call of a layer's router and of its experts; a looped model takes several turns a pass."""

    layer: MoELayer
    number: int
    router: nn.Module
    output: Any
    with_gradients: bool
    given: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        """The layer's name, and the turn's number where it is not the first."""
        return f"{self.layer.name}#{self.number}" if self.number else self.layer.name


@dataclass(frozen=True, eq=False)
class CapturedPass:
    """One forward pass of a model, or of one of its stacks (encoder, decoder).

    Attributes:
        layers: All MoE layers of the stack.
        calls: What the hooks saw, in order.
        inputs: What the pass was given.
        with_gradients: Whether gradients were on when the pass began.
        keep_gradients: Whether the routing shall carry them.
        prompt_tokens: How many tokens the prompt has, where the user told.
    """

    layers: Sequence[MoELayer]
    calls: Sequence[Call]
    inputs: PassInputs
    with_gradients: bool
    keep_gradients: bool = True
    prompt_tokens: int | None = None

    @property
    def phase(self) -> Literal["prefill", "decode"]:
        """Whether the pass reads a prompt or takes a step behind it.

        Where `prompt_tokens` was not told, one token behind a cache is a step; so is a last chunk of one token.
        """
        if self.prompt_tokens is not None:
            return "decode" if self.inputs.past >= self.prompt_tokens else "prefill"
        return "decode" if self.inputs.past > 0 and self.inputs.shape[1] == 1 else "prefill"

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The name of each layer of `routing`."""
        return tuple(turns[0].name for turns in self._turns)

    @cached_property
    def routing(self) -> Routing:
        """What every layer decided, in the order in which they ran.

        Raises:
            CaptureError: Something was not seen, or gradients were lost under reentrant checkpointing.
        """
        fields: list[list[Tensor]] = [[], [], [], []]
        # Not as things are where this is first read: in a block without gradients the gates would lose theirs for good
        with torch.set_grad_enabled(self.with_gradients and self.keep_gradients):
            for turns in self._turns:
                for field, value in zip(fields, self._read(turns), strict=True):
                    field.append(value if self.keep_gradients else value.detach())
        logits, gates, ids, weights = map(tuple, fields)
        return Routing(logits, gates, ids, weights, self.inputs.token_mask, self.inputs.document_ids)

    def chosen(self) -> list[tuple[Tensor, Tensor]]:
        """Return ids and weights of the experts that each layer chose, slots in the router's own order.

        What recording needs, without the work for logits and gates.

        Raises:
            CaptureError: Something was not seen.
        """
        if any(len(turns) > 1 for turns in self._turns):  # routers of a layer that share its tokens out
            return list(zip(self.routing.expert_ids, self.routing.expert_weights, strict=True))
        found = []
        for (turn,) in self._turns:
            ids, weights = turn.layer.family.chosen(turn.router, turn.output, turn.given)
            self._require_rows(turn, len(ids.flatten(0, -2)))
            found.append((ids.view(*self.inputs.shape, -1), weights.detach().view(*self.inputs.shape, -1)))
        return found

    def _read(self, turns: Sequence[Turn]) -> Iterator[Tensor]:
        """Yield one layer's fields in the shape of the batch."""
        batch, seq = self.inputs.shape
        layer = turns[0].layer
        decisions = []
        for turn in turns:
            if self.keep_gradients and self.with_gradients and not turn.with_gradients:
                raise CaptureError(
                    f"layer {turn.name} ran without gradients inside a pass that has them (reentrant activation "
                    'checkpointing): use model.activation_checkpointing_enable({"use_reentrant": False}), or '
                    "stickymoe.capture.inject_gradients"
                )
            decisions.append(layer.family.decide(turn.router, layer.index, turn.output, turn.given))
        decision = layer.family.join([turn.router for turn in turns], decisions, self.inputs)
        logits, gates, ids, weights = (value.reshape(-1, value.shape[-1]) for value in decision)
        for rows in map(len, (logits, ids)):
            self._require_rows(turns[0], rows)
        for value in Decision(logits, gates, *by_falling_weight(ids, weights)):
            yield value.reshape(batch, seq, value.shape[-1])

    def _require_rows(self, turn: Turn, rows: int) -> None:
        batch, seq = self.inputs.shape
        if rows != batch * seq:
            raise CaptureError(
                f"layer {turn.name} routed {rows} rows in a pass of {batch} x {seq} tokens; the family "
                f"{turn.layer.family.name!r} needs an adapter, see docs/models.md"
            )

    @cached_property
    def _turns(self) -> list[list[Turn]]:
        """The turns of each layer and turn number, in order; all of a layer's routers together."""
        of_source = {layer.family.source(router): (layer, router) for layer in self.layers for router in layer.routers}
        of_experts = {layer.experts: layer for layer in self.layers if layer.experts is not None}
        running: dict[MoELayer, Turn] = {}
        found: dict[str, list[Turn]] = {}
        for is_router, module, seen, with_gradients in self.calls:
            if is_router:
                layer, router = of_source[module]
                number = running[layer].number + 1 if layer in running else 0
                turn = running[layer] = Turn(layer, number, router, seen, with_gradients)
                found.setdefault(turn.name, []).append(turn)
            elif (layer := of_experts[module]) in running:
                running[layer].given = seen
        self._require_all({turn.layer.name for turns in found.values() for turn in turns})
        return list(found.values())

    def _require_all(self, seen: set[str]) -> None:
        if not seen:
            raise CaptureError(
                "no router ran in the forward pass: attach before torch.compile, or call torch._dynamo.reset() after "
                "attaching"
            )
        missing = sorted({layer.name for layer in self.layers if not layer.family.may_skip_layers} - seen)
        if missing:
            raise CaptureError(
                f"layers {', '.join(missing)} were not seen in the forward pass, others were: attach before any part "
                "of the model is compiled"
            )


def by_falling_weight(expert_ids: Tensor, expert_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Sort each token's slots, the heaviest first; many routers hand them on unsorted."""
    order = expert_weights.detach().argsort(dim=-1, descending=True, stable=True)
    return expert_ids.gather(-1, order), expert_weights.gather(-1, order)
