"""Tokens on disk: plain `.npy` arrays under a manifest of checksums, written whole, checked at every load."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from stickymoe.core.files import sha256_of, whole_file, write_json
from stickymoe.data.places import writing_cache
from stickymoe.data.tokenise import TokenRow

FORMAT = 1
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"

logger = logging.getLogger("stickymoe.data")


class CacheDamaged(Exception):
    """A cached file is not what was written; the message names it."""


@dataclass(frozen=True)
class CachedTokens:
    """What one cache folder holds, with the checksums of its files."""

    tokenizer: Tokenizer
    rows: dict[str, TokenRow]
    checksums: dict[str, str]


def write_tokens(folder: Path, tokenizer: Tokenizer, rows: dict[str, TokenRow]) -> CachedTokens:
    """Write arrays and tokenizer, the manifest last: a reader finds all of it or nothing.

    Processes that write at once write the same bytes, each file by an atomic rename, so none can harm another.

    Raises:
        StorageError: The disk refused.
    """
    files: dict[str, dict[str, Any]] = {}
    with writing_cache(folder):
        files[TOKENIZER] = _write(folder / TOKENIZER, tokenizer.to_str().encode())
        for split, row in rows.items():
            files[_tokens_file(split)] = _write(folder / _tokens_file(split), row.tokens)
            files[_documents_file(split)] = _write(folder / _documents_file(split), row.document_lengths)
        write_json(folder / MANIFEST, {"format": FORMAT, "files": files})
    return CachedTokens(tokenizer, rows, {name: entry["sha256"] for name, entry in files.items()})


def read_tokens(folder: Path, splits: list[str]) -> CachedTokens | None:
    """Return what `write_tokens` wrote; None if nothing is there or, with a warning, if it is damaged."""
    if not (folder / MANIFEST).exists():
        return None
    try:
        return _read_checked(folder, splits)
    except CacheDamaged as damage:
        logger.warning("the token cache %s is damaged (%s); it is built again", folder, damage)
        return None


def _read_checked(folder: Path, splits: list[str]) -> CachedTokens:
    checksums: dict[str, str] = {}
    names = _file_names(splits)
    files = _manifest_files(folder)
    for name in names:
        try:
            expected, actual = files[name], {"bytes": (folder / name).stat().st_size}
            if actual["bytes"] != expected["bytes"]:
                raise CacheDamaged(f"{name} has {actual['bytes']} bytes, not {expected['bytes']}")
            checksums[name] = sha256_of(folder / name)
        except (OSError, KeyError, TypeError) as error:
            raise CacheDamaged(f"{name} is missing or not in {MANIFEST}") from error
        if checksums[name] != expected["sha256"]:
            raise CacheDamaged(f"{name} has another sha256 than when it was written")
    try:
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        rows = {
            split: TokenRow(_read_array(folder / _tokens_file(split)), _read_array(folder / _documents_file(split)))
            for split in splits
        }
    except Exception as error:  # tokenizers raises bare Exception
        raise CacheDamaged(f"its files cannot be read: {error}") from error
    return CachedTokens(tokenizer, rows, checksums)


def _manifest_files(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT or not isinstance(manifest["files"], dict):
            raise CacheDamaged(f"{MANIFEST} is not of format {FORMAT}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CacheDamaged(f"{MANIFEST} cannot be read") from error
    files: dict[str, Any] = manifest["files"]
    return files


def _write(path: Path, content: bytes | np.ndarray) -> dict[str, Any]:
    """Write a file whole and return its manifest entry, taken before the rename: what *we* wrote."""
    if not isinstance(content, bytes):
        buffer = io.BytesIO()  # numpy's own write to a file loses the reason when the disk is full
        np.save(buffer, content, allow_pickle=False)
        content = buffer.getvalue()
    with whole_file(path) as temporary:
        temporary.write_bytes(content)
        return {"bytes": temporary.stat().st_size, "sha256": sha256_of(temporary)}


def _read_array(path: Path) -> np.ndarray:
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def _file_names(splits: list[str]) -> list[str]:
    return [TOKENIZER, *(_tokens_file(split) for split in splits), *(_documents_file(split) for split in splits)]


def _tokens_file(split: str) -> str:
    return f"{split}.tokens.npy"


def _documents_file(split: str) -> str:
    return f"{split}.documents.npy"
