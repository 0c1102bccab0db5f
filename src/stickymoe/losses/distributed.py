"""Sums over the ranks of a data-parallel run, differentiable in this rank's own part."""

from __future__ import annotations

import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor


def sum_across_ranks(values: Float[Tensor, " values"]) -> Float[Tensor, " values"]:
    """Add `values` up over all ranks; the gradient reaches this rank's values, times the number of ranks.

    Data parallelism averages gradients over ranks, and each rank can only differentiate its own part of the sum. Scaled
    so, the average is the gradient that one process would find on the whole batch, equal token counts or not.

    Every rank must call it equally often. Without a process group it returns `values`.

    Args:
        values: Sums of this rank's batch, as `Objective(reduce=sum_across_ranks)` hands them in.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return values
    total = values.detach().clone()
    dist.all_reduce(total)
    return total + dist.get_world_size() * (values - values.detach())
