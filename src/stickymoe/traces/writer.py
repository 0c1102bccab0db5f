"""Writes trace files whole or not at all, piece by piece, so that a trace larger than memory has a way to the disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stickymoe.core.errors import StorageError, TraceError
from stickymoe.core.files import whole_file
from stickymoe.traces.checks import checked_provenance
from stickymoe.traces.order import PieceOrder
from stickymoe.traces.parts import require_alike
from stickymoe.traces.schema import COLUMNS, TraceFacts
from stickymoe.traces.trace import RoutingTrace


class TraceWriter:
    """Writes a trace file from pieces.

        with TraceWriter("trace.parquet") as writer:
            for piece in pieces:
                writer.write(piece)

    The file appears at `path` when the block ends; where it ends in an error, what stood there before still stands.

    Args:
        path: Where the file goes.
        provenance: Of the whole trace; that of the first piece if not given.

    Raises:
        StorageError: The disk or the path refuses the write.
        TraceError: A piece does not go with those before it, or there was none.
    """

    def __init__(self, path: Path | str, *, provenance: dict[str, Any] | None = None) -> None:
        """Note where the file goes; nothing is written before the block begins."""
        self._path = Path(path)
        self._provenance = None if provenance is None else checked_provenance(provenance)
        self._order = PieceOrder()
        self._pieces = self._rows = 0
        self._pending: list[pa.RecordBatch] = []
        self._file: Any = None

    def __enter__(self) -> TraceWriter:
        """Begin a file beside the final place."""
        self._writing = self._place()
        return self._writing.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        """Finish the file and put it in its place, or leave nothing of it."""
        return self._writing.__exit__(*error)

    @contextmanager
    def _place(self) -> Iterator[TraceWriter]:
        inside = False
        try:
            with whole_file(self._path) as self._temporary, self._closing():
                inside = True
                yield self
                inside = False
                if not self._pieces:
                    raise TraceError(f"{self._path}: a trace must have at least one token, got no piece")
                self._flush()
        except OSError as error:
            if inside:  # the caller's own
                raise
            raise refusal(self._path, error) from error

    @contextmanager
    def _closing(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with suppress(OSError):  # the first error is the one to tell
                self._close()
            raise
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, piece: RoutingTrace) -> None:
        """Add the next piece, a trace like the first in experts, layers, `top_k` and columns.

        Equal sequence ids in neighbouring pieces are one sequence.

        Raises:
            TraceError: The piece is unlike the first, or goes on with a sequence that had ended.
            StorageError: The disk refuses the write.
        """
        name = f"piece {self._pieces}"
        if not self._pieces:
            facts = TraceFacts.of(piece)
            self._first = piece.head(1)
            self._facts = facts if self._provenance is None else replace(facts, provenance=self._provenance)
            self._schema = self._facts.schema().with_metadata(self._facts.metadata())
        require_alike(self._first, piece, name)
        if piece.top_k != self._facts.top_k:
            raise TraceError(f"{name} must have the top_k of the first piece, got {piece.top_k}")
        self._order.add(piece.sequence_ids, piece.event_ids)
        self._pieces += 1
        rows = self._facts.batch_rows
        for start in range(0, piece.num_tokens, rows):
            batch = self._batch(piece, slice(start, start + rows))
            self._pending.append(batch)
            self._rows += batch.num_rows
            if self._rows >= rows:
                self._flush()

    def _flush(self) -> None:
        try:
            if self._file is None:
                self._file = pq.ParquetWriter(
                    self._temporary, self._schema, compression="zstd", write_page_checksum=True
                )
            if self._pending:
                self._file.write_table(pa.Table.from_batches(self._pending).combine_chunks())
        except OSError as error:
            raise refusal(self._path, error) from error
        self._pending, self._rows = [], 0

    def _batch(self, piece: RoutingTrace, rows: slice) -> pa.RecordBatch:
        columns = []
        for column in self._schema:
            flat = pa.array(np.ascontiguousarray(getattr(piece, COLUMNS[column.name].field)[rows]).reshape(-1))
            slots = COLUMNS[column.name].slots
            columns.append(pa.FixedSizeListArray.from_arrays(flat, type=column.type) if slots else flat)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def save_trace(trace: RoutingTrace, path: Path) -> None:
    """Write `trace` to `path`, whole or not at all.

    Raises:
        StorageError: The disk or the path refuses the write; what stood there before still stands.
    """
    with TraceWriter(path) as writer:
        writer.write(trace)


def refusal(path: Path, error: OSError) -> StorageError:
    """Return in one line why a file could not be written."""
    reason = (error.strerror or str(error)).lower()
    return StorageError(f"could not write {path}: {reason}; nothing that was there before is lost")
