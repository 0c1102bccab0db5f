"""The contract that nearly all MoE classes of transformers keep, and what a family that departs from it overrides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from stickymoe.capture.gates import GATES
from stickymoe.capture.inputs import PassInputs
from stickymoe.core.errors import CaptureError


class Decision(NamedTuple):
    """What one router decided, rows as the model laid them out: (tokens, experts) twice, (tokens, top_k) twice."""

    router_logits: Tensor
    gate_probs: Tensor
    expert_ids: Tensor
    expert_weights: Tensor


class Family:
    """Reads a router's output and what the experts received.

    The common contract: the router returns its logits among its outputs; the experts are called with the hidden states,
    the chosen ids and their weights. A family that departs from it overrides the method that differs.

    Attributes:
        name: transformers' name of the family: the folder of the module that defines the router's class.
        gate: How logits become gates: a name in `GATES`.
        note: What a user should know, for the table of models.
        undeclared: Names of router classes that the model does not declare as recordable.
        declares_others: Whether what it does declare are no routers.
        fixed_routers: Names of router classes whose choice no training can move.
        weighs_in_experts: Whether the experts' third argument are the weights of the chosen experts.
        may_skip_layers: Whether layers may be left out of a forward pass on purpose.
        refused: Why this family cannot be captured; empty if it can.
    """

    gate: str = "softmax"
    note: str = ""
    undeclared: ClassVar[frozenset[str]] = frozenset()
    declares_others: ClassVar[bool] = False
    fixed_routers: ClassVar[frozenset[str]] = frozenset()
    weighs_in_experts: ClassVar[bool] = True
    may_skip_layers: ClassVar[bool] = False
    refused: str = ""

    def __init__(self, name: str = "", gate: str = "", note: str = "") -> None:
        """Name the family, and its gate and note where they are not the class's own."""
        self.name = name
        self.gate = gate or self.gate
        self.note = note or self.note

    def source(self, router: nn.Module) -> nn.Module:
        """Return the module to listen to for the router's logits."""
        return router

    def layer_name(self, path: str) -> str:
        """Return what the layer is called whose router is at `path` in its stack: its number."""
        number = re.search(r"(?:^|\.)(\d+)(?:\.|$)", path)
        return number[1] if number else path

    def num_experts(self, experts: nn.Module | None, scored: int) -> int:
        """Return how many experts hold weights, of `scored` that the router scores; ids from there on are others."""
        return scored

    def gates(self, router: nn.Module, logits: Tensor) -> Tensor:
        """Return the distribution over experts, float32 or better, before top-k and without any bias of the choice."""
        return GATES[self.gate](logits)

    def chosen(self, router: nn.Module, output: Any, given: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        """Return ids and weights of the chosen experts, in any order; a weight of 0 marks an expert that did not serve.

        Args:
            router: The router.
            output: What it returned.
            given: What the experts were called with; empty if they were not seen.
        """
        if len(given) < 3:
            raise CaptureError(
                f"the experts of {self.name!r} received {len(given)} arguments, not hidden states, ids and weights; "
                "the family needs an adapter, see docs/models.md"
            )
        return given[1], given[2]

    def decide(self, router: nn.Module, index: int, output: Any, given: tuple[Any, ...]) -> Decision:
        """Put together what one router decided; `index` is where its outputs hold the logits."""
        logits: Tensor = output if isinstance(output, Tensor) else output[index]
        ids, weights = self.chosen(router, output, given)
        return Decision(logits, self.gates(router, logits), ids, weights)

    def join(self, routers: Sequence[nn.Module], decisions: Sequence[Decision], inputs: PassInputs) -> Decision:
        """Make one decision of those of all routers of a layer, for the tokens of the whole pass."""
        (decision,) = decisions
        return decision
