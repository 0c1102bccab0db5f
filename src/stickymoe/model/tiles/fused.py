"""Losses and gradients of a vocabulary projection on the matrix units, as a function of tensors."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from stickymoe.core.compiled import c_function
from stickymoe.core.openmp import on_all_threads
from stickymoe.model.tiles.job_kernel import JOB, TILES, TOGETHER, TOKENS, WORDS, scratch_size
from stickymoe.model.tiles.support import has_tiles
from stickymoe.model.tiles.vocabulary_kernel import SIGNATURE, STAGES, run_stage

# Blocks of tokens in a piece of work: each piece reads the whole weight, and keeps its sums in a core's cache
GROUP = 16


def can_fuse(hidden: Tensor, weight: Tensor, product_dtype: torch.dtype) -> bool:
    """Return whether `fused_cross_entropy` takes these: bfloat16 products on the CPU, at a width of whole tiles."""
    return (
        product_dtype == torch.bfloat16
        and hidden.device.type == weight.device.type == "cpu"
        and torch.float64 not in (hidden.dtype, weight.dtype)
        and len(hidden) > 0
        and hidden.shape[1] % TOKENS == 0
        and has_tiles()
    )


def fused_cross_entropy(
    hidden_states: Float[Tensor, "tokens hidden"],
    weight: Float[Tensor, "vocab hidden"],
    targets: Int[Tensor, " tokens"],
    scale: Float[Tensor, " tokens"],
) -> tuple[Float[Tensor, " tokens"], Float[Tensor, "tokens hidden"], Float[Tensor, "vocab hidden"]]:
    """Compute the cross-entropy of each token, and the gradients of their sum weighed by `scale`.

    Inputs are rounded to bfloat16, as are the exponentials of the logits; everything else is float32.

    Args:
        hidden_states: Final hidden states; the width is a multiple of 32.
        weight: Rows of the vocabulary projection.
        targets: Ids in [0, vocab).
        scale: Weight of each token's loss.

    Returns:
        Losses, gradient of the hidden states, gradient of the weight, all float32.
    """
    (tokens, width), vocab = hidden_states.shape, len(weight)
    blocks_of_words, blocks = -(-vocab // WORDS), -(-tokens // (TOGETHER * TOKENS)) * TOGETHER
    targets = targets.long().contiguous()
    sorted_targets, order = targets.sort(stable=True)
    threads = torch.get_num_threads()
    group = min(GROUP, -(-blocks // threads))
    losses, grad_hidden = torch.empty(tokens), torch.empty(tokens, width)
    grad_weight = torch.empty(blocks_of_words * WORDS, width)
    tensors = {
        "tiles": torch.from_numpy(TILES),
        "hidden": hidden_states.detach().float().contiguous(),
        "weight": weight.detach().float().contiguous(),
        "targets": targets,
        "scale": scale.float().contiguous(),
        "order": order,
        "starts": torch.searchsorted(sorted_targets, torch.arange(blocks_of_words + 1) * WORDS),
        "rows": torch.empty(blocks_of_words * WORDS, width, dtype=torch.bfloat16),
        "columns": torch.empty(blocks_of_words * WORDS, width, dtype=torch.bfloat16),
        "inputs": torch.empty(blocks * TOKENS, width, dtype=torch.bfloat16),
        "weighed": torch.empty(blocks * TOKENS, width, dtype=torch.bfloat16),
        "references": torch.empty(blocks * TOKENS),
        "at_targets": torch.empty(tokens, 2),
        "losses": losses,
        "grad_hidden": grad_hidden,
        "grad_weight": grad_weight,
        "scratch": torch.empty(threads * scratch_size(width, group), dtype=torch.uint8),
    }
    job = np.zeros(1, JOB)
    job["tokens"], job["vocab"], job["width"], job["group"] = tokens, vocab, width, group
    job["scratch_bytes"] = scratch_size(width, group)
    for name, tensor in tensors.items():
        job[name] = tensor.data_ptr()
    for stage in STAGES:
        job["next"], job["thread"], job["stage"] = 0, 0, stage
        on_all_threads(_code(), job.ctypes.data, threads)
    # Resized, not sliced: to a tensor that shares its memory with none autograd adds the embedding's gradient in place
    return losses, grad_hidden, grad_weight.resize_(vocab, width)


@cache
def _code() -> int:
    if not has_tiles():  # asking is also what gets the process its tiles
        raise RuntimeError("the processor has no tiles, or the system lends none")
    return c_function(run_stage, SIGNATURE)
