"""Chosen experts as tensors: `topk_indices` by moe-cache-eval, and moe-lrc's int8 (samples, tokens, k) of one layer."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.npy import ZIP_MAGIC, npz_names
from stickymoe.traces.importers.requests import Request, trace_of
from stickymoe.traces.importers.samples import batch_of, layers_first
from stickymoe.traces.importers.tensors import Tensor, is_safetensors, listing, load
from stickymoe.traces.trace import RoutingTrace

IDS, WEIGHTS, LOGITS = "topk_indices", "topk_weights", "router_logits"


def _matches(head: Head) -> bool:
    if head.data.startswith(ZIP_MAGIC):
        return IDS in npz_names(head.path)
    if not is_safetensors(head):
        return False
    try:
        found = listing(head.path)
    except (TraceError, OSError, RecursionError):
        return False
    return IDS in found or _one_layer(found)


def _one_layer(tensors: dict[str, Tensor]) -> bool:
    return bool(tensors) and all(each.type == "I8" and len(each.shape) == 3 for each in tensors.values())


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    tensors = listing(path)
    if IDS not in tensors:
        if not _one_layer(tensors):
            raise TraceError(f"the file must hold {IDS!r}, or int8 arrays (samples, tokens, k) alone, found neither")
        return _of_one_layer(path, tensors, options)
    ids = _loaded(path, tensors, IDS, "iu", options)
    weights = _loaded(path, tensors, WEIGHTS, "f", options) if WEIGHTS in tensors else None
    if weights is not None:
        if weights.shape != ids.shape:
            raise TraceError(f"array {WEIGHTS!r} must have the shape of {IDS!r}, {ids.shape}, got {weights.shape}")
        if not np.isfinite(weights[ids >= 0]).all():
            place = np.argwhere(~np.isfinite(weights) & (ids >= 0))[0].tolist()
            raise TraceError(f"array {WEIGHTS!r} must be finite, got {weights[tuple(place)]} at {place}")
        weights = np.where(ids >= 0, weights, 0).astype(np.float32)
    if ids.ndim == 3:
        ids = ids[:, None]
        weights = None if weights is None else weights[:, None]
    elif not layers_first(tensors, IDS):
        ids = ids.swapaxes(0, 1)
        weights = None if weights is None else weights.swapaxes(0, 1)
    # (layers, samples, tokens, k)
    batch = batch_of(path, tensors, ids.shape[1:3], options)
    axes = (1, 2, 0, 3)
    requests = batch.requests(ids.transpose(axes), None if weights is None else weights.transpose(axes))
    shape = tensors[LOGITS].shape if LOGITS in tensors else ()
    return trace_of(requests, options, num_experts=shape[-1] if shape else None)


def _loaded(path: Path, tensors: dict[str, Tensor], name: str, kinds: str, options: ReadOptions) -> np.ndarray:
    tensor = tensors[name]
    if tensor.kind not in kinds or len(tensor.shape) not in (3, 4) or 0 in tensor.shape:
        rule = "(layers, tokens, k) or (samples, layers, tokens, k)"
        raise TraceError(f"array {name!r} must be shaped {rule}, got {tensor.type or tensor.kind} of {tensor.shape}")
    # Sorted, joined and sorted again, ids and weights are there three times
    options.require_room(24 * math.prod(tensor.shape), f"array {name!r} of shape {tensor.shape}")
    return load(path, name, tensor, options)


def _of_one_layer(path: Path, tensors: dict[str, Tensor], options: ReadOptions) -> RoutingTrace:
    requests = []
    for name, tensor in tensors.items():
        options.require_room(24 * math.prod(tensor.shape), f"array {name!r} of shape {tensor.shape}")
        for number, sample in enumerate(load(path, name, tensor, options)):
            requests.append(Request(f"{name!r} sample {number}", sample[:, None]))
    if not requests:
        raise TraceError("the file must hold at least one sample, found none")
    return trace_of(requests, options, provenance={"data": list(tensors)})


IMPORTER = Importer(
    name="topk-indices",
    what="safetensors or npz with topk_indices (moe-cache-eval), or int8 top-k of one layer (moe-lrc)",
    matches=_matches,
    read=_read,
    needs="`num_experts` where no logits stand beside",
    loses="not in the file: phases, forward passes",
)
