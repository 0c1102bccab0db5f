"""Home-made Parquet tables: a row a token and layer or a row an expert, under whatever names (`aliases`)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.aliases import is_routing, resolve
from stickymoe.traces.importers.generic_records import Records
from stickymoe.traces.importers.generic_trace import trace_of
from stickymoe.traces.importers.generic_types import typed
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.parquet_head import parquet_head
from stickymoe.traces.trace import RoutingTrace

BATCH_ROWS = 2**16
SAMPLE_ROWS = 256


def _matches(head: Head) -> bool:
    found = parquet_head(head)
    return found is not None and is_routing(resolve(found.names))


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    with pq.ParquetFile(path, pre_buffer=False) as file:
        names = list(resolve(file.schema_arrow.names).values())
        if len(set(file.schema_arrow.names)) != len(file.schema_arrow.names):
            raise TraceError("columns must have different names, got one twice")
        sample = next(file.iter_batches(SAMPLE_ROWS, columns=names), None)
        types = typed([] if sample is None else sample.to_pylist())
        records = Records(options, {what: name for what, (name, _) in types.items()})
        for batch in file.iter_batches(BATCH_ROWS, columns=[name for name, _ in types.values()]):
            columns = {what: batch.column(name).cast(kind) for what, (name, kind) in types.items()}
            records.add(pa.table(columns))
    return trace_of(records, options, IMPORTER.name)


IMPORTER = Importer(
    name="parquet",
    what="Parquet tables of (token, layer, experts) under many names, such as moe-policylang's",
    matches=_matches,
    read=_read,
    needs="`num_experts`; `prompt_tokens` where no phases are told",
    loses="columns under other names",
)
