"""What every term is made of: sums over tokens or pairs, and the safe step from sums to a value."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stickymoe.core.errors import SettingError


class Sums(NamedTuple):
    """What a term adds up over a batch; the sums of two batches, added, are the sums of both together.

    Attributes:
        total: Sum of the term's quantity, one entry a layer (leading axes as the gates had them).
        weight: How many tokens or pairs counted, or the sum of their weights; one number for all layers.
        slots: Load balancing only: how many top-k slots each expert got, a layer.
    """

    total: Tensor
    weight: Tensor
    slots: Tensor | None = None


def keep_only(
    values: Float[Tensor, "*layers batch places width"],
    counted: Bool[Tensor, "batch places"] | Float[Tensor, "batch places"] | None,
) -> Float[Tensor, "*layers batch places width"]:
    """Set the values of places that do not count to exact zeros.

    Done before anything is squared or taken a logarithm of: multiplying by zero afterwards would let a NaN at a padded
    place through, into the value or, by 0 * NaN in the backward pass, into the gradient of its neighbours.
    """
    if counted is None:
        return values
    require_shape("mask", counted, values.shape[-3:-1])
    return torch.where(is_counted(counted)[..., None], values, 0.0)


def add_up(
    values: Float[Tensor, "*layers batch places"],
    counted: Bool[Tensor, "batch places"] | Float[Tensor, "batch places"] | None,
) -> Sums:
    """Sum `values`, zero already where they do not count, over batch and places; weighted if `counted` is of floats."""
    if counted is None:
        return Sums(values.sum(dim=(-2, -1)), values.new_full((), values.shape[-2] * values.shape[-1]))
    weights = counted.float()
    if counted.is_floating_point():
        values = values * weights
    return Sums(values.sum(dim=(-2, -1)), weights.sum())


def mean_of(sums: Sums) -> Tensor:
    """Return total / weight; 0 with gradient 0 where nothing counted."""
    return sums.total / torch.where(sums.weight > 0, sums.weight, 1.0)


def is_counted(counted: Bool[Tensor, "*shape"] | Float[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """Return which places count at all: a weight of 0 is as good as False."""
    return counted > 0 if counted.is_floating_point() else counted


def require_shape(name: str, tensor: Tensor, expected: torch.Size) -> None:
    """Refuse a mask that torch would otherwise stretch silently over rows it was not made for."""
    if tensor.shape != expected:
        raise SettingError.broken(name, f"of shape {tuple(expected)}", tuple(tensor.shape))
