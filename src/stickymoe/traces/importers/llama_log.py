"""Log lines of llama.cpp with `LLAMA_EXPERT_LOG=1` (moe-l2): `EXPERT|L<layer>|T<n>: [id, ...] [id, ...]`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.forwards import Blocks, require_told, trace_of, warn
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.lines import blocks_of_lines
from stickymoe.traces.importers.numbers import numbers_in
from stickymoe.traces.importers.strided import refuse_flat_copy
from stickymoe.traces.trace import RoutingTrace

START = b"EXPERT|L"
PATTERN = rb"EXPERT\|L\d{1,6}\|T\d{1,18}:(?: *\[ *\d{1,9}(?: *, *\d{1,9})*+ *\])++[ \t\r]*"
LINE = re.compile(PATTERN)
LINES = re.compile(rb"(?:%b\n)*+" % PATTERN)
BLOCK_BYTES = 2**22
# Bytes of memory that a byte of the log may take: a number and its comma are eight, twice
GROWTH = 12


class _Logged(NamedTuple):
    """Lines of the log: the layer and T of each, its number in the file, its brackets, the ids in each, and the ids."""

    layers: np.ndarray
    told: np.ndarray
    numbers: np.ndarray
    rows: np.ndarray
    sizes: np.ndarray
    ids: np.ndarray


def _matches(head: Head) -> bool:
    return any(line.startswith(START) for line in head.data.splitlines()) and LINE.search(head.data) is not None


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    """Each bracket is one token's choice; T is how many tokens the pass had (or its number, in other builds)."""
    size = path.stat().st_size
    options.require_room(size * GROWTH, f"a file of {size} bytes")
    parts = [part for first, block in blocks_of_lines(path, BLOCK_BYTES) if (part := _logged(block, first)) is not None]
    if not parts:
        raise TraceError("must hold lines that begin with EXPERT|L, found none")
    layers, told, numbers, rows, sizes, ids = (np.concatenate(column) for column in zip(*parts, strict=True))
    if (other := sizes != sizes[0]).any():
        token = int(np.argmax(other))
        line = int(np.repeat(numbers, rows)[token])
        found = f"{int(sizes[token])} ids against {int(sizes[0])} before"
        raise TraceError(f"line {line} must name as many experts a token as the others, got {found}")
    top_k = int(sizes[0])
    require_told("top_k", options.top_k, top_k)
    ids = ids.reshape(-1, top_k)
    refuse_flat_copy(ids, rows)
    if ((told > rows) & (rows > 1)).any():
        warn(f"the log holds at most {int(rows.max())} tokens of a forward pass: the others of a prefill are missing")
    return trace_of(Blocks(layers, rows, ids, unit="line", numbers=numbers), options, format=IMPORTER.name)


def _logged(block: bytes, first: int) -> _Logged | None:
    """Return what the lines of a block say; None where none of them is of routing."""
    text, lines = _own_lines(block, first)
    if not len(lines):
        return None
    if LINES.fullmatch(text) is None:
        for number, line in zip(lines.tolist(), text.split(b"\n"), strict=False):
            if LINE.fullmatch(line) is None:
                rule = "EXPERT|L<layer>|T<n>: [id, ...]"
                raise TraceError(f"line {number} must read {rule}, got {line[:60]!r}; it may be cut short")
    flat = np.frombuffer(text, np.uint8)
    ends, brackets, commas = (np.flatnonzero(flat == ord(letter)) for letter in "\n[,")
    opened = np.searchsorted(brackets, ends)
    sizes = np.diff(np.searchsorted(commas, brackets), append=len(commas)) + 1
    # Before the ids of a line stand its layer and T
    ids_before = np.concatenate([[0], np.cumsum(sizes)])[np.concatenate([[0], opened[:-1]])]
    heads = ids_before + 2 * np.arange(len(ends))
    numbers = numbers_in(text)
    is_id = np.ones(len(numbers), dtype=bool)
    is_id[heads] = is_id[heads + 1] = False
    ids = numbers[is_id].astype(np.int32)
    return _Logged(numbers[heads], numbers[heads + 1], lines, np.diff(opened, prepend=0), sizes, ids)


def _own_lines(block: bytes, first: int) -> tuple[bytes, np.ndarray]:
    """Return the lines of routing, each from its word on and with its end, and their numbers in the file."""
    block = block if block.endswith(b"\n") else block + b"\n"
    count = block.count(b"\n")
    if block.startswith(START) and block.count(b"\n" + START) == count - 1:
        return block, first + np.arange(count)
    places = [(number, line, line.find(START)) for number, line in enumerate(block.split(b"\n"), first)]
    own = [(number, line[at:] + b"\n") for number, line, at in places if at >= 0]
    return b"".join(line for _, line in own), np.array([number for number, _ in own], dtype=np.int64)


IMPORTER = Importer(
    name="llama-log",
    what="llama.cpp logs with lines EXPERT|L3|T1: [12, 40, 7]",
    matches=_matches,
    read=_read,
    needs="`num_experts`; `chunk_tokens`",
    loses="the tokens of a prefill that the log leaves out; not in the file: weights, where a sequence ends",
)
