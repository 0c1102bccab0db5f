"""`layer,expert` CSV of llama.cpp's `llama-moe-trace`: one activation a line, and no word on which token it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.bounded import whole_bytes
from stickymoe.traces.importers.forwards import Blocks, trace_of
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.strided import refuse_flat_copy
from stickymoe.traces.trace import RoutingTrace

HEADER = b"layer,expert"
COLUMNS = ("layer", "expert")
SHORTEST = "the shortest run of one layer's lines, a decode step, of which all runs are multiples"


def _matches(head: Head) -> bool:
    return head.lines[:1] == [HEADER.decode()]


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    data = whole_bytes(path, options, growth=8)
    parts = [_table(data[start:stop], line) for start, stop, line in _parts(data)]
    layers, experts = (np.concatenate([part[column] for part in parts]) for column in range(2))
    # A file may be several, one behind the other with their headers: each begins a sequence
    begins = np.zeros(len(layers), dtype=bool)
    begins[np.cumsum([0] + [len(part[0]) for part in parts[:-1]])] = True
    numbers = np.concatenate([part[2] + np.arange(len(part[0])) for part in parts])
    if int(experts.min()) < 0:
        row = int(np.argmax(experts < 0))
        raise TraceError(f"line {int(numbers[row])} must have an expert >= 0, got {int(experts[row])}")
    run_starts = np.flatnonzero(begins | np.r_[True, layers[1:] != layers[:-1]])
    runs = np.diff(np.r_[run_starts, len(layers)])
    top_k, source = _top_k(runs, experts, numbers[run_starts], options)
    rows, ids = runs // top_k, experts.reshape(-1, top_k)
    refuse_flat_copy(ids, rows)
    if len(np.unique(layers)) == 1:  # nothing tells where a pass ends: every token is its own
        run_starts, rows = np.arange(0, len(layers), top_k), np.ones(len(ids), dtype=np.int64)
    blocks = Blocks(
        layers[run_starts].astype(np.int64),
        rows,
        ids,
        unit="line",
        numbers=numbers[run_starts],
        restarts=begins[run_starts],
    )
    return trace_of(blocks, options, format=IMPORTER.name, told={"top_k_from": source})


def _parts(data: bytes) -> list[tuple[int, int, int]]:
    """Return start, stop and first line of what stands between header lines."""
    if not (data == HEADER or data.startswith((HEADER + b"\n", HEADER + b"\r\n"))):
        raise TraceError(f"line 1 must be the header {HEADER.decode()!r}, got {data[:40].splitlines()[:1]}")
    parts, line, at = [], 1, 0
    while at >= 0:
        start = data.find(b"\n", at) + 1 or len(data)
        at = data.find(b"\n" + HEADER, start - 1)
        stop = len(data) if at < 0 else at + 1
        if data[start:stop].strip():
            parts.append((start, stop, line + 1))
        line, at = line + 1 + data.count(b"\n", start, stop), stop if at >= 0 else -1
    if not parts:
        raise TraceError("must hold at least one activation, found only the header")
    return parts


def _table(data: bytes, line: int) -> tuple[np.ndarray, np.ndarray, int]:
    try:
        table = pc.read_csv(
            pa.BufferReader(data),
            read_options=pc.ReadOptions(column_names=COLUMNS, use_threads=False),
            parse_options=pc.ParseOptions(ignore_empty_lines=False),
            convert_options=pc.ConvertOptions(
                column_types=dict.fromkeys(COLUMNS, pa.int32()), null_values=[], strings_can_be_null=False
            ),
        )
    except pa.ArrowException as error:
        detail = " ".join(str(error).split())[:160]
        raise TraceError(f"every line must be two whole numbers, counted from line {line}: {detail}") from error
    layers, experts = (table[name].to_numpy() for name in COLUMNS)
    return layers, experts, line


def _top_k(runs: np.ndarray, experts: np.ndarray, numbers: np.ndarray, options: ReadOptions) -> tuple[int, str]:
    """Return k and where it comes from; raise where the runs of lines are no whole tokens, or do not tell."""
    divisor = int(np.gcd.reduce(runs))
    if options.top_k is not None:
        if (torn := runs % options.top_k != 0).any():
            run = int(np.argmax(torn))
            found = f"{int(runs[run])} lines from line {int(numbers[run])} on"
            raise TraceError(
                f"each run of one layer's lines must be whole tokens of top_k {options.top_k}, got {found}"
            )
        return options.top_k, "given"
    if divisor != int(runs.min()) or _repeats(experts.reshape(-1, divisor)):
        raise TraceError(
            "top_k must be given: the file has no decode step of every layer to read it from, its runs of one layer's "
            f"lines are multiples of {divisor}"
        )
    return divisor, SHORTEST


def _repeats(ids: np.ndarray) -> bool:
    ordered = np.sort(ids, axis=1)
    return bool((ordered[:, 1:] == ordered[:, :-1]).any())


IMPORTER = Importer(
    name="llama-csv",
    what="layer,expert CSV of llama.cpp's llama-moe-trace",
    matches=_matches,
    read=_read,
    needs="`num_experts`; `top_k` where no decode step shows it; `chunk_tokens`",
    loses="not in the file: weights, where a sequence ends",
)
