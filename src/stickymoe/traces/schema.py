"""The trace file's header and columns, by version. docs/trace-format.md describes the format."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stickymoe.core.errors import TraceError
from stickymoe.traces import checks
from stickymoe.traces.trace import RoutingTrace

HEADER_KEY = b"stickymoe.trace"
VERSION = 2
BATCH_BYTES = 2**24


class Column(NamedTuple):
    """One column: the field of `RoutingTrace` that it holds, its type (None: the ids' own), and since which version."""

    field: str
    kind: Any
    slots: bool
    since: int


# sequence_id and expert_ids are in every file, the others where known.
COLUMNS = {
    "sequence_id": Column("sequence_ids", np.int64, False, 1),
    "document_id": Column("document_ids", np.int64, False, 1),
    "position": Column("positions", np.int64, False, 1),
    "token_id": Column("token_ids", np.int64, False, 1),
    "phase": Column("phases", np.uint8, False, 2),
    "event_id": Column("event_ids", np.int64, False, 2),
    "expert_ids": Column("expert_ids", None, True, 1),
    "expert_weights": Column("expert_weights", np.float32, True, 1),
    "resident": Column("resident", np.int8, True, 2),
}
REQUIRED = ("sequence_id", "expert_ids")


@dataclass(frozen=True)
class TraceFacts:
    """What is true of a whole trace, row by row or not: the file's header.

    Args:
        num_experts: Experts a layer.
        num_layers: MoE layers.
        top_k: Slots a token and layer.
        columns: Which columns there are, of `COLUMNS`.
        layer_names: One a layer, or None.
        expert_bytes: Bytes of one expert, one a layer, or None.
        provenance: Where the trace comes from.
    """

    num_experts: int
    num_layers: int
    top_k: int
    columns: tuple[str, ...]
    layer_names: tuple[str, ...] | None = None
    expert_bytes: tuple[int, ...] | None = None
    provenance: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, trace: RoutingTrace) -> TraceFacts:
        """Return the facts of a trace in memory."""
        return cls(
            num_experts=trace.num_experts,
            num_layers=trace.num_layers,
            top_k=trace.top_k,
            columns=tuple(name for name, column in COLUMNS.items() if getattr(trace, column.field) is not None),
            layer_names=trace.layer_names,
            expert_bytes=None if trace.expert_bytes is None else tuple(trace.expert_bytes.tolist()),
            provenance=trace.provenance,
        )

    @classmethod
    def of_schema(cls, schema: pa.Schema) -> TraceFacts:
        """Return the facts that a file's schema tells, trusting nothing in it.

        Raises:
            TraceError: It is no trace's, of another version, or contradicts itself.
        """
        header = _checked_header(schema.metadata or {})
        _check_columns(schema.names, header["version"])
        layers, names, sizes = header["num_layers"], header.get("layer_names"), header.get("expert_bytes")
        facts = cls(
            num_experts=header["num_experts"],
            num_layers=layers,
            top_k=header["top_k"],
            columns=tuple(schema.names),
            layer_names=None
            if names is None
            else checks.checked_layer_names("the header's layer_names", names, layers),
            expert_bytes=None if sizes is None else tuple(checks.checked_expert_bytes(sizes, layers).tolist()),
            provenance=checks.checked_provenance(header["provenance"]),
        )
        if facts.width >= 2**31:
            raise TraceError(f"the header's num_layers * top_k must be below 2**31, got {facts.width}")
        for expected in facts.schema():
            found = schema.field(expected.name).type
            if found != expected.type:
                raise TraceError(f"column {expected.name!r} must be {expected.type} by the header, got {found}")
        return facts

    @property
    def width(self) -> int:
        """Slots of a token, all layers together."""
        return self.num_layers * self.top_k

    @property
    def row_bytes(self) -> int:
        """Bytes that a token takes in memory."""
        return sum(self.kind(name).itemsize * (self.width if COLUMNS[name].slots else 1) for name in self.columns)

    @property
    def batch_rows(self) -> int:
        """Rows that are written and read at once."""
        return max(1, BATCH_BYTES // (4 * self.width))

    def kind(self, name: str) -> np.dtype[Any]:
        """Return the type of one value of a column."""
        kind = COLUMNS[name].kind
        return checks.id_dtype(self.num_experts) if kind is None else np.dtype(kind)

    def shape(self, name: str, rows: int) -> tuple[int, ...]:
        """Return the shape in memory of `rows` rows of a column."""
        return (rows, self.num_layers, self.top_k) if COLUMNS[name].slots else (rows,)

    def schema(self) -> pa.Schema:
        """Return the Arrow schema, without its metadata."""
        types = {}
        for name in self.columns:
            value = pa.from_numpy_dtype(self.kind(name))
            element = pa.field("element", value, nullable=False)
            types[name] = pa.list_(element, self.width) if COLUMNS[name].slots else value
        return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])

    def metadata(self) -> dict[bytes, bytes]:
        """Return the header as the file's key-value metadata hold it."""
        header: dict[str, Any] = {
            "version": VERSION,
            "num_experts": self.num_experts,
            "num_layers": self.num_layers,
            "top_k": self.top_k,
            "provenance": self.provenance,
        }
        optional = {"layer_names": self.layer_names, "expert_bytes": self.expert_bytes}
        header |= {name: list(value) for name, value in optional.items() if value is not None}
        return {HEADER_KEY: json.dumps(header).encode()}

    def trace(self, arrays: dict[str, np.ndarray]) -> RoutingTrace:
        """Build a trace of these facts from its columns."""
        fields: dict[str, Any] = {COLUMNS[name].field: array for name, array in arrays.items()}
        return RoutingTrace(
            num_experts=self.num_experts,
            layer_names=self.layer_names,
            expert_bytes=None if self.expert_bytes is None else np.array(self.expert_bytes, dtype=np.int64),
            provenance=self.provenance,
            **fields,
        )


def _checked_header(metadata: dict[bytes, bytes]) -> dict[str, Any]:
    if HEADER_KEY not in metadata:
        raise TraceError(f"a trace file must carry {HEADER_KEY.decode()!r} in its metadata, found none; is it a trace?")
    header = json.loads(metadata[HEADER_KEY])
    version = header.get("version") if isinstance(header, dict) else None
    if type(version) is not int or not 1 <= version <= VERSION:
        raise TraceError(
            f"the format version must be from 1 to {VERSION}, got {version!r}; use the stickymoe that wrote it"
        )
    if missing := {"num_experts", "num_layers", "top_k", "provenance"} - header.keys():
        raise TraceError(f"the header must name {', '.join(sorted(missing))}, found it missing")
    checks.checked_num_experts(header["num_experts"])
    for name in ("num_layers", "top_k"):
        if type(header[name]) is not int or not 1 <= header[name] < 2**31:
            raise TraceError(f"the header's {name} must be a whole number >= 1, got {header[name]!r}")
    if not isinstance(header.get("layer_names", []), list):
        raise TraceError("the header's layer_names must be a list of words, got something else")
    return dict(header)


def _check_columns(names: list[str], version: int) -> None:
    known = [name for name, column in COLUMNS.items() if column.since <= version]
    if unknown := set(names) - set(known):
        raise TraceError(f"the columns must be among {', '.join(known)}, got {min(unknown)!r}")
    if missing := set(REQUIRED) - set(names):
        raise TraceError(f"the columns must include {min(missing)!r}, found it missing")
    if len(set(names)) != len(names):
        raise TraceError("the columns must have different names, got one twice")
