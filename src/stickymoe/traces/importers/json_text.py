"""JSON that nobody vouches for: sizes before memory, one document or one a line, nested lists as exact integers."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.bounded import whole_bytes
from stickymoe.traces.importers.importer import ReadOptions

# A parsed text takes this many times its bytes: a short list costs 60 bytes before its first number
GROWTH = 16


def read_documents(path: Path, options: ReadOptions) -> Iterator[tuple[str, Any]]:
    """Yield what a JSON file, or one of a document a line, holds, each with its place.

    Raises:
        TraceError: The file is empty, is no JSON, or may take over `max_bytes` once it is parsed.
    """
    text = whole_bytes(path, options, GROWTH).decode("utf-8-sig")
    try:
        yield "the document", json.loads(text)
        return
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise TraceError(f"line {error.lineno} must be JSON, got {_found(error)}") from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                document = json.loads(line)
            except json.JSONDecodeError as error:
                raise TraceError(f"line {number} must be JSON, got {_found(error)}") from error
            yield f"line {number}", document


def records(path: Path, options: ReadOptions) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSON file, be it one, a list of them, or one a line, each with its place."""
    for place, document in read_documents(path, options):
        for number, record in enumerate(document if isinstance(document, list) else [document]):
            where = f"{place}[{number}]" if isinstance(document, list) else place
            if not isinstance(record, dict):
                raise TraceError(f"{where} must be an object, got {type(record).__name__}")
            yield where, record


def whole_number(record: Any, name: str, where: str) -> int | None:
    """Return `record[name]`, a whole number >= 0; None where it is not told."""
    value = record.get(name) if isinstance(record, dict) else None
    if value is not None and (type(value) is not int or not 0 <= value < 2**31):
        raise TraceError(f"{where}: {name} must be a whole number >= 0, got {value!r:.80}")
    return value


def from_base64(text: str | bytes, name: str) -> bytes:
    """Return the bytes that base64 text stands for; white space in it is passed over."""
    try:
        return base64.b64decode(b"".join((text.encode() if isinstance(text, str) else text).split()), validate=True)
    except binascii.Error as error:
        raise TraceError(f"{name} must be base64, got {str(error).lower()}; it may be cut short") from error


def integers(name: str, nested: Any, dimensions: int) -> np.ndarray:
    """Return nested lists of whole numbers as int64; ragged lists, floats, text and booleans are refused.

    Args:
        name: What the lists are, for the error.
        nested: The lists.
        dimensions: How deep they must be nested.
    """
    level, lengths = [nested], list[int]()
    for _ in range(dimensions):
        for number, item in enumerate(level):
            if not isinstance(item, list):
                raise TraceError(f"{_place(name, number, lengths)} must be a list, got {type(item).__name__}")
            if len(item) != len(level[0]):
                found = f"{len(level[0])} entries as the first has, got {len(item)}"
                raise TraceError(f"{_place(name, number, lengths)} must have {found}")
        lengths.append(len(level[0]) if level else 0)
        level = [inner for item in level for inner in item]
    # Told apart by type, for numpy would round floats and read text as numbers
    if wrong := set(map(type, level)) - {int}:
        raise TraceError(f"{name} must be whole numbers, got a {min(kind.__name__ for kind in wrong)}")
    try:
        return np.array(level, dtype=np.int64).reshape(lengths)
    except OverflowError as error:
        raise TraceError(f"{name} must fit in 64 bits, got a larger number") from error


def _place(name: str, number: int, lengths: list[int]) -> str:
    return name + "".join(f"[{index}]" for index in np.unravel_index(number, lengths)) if lengths else name


def _found(error: json.JSONDecodeError) -> str:
    return f"{error.msg.lower()} at column {error.colno}; the file may be cut short"
