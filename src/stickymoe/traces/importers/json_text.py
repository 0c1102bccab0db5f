"""JSON that nobody vouches for: sizes before memory, one document or one a line, nested lists as exact integers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.importer import ReadOptions

# A parsed text takes this many times its bytes: a short list costs 60 bytes before its first number
GROWTH = 16


def read_documents(path: Path, options: ReadOptions) -> Iterator[tuple[str, Any]]:
    """Yield what a JSON file, or one of a document a line, holds, each with its place.

    Raises:
        TraceError: The file is empty, is no JSON, or may take over `max_bytes` once it is parsed.
    """
    size = path.stat().st_size
    options.require_room(GROWTH * size, f"a parsed JSON text of {size} bytes")
    text = path.read_bytes().decode("utf-8-sig")
    if not text.strip():
        raise TraceError("the file must hold JSON, got an empty one")
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
