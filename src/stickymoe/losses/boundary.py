"""Boundary weights: pairs that enter a new sentence or line may switch experts more cheaply."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor


def boundary_pair_weights(
    input_ids: Int[Tensor, "batch seq"],
    boundary_token_ids: Sequence[int] | Int[Tensor, " boundary_tokens"],
    boundary_weight: float,
) -> Float[Tensor, "batch seq-1"]:
    """Weigh the pair (t-1, t) by `boundary_weight` where token t-1 ends a sentence or line, by 1 elsewhere.

    The weight belongs to the pair that enters the new sentence, not to the one that reaches the full stop.

    Args:
        input_ids: Token ids.
        boundary_token_ids: Ids of the tokens that end a sentence or line, such as those of `.`, `!`, `?` and newline.
        boundary_weight: In [0, 1]. 0 lets routing switch freely there; 1 changes nothing.

    Returns:
        Weights of the neighbours (t-1, t), float32, to be given to pairwise terms as `valid_pairs`.
    """
    ends = torch.as_tensor(boundary_token_ids, dtype=input_ids.dtype, device=input_ids.device)
    return torch.where(torch.isin(input_ids[:, :-1], ends), float(boundary_weight), 1.0)
