"""The structure of a GGUF file, read within bounds: keys, and where its tensors lie. No tensor is read unasked."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
F32 = 0
LONGEST_KEY = 2**16 - 1
LONGEST_TEXT = 2**20
MAX_DIMENSIONS = 4
ALIGNMENT_KEY = "general.alignment"
ALIGNMENT = 32
# The least that one key, or one tensor, takes in the file: what bounds their numbers before the file is believed
LEAST_KEY, LEAST_TENSOR = 13, 24


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies: its lengths, fastest first, its type, and its bytes' offset behind the header."""

    lengths: tuple[int, ...]
    type: int
    offset: int


class GGUFFile:
    """An open GGUF file: `keys` with scalars, texts and lists of texts, `tensors` by name.

        with GGUFFile(path) as file:
            counts = file.float32("blk.0.ffn_down_exps.weight.counts")

    Raises:
        TraceError: It is none, or lies about a size.
    """

    def __init__(self, path: Path) -> None:
        """Read the header."""
        self._size = path.stat().st_size
        self._file = path.open("rb")
        try:
            self.keys, self.tensors, self._data = self._header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> GGUFFile:
        """Return the file."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self._file.close()

    def float32(self, name: str) -> np.ndarray:
        """Return a float32 tensor, its slowest dimension first.

        Raises:
            TraceError: It is of another type or does not lie in the file.
        """
        tensor = self.tensors[name]
        if tensor.type != F32:
            raise TraceError(f"tensor {name!r} must be float32 (type {F32}), got type {tensor.type}")
        start, needed = self._data + tensor.offset, 4 * math.prod(tensor.lengths)
        if start + needed > self._size:
            found = f"{max(self._size - start, 0)} of {needed} bytes"
            raise TraceError(f"tensor {name!r} must lie in the file, found {found}; it is cut short")
        self._file.seek(start)
        return np.frombuffer(self._take(needed), "<f4").reshape(tensor.lengths[::-1])

    def _header(self) -> tuple[dict[str, Any], dict[str, Tensor], int]:
        if self._take(4) != MAGIC:
            raise TraceError("must begin with GGUF, got other bytes")
        version = self._scalar("I")
        if version not in VERSIONS:
            reason = "; it is big-endian" if version & 0xFFFF == 0 else ""
            raise TraceError(f"must be GGUF of version {' or '.join(map(str, VERSIONS))}, got {version}{reason}")
        num_tensors, num_keys = self._scalar("Q"), self._scalar("Q")
        self._require(num_tensors * LEAST_TENSOR + num_keys * LEAST_KEY, f"{num_tensors} tensors and {num_keys} keys")
        keys: dict[str, Any] = {}
        for _ in range(num_keys):
            name = self._text(LONGEST_KEY)
            keys[name] = self._value(self._scalar("I"), name)
        tensors: dict[str, Tensor] = {}
        for _ in range(num_tensors):
            name, dimensions = self._text(LONGEST_KEY), self._scalar("I")
            if dimensions > MAX_DIMENSIONS:
                raise TraceError(f"tensor {name!r} must have at most {MAX_DIMENSIONS} dimensions, got {dimensions}")
            lengths = tuple(self._scalar("Q") for _ in range(dimensions))
            tensors[name] = Tensor(lengths, self._scalar("I"), self._scalar("Q"))
        alignment = keys.get(ALIGNMENT_KEY, ALIGNMENT)
        if type(alignment) is not int or not 1 <= alignment <= 2**20:
            raise TraceError(f"{ALIGNMENT_KEY} must be a whole number from 1 to 2**20, got {alignment!r}")
        return keys, tensors, -(-self._file.tell() // alignment) * alignment

    def _value(self, kind: int, name: str) -> Any:
        if kind in SCALARS:
            return self._scalar(SCALARS[kind])
        if kind == STRING:
            return self._text(LONGEST_TEXT)
        if kind != ARRAY:
            raise TraceError(f"key {name!r} must be of a GGUF type, got type {kind}")
        inner, length = self._scalar("I"), self._scalar("Q")
        if inner in SCALARS:  # none is needed: skipped
            needed = length * struct.calcsize("<" + SCALARS[inner])
            self._require(needed, f"key {name!r}")
            self._file.seek(needed, 1)
            return None
        if inner != STRING:
            raise TraceError(f"key {name!r} must be a list of scalars or texts, got type {inner}")
        self._require(length * 8, f"key {name!r}")
        return [self._text(LONGEST_TEXT) for _ in range(length)]

    def _text(self, longest: int) -> str:
        length = self._scalar("Q")
        if length > longest:
            raise TraceError(f"a text at byte {self._file.tell()} must be at most {longest} bytes, got {length}")
        return self._take(length).decode("utf-8", errors="replace")

    def _scalar(self, kind: str) -> Any:
        return struct.unpack("<" + kind, self._take(struct.calcsize("<" + kind)))[0]

    def _require(self, needed: int, what: str) -> None:
        left = self._size - self._file.tell()
        if needed > left:
            raise TraceError(f"{what} must lie in the file, {needed} bytes at least, found {left}; it lies or is cut")

    def _take(self, length: int) -> bytes:
        at = self._file.tell()
        if at + length > self._size:
            raise TraceError(f"{length} bytes at byte {at} must lie in the file of {self._size}; it is cut short")
        data = self._file.read(length)
        if len(data) != length:
            raise TraceError(f"{length} bytes at byte {at} must lie in the file, found {len(data)}")
        return data
