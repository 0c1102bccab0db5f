"""`ROUTE_TRACE` text of the colibri engines: `<call> <row> <layer> <id>:<gate> ...`, one line a call and token."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from stickymoe.core.errors import TraceError
from stickymoe.traces.checks import UNASSIGNED
from stickymoe.traces.importers.forwards import Blocks, require_told, trace_of
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.lines import blocks_of_lines
from stickymoe.traces.trace import RoutingTrace

NUMBER = rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)"
LINE = re.compile(rb"-?\d{1,10} \d{1,9} \d{1,6}(?: \d{1,9}:(?:" + NUMBER + rb"))+")
SHAPE = "<call> <row> <layer> <id>:<gate> ..."
BEFORE_PAIRS = 3
# A number of the file is at least two bytes and takes up to 40 while its line is put in place
GROWTH = 20


def _matches(head: Head) -> bool:
    lines = head.lines[:8]
    return bool(lines) and all(LINE.fullmatch(line.encode()) for line in lines)


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    """The call counter is not believed (some engines never move it): a pass ends where the layer does not rise."""
    options.require_room(path.stat().st_size * GROWTH, f"a file of {path.stat().st_size} bytes")
    parts = [_lines(block, first) for first, block in blocks_of_lines(path)]
    if not parts:
        raise TraceError("must hold at least one line, found none")
    width = max(part[2].shape[1] for part in parts)
    rows, layers = (np.concatenate([part[column] for part in parts]) for column in range(2))
    ids = np.concatenate([_widened(part[2], width, UNASSIGNED) for part in parts])
    gates = np.concatenate([_widened(part[3], width, 0) for part in parts])
    if not np.isfinite(gates).all():
        line = int(np.argwhere(~np.isfinite(gates))[0][0])
        raise TraceError(f"line {line + 1} must have finite gates, got {gates[line][~np.isfinite(gates[line])][0]}")
    require_told("top_k", options.top_k, width)
    begins = np.r_[True, (layers[1:] != layers[:-1]) | (rows[1:] <= rows[:-1])]
    starts = np.flatnonzero(begins)
    within = np.arange(len(rows)) - np.repeat(starts, np.diff(np.r_[starts, len(rows)]))
    if (rows != within).any():
        line = int(np.argmax(rows != within))
        raise TraceError(
            f"line {line + 1} must be row {int(within[line])} of its call, got row {int(rows[line])}; "
            "lines are missing or in another order"
        )
    blocks = Blocks(layers[starts], np.diff(np.r_[starts, len(rows)]), ids, gates, unit="line", numbers=starts + 1)
    return trace_of(blocks, options, format=IMPORTER.name, ragged=True, drafts=True)


def _lines(block: bytes, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return row and layer of each line, and its ids and gates padded to the widest line.

    The numbers are read in one go, one a line, once every separator has been seen to be where it must.
    """
    block = block.replace(b"\r\n", b"\n")
    block = block if block.endswith(b"\n") else block + b"\n"
    flat = np.frombuffer(block, np.uint8)
    at = np.flatnonzero((flat == ord(" ")) | (flat == ord(":")) | (flat == ord("\n")))
    kinds = flat[at]
    ends = np.flatnonzero(kinds == ord("\n"))
    starts = np.r_[0, ends[:-1] + 1]
    within = np.arange(len(at)) - np.repeat(starts, ends - starts + 1)
    wanted = np.where((within >= BEFORE_PAIRS) & (within % 2 == 1), ord(":"), ord(" "))
    wanted[ends] = ord("\n")
    sizes = ends - starts + 1
    fits = bool((kinds == wanted).all() and (sizes >= BEFORE_PAIRS + 2).all() and (sizes % 2 == 1).all())
    numbers = _numbers(block) if fits else None
    if numbers is None or len(numbers) != len(at):
        raise _broken(block, first)
    pairs = (sizes - BEFORE_PAIRS) // 2
    filled = np.arange(int(pairs.max())) < pairs[:, None]
    ids = np.full(filled.shape, UNASSIGNED, dtype=np.int32)
    gates = np.zeros(filled.shape, dtype=np.float32)
    is_pair = within >= BEFORE_PAIRS
    chosen = numbers[is_pair & (within % 2 == 1)]
    head = numbers[starts[:, None] + np.arange(BEFORE_PAIRS)]
    if not (_whole(chosen, 2**31 - 1) and _whole(head[:, 1], 2**31 - 1) and _whole(head[:, 2], 2**31 - 1)):
        raise _broken(block, first)
    ids[filled] = chosen
    with np.errstate(over="ignore"):
        gates[filled] = numbers[is_pair & (within % 2 == 0)]
    return head[:, 1].astype(np.int64), head[:, 2].astype(np.int64), ids, gates


def _numbers(block: bytes) -> np.ndarray | None:
    lines = block.translate(bytes.maketrans(b" :", b"\n\n"))
    try:
        table = pc.read_csv(
            pa.BufferReader(lines),
            read_options=pc.ReadOptions(column_names=["number"], use_threads=False),
            parse_options=pc.ParseOptions(ignore_empty_lines=False, quote_char=False),
            convert_options=pc.ConvertOptions(
                column_types={"number": pa.float64()}, null_values=[], strings_can_be_null=False
            ),
        )
    except pa.ArrowException:
        return None
    numbers: np.ndarray = table["number"].to_numpy()
    return numbers


def _whole(numbers: np.ndarray, largest: int) -> bool:
    return bool(((numbers >= 0) & (numbers <= largest) & (numbers == np.floor(numbers))).all())


def _broken(block: bytes, first: int) -> TraceError:
    """Find the line that is not of the format's shape, in the slow way, and say so."""
    for number, line in _numbered(block, first):
        if LINE.fullmatch(line) is None:
            return TraceError(f"line {number} must read {SHAPE}, got {line[:60]!r}; the file may be cut short")
    return TraceError(f"the lines from {first} on must read {SHAPE}, got numbers out of range")


def _numbered(block: bytes, first: int) -> Iterator[tuple[int, bytes]]:
    return enumerate(block.split(b"\n")[:-1], first)


def _widened(values: np.ndarray, width: int, fill: int) -> np.ndarray:
    return np.pad(values, [(0, 0), (0, width - values.shape[1])], constant_values=fill)


IMPORTER = Importer(
    name="colibri",
    what="ROUTE_TRACE text of the colibri engines (call row layer id:gate ...)",
    matches=_matches,
    read=_read,
    needs="`num_experts`; `chunk_tokens`",
    loses="the call counter, a drafting head; not in the file: where a sequence ends",
)
