"""Parts of traces and traces from parts: `head`, `select`, `concat`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.core.settings import require_at_least
from stickymoe.traces.checks import DECODE, PREFILL, UNASSIGNED
from stickymoe.traces.trace import LAYER_FIELDS, TOKEN_FIELDS, RoutingTrace, same_array

PHASES = {"prefill": PREFILL, "decode": DECODE}
# What an empty slot holds where traces of different width are put together.
FILL = {"expert_ids": UNASSIGNED, "expert_weights": 0.0, "resident": -1}


def head(trace: RoutingTrace, tokens: int) -> RoutingTrace:
    """Return the first `tokens` tokens; see `RoutingTrace.head`."""
    require_at_least("tokens", tokens, 1)
    return _part(trace, slice(0, tokens), None)


def select(
    trace: RoutingTrace,
    layers: Iterable[int | str] | None,
    phase: str | int | None,
    sequences: Iterable[int] | None,
) -> RoutingTrace:
    """Return the part of `trace` that meets every condition; see `RoutingTrace.select`."""
    chosen = None if layers is None else [_layer(trace, layer) for layer in layers]
    if chosen is not None and (not chosen or len(set(chosen)) != len(chosen)):
        raise TraceError(f"layers must name at least one layer and none twice, got {chosen}")
    keep = np.ones(trace.num_tokens, dtype=bool)
    if phase is not None:
        keep &= _in_phase(trace, phase)
    if sequences is not None:
        wanted = np.asarray(list(sequences), dtype=np.int64)
        if absent := sorted(set(wanted.tolist()) - set(np.unique(trace.sequence_ids).tolist())):
            raise TraceError(f"sequences must be ids of the trace, got {absent[0]}, which it does not have")
        keep &= np.isin(trace.sequence_ids, wanted)
    if not keep.any():
        raise TraceError("a selection must leave at least one token, got none; ask for less")
    rows = slice(None) if keep.all() else np.flatnonzero(keep)
    part = _part(trace, rows, chosen)
    if trace.positions is None and isinstance(rows, np.ndarray):
        gaps = (np.diff(rows) != 1) & (part.sequence_ids[1:] == part.sequence_ids[:-1])
        if gaps.any():
            starts = np.repeat(trace.sequence_starts()[:-1], np.diff(trace.sequence_starts()))
            part = dataclasses.replace(part, positions=rows - starts[rows])
    return part


def concat(traces: Sequence[RoutingTrace], *, join_sequences: bool) -> RoutingTrace:
    """Put traces behind each other; see `RoutingTrace.concat`."""
    if not traces:
        raise TraceError("concat must be given at least one trace, got none")
    first = traces[0]
    for number, trace in enumerate(traces[1:], 1):
        require_alike(first, trace, f"trace {number}")
    top_k = max(trace.top_k for trace in traces)
    fields: dict[str, Any] = {
        name: np.concatenate([_widened(name, getattr(trace, name), top_k) for trace in traces])
        for name in ("expert_ids", *TOKEN_FIELDS)
        if getattr(first, name) is not None
    }
    if not join_sequences:
        lengths = np.concatenate([np.diff(trace.sequence_starts()) for trace in traces])
        fields["sequence_ids"] = np.repeat(np.arange(len(lengths)), lengths)
    told = [trace.provenance for trace in traces]
    provenance = told[0] if all(each == told[0] for each in told) else {"parts": told}
    fields |= {name: getattr(first, name) for name in LAYER_FIELDS}
    return RoutingTrace(num_experts=first.num_experts, provenance=provenance, **fields)


def require_alike(first: RoutingTrace, other: RoutingTrace, name: str) -> None:
    """Raise unless `other` is a trace of the same model that knows the same things as `first`."""
    for what in ("num_experts", "num_layers", "names"):
        if getattr(first, what) != getattr(other, what):
            found = f"{getattr(other, what)} against {getattr(first, what)}"
            raise TraceError(f"{name} must have the {what} of the first trace, got {found}")
    if not same_array(first.expert_bytes, other.expert_bytes):
        raise TraceError(f"{name} must have the expert_bytes of the first trace, got others")
    for what in TOKEN_FIELDS:
        if (getattr(first, what) is None) != (getattr(other, what) is None):
            raise TraceError(
                f"{name} must know what the first trace knows, got {what} in only one of the two; "
                f"leave it out with dataclasses.replace(trace, {what}=None)"
            )


def _layer(trace: RoutingTrace, layer: int | str) -> int:
    if isinstance(layer, str):
        if layer not in trace.names:
            raise TraceError(f"layers must be among {', '.join(trace.names)}, got {layer!r}")
        return trace.names.index(layer)
    if not 0 <= layer < trace.num_layers:
        raise TraceError(f"layers must be numbers from 0 to {trace.num_layers - 1} or names, got {layer}")
    return int(layer)


def _in_phase(trace: RoutingTrace, phase: str | int) -> np.ndarray:
    number = PHASES.get(phase, phase) if isinstance(phase, str) else phase
    if number not in PHASES.values():
        raise TraceError(f"phase must be 'prefill' or 'decode', got {phase!r}")
    if trace.phases is None:
        raise TraceError(f"a selection by phase must have a trace that knows phases, got one without; phase {phase!r}")
    inside: np.ndarray = trace.phases == number
    return inside


def _part(trace: RoutingTrace, rows: Any, layers: list[int] | None) -> RoutingTrace:
    fields: dict[str, Any] = {}
    for name in ("expert_ids", *TOKEN_FIELDS):
        values = getattr(trace, name)
        if values is not None:
            values = values[rows]
            fields[name] = values if layers is None or values.ndim == 1 else values[:, layers]
    names, sizes = trace.layer_names, trace.expert_bytes
    if layers is not None:
        names = tuple(trace.names[layer] for layer in layers)
        sizes = None if sizes is None else sizes[layers]
    return RoutingTrace(
        num_experts=trace.num_experts, provenance=trace.provenance, layer_names=names, expert_bytes=sizes, **fields
    )


def _widened(name: str, values: np.ndarray, top_k: int) -> np.ndarray:
    if name not in FILL or values.shape[2] == top_k:
        return values
    return np.pad(values, [(0, 0), (0, 0), (0, top_k - values.shape[2])], constant_values=FILL[name])
