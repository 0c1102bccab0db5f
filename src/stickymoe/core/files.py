"""Files and folders written whole or not at all, and their checksums."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stickymoe.core.errors import StorageError

MOST_JSON_BYTES = 2**26
_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
_RUST_ERROR = re.compile(r"\(os error (\d+)\)")
_TORCH_WRITE = re.compile(r"PytorchStreamWriter|inline_container|file write failed")


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it takes `path`'s place, on any failure nothing has changed.

    The bytes are flushed to disk before the rename, so a kill at any moment leaves the old file or the new one.

    Raises:
        StorageError: The disk is full or refuses the write.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            flush_to_disk(temporary)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a path beside `folder` to make it at; on success it takes `folder`'s place, on any failure it is gone."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        yield partial
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def storage_errors(
    path: Path, safe: str = "nothing that was there before is lost", way_out: str = "free some space and retry"
) -> Iterator[None]:
    """Turn a full or read-only disk into one `StorageError` that names `path`, also where no OSError says so.

    Writers in Rust put the system's error number into their message, torch's only say that a write failed.

    Args:
        path: What could not be written.
        safe: What the user need not worry about.
        way_out: What to do.
    """
    try:
        yield
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else _number_in(str(error))
        if number in _REFUSALS:
            reason = os.strerror(number).lower()
        elif not isinstance(error, OSError) and _TORCH_WRITE.search(str(error)):
            reason = "the disk is full or refuses the write"
        else:
            raise
        raise StorageError(f"could not write {path}: {reason}; {safe}, {way_out}") from error


def _number_in(message: str) -> int | None:
    found = _RUST_ERROR.search(message)
    return int(found[1]) if found else None


def write_json(path: Path, content: Any) -> None:
    """Write `content` as indented JSON, whole or not at all. NaN and infinities are refused."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_json(
    path: Path, failing: Callable[[str], Exception], way_out: str, *, most_bytes: int = MOST_JSON_BYTES
) -> dict[str, Any]:
    """Return the JSON object that a file holds.

    Args:
        path: The file.
        failing: The error to raise where it is missing, too large, no JSON or no object; given one line.
        way_out: What the user then does; the end of that line.
        most_bytes: Of the file.
    """
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
        content = json.loads(data.decode()) if len(data) <= most_bytes else None
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
        raise failing(f"{path} cannot be read ({' '.join(reason.split())[:200]}); {way_out}") from None
    if len(data) > most_bytes:
        raise failing(f"{path} must have at most {most_bytes} bytes, found more; {way_out}")
    if not isinstance(content, dict):
        raise failing(f"{path} must hold one JSON object, got {type(content).__name__}; {way_out}")
    return content


def sha256_of(path: Path) -> str:
    """Return the hex SHA-256 of a file's bytes, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush_to_disk(path: Path) -> None:
    """Wait until a file's bytes, or a folder's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
