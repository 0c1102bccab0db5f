"""Which tokens end a sentence or a line."""

import pytest


@pytest.fixture
def tokenizer(letters):
    from stickymoe.data import load_corpus

    (letters / "0.txt").write_text('He said "yes." She (never!) asked why? I know. Pi is 3.14, mr. Fox.\n\n' * 30)
    return load_corpus(str(letters), tokenizer="bpe-400").tokenizer


def test_exactly_the_tokens_that_end_a_sentence_or_line_are_found(tokenizer):
    from stickymoe.data.boundaries import boundary_token_ids

    found = set(boundary_token_ids(tokenizer))
    for token in range(len(tokenizer)):
        text = tokenizer.decode([token])
        bare = text
        while bare and bare[-1] in " \"')\u2019\u201d":
            bare = bare[:-1]
        assert (token in found) == ("\n" in text or (bare[-1:] in (".", "!", "?") and bare != "")), repr(text)


@pytest.mark.parametrize("text", [".", "!", "?", "\n", ". \n"])
def test_the_last_token_of_an_end_is_a_boundary(tokenizer, text):
    from stickymoe.data.boundaries import boundary_token_ids

    assert tokenizer(f"weather{text}").input_ids[-1] in boundary_token_ids(tokenizer)


@pytest.mark.parametrize("text", ["a", ",", " ", '"', ")", ";"])
def test_words_commas_and_lone_quotes_are_none(tokenizer, text):
    from stickymoe.data.boundaries import boundary_token_ids

    assert tokenizer(text).input_ids[-1] not in boundary_token_ids(tokenizer)
