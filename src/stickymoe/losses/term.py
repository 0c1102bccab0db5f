"""What the objective knows of a term (`Term`) and what a term gets to work on (`LayerStack`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stickymoe.core.errors import SettingError
from stickymoe.losses.sums import Sums, mean_of
from stickymoe.routing import Routing


@dataclass(frozen=True)
class LayerStack:
    """A batch's routing with all layers in one tensor, so that a term costs a few operations, not a few a layer.

    Attributes:
        routing: What the stack was made of, for terms that need more than the gates.
        gate_probs: (layers, batch, seq, experts), float32; the one copy of the gates that the objective makes.
        pair_weights: Which pairs count, or how much; None where all count fully.
        window: Tokens from one anchor to the next.
        lags: Distances of the lag term, in tokens.
        working_set_window: Tokens of each working set.
        layers_per_pool: Layers that share their experts, block by block; None where all pairs of layers count.
    """

    routing: Routing
    gate_probs: Float[Tensor, "layers batch seq experts"]
    pair_weights: Bool[Tensor, "batch seq-1"] | Float[Tensor, "batch seq-1"] | None
    window: int
    lags: tuple[int, ...]
    working_set_window: int
    layers_per_pool: int | None = None

    @property
    def token_mask(self) -> Bool[Tensor, "batch seq"] | None:
        """Which tokens count; None where all do."""
        return self.routing.token_mask


@dataclass(frozen=True)
class Term:
    """One entry of the registry.

    Attributes:
        name: What coefficients and logs call it.
        sums: Adds its quantity up over the batch, one total a layer.
        over: What its weight counts: real tokens, valid pairs by their weight, or those of all lags.
        value: Turns sums into one value a layer; the objective averages them.
        additive: Whether `value` is total / weight, so that shares of micro-batches and ranks add up to the exact
            term. Where it is not, the value is that of a micro-batch.
        locality: Whether the coefficient warm-up (`scale`) applies; not to terms that keep routing healthy.
    """

    name: str
    sums: Callable[[LayerStack], Sums]
    over: Literal["tokens", "pairs", "lagged_pairs"]
    value: Callable[[Sums], Tensor] = mean_of
    additive: bool = True
    locality: bool = True


def stack_layers(layers: Sequence[Tensor], name: str = "routing.gate_probs") -> Tensor:
    """Stack one tensor a layer, on the first one's device.

    Raises:
        SettingError: The layers are of different widths.
    """
    if any(layer.shape != layers[0].shape for layer in layers):
        rule, found = "of one shape in every layer", [tuple(layer.shape) for layer in layers]
        raise SettingError.broken(name, rule, found, "use one Objective for each group of equal layers")
    return torch.stack([layer.to(layers[0].device) for layer in layers])
