"""The tokenizer beside a checkpoint, and whether its ids are ids of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from stickymoe.capture.opening.configuration import DAMAGED
from stickymoe.core.errors import CheckpointError
from stickymoe.core.files import read_json

_FILES = ("tokenizer.json", "tokenizer.model", "tekken.json", "spiece.model", "vocab.json", "vocab.txt")


def load_tokenizer(folder: Path, config: PreTrainedConfig) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a checkpoint; no code of the checkpoint is run.

    Raises:
        CheckpointError: There is none, it cannot be read, or it has ids that the model does not know.
    """
    if not any((folder / name).is_file() for name in _FILES):
        raise CheckpointError(f"{folder} holds no tokenizer ({_FILES[0]} or such); copy the model's own into it")
    path = folder / "tokenizer_config.json"
    described = path.is_file() and read_json(path, CheckpointError, DAMAGED)
    # Without a word on its class transformers goes by the model's, and may read the file by other rules than its own
    plain = not (described and described.get("tokenizer_class")) and (folder / "tokenizer.json").is_file()
    kind: Any = PreTrainedTokenizerFast if plain else AutoTokenizer
    try:
        tokenizer: PreTrainedTokenizerBase = kind.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True
        )
        largest = max(tokenizer.get_vocab().values(), default=-1)
    except Exception as error:  # tokenizers raises bare Exception
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise CheckpointError(f"the tokenizer in {folder} cannot be read ({reason}); copy the model's own") from error
    size = config.get_text_config().vocab_size
    if largest < 0 or largest >= size:
        found = "it has no tokens" if largest < 0 else f"its ids go up to {largest}"
        raise CheckpointError(
            f"the tokenizer in {folder} does not fit the model, whose vocabulary has {size} tokens: {found}; "
            "copy the model's own"
        )
    return tokenizer
