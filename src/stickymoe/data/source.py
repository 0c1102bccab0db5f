"""What a corpus is before tokens: documents, already split, and where they came from."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stickymoe.core.errors import DataError

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Document:
    """One document. Its rows are tokenised one by one: no token crosses from a row into the next."""

    name: str
    rows: tuple[str, ...]


@dataclass(frozen=True)
class SourceFile:
    """A file that was read, with the checksum of the bytes read."""

    name: str
    sha256: str
    num_bytes: int


@dataclass(frozen=True)
class TextSource:
    """A corpus as text.

    Attributes:
        name: What the corpus is called in reports.
        splits: The documents of each split.
        files: What was read, in reading order.
        split_rule: How documents came into their split, in words.
        tokenizer: The tokenizer that `auto` stands for.
        ends_documents: Whether an end-of-text token closes each document.
        missing: For each split that is not there, the file that was looked for.
        facts: What else the provenance should hold.
    """

    name: str
    splits: dict[str, list[Document]]
    files: list[SourceFile]
    split_rule: str
    tokenizer: str
    ends_documents: bool
    missing: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 that changes with any byte read and with the way the text was split; not with the folder."""
        files = [[file.name, file.sha256] for file in self.files]
        content = json.dumps([files, self.split_rule, self.ends_documents, sorted(self.splits)])
        return hashlib.sha256(content.encode()).hexdigest()


def unreadable(path: Path, error: OSError) -> DataError:
    """Return what to tell of a file that the system refused to read."""
    reason = (error.strerror or str(error)).lower()
    return DataError(f"could not read {path}: {reason}; check the path and its permissions")


def read_text(path: Path, name: str) -> tuple[str, SourceFile]:
    """Read a UTF-8 file as it is: no newline translated, nothing stripped.

    Raises:
        DataError: The file cannot be read or is not UTF-8.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} must be UTF-8 text, but byte {error.start} cannot be decoded; convert the file to UTF-8"
        ) from error
    return text, SourceFile(name, hashlib.sha256(content).hexdigest(), len(content))
