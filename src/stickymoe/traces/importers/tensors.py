"""Arrays by name out of safetensors and npz files alike, with their shapes known before any is loaded."""

from __future__ import annotations

import json
import math
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.importer import Head, ReadOptions
from stickymoe.traces.importers.npy import ZIP_MAGIC, npy_shape, npz_arrays

# The format's own limit
MAX_HEADER = 100_000_000
# bfloat16, which numpy has not, is the upper half of a float32
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"}
TYPES |= {"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"}


@dataclass(frozen=True)
class Tensor:
    """What a file says of one array.

    Args:
        shape: Its shape.
        kind: `f` for floating point, `i` or `u` for whole numbers, `b` for booleans, as numpy has it.
        type: The type's name in the file; empty in an npz.
        start: Where its bytes begin in the file; 0 in an npz.
    """

    shape: tuple[int, ...]
    kind: str
    type: str = ""
    start: int = 0


def is_safetensors(head: Head) -> bool:
    """Whether a file begins as a safetensors file does: the length of a JSON object, and the object."""
    if len(head.data) < 10 or head.data[8:9] != b"{":
        return False
    length = struct.unpack("<Q", head.data[:8])[0]
    return bool(2 <= length <= min(MAX_HEADER, head.size - 8))


def listing(path: Path) -> dict[str, Tensor]:
    """Return what a safetensors or npz file says that it holds.

    Raises:
        TraceError: It is neither, or the places of its arrays are not in the file.
    """
    with path.open("rb") as file:
        if file.read(4) == ZIP_MAGIC:
            return _npz_listing(path)
        file.seek(0)
        data, size = file.read(8), path.stat().st_size
        length = struct.unpack("<Q", data)[0] if len(data) == 8 else 0
        if not 2 <= length <= min(MAX_HEADER, size - 8):
            raise TraceError(f"the file must begin with the length of its header, got {length} in {size} bytes")
        try:
            header = json.loads(file.read(length))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise TraceError("the header must be JSON, got text that is none; the file is damaged") from error
    if not isinstance(header, dict):
        raise TraceError(f"the header must be a JSON object, got {type(header).__name__}")
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    return {name: _entry(name, entry, 8 + length, size) for name, entry in entries.items()}


def load(path: Path, name: str, tensor: Tensor, options: ReadOptions) -> np.ndarray:
    """Return one array; bfloat16 comes as float32."""
    if not tensor.type:
        return npz_arrays(path, options, frozenset({name}))[name]
    count = math.prod(tensor.shape)
    options.require_room(count * np.dtype(TYPES[tensor.type]).itemsize, f"array {name!r} of shape {tensor.shape}")
    array: np.ndarray = np.fromfile(path, TYPES[tensor.type], count, offset=tensor.start).reshape(tensor.shape)
    if tensor.type == "BF16":
        options.require_room(6 * count, f"array {name!r} of shape {tensor.shape}")
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array


def _entry(name: str, entry: object, start: int, size: int) -> Tensor:
    if not isinstance(entry, dict) or not isinstance(kind := entry.get("dtype"), str):
        raise TraceError(f"header entry {name!r:.60} must tell dtype, shape and data_offsets, got {entry!r:.60}")
    shape, offsets = _numbers(name, entry, "shape"), _numbers(name, entry, "data_offsets")
    if kind not in TYPES:
        return Tensor(tuple(shape), "", kind)
    needed, end = math.prod(shape) * np.dtype(TYPES[kind]).itemsize, size - start
    if len(offsets) != 2 or offsets[1] - offsets[0] != needed or offsets[1] > end:
        raise TraceError(
            f"header entry {name!r:.60} must lie in the {end} bytes of the file and be {needed} long, got {offsets}"
        )
    return Tensor(tuple(shape), "f" if "F" in kind else np.dtype(TYPES[kind]).kind, kind, start + offsets[0])


def _numbers(name: str, entry: dict[str, Any], key: str) -> list[int]:
    numbers = entry.get(key)
    if not isinstance(numbers, list) or any(type(each) is not int or not 0 <= each < 2**62 for each in numbers):
        raise TraceError(f"header entry {name!r:.60} must have a {key} of whole numbers, got {numbers!r:.80}")
    return numbers


def _npz_listing(path: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            try:
                with archive.open(entry) as stream:
                    head = npy_shape(stream.read(2**14))
            except RuntimeError as error:
                raise TraceError(f"array {entry.filename!r:.60} must be readable, got: {error}") from error
            if head is not None:
                found[entry.filename.removesuffix(".npy")] = Tensor(head[0], head[1].kind)
    return found
