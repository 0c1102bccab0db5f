"""`layer,expert,count` CSV, as several llama.cpp tools write it of the experts they saw, and read it to pin them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.bounded import whole_bytes
from stickymoe.traces.importers.counts import LARGEST, by_layer_of, profile_of, require_below
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.profile import UsageProfile

COLUMNS = ("layer", "expert", "count")
# What stands for the expert that every token takes
SHARED = -1


def _matches(head: Head) -> bool:
    return bool(head.lines) and tuple(head.lines[0].split(",")[:3]) == COLUMNS


def _read(path: Path, options: ReadOptions) -> UsageProfile:
    """Further columns are passed over, and so are lines of a shared expert: nobody chose it."""
    data = whole_bytes(path, options, growth=12)
    try:
        table = pc.read_csv(
            pa.BufferReader(data),
            read_options=pc.ReadOptions(use_threads=False),
            parse_options=pc.ParseOptions(quote_char=False, ignore_empty_lines=False),
            convert_options=pc.ConvertOptions(
                column_types=dict.fromkeys(COLUMNS, pa.int64()), include_columns=COLUMNS, null_values=[]
            ),
        )
    except (pa.ArrowException, KeyError) as error:
        detail = re.sub(r"Row #", "line ", " ".join(str(error).split()))[:160]
        raise TraceError(f"every line must begin with layer, expert and count, whole numbers: {detail}") from error
    layers, experts, counts = (table[name].to_numpy() for name in COLUMNS)
    chosen = experts != SHARED
    if not chosen.any():
        raise TraceError("must count at least one expert, found none")
    uses = (layers[chosen], experts[chosen], counts[chosen])
    lines = np.flatnonzero(chosen) + 2
    require_below(uses, (LARGEST, LARGEST), lines)
    return profile_of(by_layer_of(*uses, lines, options, None), options, format=IMPORTER.name, declared=False)


IMPORTER = Importer(
    name="usage-csv",
    what="layer,expert,count CSV: how often each expert was chosen",
    matches=_matches,
    read=_read,
    gives="profile",
    needs="`num_experts`",
    loses="further columns, a shared expert; not in the file: order",
)
