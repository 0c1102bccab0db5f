"""What a Parquet file says of itself, for detection: the names of its columns and the keys of its metadata."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from stickymoe.traces.importers.importer import Head

MAGIC = b"PAR1"


class ParquetHead(NamedTuple):
    """Names of columns, in order, and keys of metadata."""

    names: list[str]
    keys: frozenset[bytes]


def parquet_head(head: Head) -> ParquetHead | None:
    """Return what a Parquet file says of itself; None where a file is none, or is damaged."""
    if not head.data.startswith(MAGIC):
        return None
    try:
        schema = pq.read_schema(head.path)
        return ParquetHead(schema.names, frozenset(schema.metadata or {}))
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, MemoryError, RecursionError):
        return None
