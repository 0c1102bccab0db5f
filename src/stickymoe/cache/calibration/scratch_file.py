"""The file that disk reads are measured on: random bytes, gone as soon as the process is."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stickymoe.core.errors import StorageError
from stickymoe.core.files import storage_errors

CHUNK_BYTES = 2**24
MIN_BLOCKS = 4
FREE_SHARE = 4  # never fill more than a quarter of what is free


@dataclass(frozen=True)
class ScratchFile:
    """An open file of random bytes.

    Args:
        direct: Descriptor whose reads bypass the page cache, or None where the system refuses that.
        buffered: Descriptor whose reads go through the page cache.
        size: Bytes, a whole number of blocks.
    """

    direct: int | None
    buffered: int
    size: int


@contextlib.contextmanager
def scratch_file(folder: Path, block_bytes: int, max_bytes: int) -> Iterator[ScratchFile]:
    """Make the file, and leave nothing behind.

    The name is removed before the first byte is written, so even a kill leaves no file.

    Args:
        folder: On the disk to be measured.
        block_bytes: Size of a read; the file holds at least `MIN_BLOCKS` of them.
        max_bytes: Most to write; less where a quarter of the free space is less.

    Raises:
        StorageError: No such folder, not enough space, or the disk refuses the write.
    """
    size = _size(folder, block_bytes, max_bytes)
    descriptors: list[int] = []
    try:
        with storage_errors(folder, safe="the measurement left no file behind"):
            writer, name = _create(folder)
            descriptors.append(writer)
            try:
                direct = _open_direct(name)
                descriptors += [] if direct is None else [direct]
                buffered = os.open(name, os.O_RDONLY)
                descriptors.append(buffered)
            finally:
                os.unlink(name)  # noqa: PTH108 (a name, not a path)
            _fill(writer, size)
        drop_page_cache(buffered)
        yield ScratchFile(direct, buffered, size)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def drop_page_cache(descriptor: int) -> None:
    """Ask the system to forget the file's pages; systems that cannot be asked keep them."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def file_system_of(folder: Path) -> str:
    """Return the type of the file system that holds `folder`, as in `ext4`, or "unknown"."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "unknown"
    best, kind = "", "unknown"
    place = str(folder.resolve())
    for fields in (line.split(" ") for line in lines):
        point = fields[1].replace("\\040", " ")
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def _size(folder: Path, block_bytes: int, max_bytes: int) -> int:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise StorageError(f"could not measure in {folder}: {(error.strerror or str(error)).lower()}") from None
    size = min(max_bytes, free // FREE_SHARE) // block_bytes * block_bytes
    needed = MIN_BLOCKS * block_bytes
    if size < needed:
        raise StorageError(
            f"could not measure in {folder}: a file of {needed} bytes must fit in max_bytes {max_bytes} and in a "
            f"quarter of the {free} bytes free; choose another folder"
        )
    return size


def _create(folder: Path) -> tuple[int, str]:
    try:
        return tempfile.mkstemp(prefix=".stickymoe-calibration-", dir=folder)
    except (PermissionError, NotADirectoryError) as error:
        reason = (error.strerror or str(error)).lower()
        raise StorageError(f"could not measure in {folder}: {reason}; choose another folder") from None


def _open_direct(name: str) -> int | None:
    if not hasattr(os, "O_DIRECT"):
        return None
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return None


def _fill(descriptor: int, size: int) -> None:
    rng = np.random.default_rng()
    for start in range(0, size, CHUNK_BYTES):
        chunk = memoryview(rng.bytes(min(CHUNK_BYTES, size - start)))
        while chunk:
            chunk = chunk[os.write(descriptor, chunk) :]
    os.fsync(descriptor)
