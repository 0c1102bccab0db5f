"""Samples as tokens: enough of them, within the vocabulary, and nothing left out in silence."""

import numpy as np
import pytest

from stickymoe.core.errors import DataError
from stickymoe.data.byte_bpe import train_byte_bpe
from stickymoe.data.encoding import encode_samples
from stickymoe.data.messages import Message
from stickymoe.data.samples import Sample
from stickymoe.data.tokenizer_choice import as_transformers

TURNS = (
    Message("user", "How much?"),
    Message("assistant", "Two."),
    Message("user", "Why?"),
    Message("assistant", "So"),
)
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
ALTERNATE = "{% if messages[0].role != 'user' %}{{ raise_exception('begin with the user') }}{% endif %}" + TEMPLATE


@pytest.fixture(scope="module")
def bare():
    return train_byte_bpe(["one two three"], 257)


@pytest.fixture
def tokenizer(bare):
    return as_transformers(bare)


def encode(samples, tokenizer, **settings):
    samples = [Sample(f"f line {n}", content) for n, content in enumerate(samples, 1)]
    return encode_samples(samples, tokenizer, **{"vocab_size": 257, "what": "training text"} | settings)


def decoded(tokenizer, text, counted=False):
    return tokenizer.decode(text.tokens[text.counted] if counted else text.tokens)


def test_a_text_ends_with_the_end_of_text_token(tokenizer):
    (text,) = encode(["one"], tokenizer).texts
    assert decoded(tokenizer, text) == "one<|endoftext|>"
    assert text.counted is None
    assert (text.tokens.dtype, text.num_targets) == (np.int32, 3)


def test_a_conversation_goes_through_the_template_which_writes_all_special_tokens_itself(tokenizer):
    tokenizer.chat_template = TEMPLATE
    found = encode([TURNS], tokenizer)
    assert decoded(tokenizer, found.texts[0]) == "<user>How much?<assistant>Two.<user>Why?<assistant>So"
    assert found.notes == ()


def test_without_a_template_turns_are_plain_words_and_that_is_said(tokenizer):
    found = encode([TURNS[:2], TURNS[2:]], tokenizer)
    assert decoded(tokenizer, found.texts[0]) == "user: How much?\nassistant: Two.\n<|endoftext|>"
    assert found.notes == (
        "the tokenizer has no chat template: 2 conversations of the training text are written as 'role: words'",
    )


@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_the_loss_on_the_assistant_counts_its_words_alone(tokenizer, template):
    tokenizer.chat_template = template
    (text,) = encode([TURNS], tokenizer, loss_on="assistant").texts
    said = decoded(tokenizer, text, counted=True)
    assert said == ("Two.So" if template else "Two.\nSo\n")
    assert 0 < text.num_targets < len(text.tokens) - 1


def test_a_template_that_rewrites_the_past_cannot_tell_the_assistants_words(tokenizer):
    tokenizer.chat_template = "{{ messages | length }}" + TEMPLATE
    with pytest.raises(DataError, match=r"must have a text of at least two tokens, got none: f line 1: the chat templ"):
        encode([TURNS], tokenizer, loss_on="assistant")


def test_conversations_that_the_template_refuses_are_counted_and_the_first_is_told(tokenizer):
    tokenizer.chat_template = ALTERNATE
    found = encode([TURNS, TURNS[1:], TURNS[1:]], tokenizer)
    assert len(found.texts) == 1
    assert found.notes == (
        "left out 2 conversations of the training text, the first since f line 2 is not taken by the tokenizer's chat "
        "template: begin with the user",
    )
    with pytest.raises(DataError, match=r"got none: f line 1 is not taken .*: begin with the user$"):
        encode([TURNS[1:]], tokenizer)


def test_rows_of_one_token_predict_nothing_and_are_counted(tokenizer):
    tokenizer.eos_token = None
    found = encode(["one", "a", "b"], tokenizer)
    assert len(found.texts) == 1
    assert found.notes == ("left out 2 rows of the training text that hold one token or none",)
    with pytest.raises(DataError, match="must have a text of at least two tokens, got none: 1 rows hold one token"):
        encode(["a"], tokenizer)


def test_labels_all_masked_are_refused(tokenizer):
    with pytest.raises(DataError, match="must have a token to predict, got labels that are all masked; take the loss"):
        encode(["one", TURNS[:1]], tokenizer, loss_on="assistant")


def test_a_tokenizer_that_does_not_fit_is_refused_with_the_id_and_the_place(tokenizer):
    with pytest.raises(DataError, match=r"embeds 100 tokens, got id \d+ in f line 2; name the tokenizer"):
        encode(["!!", "ü"], tokenizer, vocab_size=100)


def test_it_stops_when_there_are_enough_and_says_so(tokenizer):
    found = encode(["one"] * 9, tokenizer, at_most=10)
    assert (len(found.texts), found.num_tokens, found.whole) == (3, 12, False)
    assert encode(["one"] * 3, tokenizer, at_most=10).whole


def test_of_a_text_much_longer_than_the_room_only_a_beginning_is_read(tokenizer):
    (text,) = encode(["one two " * 10_000], tokenizer, at_most=10).texts
    assert 10 <= len(text.tokens) <= 10 * 64
    assert text.tokens[-1] != tokenizer.eos_token_id


def test_a_seed_draws_the_order(tokenizer):
    words = [f"w{n}" for n in range(9)]
    orders = [
        [decoded(tokenizer, text)[:2] for text in encode(words, tokenizer, seed=seed).texts] for seed in (None, 1, 1, 2)
    ]
    assert orders[0] == words
    assert orders[1] == orders[2] != orders[3]
    assert sorted(orders[1]) == words
