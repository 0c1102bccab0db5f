"""Hugging Face router logits in npz or safetensors: `router_logits` stacked, or an array a layer.

The logits do not tell how experts are chosen from them: k and the rule must be given.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.npy import ZIP_MAGIC, npz_names
from stickymoe.traces.importers.requests import trace_of
from stickymoe.traces.importers.samples import COLUMNS, batch_of, layers_first
from stickymoe.traces.importers.selection import checked_selection, choose
from stickymoe.traces.importers.tensors import Tensor, is_safetensors, listing, load
from stickymoe.traces.trace import RoutingTrace

STACKED = "router_logits"
WORDS = re.compile(r"router|logits|gate", re.IGNORECASE)


def _matches(head: Head) -> bool:
    if head.data.startswith(ZIP_MAGIC):
        names = npz_names(head.path)
    elif is_safetensors(head):
        try:
            names = frozenset(name for name, each in listing(head.path).items() if each.kind == "f")
        except (TraceError, OSError, RecursionError):
            return False
    else:
        return False
    # A checkpoint's own gate weights are no logits: they are named so, and are among many others
    layered = [name for name in names if WORDS.search(name) and re.search(r"\d", name) and "weight" not in name]
    return STACKED in names or (bool(layered) and not any("weight" in name for name in names))


@dataclass(frozen=True)
class _Layer:
    """One layer's logits.

    Args:
        name: The layer's name in the trace.
        array: Where they are in the file.
        axis: The layer's place on axis 0 or 1 of a stacked array; None where the array is the layer's own.
        index: Its number there.
    """

    name: str
    array: str
    axis: int | None = None
    index: int = 0

    def rows(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """Return (samples * tokens, experts)."""
        array = arrays[self.array]
        own = array if self.axis is None else array.take(self.index, axis=self.axis)
        return own.reshape(-1, own.shape[-1])


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    tensors = listing(path)
    stacked, layers = STACKED in tensors, list[_Layer]()
    if stacked:
        axis, rows = _stacked(tensors)
        shape = tensors[STACKED].shape
        count, experts = 1 if axis is None else shape[axis], shape[-1]
    else:
        layers, rows = _by_layer(tensors)
        count, experts = len(layers), tensors[layers[0].array].shape[-1]
    selection, top_k = checked_selection(experts, options)
    tokens = math.prod(rows)
    # Ids and weights, sorted, joined and sorted again, are there three times
    options.require_room(24 * tokens * count * top_k, f"{tokens} tokens of {count} layers")
    batch = batch_of(path, tensors, rows, options)
    arrays: dict[str, np.ndarray] = {}
    if stacked:  # a head may claim any number of layers: only what could be read is gone through
        arrays = {STACKED: load(path, STACKED, tensors[STACKED], options)}
        layers = [_Layer(str(number), STACKED, axis, number) for number in range(count)]
    ids = np.empty((tokens, count, top_k), dtype=np.int32)
    weights = np.empty(ids.shape, dtype=np.float32)
    for number, layer in enumerate(layers):
        if layer.array not in arrays:  # one at a time: layers of their own may not fit together
            arrays = {layer.array: load(path, layer.array, tensors[layer.array], options)}
        ids[:, number], weights[:, number] = choose(layer.rows(arrays), selection, top_k, f"layer {layer.name} logits")
    cube = (*batch.mask.shape, count, top_k)
    requests = batch.requests(ids.reshape(cube), weights.reshape(cube))
    names = [layer.name for layer in layers]
    plain = names == [str(number) for number in range(len(names))]
    told = {"selection": selection}
    return trace_of(requests, options, num_experts=experts, names=None if plain else names, provenance=told)


def _stacked(tensors: dict[str, Tensor]) -> tuple[int | None, tuple[int, ...]]:
    """Return the layers' axis in `router_logits`, None for one layer, and its rows: (samples, tokens) or (tokens,)."""
    shape = tensors[STACKED].shape
    if tensors[STACKED].kind != "f" or len(shape) not in (2, 3, 4) or 0 in shape:
        rule = (
            "floating point (layers, tokens, experts), with samples before or behind the layers if in four dimensions"
        )
        found = f"{tensors[STACKED].type or tensors[STACKED].kind} of shape {shape}"
        raise TraceError(f"array {STACKED!r} must be {rule}, got {found}")
    if len(shape) == 2:
        return None, shape[:1]
    axis = 0 if len(shape) == 3 or layers_first(tensors, STACKED) else 1
    rows = tuple(length for place, length in enumerate(shape[:-1]) if place != axis)
    return axis, rows


def _by_layer(tensors: dict[str, Tensor]) -> tuple[list[_Layer], tuple[int, ...]]:
    """Return the layers whose logits stand apart, by the last number in their names."""
    found = {name: numbers[-1] for name in tensors if (numbers := re.findall(r"\d+", name)) and name not in COLUMNS}
    layers = sorted((int(number[-9:]), name) for name, number in found.items())
    if not layers:
        raise TraceError(f"the file must hold {STACKED!r}, or an array a layer named by its number, found neither")
    if len({number for number, _ in layers}) != len(layers):
        raise TraceError(f"arrays must have a number each, the layer's, at the end, got {', '.join(found):.80}")
    first = tensors[layers[0][1]]
    for _, name in layers:
        found_shape = tensors[name].shape
        if (
            tensors[name].kind != "f"
            or found_shape != first.shape
            or len(first.shape) not in (2, 3)
            or 0 in first.shape
        ):
            rule = "floating point (tokens, experts) or (samples, tokens, experts), alike in all layers"
            raise TraceError(f"array {name!r} must be {rule}, got {tensors[name].type} of shape {found_shape}")
    return [_Layer(str(number), name) for number, name in layers], first.shape[:-1]


IMPORTER = Importer(
    name="hf-logits",
    what="Hugging Face router logits in npz or safetensors; top_k and selection must be given",
    matches=_matches,
    read=_read,
    needs="`top_k`, `selection`",
    loses="not in the file: a bias or groups of the router, phases, forward passes",
)
