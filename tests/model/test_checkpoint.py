"""Saving and loading: bit-equal, tied weights stored once, and one line where a checkpoint cannot be used."""

import io
import json
import logging

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from stickymoe.core.errors import CheckpointError, StickyMoEError
from stickymoe.model import StickyMoEForCausalLM, StickyMoEModel


@pytest.fixture
def saved(tiny_model, tmp_path):
    tiny_model().save_pretrained(tmp_path)
    return tmp_path


def refusal(folder):
    report = io.StringIO()
    handler = logging.StreamHandler(report)
    logging.getLogger("transformers").addHandler(handler)
    try:
        with pytest.raises(CheckpointError) as caught:
            StickyMoEForCausalLM.from_pretrained(folder)
    finally:
        logging.getLogger("transformers").removeHandler(handler)
    assert report.getvalue() == "", "the one line must be the only one"
    assert isinstance(caught.value, StickyMoEError)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    return str(caught.value)


def rewrite_config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_a_saved_model_comes_back_bit_by_bit(tiny_model, token_ids, saved):
    model, loaded = tiny_model().eval(), StickyMoEForCausalLM.from_pretrained(saved)
    assert not loaded.training
    weights, loaded_weights = model.state_dict(), loaded.state_dict()
    assert weights.keys() == loaded_weights.keys()
    for name, weight in weights.items():
        assert torch.equal(weight, loaded_weights[name]), name
    assert torch.equal(model(token_ids(1, 5)).logits, loaded(token_ids(1, 5)).logits)
    assert loaded.config.to_diff_dict().items() >= {"num_experts": 5, "hidden_size": 12}.items()


def test_the_tied_embedding_is_stored_once_and_tied_again(saved):
    with safe_open(saved / "model.safetensors", "pt") as file:
        names = set(file.keys())
    assert "model.token_embedding.weight" in names
    assert "lm_head.weight" not in names
    loaded = StickyMoEForCausalLM.from_pretrained(saved)
    assert loaded.lm_head.weight is loaded.model.token_embedding.weight


def test_untied_embeddings_are_stored_both(tiny_model, tmp_path):
    model = tiny_model(tie_word_embeddings=False)
    model.save_pretrained(tmp_path)
    loaded = StickyMoEForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)
    assert not torch.equal(loaded.lm_head.weight, loaded.model.token_embedding.weight)


def test_loading_in_another_precision(saved):
    assert StickyMoEForCausalLM.from_pretrained(saved, dtype=torch.bfloat16).dtype == torch.bfloat16


def test_loading_info_is_given_on_request(saved):
    model, info = StickyMoEForCausalLM.from_pretrained(saved, output_loading_info=True)
    assert isinstance(model, StickyMoEForCausalLM)
    assert not info["missing_keys"]


def test_a_missing_folder(tmp_path):
    refusal(tmp_path / "nowhere")


def test_a_folder_without_weights(saved):
    (saved / "model.safetensors").unlink()
    refusal(saved)


def test_damaged_weights(saved):
    file = saved / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    refusal(saved)


def test_a_damaged_config(saved):
    (saved / "config.json").write_text('{"model_type": "sticky_mo')
    refusal(saved)


def test_weights_of_another_shape(saved):
    rewrite_config(saved, expert_intermediate_size=11)
    message = refusal(saved)
    assert "model.layers.0.moe.experts.down_proj must be of shape (5, 12, 11) by its config, got (5, 12, 10)" in message


def test_another_number_of_layers_lacks_weights(saved):
    rewrite_config(saved, num_hidden_layers=3)
    message = refusal(saved)
    assert "model.layers.2.attention.out_proj.bias and " in message
    assert message.endswith(" other weights are missing")


def test_layers_the_config_does_not_know_are_not_dropped(saved):
    rewrite_config(saved, num_hidden_layers=1)
    message = refusal(saved)
    assert "model.layers.1.attention.out_proj.bias and " in message
    assert message.endswith(" other weights are not of this model")


def test_the_body_alone_can_be_loaded_from_the_whole(tiny_model, token_ids, tmp_path):
    model = tiny_model(tie_word_embeddings=False).eval()
    model.save_pretrained(tmp_path)
    body = StickyMoEModel.from_pretrained(tmp_path)
    ids = token_ids(1, 5)
    assert torch.equal(body(ids).last_hidden_state, model(ids).last_hidden_state)


def test_a_checkpoint_that_lacks_a_weight_is_not_filled_with_random_ones(saved):
    file = saved / "model.safetensors"
    weights = load_file(file)
    del weights["model.layers.1.moe.router.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    assert "model.layers.1.moe.router.weight and 0 other weights are missing" in refusal(saved)


def test_whoever_asks_for_it_may_load_what_fits_and_sees_the_report(saved, caplog):
    rewrite_config(saved, expert_intermediate_size=11)
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        model = StickyMoEForCausalLM.from_pretrained(saved, ignore_mismatched_sizes=True)
    finally:
        logger.removeHandler(caplog.handler)
    assert model.model.layers[0].moe.experts.up_proj.shape == (5, 11, 12)
    assert "LOAD REPORT" in caplog.text


def test_another_architecture(saved):
    rewrite_config(saved, model_type="gpt2")
    assert "must hold a model of type sticky_moe, got 'gpt2'" in refusal(saved)
