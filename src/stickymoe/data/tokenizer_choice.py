"""From a tokenizer's name to a plan: what it is, how it is made, by what it is known in the cache."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from stickymoe.core.errors import DataError, SettingError
from stickymoe.core.settings import nearest, require_at_least
from stickymoe.data.byte_bpe import SMALLEST_VOCABULARY, train_byte_bpe
from stickymoe.data.gpt2 import END_OF_TEXT, MERGES_SHA256, find_gpt2, has_gpt2, load_gpt2
from stickymoe.data.source import TextSource


@dataclass(frozen=True)
class TokenizerPlan:
    """A tokenizer to be made only if the cache does not hold it.

    Attributes:
        name: `gpt2`, `bpe-SIZE`, or what a model's own is called.
        key: Equal keys on equal text give equal tokens.
        build: Makes it.
        end_of_text: The token that closes a document; None for a tokenizer without one.
    """

    name: str
    key: str
    build: Callable[[], Tokenizer]
    end_of_text: str | None = END_OF_TEXT


def plan_of(tokenizer: PreTrainedTokenizerFast) -> TokenizerPlan:
    """Return the plan of a tokenizer that is there already, a model's own."""
    bare = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    bare.no_truncation()
    bare.no_padding()
    key = hashlib.sha256(f"{tokenizer.eos_token} {bare.to_str()}".encode()).hexdigest()
    name = Path(tokenizer.name_or_path or type(tokenizer).__name__).name
    end: str | None = tokenizer.eos_token
    return TokenizerPlan(name, f"own:{key}", lambda: bare, end)


def plan_tokenizer(choice: str, source: TextSource, beside: Path | None, cache: Path) -> TokenizerPlan:
    """Return the plan for `auto`, `gpt2`, `bpe-SIZE` or a folder with GPT-2's files.

    Raises:
        SettingError: `choice` is none of these.
        DataError: A tokenizer should be trained and there is no train split.
    """
    name = source.tokenizer if choice == "auto" else choice
    gpt2_key = f"gpt2:{MERGES_SHA256}"
    if name == "gpt2":
        return TokenizerPlan("gpt2", gpt2_key, lambda: load_gpt2(find_gpt2(beside, cache)))
    if has_gpt2(Path(name)):
        return TokenizerPlan("gpt2", gpt2_key, lambda: load_gpt2(Path(name)))
    if trained := re.fullmatch(r"bpe-(\d{1,9})", name):
        size = int(trained[1])
        require_at_least("tokenizer vocabulary", size, SMALLEST_VOCABULARY, "it holds 256 bytes and end of text")
        if "train" not in source.splits:
            raise DataError(
                f"tokenizer {name} must be trained on a train split, {source.name} has none (looked for "
                f"{source.missing.get('train', 'it')}); put it there or choose the tokenizer gpt2"
            )
        texts = [row for document in source.splits["train"] for row in document.rows]
        return TokenizerPlan(name, f"{name}:1", lambda: train_byte_bpe(texts, size))
    rule = "auto, gpt2, bpe-SIZE (as bpe-4096) or a folder with encoder.json and vocab.bpe"
    raise SettingError.broken("tokenizer", rule, choice, nearest(choice, ["auto", "gpt2", "bpe-4096"]))


def as_transformers(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """Wrap the bare tokenizer for use with transformers: end of text also begins and pads."""
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
    )
