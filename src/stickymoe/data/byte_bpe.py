"""A byte-level byte-pair tokenizer trained on a corpus' own train split."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from stickymoe.core.settings import require_at_least
from stickymoe.data.gpt2 import END_OF_TEXT

SMALLEST_VOCABULARY = 257


def train_byte_bpe(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train `vocab_size` tokens: end of text (id 0), 256 bytes, then merges. The same texts give the same tokenizer.

    Every text can be encoded and decoded back unchanged. A small corpus runs out of merges that occur twice, so the
    vocabulary may end up smaller than asked for.

    Raises:
        SettingError: `vocab_size` does not even hold the bytes.
    """
    require_at_least("tokenizer vocabulary", vocab_size, SMALLEST_VOCABULARY, "it holds 256 bytes and end of text")
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
