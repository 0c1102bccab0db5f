"""npz traces: `experts` (layers, tokens, k) and `meta`, JSON text, as cacheable-by-design and its converters write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.json_text import whole_number
from stickymoe.traces.importers.npy import ZIP_MAGIC, npz_arrays, npz_names
from stickymoe.traces.importers.raw_ids import check_not_wrapped, layer_names, routed_layers
from stickymoe.traces.importers.slots import by_weight, filled_first
from stickymoe.traces.trace import RoutingTrace

# Optional arrays of one value a token, under our own names for them
COLUMNS = ("sequence_ids", "token_ids", "document_ids", "positions", "phases", "event_ids")
WANTED = frozenset({"experts", "meta", "weights", *COLUMNS})
# Words under which a writer may tell after how many tokens it cleared the context
CHUNK_WORDS = ("chunk_tokens", "chunk_size", "chunk")
LAYER_WORDS, SLOT_WORDS = ("n_moe_layers", "num_layers"), ("k", "top_k")


def _matches(head: Head) -> bool:
    return head.data.startswith(ZIP_MAGIC) and "experts" in npz_names(head.path)


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    arrays = npz_arrays(path, options, WANTED)
    if "experts" not in arrays:
        raise TraceError("the file must hold an array 'experts', found none")
    raw = arrays["experts"]
    if raw.dtype.kind not in "iu" or raw.ndim != 3 or 0 in raw.shape:
        rule = "array 'experts' must be whole numbers shaped (layers, tokens, k) with at least one of each"
        raise TraceError(f"{rule}, got {raw.dtype} of shape {raw.shape}")
    meta = _meta(arrays)
    for words, given, found in (
        (LAYER_WORDS, options.num_layers, raw.shape[0]),
        (SLOT_WORDS, options.top_k, raw.shape[2]),
    ):
        for word, wanted in [(word, whole_number(meta, word, "meta")) for word in words] + [(words[-1], given)]:
            if wanted not in (None, found):
                raise TraceError(f"array 'experts' must have {word} {wanted}, got shape {raw.shape}")
    experts, told = options.experts(whole_number(meta, "num_experts", "meta"), int(raw.max()))
    check_not_wrapped(raw, experts, told)
    ids = np.ascontiguousarray(raw.transpose(1, 0, 2))
    layers = routed_layers(ids)
    ids = ids[:, layers] if len(layers) < len(raw) else ids
    weights = arrays.get("weights")
    if weights is not None:
        if weights.shape != raw.shape or weights.dtype.kind != "f" or not np.isfinite(weights).all():
            rule = f"array 'weights' must be finite numbers of the shape of 'experts', {raw.shape}"
            raise TraceError(f"{rule}, got {weights.dtype} of shape {weights.shape}")
        ids, weights = by_weight(ids, weights.transpose(1, 0, 2)[:, layers])
    else:
        (ids,) = filled_first(ids)
    columns = {name: arrays[name] for name in COLUMNS if name in arrays}
    sequences, cut = _sequences(columns.pop("sequence_ids", None), meta, options, len(ids))
    return RoutingTrace(
        ids,
        sequences,
        experts,
        expert_weights=weights,
        layer_names=layer_names(layers, len(raw)),
        provenance=meta | {"num_experts_from": told, "sequences_from": cut},
        **columns,
    )


def _meta(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    if "meta" not in arrays:
        return {}
    found = arrays["meta"]
    if found.ndim != 0 or found.dtype.kind != "U":
        raise TraceError(f"array 'meta' must be one JSON text, got {found.dtype} of shape {found.shape}")
    try:
        meta = json.loads(found.item())
    except json.JSONDecodeError as error:
        raise TraceError(f"array 'meta' must be JSON, got {error.msg.lower()} at column {error.colno}") from error
    if not isinstance(meta, dict):
        raise TraceError(f"array 'meta' must be a JSON object, got {type(meta).__name__}")
    return meta


def _sequences(
    given: np.ndarray | None, meta: dict[str, Any], options: ReadOptions, tokens: int
) -> tuple[np.ndarray, str]:
    """Return sequence ids and what they come from: a context that was cleared is a new sequence."""
    chunks = {f"meta.{word}": chunk for word in CHUNK_WORDS if (chunk := whole_number(meta, word, "meta")) is not None}
    if options.chunk_tokens is not None:
        chunks["chunk_tokens given"] = options.chunk_tokens
    if len(set(chunks.values())) > 1:
        raise TraceError(f"chunks must be of one length, got {', '.join(f'{k} {v}' for k, v in chunks.items())}")
    for told, chunk in chunks.items():
        if chunk < 1:
            raise TraceError(f"{told} must be >= 1, got {chunk}")
        return np.arange(tokens) // chunk, told
    return (np.zeros(tokens, dtype=np.int64), "nothing: one sequence") if given is None else (given, "sequence_ids")


IMPORTER = Importer(
    name="npz",
    what="npz with `experts` (layers, tokens, k) and `meta`, as cacheable-by-design writes",
    matches=_matches,
    read=_read,
    needs="`num_experts` where `meta` lacks it; `chunk_tokens` where the context was cleared",
    loses="not in most files: weights, phases, forward passes",
)
