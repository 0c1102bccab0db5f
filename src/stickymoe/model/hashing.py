"""A hash from whole numbers to experts, the same on every machine and device, in every version."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor


def _signed(value: int) -> int:
    """Read 64 bits as torch does, with a sign."""
    return value - 2**64 if value >= 2**63 else value


_GOLDEN, _FIRST, _SECOND = map(_signed, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def hash_to_experts(
    keys: Int[Tensor, "batch seq"], salt: int, num_experts: int, top_k: int
) -> Int[Tensor, "batch seq top_k"]:
    """Give each key k different experts, every set about as likely.

        score(e) = mix(mix(mix(salt) ^ key) ^ e);  the k experts of the highest scores, as signed 64-bit numbers

    `mix` is the output function of SplitMix64 (Steele, Lea and Flood 2014). Another `num_experts` leaves the scores of
    the experts that stay as they were.

    Args:
        keys: Any 64-bit numbers.
        salt: Keys with another salt get unrelated experts.
        num_experts: Experts to choose among.
        top_k: How many each key gets, the one with the highest score first.
    """
    seed = _mix(torch.tensor(salt, dtype=torch.int64, device=keys.device))
    experts = torch.arange(num_experts, device=keys.device)
    scores = _mix(_mix(seed ^ keys.long())[..., None] ^ experts)
    return scores.topk(top_k, dim=-1).indices


def _mix(value: Tensor) -> Tensor:
    value = value + _GOLDEN  # int64 wraps around, as 64-bit arithmetic should
    value = (value ^ _shift(value, 30)) * _FIRST
    value = (value ^ _shift(value, 27)) * _SECOND
    return value ^ _shift(value, 31)


def _shift(value: Tensor, bits: int) -> Tensor:
    """Shift right, zeros coming in; torch's own shift lets the sign come in."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)
