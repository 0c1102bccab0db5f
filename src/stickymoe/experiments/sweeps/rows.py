"""Result rows on disk: a folder of Parquet files, one a run, all of one schema.

One file a run, since a row once written is then never touched by the writing of another: a kill or a full disk loses
nothing, and rows made on several machines come together by copying, or in a merge, without a conflict. The folder reads
as one table everywhere: `pandas.read_parquet("results/demo/rows")`.
"""

from __future__ import annotations

import types
import typing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ValidationError

from stickymoe.core.errors import DataError
from stickymoe.core.files import whole_file
from stickymoe.experiments.faults import first_fault
from stickymoe.experiments.sweeps.row import ResultRow

ROWS_VERSION = 1
ROWS_FOLDER = "rows"
_VERSION_KEY = b"stickymoe.rows"
_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def write_row(row: ResultRow, out: Path) -> Path:
    """Write the row of a run below a sweep's folder, in place of an older one of the same run, whole or not at all.

    Raises:
        StorageError: The disk refused; the older row still stands.
    """
    path = row_file(out, row.run)
    table = pa.Table.from_pylist([row.model_dump(mode="python")], schema=rows_schema())
    with whole_file(path) as temporary:
        # Dictionaries and statistics would be most of a file of one row
        pq.write_table(table, temporary, compression="zstd", use_dictionary=False, write_statistics=False)
    return path


def read_rows(place: Path) -> list[ResultRow]:
    """Return the rows of a sweep's folder, of its `rows` folder, or of one Parquet file that holds some.

    Raises:
        DataError: There is none, or a file is damaged, of another version, or no file of rows.
    """
    if place.is_file():
        return _read(place)
    folder = place / ROWS_FOLDER if (place / ROWS_FOLDER).is_dir() else place
    files = sorted(path for path in folder.rglob("*.parquet") if not path.name.startswith("."))
    if not files:
        raise DataError(f"{place} holds no result rows; give the folder of a sweep, made by stickymoe sweep")
    return [row for file in files for row in _read(file)]


def read_row(out: Path, run: str) -> ResultRow | None:
    """Return the row of a run below a sweep's folder, None if it has none.

    Raises:
        DataError: It is damaged, or of another version.
    """
    path = row_file(out, run)
    return _read(path)[0] if path.exists() else None


def row_file(out: Path, run: str) -> Path:
    """Return where the row of a run lies below a sweep's folder."""
    return out / ROWS_FOLDER / f"{run}.parquet"


def rows_schema() -> pa.Schema:
    """Return the schema of all rows: a column for each field of `ResultRow`, the version in its metadata."""
    fields = [pa.field(name, _type(of.annotation)) for name, of in ResultRow.model_fields.items()]
    return pa.schema(fields, metadata={_VERSION_KEY: str(ROWS_VERSION).encode()})


def _read(path: Path) -> list[ResultRow]:
    try:
        table = pq.ParquetFile(path).read()
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{path} is no readable Parquet file ({reason:.120}); remove it and run the sweep again"
        ) from None
    found = (table.schema.metadata or {}).get(_VERSION_KEY)
    if found is None:
        raise DataError(f"{path} holds no result rows of a sweep; move it elsewhere")
    if found != str(ROWS_VERSION).encode():
        version = found.decode(errors="replace")
        raise DataError(
            f"{path} has rows of version {version!r}, this program reads version {ROWS_VERSION}; "
            "read it with the program that wrote it, or remove it and run the sweep again"
        )
    return [_row(content, path) for content in table.to_pylist()]


def _row(content: dict[str, Any], path: Path) -> ResultRow:
    try:
        return ResultRow.model_validate(content)
    except ValidationError as error:
        fault = first_fault(error, ResultRow, "row")
        raise DataError(f"{path}: {fault}; remove it and run the sweep again") from None


def _type(annotation: Any) -> pa.DataType:
    """Return the column type of a field's annotation."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _type(typing.get_args(annotation)[0])
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        (inside,) = (choice for choice in typing.get_args(annotation) if choice is not types.NoneType)
        return _type(inside)
    if typing.get_origin(annotation) is tuple:
        return pa.list_(_type(typing.get_args(annotation)[0]))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return pa.struct([pa.field(name, _type(of.annotation)) for name, of in annotation.model_fields.items()])
    return _TYPES[annotation]
