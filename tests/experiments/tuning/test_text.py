"""The text of a tuning: rows within the budget, steps that read it, and what a user should be told."""

import pytest

from stickymoe.core.errors import DataError, SettingError
from stickymoe.data.rows import PackedRows, PaddedRows
from stickymoe.data.samples import load_samples
from stickymoe.experiments.tuning.text import prepare_text, vocabulary_of

pytestmark = pytest.mark.hf


def prepare(small, model=None, **changes):
    samples = load_samples(small.text)
    return prepare_text(samples, small.tokenizer(), model or small.model(), small.settings(**changes), lambda *_: None)


@pytest.mark.parametrize(("packed", "kind"), [(True, PackedRows), (False, PaddedRows)])
def test_rows_hold_the_budget_and_steps_read_it(small, packed, kind):
    found = prepare(small, packed=packed, tokens=500)
    assert isinstance(found.train, kind)
    rows = found.train.row_tokens()
    assert 480 <= rows.sum() < 560
    read = found.steps * rows.sum() / -(-len(rows) // 2)
    assert 500 <= read < 500 + rows.max() * 4
    assert found.facts["train"]["tokens"] == found.train.num_tokens
    assert found.facts["sequence_length"] == 16


def test_a_text_shorter_than_the_budget_is_read_again_and_that_is_said(small):
    found = prepare(small, tokens=20_000)
    tokens = found.train.num_tokens
    assert found.notes == (f"the text has {tokens:,} tokens to train on: it is read {20_000 / tokens:.1f} times over",)
    assert found.steps == pytest.approx(20_000 / 32, rel=0.1)


def test_held_out_rows_stay_within_their_budget_and_are_of_many_documents(small):
    found = prepare(small, evaluation_tokens=20)
    assert 2 <= found.held_out.num_tokens <= 20
    all_of_it = prepare(small, evaluation_tokens=10_000).held_out
    documents = found.held_out.row_documents().tolist()
    assert len(set(documents)) == len(documents) or len(set(documents)) == len(set(all_of_it.row_documents().tolist()))


def test_rows_are_as_long_as_the_model_can_take_if_nobody_says(small):
    assert prepare(small, sequence_length=None).train.seq_len == 64
    with pytest.raises(SettingError, match=r"tune.sequence_length must be <= 64, the model's positions, got 65"):
        prepare(small, sequence_length=65)


def test_a_tokenizer_that_does_not_fit_the_model_is_refused(small):
    model = small.model(vocab_size=100)
    assert vocabulary_of(model) == 100
    with pytest.raises(DataError, match="the tokenizer must fit the model, which embeds 100 tokens, got id"):
        prepare(small, model)
