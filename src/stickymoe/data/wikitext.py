"""WikiText-2 from its official files, raw or v1, told apart by name and checksum."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from stickymoe.core.errors import DataError
from stickymoe.data.source import SPLITS, Document, SourceFile, TextSource, read_text


@dataclass(frozen=True)
class OfficialFile:
    """One of the six files of WikiText-2."""

    corpus: str
    split: str
    num_bytes: int
    sha256: str


RAW, V1 = "wikitext-2-raw", "wikitext-2-v1"
OFFICIAL_FILES = {
    "wiki.train.raw": OfficialFile(
        RAW, "train", 10_940_747, "6707892fa3788b5ab9ed78ab5ff37d9fe825f6011a2ad4fcd6a6d467f0e7da57"
    ),
    "wiki.valid.raw": OfficialFile(
        RAW, "validation", 1_146_846, "4cd0f6876d07a413aa911261ff6d363c72d757d47f0fdd6015702014c89cb9c7"
    ),
    "wiki.test.raw": OfficialFile(
        RAW, "test", 1_290_590, "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08"
    ),
    "wiki.train.tokens": OfficialFile(
        V1, "train", 10_797_148, "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"
    ),
    "wiki.valid.tokens": OfficialFile(
        V1, "validation", 1_121_681, "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"
    ),
    "wiki.test.tokens": OfficialFile(
        V1, "test", 1_256_449, "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"
    ),
}
WIKITEXT_NAMES = (RAW, V1)
_TOP_HEADING = re.compile(r" = (?!= ).* = \n")


def looks_like_wikitext(path: Path) -> bool:
    """Whether `path` is, or is a folder that holds, a file named like one of WikiText-2."""
    return path.name in OFFICIAL_FILES if path.is_file() else any((path / name).is_file() for name in OFFICIAL_FILES)


def wikitext(path: Path, *, expected: str | None = None) -> TextSource:
    """Return WikiText-2 from a folder of official files, or from one of them; splits whose file is absent are left out.

    Args:
        path: The folder, or one file.
        expected: `wikitext-2-raw` or `wikitext-2-v1` where it must be that one.

    Raises:
        DataError: Raw and v1 files lie together, a file is not the official one, or it is not the expected corpus.
    """
    folder = path.parent if path.is_file() else path
    found = [path.name] if path.is_file() else [name for name in OFFICIAL_FILES if (folder / name).is_file()]
    corpora = {OFFICIAL_FILES[name].corpus for name in found}
    if len(corpora) > 1:
        raise DataError(
            f"a WikiText-2 folder must hold raw files or v1 files, {folder} holds both ({', '.join(found)}); "
            "the texts differ: keep them in two folders"
        )
    if expected is not None and corpora != {expected}:
        wanted = ", ".join(name for name, official in OFFICIAL_FILES.items() if official.corpus == expected)
        held = f"those of {corpora.pop()}" if corpora else "none of them"
        raise DataError(f"{folder} must hold the files of {expected} ({wanted}), it holds {held}; put them there")
    corpus = corpora.pop()
    splits: dict[str, list[Document]] = {}
    files: list[SourceFile] = []
    missing: dict[str, str] = {}
    for name, official in OFFICIAL_FILES.items():
        if official.corpus != corpus:
            continue
        if name not in found:
            missing[official.split] = str(folder / name)
            continue
        text, file = read_text(folder / name, name)
        _require_official(folder / name, file)
        files.append(file)
        splits[official.split] = documents_of(rows_of(text))
    return TextSource(
        name=corpus,
        splits={split: splits[split] for split in SPLITS if split in splits},
        files=files,
        split_rule="as published",
        tokenizer="gpt2",
        ends_documents=False,
        missing=missing,
    )


def rows_of(text: str) -> list[str]:
    r"""Return the rows as the Hugging Face dataset delivers them: a line with its newline, a blank line as ''.

    Lines end at "\n" alone, not at the other line ends that `str.splitlines` knows.
    """
    lines = text.split("\n")
    rows = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    return [row if row.strip() else "" for row in rows]


def documents_of(rows: list[str]) -> list[Document]:
    """Cut rows into articles at their titles: ` = Title = ` between blank rows.

    The blank rows matter: tables and formulas leave lines of the same shape in running text. Rows before the first
    title go to the first article.
    """
    starts = [
        index
        for index, row in enumerate(rows)
        if _TOP_HEADING.fullmatch(row) and not any(rows[index - 1 : index] + rows[index + 1 : index + 2])
    ]
    if not starts:
        return [Document("", tuple(rows))]
    borders = [0, *starts[1:], len(rows)]
    return [
        Document(rows[title].strip()[2:-2], tuple(rows[begin:end]))
        for title, begin, end in zip(starts, borders, borders[1:], strict=False)
    ]


def _require_official(path: Path, file: SourceFile) -> None:
    official = OFFICIAL_FILES[path.name]
    if file.sha256 == official.sha256:
        return
    other = next((name for name, known in OFFICIAL_FILES.items() if known.sha256 == file.sha256), None)
    what = f"its content is {other}" if other else "it was modified or is of another corpus"
    raise DataError(
        f"{path} must be the official file of {official.corpus} (sha256 {official.sha256}, {official.num_bytes} "
        f"bytes), got sha256 {file.sha256}, {file.num_bytes} bytes: {what}; fetch it again, or rename it to use it "
        "as plain text"
    )
