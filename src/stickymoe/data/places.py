"""Where things lie: the cache folder, and the folders where named corpora and vocabularies are looked for."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from stickymoe.core.errors import StorageError
from stickymoe.core.files import storage_errors


def cache_folder(cache_dir: Path | None = None) -> Path:
    """Return the cache folder: `cache_dir`, else `$STICKYMOE_CACHE`, else `~/.cache/stickymoe`."""
    if cache_dir is not None:
        return cache_dir
    configured = os.environ.get("STICKYMOE_CACHE")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "stickymoe"


def named_folders(name: str, cache: Path) -> list[Path]:
    """Return where a folder called `name` is looked for, best first: `$STICKYMOE_DATA/name`, then `cache/raw/name`."""
    configured = os.environ.get("STICKYMOE_DATA")
    here = [Path(configured).expanduser() / name] if configured else []
    return [*here, cache / "raw" / name]


@contextlib.contextmanager
def writing_cache(folder: Path) -> Iterator[None]:
    """Turn whatever the disk refuses below the cache into one `StorageError` that says how to choose another place."""
    try:
        with storage_errors(folder):
            yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StorageError(
            f"could not write the cache {folder}: {reason}; set STICKYMOE_CACHE to a folder that can be written"
        ) from error


def package_folder(package: str) -> Path | None:
    """Return where an installed package's files lie, without importing it; None if it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))
