"""Ids as engines keep them in fixed buffers: slots never written, layers without experts, types too narrow."""

from __future__ import annotations

import warnings

import numpy as np

from stickymoe.core.errors import TraceError, TraceWarning
from stickymoe.traces.checks import UNASSIGNED


def unrouted_where_zero(expert_ids: np.ndarray) -> np.ndarray:
    """Return ids with -1 where a zeroed buffer was never written: two slots or more that all name expert 0.

    With one slot nothing tells a zero from expert 0; layers that name no other expert are then warned of.

    Args:
        expert_ids: (tokens, layers, top_k).
    """
    zeros = (expert_ids == 0).all(axis=2)
    if expert_ids.shape[2] > 1:
        return np.where(zeros[..., None], UNASSIGNED, expert_ids)
    silent = np.flatnonzero(zeros.all(axis=0))
    if silent.size and len(expert_ids) > 1:
        listed = ", ".join(map(str, silent[:8].tolist())) + (", ..." if silent.size > 8 else "")
        warnings.warn(
            f"layers {listed} send every token to expert 0: with top_k 1 nothing tells them from layers without "
            "experts; keep the others with select(layers=...) if these are dense",
            TraceWarning,
            stacklevel=2,
        )
    return expert_ids


def routed_layers(expert_ids: np.ndarray) -> np.ndarray:
    """Return the numbers of the layers that route at least one token.

    Raises:
        TraceError: None does.
    """
    layers = np.flatnonzero((expert_ids != UNASSIGNED).any(axis=(0, 2)))
    if not layers.size:
        raise TraceError("expert_ids must serve at least one token in some layer, got only unassigned slots")
    return layers


def layer_names(layers: np.ndarray, found: int) -> tuple[str, ...] | None:
    """Return the names of the layers kept; None where they are all that were found, 0, 1, 2, ..."""
    return None if len(layers) == found else tuple(map(str, layers.tolist()))


def check_not_wrapped(expert_ids: np.ndarray, num_experts: int, told: str) -> None:
    """Refuse, or warn of, ids in a type too narrow for the number of experts.

    Args:
        expert_ids: In the type that the file keeps them in.
        num_experts: Experts a layer.
        told: Where that number comes from, as `ReadOptions.experts` says.

    Raises:
        TraceError: The type cannot hold every id, or an id below -1 shows that one has wrapped.
    """
    kind, highest = expert_ids.dtype, np.iinfo(expert_ids.dtype).max
    if kind.kind == "i" and expert_ids.size and int(expert_ids.min()) < UNASSIGNED:
        way_out = "; ids above 127 wrap in int8, record them wider" if highest == 127 else ""
        raise TraceError(f"expert ids must be >= {UNASSIGNED}, got {int(expert_ids.min())}{way_out}")
    if num_experts > highest + 1:
        raise TraceError(
            f"expert ids must reach {num_experts - 1}, but {kind} wraps above {highest}; record them wider"
        )
    if highest == 127 and told == "largest id + 1":
        warnings.warn(
            f"expert ids are {kind}: in a model of more than {highest + 1} experts they would have wrapped; "
            "give num_experts to be sure",
            TraceWarning,
            stacklevel=2,
        )
