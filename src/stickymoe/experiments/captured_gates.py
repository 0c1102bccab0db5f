"""Means of the gates over the captured passes of a reading."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from stickymoe.capture.passes import CapturedPass
from stickymoe.losses import gate_entropy_bits, gate_margin


def gates_of(done: CapturedPass) -> tuple[np.ndarray, int]:
    """Return mean entropy and margin of each layer's gates in a pass, as two rows, and its number of real tokens."""
    routing = done.routing
    measured = [
        torch.stack([measure(layer, routing.token_mask) for layer in routing.gate_probs])
        for measure in (gate_entropy_bits, gate_margin)
    ]
    mask = routing.token_mask
    count = routing.gate_probs[0][..., 0].numel() if mask is None else int(mask.sum())
    return torch.stack(measured).double().cpu().numpy(), count


def mean_gates(passes: Sequence[tuple[np.ndarray, int]]) -> tuple[list[float], list[float]]:
    """Return entropy and margin of each layer over the tokens of all passes."""
    tokens = sum(count for _, count in passes)
    entropy, margin = np.sum([found * count for found, count in passes], axis=0) / tokens
    return entropy.tolist(), margin.tolist()
