"""JSON Lines of texts or conversations, read row by row; whatever is wrong is told with its line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from stickymoe.core.errors import DataError, SettingError
from stickymoe.data.messages import Message, content_of
from stickymoe.data.progress import ProgressCallback, silent
from stickymoe.data.source import SourceFile, unreadable

JSONL_SUFFIXES = (".jsonl", ".ndjson")
LONGEST_LINE = 2**27
ROWS_A_REPORT = 5000

Row = tuple[int, str | tuple[Message, ...]]


def read_jsonl(path: Path, progress: ProgressCallback | None = None) -> tuple[list[Row], SourceFile]:
    """Return what each line holds, with its number from 1; blank lines are passed over.

    Args:
        path: The file.
        progress: Told the bytes read.

    Raises:
        SettingError: There is no such file.
        DataError: The file is empty or cannot be read, or a line is no JSON, no object, or holds no text.
    """
    if not path.is_file():
        raise SettingError.broken("data", "an existing file", str(path))
    rows: list[Row] = []
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    for number, line in _lines(path):
        digest.update(line)
        done += len(line)
        if number % ROWS_A_REPORT == 0:
            (progress or silent)(f"reading {path.name}", done, total)
        if line.strip():
            rows.append((number, _content(path, number, line)))
    if not rows:
        raise DataError(f"{path} must not be empty, it holds no row; name a file that does")
    return rows, SourceFile(path.name, digest.hexdigest(), done)


def stream_jsonl(path: Path) -> Iterator[Row]:
    """Yield what `read_jsonl` returns, a line at a time, without looking ahead; a prompt without an answer is a text.

    Args:
        path: The file; one without a row yields nothing.

    Raises:
        DataError: As from `read_jsonl`, when the line is reached.
    """
    for number, line in _lines(path):
        if line.strip():
            yield number, _content(path, number, line, prompts=True)


def _content(path: Path, number: int, line: bytes, *, prompts: bool = False) -> str | tuple[Message, ...]:
    where = f"{path} line {number}"
    return content_of(_object(line, where, first=number == 1), where, prompts=prompts)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            yield from _numbered(file, path)
    except OSError as error:
        raise unreadable(path, error) from error


def _numbered(file: BinaryIO, path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise DataError(f"{path} line {number} must be at most {LONGEST_LINE} bytes; is this a JSON Lines file?")
        yield number, line


def _object(line: bytes, where: str, *, first: bool) -> dict[str, Any]:
    try:
        found = json.loads(line.decode("utf-8-sig" if first else "utf-8").rstrip("\r\n"))
    except UnicodeDecodeError as error:
        raise DataError(f"{where} must be UTF-8, but byte {error.start} cannot be decoded; convert the file") from error
    except json.JSONDecodeError as error:
        broken = f"{error.msg.lower()} at column {error.colno}"
        raise DataError(f"{where} must be one JSON object, got {broken}; mend or delete the line") from error
    except RecursionError as error:
        raise DataError(f"{where} must be one JSON object, got one nested too deep; mend or delete the line") from error
    if not isinstance(found, dict):
        raise DataError(f"{where} must be a JSON object, got {type(found).__name__}")
    return found
