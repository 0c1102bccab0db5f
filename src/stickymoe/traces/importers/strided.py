"""Recognises a known fault of llama.cpp dumps: the top-k tensor, a strided view, copied as if it lay in one piece."""

from __future__ import annotations

import math

import numpy as np

from stickymoe.core.errors import TraceError

# Chance by which real routing may look like the fault, below which it is called one
BY_CHANCE = 1e-9


def refuse_flat_copy(expert_ids: np.ndarray, rows: np.ndarray) -> None:
    """Raise where blocks of several tokens hold whole rankings of all experts, one behind the other.

    `ffn_moe_topk` is the first k of each row of an argsort over all experts. Copied flat, tokens x k ids are the first
    rows of that argsort in full: every id comes equally often, whatever the router chose. One token's row is right.

    Args:
        expert_ids: (all rows, top_k) in the file's order.
        rows: Tokens of each block.
    """
    top_k = expert_ids.shape[1]
    experts = int(expert_ids.max(initial=-1)) + 1
    suspects = np.flatnonzero((rows > 1) & (rows * top_k >= experts))
    if experts < 2 or suspects.size == 0:
        return
    starts, flat = np.cumsum(rows) - rows, expert_ids.reshape(-1)
    rankings = 0
    for block in suspects.tolist():
        start, whole = int(starts[block]) * top_k, int(rows[block]) * top_k // experts
        ranked = np.sort(flat[start : start + whole * experts].reshape(whole, experts), axis=1)
        if (ranked != np.arange(experts)).any():
            return
        rankings += whole
    if rankings * _log_chance(experts, top_k) < math.log(BY_CHANCE):
        raise TraceError(
            f"prefill must hold the router's choices, got {rankings} whole rankings of all {experts} experts (each id "
            f"equally often): the top-k tensor was copied without its stride; record again, token by token with nb[1]"
        )


def _log_chance(experts: int, top_k: int) -> float:
    """Log of the chance that tokens choosing k of E at random name each expert once among E ids in a row."""
    tokens = experts / top_k
    one_of = math.lgamma(experts + 1) - math.lgamma(top_k + 1) - math.lgamma(experts - top_k + 1)
    return math.lgamma(experts + 1) - tokens * math.lgamma(top_k + 1) - tokens * one_of
