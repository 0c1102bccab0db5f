"""Records of a home-made trace, in the file's order, as arrays: one row a (token, layer)."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stickymoe.core.errors import TraceError, TraceWarning
from stickymoe.traces.checks import UNASSIGNED
from stickymoe.traces.importers import generic_columns as columns
from stickymoe.traces.importers.generic_columns import Lists
from stickymoe.traces.importers.growing import GrowingSlots
from stickymoe.traces.importers.importer import ReadOptions

DECLARATIONS = ("num_experts", "top_k", "num_layers", "model")
# What empty slots hold.
FILL = {"ids": UNASSIGNED, "weights": 0.0, "resident": -1}
UNASSIGNED_STATE = "unassigned"
WAY_OUT = "the rows of a token and layer must stand together, in the order of their slots; sort them"


@dataclass
class Rows:
    """What a block of the file says, one row a (token, layer); None for what the file does not say.

    Args:
        record: The record of each row, counted from 1.
        layer: Its layer's number in `Records.layers`.
        request: Its request's number in `Records.requests`.
        ids: (rows, slots), -1 where empty.
        weights: The shape of `ids`.
        resident: The shape of `ids`.
        token: The token's number in its request.
        event: The forward pass.
        token_id: Vocabulary id.
        position: Place in the sequence, where the file tells it beside the token's number.
        document: Which document the token is of.
        phase: As `generic_columns.phases` gives it.
        slot: The slot of the row's one expert, in files of one row an expert.
    """

    record: np.ndarray
    layer: np.ndarray
    request: np.ndarray
    ids: np.ndarray
    weights: np.ndarray | None = None
    resident: np.ndarray | None = None
    token: np.ndarray | None = None
    event: np.ndarray | None = None
    token_id: np.ndarray | None = None
    position: np.ndarray | None = None
    document: np.ndarray | None = None
    phase: np.ndarray | None = None
    slot: np.ndarray | None = None

    def __len__(self) -> int:
        """Rows."""
        return len(self.record)

    def part(self, rows: slice | np.ndarray) -> Rows:
        """Return some of the rows."""
        named = {each.name: getattr(self, each.name) for each in fields(self)}
        kept: dict[str, Any] = {name: None if values is None else values[rows] for name, values in named.items()}
        return Rows(**kept)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(0 if values is None else values.nbytes for values in vars(self).values())


@dataclass
class Records:
    """Everything read so far.

    Args:
        options: Bounds, and what the user knows.
        names: What a record says -> the file's name for it.
        blocks: The rows, in the file's order, but for their slots.
        slots: What the rows say of each slot: `ids`, `weights`, `resident`, as far as the file does.
        layers: What the file calls a layer, (layer,) or (block, layer) -> its number here.
        requests: What it calls a request, (request,), and of which appended run -> its number here.
        declared: What it says of the model.
        several: Whether its records hold several tokens each, so that token numbers are none of the file's.
    """

    options: ReadOptions
    names: dict[str, str]
    blocks: list[Rows] = field(default_factory=list)
    slots: dict[str, GrowingSlots] = field(default_factory=dict)
    layers: dict[Hashable, int] = field(default_factory=dict)
    requests: dict[Hashable, int] = field(default_factory=dict)
    declared: dict[str, Any] = field(default_factory=dict)
    several: bool = False
    _records: int = 0
    _run: int = 0
    _bytes: int = 0
    _left_out: int = 0
    _open: Rows | None = None

    def add(self, table: pa.Table) -> None:
        """Note the next records; the table's columns are named as in `aliases.ALIASES`.

        Raises:
            TraceError: A record breaks a rule.
        """
        record = np.arange(self._records + 1, self._records + table.num_rows + 1)
        self._records += table.num_rows
        self._declare(table)
        table, record, run = self._routing(table.combine_chunks(), record)
        if not table.num_rows:
            return
        rows = self._rows({name: _array(table, name) for name in table.column_names}, record, run)
        if "experts" not in self.names:
            rows = self._collapsed(rows)
        if len(rows):
            self._keep(rows)

    def finish(self) -> None:
        """Note that no record follows.

        Raises:
            TraceError: There was no record of routing.
        """
        if self._open is not None:
            self._keep(_as_slots(self._open))
            self._open = None
        if not self.blocks:
            raise TraceError("must hold at least one record with experts, found none")
        if self._left_out:
            warnings.warn(
                f"{self._left_out} records name neither layer nor experts and are left out", TraceWarning, stacklevel=2
            )

    def taken(self, name: str) -> np.ndarray:
        """Return a field of all rows, which the blocks then no longer hold."""
        found: np.ndarray = np.concatenate([getattr(rows, name) for rows in self.blocks])
        for rows in self.blocks:
            setattr(rows, name, None)
        return found

    def _keep(self, rows: Rows) -> None:
        self._bytes += rows.nbytes
        self.options.require_room(self._bytes, f"{self._records} records and more")
        for each in fields(rows):
            values = getattr(rows, each.name)
            if values is None:
                continue
            if each.name in FILL:
                self.slots.setdefault(each.name, GrowingSlots(FILL[each.name])).append(values)
                setattr(rows, each.name, None)
            else:
                setattr(rows, each.name, _narrowed(values))
        self.blocks.append(rows)

    def _declare(self, table: pa.Table) -> None:
        for name in DECLARATIONS:
            if name in table.column_names:
                for value in pc.unique(table[name]).drop_null().to_pylist():
                    if self.declared.setdefault(name, value) != value:
                        found = f"{value!r} after {self.declared[name]!r}"
                        raise TraceError(f"{name} must be the same in all the file, got {found}; cut it there")

    def _routing(self, table: pa.Table, record: np.ndarray) -> tuple[pa.Table, np.ndarray, np.ndarray]:
        """Return the records of routing, and the run of each: a header begins the next run."""
        routes = np.zeros(table.num_rows, dtype=bool)
        for name in ("layer", "experts", "expert"):
            routes |= _says(table, name)
        if routes.all():
            return table, record, np.full(len(record), self._run)
        heads = np.zeros(table.num_rows, dtype=bool)
        for name in DECLARATIONS:
            heads |= _says(table, name)
        heads &= ~routes
        self._left_out += int(np.count_nonzero(~routes & ~heads))
        run = self._run + np.cumsum(heads)
        self._run = int(run[-1]) if len(run) else self._run
        return table.filter(pa.array(routes)), record[routes], run[routes]

    def _rows(self, table: dict[str, pa.Array], record: np.ndarray, run: np.ndarray) -> Rows:
        self._check_said(table, record)
        lists = Lists.of(table.get("experts", table.get("expert")), "expert ids")
        of, within = lists.records()
        if "layer" in table:
            layer = columns.codes([table[name] for name in ("block", "layer") if name in table], self.layers)[of]
            self.several |= lists.inner is not None
        else:
            layer = columns.codes([pa.array(within)], self.layers)
        request = columns.codes([pa.array(run), *([table["request"]] if "request" in table else [])], self.requests)
        rows = Rows(record[of], layer, request[of], columns.expert_ids(lists))
        for name in ("token", "event", "token_id", "position", "document", "slot"):
            if name in table:
                setattr(rows, name, columns.whole_numbers(table[name], self.names[name], record)[of])
        if "token" not in table and "layer" not in table:
            rows.token = rows.record
        if "phase" in table:
            rows.phase = columns.phases(table["phase"], self.names["phase"])[of]
        weights = "weights" if "experts" in table else "weight"
        if weights in table:
            rows.weights = columns.beside(lists, table[weights], self.names[weights], np.float32, np.nan, rows.record)
        if "resident" in table:
            rows.resident = columns.beside(lists, table["resident"], self.names["resident"], np.int8, -1, rows.record)
        return rows

    def _check_said(self, table: dict[str, pa.Array], record: np.ndarray) -> None:
        for name in ("layer", "experts", "expert"):
            if name not in table or not table[name].null_count:
                continue
            silent = ~table[name].is_valid().to_numpy(zero_copy_only=False)
            if name != "layer" and "state" in table:
                silent &= ~pc.equal(table["state"], UNASSIGNED_STATE).fill_null(False).to_numpy(zero_copy_only=False)
            if silent.any():
                found = f"no {self.names[name]}"
                raise TraceError(
                    f"record {record[int(np.argmax(silent))]} must name its layer and experts, got {found}"
                )

    def _collapsed(self, rows: Rows) -> Rows:
        """Make one row of the neighbouring rows of a token and layer; the last ones wait for what follows."""
        if self._open is not None:
            rows = _joined(self._open, rows)
        last = int(np.flatnonzero(_starts(rows))[-1])
        self._open = rows.part(slice(last, None))
        return _as_slots(rows.part(slice(0, last))) if last else rows.part(slice(0, 0))


def _says(table: pa.Table, name: str) -> np.ndarray:
    if name not in table.column_names:
        return np.zeros(table.num_rows, dtype=bool)
    valid: np.ndarray = pc.is_valid(table[name]).to_numpy()
    return valid


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _narrowed(values: np.ndarray) -> np.ndarray:
    """Return whole numbers in the smallest type that holds them."""
    lowest, highest = int(values.min()), int(values.max())
    kinds = (np.int8, np.int16, np.int32, np.int64)
    kind = next(kind for kind in kinds if np.iinfo(kind).min <= lowest and highest <= np.iinfo(kind).max)
    return values.astype(kind)


def _joined(first: Rows, then: Rows) -> Rows:
    both = {each.name: (getattr(first, each.name), getattr(then, each.name)) for each in fields(Rows)}
    joined: dict[str, Any] = {
        name: None if left is None or right is None else np.concatenate([left, right])
        for name, (left, right) in both.items()
    }
    return Rows(**joined)


def _starts(rows: Rows) -> np.ndarray:
    """Return where, in a file of one row an expert, the rows of the next token and layer begin."""
    starts = np.ones(len(rows), dtype=bool)
    keys = [rows.layer, rows.request, *([] if rows.token is None else [rows.token])]
    starts[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    if rows.slot is not None:
        starts[1:] |= rows.slot[1:] <= rows.slot[:-1]
    return starts


def _as_slots(rows: Rows) -> Rows:
    """Return rows of one expert each as rows of all the experts of a token and layer."""
    starts = _starts(rows)
    first = np.flatnonzero(starts)
    lengths = np.diff(np.append(first, len(rows)))
    if rows.slot is not None and (rows.slot[first] != rows.slot.min()).any():
        record = int(rows.record[first[int(np.argmax(rows.slot[first] != rows.slot.min()))]])
        raise TraceError(f"record {record} must have the first slot of its token and layer, got another; {WAY_OUT}")
    found = rows.part(first)
    for name in FILL:
        values = getattr(rows, name)
        if values is not None:
            lists = Lists(pa.array(values.reshape(-1)), lengths, None)
            padded = columns.expert_ids(lists) if name == "ids" else lists.padded(FILL[name], values.dtype)
            setattr(found, name, padded)
    return found
