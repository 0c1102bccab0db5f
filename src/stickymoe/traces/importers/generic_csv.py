"""Home-made tables as text: comma, tab or semicolon, a row a token and layer or a row an expert, a line of names."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.aliases import is_routing, resolve, wide
from stickymoe.traces.importers.generic_records import Records
from stickymoe.traces.importers.generic_trace import trace_of
from stickymoe.traces.importers.generic_types import typed
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.trace import RoutingTrace

BLOCK_BYTES = 2**24
DELIMITERS = ",\t;|"
NULLS = ["", "null", "None", "NULL"]
SAMPLE_ROWS = 200
# What stands around and between the numbers of a cell that holds several
BETWEEN = r"[\[\](){}\s,;|:]+"
NUMBER = re.compile(r"-?\d+")


class _Form(NamedTuple):
    """How the file is written: lines before the names, what stands between cells, the names, some rows."""

    skipped: int
    delimiter: str
    names: list[str]
    rows: list[list[str]]


def _matches(head: Head) -> bool:
    form = _form(head)
    return form is not None and _is_routing(form.names)


def _is_routing(names: list[str]) -> bool:
    found = resolve(names)
    return is_routing(found) or ("token" in found and bool(wide(names, "experts")))


def _form(head: Head) -> _Form | None:
    lines = (head.text or "").splitlines()
    skipped = next((number for number, line in enumerate(lines) if line.strip() and not line.startswith("#")), None)
    if skipped is None:
        return None
    delimiter = max(DELIMITERS, key=lines[skipped].count)
    if delimiter not in lines[skipped]:
        return None
    try:
        names, *rows = csv.reader(lines[skipped : skipped + 1 + SAMPLE_ROWS], delimiter=delimiter)
    except csv.Error:
        return None
    names = [name.strip() for name in names]
    return None if len(set(names)) != len(names) else _Form(skipped, delimiter, names, [row for row in rows if row])


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    form = _form(Head.of(path))
    if form is None or not _is_routing(form.names):
        raise TraceError(
            "the first line must name the columns, token, layer and experts among them, found no such line"
        )
    slots = {what: wide(form.names, what) for what in ("experts", "weights")}
    alone = {name for columns in slots.values() for name in columns} if slots["experts"] else set()
    types = typed([_guessed(form, row, slots, alone) for row in form.rows])
    names = {what: name for what, (name, _) in types.items()}
    records = Records(options, names)
    lists = {what for what, (_, kind) in types.items() if pa.types.is_list(kind)}
    columns = _columns(types, slots, lists)
    reader = pv.open_csv(
        path,
        read_options=pv.ReadOptions(
            skip_rows=form.skipped, block_size=BLOCK_BYTES, column_names=None, autogenerate_column_names=False
        ),
        parse_options=pv.ParseOptions(delimiter=form.delimiter, ignore_empty_lines=True),
        convert_options=pv.ConvertOptions(
            column_types=columns, include_columns=list(columns), null_values=NULLS, strings_can_be_null=True
        ),
    )
    for batch in reader:
        records.add(_table(batch, types, slots, lists))
    return trace_of(records, options, IMPORTER.name)


def _columns(
    types: dict[str, tuple[str, pa.DataType]], slots: dict[str, list[str]], lists: set[str]
) -> dict[str, pa.DataType]:
    """Return the file's columns to be read, and their types there."""
    found: dict[str, pa.DataType] = {}
    for what, (name, kind) in types.items():
        if what in lists and slots.get(what):
            found |= dict.fromkeys(slots[what], kind.value_type)
        else:
            found[name] = pa.string() if what in lists else kind
    return found


def _guessed(form: _Form, row: list[str], slots: dict[str, list[str]], alone: set[str]) -> dict[str, Any]:
    """Return a row as a JSON record would have it, columns of one slot each gathered in lists."""
    cells = dict(zip(form.names, map(str.strip, row), strict=False))
    record = {name: _value(cell) for name, cell in cells.items() if name not in alone}
    for what, columns in slots.items():
        if columns and alone:
            record[what] = [value for name in columns if (value := _value(cells.get(name, ""))) is not None]
    return record


def _value(cell: str) -> Any:
    if cell in NULLS:
        return None
    if cell.lower() in ("true", "false"):
        return cell.lower() == "true"
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    parts = [part for part in re.split(BETWEEN, cell) if part]
    if len(parts) > 1 or cell[:1] in "[({":
        values = [_value(part) for part in parts]
        if all(isinstance(value, int | float) for value in values):
            return values
    return cell


def _table(
    batch: pa.RecordBatch, types: dict[str, tuple[str, pa.DataType]], slots: dict[str, list[str]], lists: set[str]
) -> pa.Table:
    columns = {}
    for what, (name, kind) in types.items():
        if what not in lists:
            columns[what] = batch.column(name)
        elif slots.get(what):
            columns[what] = _gathered([batch.column(each) for each in slots[what]], kind)
        else:
            columns[what] = _split(batch.column(name), kind)
    return pa.table(columns)


def _gathered(columns: list[pa.Array], kind: pa.DataType) -> pa.Array:
    """Return columns of one slot each as a column of lists; empty cells are left out."""
    valid = np.stack([column.is_valid().to_numpy(zero_copy_only=False) for column in columns], axis=1)
    values = np.stack([column.fill_null(0).to_numpy(zero_copy_only=False) for column in columns], axis=1)
    offsets = np.concatenate([[0], np.cumsum(valid.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(values[valid], type=kind.value_type))


def _split(cells: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return cells of several numbers, in any brackets and with anything between, as a column of lists."""
    plain = pc.utf8_trim_whitespace(pc.replace_substring_regex(cells, BETWEEN, " "))
    lists = pc.split_pattern(plain, " ")
    words = lists.flatten()
    empty = pc.equal(words, "")
    if pc.any(empty).as_py():
        raise TraceError("a cell of expert ids must hold numbers, got an empty list")
    offsets = lists.offsets if lists.offset == 0 else None
    values = words.cast(kind.value_type)
    return pa.ListArray.from_arrays(offsets, values, mask=lists.is_null()) if offsets is not None else lists.cast(kind)


IMPORTER = Importer(
    name="csv",
    what="Tables as text with a line of names: token, layer and one expert or all of them a row",
    matches=_matches,
    read=_read,
    needs="`num_experts`; `prompt_tokens` where no phases are told",
    loses="columns under other names",
)
