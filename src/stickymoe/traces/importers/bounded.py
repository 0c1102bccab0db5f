"""Reads a whole file, or refuses it before any memory is taken."""

from __future__ import annotations

from pathlib import Path

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.importer import ReadOptions


def whole_bytes(path: Path, options: ReadOptions, growth: int = 1) -> bytes:
    """Return a file's bytes.

    Args:
        path: The file.
        options: Holds `max_bytes`.
        growth: How many bytes of memory a byte of the file takes until it is a trace.

    Raises:
        TraceError: The file is empty, or may take more than `max_bytes`.
    """
    size = path.stat().st_size
    options.require_room(size * growth, f"a file of {size} bytes")
    if size == 0:
        raise TraceError("must hold a trace, found an empty file")
    return path.read_bytes()
