"""Reads a text file in large pieces that end where a line ends, so that one too big for memory can be parsed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stickymoe.core.errors import TraceError

BLOCK_BYTES = 2**25
LONGEST_LINE = 2**28


def blocks_of_lines(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yield the number of a block's first line, counted from 1, and the block's bytes.

    Every block but the last ends in a newline. Nothing is yielded for an empty file.

    Raises:
        TraceError: A line is longer than 256 MiB, which no trace's is.
    """
    line = 1
    block_bytes = min(block_bytes, path.stat().st_size + 1)  # a buffer of this size is taken before the first byte
    with path.open("rb") as file:
        while block := file.read(block_bytes):
            if not block.endswith(b"\n"):
                rest = file.readline(LONGEST_LINE + 1)
                if len(rest) > LONGEST_LINE:
                    line += block.count(b"\n")
                    raise TraceError(
                        f"line {line} must be at most {LONGEST_LINE} bytes, found more; is this a text file?"
                    )
                block += rest
            yield line, block
            line += block.count(b"\n")
