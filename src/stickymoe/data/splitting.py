"""The fixed rules that put text into train, validation and test: 95 / 2.5 / 2.5."""

from __future__ import annotations

import hashlib

from stickymoe.core.errors import DataError
from stickymoe.data.source import Document

BY_DOCUMENT = (
    "by document: ranked by sha256 of the document's name, the first 2.5 % (rounded, at least one) are validation, "
    "as many after them are test, the rest is train; documents keep their order by name within a split"
)
BY_POSITION = "by position: a line belongs to train, validation or test by where its first character falls, 95/2.5/2.5"


def split_by_document(name: str, documents: list[Document]) -> dict[str, list[Document]]:
    """Put whole documents into splits, whatever their date or size (see `BY_DOCUMENT`).

    Raises:
        DataError: Fewer than three documents: some split would be empty.
    """
    if len(documents) < 3:
        raise DataError(
            f"a folder corpus must have >= 3 documents that are not empty, {name} has {len(documents)}; "
            "add documents, or name one text file to have it split by position"
        )
    held_out = max(1, round(0.025 * len(documents)))
    ranked = sorted(documents, key=lambda document: hashlib.sha256(document.name.encode()).digest())
    parts = {
        "train": ranked[2 * held_out :],
        "validation": ranked[:held_out],
        "test": ranked[held_out : 2 * held_out],
    }
    return {split: sorted(part, key=lambda document: document.name) for split, part in parts.items()}


def split_by_position(name: str, text: str) -> dict[str, list[Document]]:
    """Cut one text at two line ends (see `BY_POSITION`); each part is one document.

    Raises:
        DataError: Too few lines: some split would be empty.
    """
    parts: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    position = 0
    for line in text.splitlines(keepends=True):
        share = position / len(text)
        parts["train" if share < 0.95 else "validation" if share < 0.975 else "test"].append(line)
        position += len(line)
    for split, lines in parts.items():
        if not lines:
            raise DataError(
                f"the {split} split of {name} must not be empty: no line starts in its share of the "
                f"{len(text)} characters; give a longer text, break it into lines, or give a folder of files"
            )
    return {split: [Document(f"{name}:{split}", ("".join(lines),))] for split, lines in parts.items()}
