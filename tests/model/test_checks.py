"""Bad input to a forward pass: one line that says what, the rule, the value and the way out."""

import pytest
import torch

from stickymoe.core.errors import SettingError


@pytest.fixture
def refused(tiny_model):
    def check(message, *args, **kwargs):
        with pytest.raises(SettingError) as caught:
            tiny_model()(*args, **kwargs)
        assert str(caught.value) == message

    return check


def test_a_sequence_longer_than_the_positions(refused, token_ids):
    refused(
        "sequence length must be <= max_position_embeddings (24), got 25; shorten or split the text", token_ids(1, 25)
    )


def test_positions_beyond_the_table(refused, token_ids):
    message = "sequence length must be <= max_position_embeddings (24), got 31; shorten or split the text"
    refused(message, token_ids(1, 2), position_ids=torch.tensor([[29, 30]]))


@pytest.mark.parametrize("wrong", [37, -1])
def test_token_ids_outside_the_vocabulary(refused, wrong):
    message = f"input_ids must be in [0, 37), got {wrong}; use the tokenizer the model was made for"
    refused(message, torch.tensor([[1, wrong]]))


def test_an_empty_sequence(refused, token_ids):
    refused("sequence length must be >= 1, got 0; give at least one token", token_ids(2, 0))


def test_labels_outside_the_vocabulary(refused, token_ids):
    message = "labels must be in [0, 37) or -100, got 99; use the tokenizer the model was made for"
    refused(message, token_ids(1, 3), labels=torch.tensor([[1, 99, 3]]))


def test_a_mask_of_another_length(refused, token_ids):
    message = "attention_mask must be of shape (1, 3), cache and input, got (1, 2)"
    refused(message, token_ids(1, 3), attention_mask=torch.ones(1, 2))


@pytest.mark.parametrize(
    ("unknown", "message"),
    [
        ({"lables": 1}, "lables is no argument of the model; did you mean 'labels'?"),
        ({"past_key_values": 1}, "past_key_values is no argument of the model; transformers 5.24 calls it cache"),
        ({"output_attentions": True}, "output_attentions is no argument of the model; attention scores are not kept"),
        ({"xyz": 1}, "xyz is no argument of the model; leave it out"),
    ],
)
def test_an_argument_nobody_reads(refused, token_ids, unknown, message):
    refused(message, token_ids(1, 3), **unknown)


def test_what_tokenizers_and_collators_add_for_other_models_is_let_through(tiny_model, token_ids):
    model = tiny_model().eval()
    plain = model(token_ids(1, 3)).logits
    extra = model(token_ids(1, 3), token_type_ids=torch.zeros(1, 3), output_attentions=None).logits
    assert torch.equal(plain, extra)


def test_neither_or_both_kinds_of_input(refused, token_ids):
    message = "give the model either input_ids or inputs_embeds, not both and not neither"
    refused(message)
    refused(message, token_ids(1, 3), inputs_embeds=torch.zeros(1, 3, 12))


def test_packed_documents_with_a_cache(refused, token_ids):
    message = "packed documents cannot be continued from a cache; generate each document on its own"
    refused(message, token_ids(1, 3), document_ids=torch.tensor([[0, 0, 1]]), use_cache=True)
