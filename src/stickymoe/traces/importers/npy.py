"""Arrays out of .npy and .npz files that nobody vouches for: sizes are compared before memory is taken, no pickles."""

from __future__ import annotations

import io
import lzma
import math
import tokenize
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.importer import ReadOptions

MAGIC = b"\x93NUMPY"
ZIP_MAGIC = b"PK\x03\x04"
KINDS = "biufU"
# What numpy's parser of headers may throw
NO_HEADER = (ValueError, LookupError, TypeError, SyntaxError, ArithmeticError, MemoryError, RecursionError)


@runtime_checkable
class Stream(Protocol):
    """What bytes come from: an open file, a member of an archive, bytes in memory."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""

    def tell(self) -> int:
        """Return how many bytes have gone by."""


def npy_array(stream: Stream, size: int, name: str, options: ReadOptions) -> np.ndarray:
    """Return the array in `stream`.

    Args:
        stream: At the first byte of an npy file.
        size: Bytes that the stream holds.
        name: What it is, for the error.
        options: Holds `max_bytes`.

    Raises:
        TraceError: Not an npy file, an array of objects, or a shape that asks for more or less than `size` bytes.
    """
    shape, fortran, dtype = _header(stream, name)
    if dtype.hasobject:
        raise TraceError(
            f"{name} must be an array of numbers, got one of Python objects, which only unpickling opens, and that "
            "could run code; save np.asarray(x, dtype=np.int32) instead"
        )
    if dtype.kind not in KINDS or dtype.itemsize == 0:
        raise TraceError(f"{name} must be an array of numbers or text, got type {dtype}")
    needed = math.prod(shape) * dtype.itemsize
    found = size - stream.tell()
    if needed != found:
        raise TraceError(
            f"{name} must hold {needed} bytes for shape {shape} of {dtype}, found {found}; it is cut or lies"
        )
    options.require_room(needed, f"{name} of shape {shape}")
    data = stream.read(needed)
    if len(data) != needed:
        raise TraceError(f"{name} must hold {needed} bytes, found {len(data)}; it is cut short")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def npz_arrays(path: Path, options: ReadOptions, wanted: frozenset[str]) -> dict[str, np.ndarray]:
    """Return those arrays of an npz file whose names are `wanted`; all others stay unread."""
    arrays: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(path) as archive:
        entries = [entry for entry in archive.infolist() if entry.filename.removesuffix(".npy") in wanted]
        if len({entry.filename.removesuffix(".npy") for entry in entries}) != len(entries):
            raise TraceError("the file must name each array once, got a name twice")
        options.require_room(sum(entry.file_size for entry in entries), "its arrays")
        for entry in entries:
            name = entry.filename.removesuffix(".npy")
            try:
                with archive.open(entry) as stream:
                    arrays[name] = npy_array(stream, entry.file_size, f"array {name!r}", options)
            except (RuntimeError, lzma.LZMAError) as error:  # encrypted, or packed in a way that zipfile does not know
                raise TraceError(f"array {name!r} must be readable, got: {error}") from error
    return arrays


def npz_names(path: Path) -> frozenset[str]:
    """Return the names of the arrays in an npz file; none if it is not one."""
    try:
        with zipfile.ZipFile(path) as archive:
            return frozenset(name.removesuffix(".npy") for name in archive.namelist())
    except (OSError, ValueError, LookupError, RuntimeError, zipfile.BadZipFile):
        return frozenset()


def zip_members(path: Path, end: str, most: int) -> list[bytes]:
    """Return the first `most` bytes of the members whose names have this end; none if the file is no archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            found = [entry for entry in archive.infolist() if entry.filename.endswith(end)][:1]
            return [archive.open(entry).read(most) for entry in found]
    except (OSError, ValueError, LookupError, RuntimeError, EOFError, zlib.error, zipfile.BadZipFile, lzma.LZMAError):
        return []


def npy_shape(data: bytes) -> tuple[tuple[int, ...], np.dtype[np.generic]] | None:
    """Return shape and type that the first bytes of an npy file declare; None if they are not such bytes."""
    try:
        shape, _, dtype = _header(io.BytesIO(data), "the file")
    except TraceError:
        return None
    return shape, dtype


def _header(stream: Stream, name: str) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(stream)
        with warnings.catch_warnings():  # numpy tells how old a header is, and of type names it would rather not see
            warnings.simplefilter("ignore")
            shape, fortran, dtype = readers[version](stream)
    except (*NO_HEADER, tokenize.TokenError) as error:
        raise TraceError(f"{name} must be an npy array, got a header that is none") from error
    if any(type(length) is not int or length < 0 for length in shape):
        raise TraceError(f"{name} must have a shape of whole numbers >= 0, got {shape}")
    return shape, fortran, dtype
