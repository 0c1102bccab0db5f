"""Files written whole or not at all, and their checksums."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stickymoe.core.errors import StorageError


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
            _flush_to_disk(temporary)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn a full or read-only disk into one `StorageError` that names `path`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG):
            reason = os.strerror(error.errno).lower()
            raise StorageError(
                f"could not write {path}: {reason}; nothing that was there before is lost, free some space and retry"
            ) from error
        raise


def write_json(path: Path, content: Any) -> None:
    """Write `content` as indented JSON, whole or not at all. NaN and infinities are refused."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sha256_of(path: Path) -> str:
    """Return the hex SHA-256 of a file's bytes, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
