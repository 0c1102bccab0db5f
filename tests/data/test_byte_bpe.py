"""The trained tokenizer: a pure function of its texts that loses nothing."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stickymoe.core.errors import SettingError
from stickymoe.data.byte_bpe import train_byte_bpe

WORDS = ["the", "state", "of", "union", "is", "strong", "and", "free", "people", "été", "\n\n"]


def texts():
    rng = random.Random(1)
    return [" ".join(rng.choices(WORDS, k=200)) for _ in range(20)]


def test_the_same_texts_give_the_same_tokenizer():
    assert train_byte_bpe(texts(), 300).to_str() == train_byte_bpe(texts(), 300).to_str()


def test_vocabulary_starts_with_end_of_text_and_has_the_size_asked_for():
    tokenizer = train_byte_bpe(texts(), 270)
    assert tokenizer.get_vocab_size() == 270
    assert tokenizer.token_to_id("<|endoftext|>") == 0


def test_the_most_frequent_pair_is_merged_first():
    tokenizer = train_byte_bpe(["xyxyxyxy ab"], 258)
    assert tokenizer.encode("xyab").tokens == ["xy", "a", "b"]


TRAINED = train_byte_bpe(texts(), 300)


@given(st.text())
def test_any_text_comes_back_unchanged(text):
    plain = TRAINED.encode(text, add_special_tokens=False)
    assert TRAINED.decode(plain.ids, skip_special_tokens=False) == text


def test_a_vocabulary_below_the_bytes_is_refused():
    with pytest.raises(SettingError, match="tokenizer vocabulary must be >= 257, got 256"):
        train_byte_bpe(texts(), 256)
