"""A routing trace as a Parquet file: written whole, read with bounds. docs/trace-format.md describes the format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stickymoe.core.errors import StorageError, TraceError
from stickymoe.core.files import whole_file
from stickymoe.traces.checks import checked_num_experts, id_dtype
from stickymoe.traces.trace import RoutingTrace

HEADER_KEY = b"stickymoe.trace"
VERSION = 1
BATCH_BYTES = 2**24
# Parquet column -> field of `RoutingTrace`. sequence_id and expert_ids are in every file, the others where known.
SCALARS = {
    "sequence_id": "sequence_ids",
    "document_id": "document_ids",
    "position": "positions",
    "token_id": "token_ids",
}
SLOTS = {"expert_ids": "expert_ids", "expert_weights": "expert_weights"}


def write_trace(trace: RoutingTrace, path: Path) -> None:
    """Write `trace` to `path` in batches, whole or not at all.

    Raises:
        StorageError: The disk or the path refuses the write; what stood there before still stands.
    """
    width = trace.num_layers * trace.top_k
    present = [name for name, attribute in (SCALARS | SLOTS).items() if getattr(trace, attribute) is not None]
    header = {
        "version": VERSION,
        "num_experts": trace.num_experts,
        "num_layers": trace.num_layers,
        "top_k": trace.top_k,
        "provenance": trace.provenance,
    }
    schema = _schema(present, trace.num_experts, width).with_metadata({HEADER_KEY: json.dumps(header).encode()})
    try:
        with (
            whole_file(path) as temporary,
            pq.ParquetWriter(temporary, schema, compression="zstd", write_page_checksum=True) as writer,
        ):
            for start in range(0, trace.num_tokens, _batch_rows(width)):
                writer.write_batch(_batch(trace, schema, slice(start, start + _batch_rows(width)), width))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StorageError(f"could not write {path}: {reason}; nothing that was there before is lost") from error


def load_trace(path: Path, *, max_bytes: int) -> RoutingTrace:
    """Read the trace at `path`, trusting nothing in it.

    Raises:
        TraceError: Not a trace file, damaged, of another version, inconsistent, or larger in memory than `max_bytes`.
    """
    if not path.is_file():
        raise TraceError(f"{path} must be a trace file, found {'a folder' if path.is_dir() else 'nothing'}")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return _read(file, max_bytes)
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from error
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError, RecursionError) as error:
        detail = " ".join(str(error).split())[:200] or type(error).__name__
        raise TraceError(f"{path} is not a readable trace file: {detail}; record or copy it again") from error


def _schema(columns: list[str], num_experts: int, width: int) -> pa.Schema:
    ids = pa.from_numpy_dtype(id_dtype(num_experts))
    types = {name: pa.int64() for name in SCALARS}
    types["expert_ids"] = pa.list_(pa.field("element", ids, nullable=False), width)
    types["expert_weights"] = pa.list_(pa.field("element", pa.float32(), nullable=False), width)
    return pa.schema([pa.field(name, types[name], nullable=False) for name in columns])


def _batch_rows(width: int) -> int:
    return max(1, BATCH_BYTES // (4 * width))


def _batch(trace: RoutingTrace, schema: pa.Schema, rows: slice, width: int) -> pa.RecordBatch:
    columns = []
    for column in schema:
        values = getattr(trace, (SCALARS | SLOTS)[column.name])[rows]
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        columns.append(flat if column.name in SCALARS else pa.FixedSizeListArray.from_arrays(flat, type=column.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _read(file: Any, max_bytes: int) -> RoutingTrace:
    schema, rows = file.schema_arrow, file.metadata.num_rows
    header = _header(schema.metadata or {})
    num_experts, layers, top_k = header["num_experts"], header["num_layers"], header["top_k"]
    _check_columns(schema, num_experts, layers * top_k)
    row_bytes = sum(
        8 if name in SCALARS else schema.field(name).type.value_type.bit_width // 8 * layers * top_k
        for name in schema.names
    )
    if rows < 1:
        raise TraceError(f"a trace must have at least one token, got {rows}")
    if rows * row_bytes > max_bytes:
        found = f"{rows} tokens of {row_bytes} bytes"
        raise TraceError(
            f"the trace must fit in max_bytes {max_bytes}, got {found}; raise max_bytes if you trust the file"
        )
    arrays = _read_columns(file, schema, rows, layers * top_k)
    fields: dict[str, Any] = {(SCALARS | SLOTS)[name]: array for name, array in arrays.items()}
    for name in SLOTS.keys() & fields.keys():
        fields[name] = fields[name].reshape(rows, layers, top_k)
    return RoutingTrace(num_experts=num_experts, provenance=header["provenance"], **fields)


def _header(metadata: dict[bytes, bytes]) -> dict[str, Any]:
    if HEADER_KEY not in metadata:
        raise TraceError(f"a trace file must carry {HEADER_KEY.decode()!r} in its metadata, found none; is it a trace?")
    header = json.loads(metadata[HEADER_KEY])
    if not isinstance(header, dict) or header.get("version") != VERSION:
        version = header.get("version") if isinstance(header, dict) else None
        raise TraceError(f"the format version must be {VERSION}, got {version!r}; use the stickymoe that wrote it")
    if missing := {"num_experts", "num_layers", "top_k", "provenance"} - header.keys():
        raise TraceError(f"the header must name {', '.join(sorted(missing))}, found it missing")
    checked_num_experts(header["num_experts"])
    for name in ("num_layers", "top_k"):
        if type(header[name]) is not int or not 1 <= header[name] < 2**31:
            raise TraceError(f"the header's {name} must be a whole number >= 1, got {header[name]!r}")
    return header


def _check_columns(schema: pa.Schema, num_experts: int, width: int) -> None:
    if unknown := set(schema.names) - SCALARS.keys() - SLOTS.keys():
        raise TraceError(f"the columns must be among {', '.join(SCALARS | SLOTS)}, got {sorted(unknown)[0]!r}")
    if missing := {"sequence_id", "expert_ids"} - set(schema.names):
        raise TraceError(f"the columns must include {sorted(missing)[0]!r}, found it missing")
    if len(set(schema.names)) != len(schema.names):
        raise TraceError("the columns must have different names, got one twice")
    if width >= 2**31:
        raise TraceError(f"the header's num_layers * top_k must be below 2**31, got {width}")
    for expected in _schema(schema.names, num_experts, width):
        found = schema.field(expected.name).type
        if found != expected.type:
            raise TraceError(f"column {expected.name!r} must be {expected.type} by the header, got {found}")


def _read_columns(file: Any, schema: pa.Schema, rows: int, width: int) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for name in schema.names:
        kind = np.int64 if name in SCALARS else schema.field(name).type.value_type.to_pandas_dtype()
        arrays[name] = np.empty(rows if name in SCALARS else (rows, width), dtype=kind)
    done = 0
    for batch in file.iter_batches(batch_size=_batch_rows(width)):
        stop = done + batch.num_rows
        if stop > rows:
            raise TraceError(f"the file must hold the {rows} tokens its footer names, found more")
        for name, array in arrays.items():
            array[done:stop] = _values(batch.column(name), name).reshape(array[done:stop].shape)
        done = stop
    if done != rows:
        raise TraceError(f"the file must hold the {rows} tokens its footer names, found {done}")
    return arrays


def _values(column: pa.Array, name: str) -> np.ndarray:
    flat = column if name in SCALARS else column.flatten()
    if column.null_count or flat.null_count:
        raise TraceError(f"column {name!r} must have a value in every row, found an empty one")
    values: np.ndarray = flat.to_numpy(zero_copy_only=False)
    return values
