"""Samples: texts and conversations to be shown to a model that brings its own tokenizer, split in two."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stickymoe.core.errors import DataError
from stickymoe.data.jsonl import JSONL_SUFFIXES, read_jsonl
from stickymoe.data.load import find_source
from stickymoe.data.messages import Message
from stickymoe.data.places import cache_folder
from stickymoe.data.progress import ProgressCallback, silent
from stickymoe.data.source import SourceFile, TextSource

BY_HASH = "the 2.5 % of the rows with the smallest SHA-256 are held out, but eight if that is no more than a tenth"


@dataclass(frozen=True)
class Sample:
    """One document.

    Attributes:
        where: Its file, and its line where the file has many: what an error names.
        content: Text, or the turns of a conversation.
    """

    where: str
    content: str | tuple[Message, ...]

    @property
    def is_chat(self) -> bool:
        """Whether it is a conversation, which needs a chat template."""
        return not isinstance(self.content, str)


@dataclass(frozen=True)
class Samples:
    """A text in two parts.

    Attributes:
        name: What it is called in reports.
        train: To learn from.
        held_out: To measure on.
        fingerprint: Changes with any byte read and with the way it was split.
        facts: What a report should remember of it; JSON.
    """

    name: str
    train: tuple[Sample, ...]
    held_out: tuple[Sample, ...]
    fingerprint: str
    facts: dict[str, Any]


def load_samples(
    name: str | Path, *, cache_dir: Path | None = None, progress: ProgressCallback | None = None
) -> Samples:
    """Read a text, untokenised.

    Args:
        name: A JSON Lines file (`.jsonl`, `.ndjson`) of texts or conversations, or what `load_corpus` takes: `sotu`,
            a WikiText name, a text file, or a folder of them.
        cache_dir: The cache; see `load_corpus`.
        progress: Called as `progress(description, done, total)`.

    Raises:
        SettingError: There is no such file or corpus.
        DataError: The text cannot be used; the message names file and line.
    """
    path = Path(name)
    if path.suffix.lower() in JSONL_SUFFIXES and not path.is_dir():
        return _from_jsonl(path, progress or silent)
    source, _ = find_source(str(name), cache_folder(cache_dir), progress or silent)
    return _from_text(source)


def _from_jsonl(path: Path, progress: ProgressCallback) -> Samples:
    rows, file = read_jsonl(path, progress)
    samples = [Sample(f"{path} line {number}", content) for number, content in rows]
    if len(samples) < 2:
        raise DataError(f"{path} must have >= 2 rows, one of them to measure on, got {len(samples)}; give more text")
    ranked = sorted(range(len(samples)), key=lambda row: hashlib.sha256(repr(rows[row][1]).encode()).digest())
    held = set(ranked[: max(1, round(0.025 * len(samples)), min(8, len(samples) // 10))])
    return Samples(
        name=path.name,
        train=tuple(sample for row, sample in enumerate(samples) if row not in held),
        held_out=tuple(sample for row, sample in enumerate(samples) if row in held),
        fingerprint=hashlib.sha256(f"{file.sha256} {BY_HASH}".encode()).hexdigest(),
        facts=_facts(path.name, [file], BY_HASH),
    )


def _from_text(source: TextSource) -> Samples:
    parts = {}
    for split in ("train", "validation"):
        if split not in source.splits:
            missing = source.missing.get(split, split)
            raise DataError(f"{source.name} must have a {split} split, it has none (looked for {missing})")
        documents = source.splits[split]
        parts[split] = tuple(Sample(document.name, "".join(document.rows)) for document in documents)
    return Samples(
        name=source.name,
        train=parts["train"],
        held_out=parts["validation"],
        fingerprint=source.fingerprint,
        facts=_facts(source.name, source.files, source.split_rule) | source.facts,
    )


def _facts(name: str, files: list[SourceFile], split_rule: str) -> dict[str, Any]:
    return {
        "name": name,
        "files": len(files),
        "bytes": sum(file.num_bytes for file in files),
        "split_rule": split_rule,
    }
