"""The model of a run: shaped by the recipe, seeded by it, saved whole, refused by name."""

import json
import shutil

import pytest
import torch
from safetensors import SafetensorError

from stickymoe.core.errors import CaptureError, CheckpointError, SettingError, StorageError
from stickymoe.experiments.recipe_file import build_recipe
from stickymoe.experiments.run_model import build_model, load_model, load_tokenizer, model_config, save_model


def shape(*overrides):
    return model_config(build_recipe({}, overrides), 300)


def test_a_preset_gives_the_shape_and_other_keys_replace_parts_of_it():
    config = shape("model.preset=paper-medium", "model.num_experts=8", "model.hidden_size=64")
    assert (config.num_experts, config.hidden_size, config.expert_intermediate_size) == (8, 64, 1024)
    assert config.vocab_size == 300


def test_without_a_preset_keys_stand_alone_and_positions_cover_the_sequence():
    assert shape("model.num_hidden_layers=1", "data.sequence_length=16").max_position_embeddings == 256
    assert shape("data.sequence_length=1000").max_position_embeddings == 1000


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.num_experts_per_tok=5"], r"model\.num_experts_per_tok must be <= model\.num_experts \(4\), got 5"),
        (["model.preset=paper-smal"], "model.preset must be one of .* did you mean 'paper-small'"),
        (
            ["model.router_type=sigmoid"],
            "model.router_type must be one of hard_window, hash, hysteresis, softmax, trajectory, got 'sigmoid'",
        ),
        (["model.hidden_size=15"], "model.hidden_size must be a multiple of num_attention_heads"),
        (
            ["model.max_position_embeddings=32", "data.sequence_length=33"],
            r"data\.sequence_length must be <= model\.max_position_embeddings \(32\), got 33",
        ),
    ],
)
def test_a_shape_that_breaks_a_rule_is_refused(overrides, message):
    with pytest.raises(SettingError, match=message):
        shape(*overrides)


def test_the_seed_decides_the_weights(tiny):
    first, again, other = (build_model(recipe, 50).state_dict() for recipe in (tiny(), tiny(), tiny("training.seed=7")))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_a_loaded_model_is_ready_to_evaluate(trained):
    assert not load_model(trained / "run").training


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"), SafetensorError("I/O error: No space left on device (os error 28)")],
)
def test_a_full_disk_leaves_the_old_model_and_no_litter(run_copy, monkeypatch, error):
    model, tokenizer = load_model(run_copy), load_tokenizer(run_copy)

    def refuse(folder):
        raise error

    monkeypatch.setattr(tokenizer, "save_pretrained", refuse)
    before = sorted(path.name for path in run_copy.iterdir())
    with pytest.raises(StorageError, match=r"could not write .*model: no space left on device; .*--resume"):
        save_model(model, tokenizer, run_copy / "model")
    assert sorted(path.name for path in run_copy.iterdir()) == before
    load_model(run_copy), load_tokenizer(run_copy)


def test_an_error_that_is_no_refusal_keeps_its_type(run_copy, monkeypatch):
    model, tokenizer = load_model(run_copy), load_tokenizer(run_copy)
    monkeypatch.setattr(model, "save_pretrained", lambda folder: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_model(model, tokenizer, run_copy / "model")


def test_a_model_of_another_architecture_is_refused_by_name(run_copy):
    (run_copy / "model" / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(CaptureError, match="holds a dense model, GPT2LMHeadModel"):
        load_model(run_copy)


def test_weights_of_another_shape_are_refused_by_name(run_copy):
    path = run_copy / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"expert_intermediate_size": 32}))
    with pytest.raises(CheckpointError, match=r"must be of shape .* by its config"):
        load_model(run_copy)


@pytest.mark.parametrize("junk", [b"", b"xx", bytes(100)])
def test_damaged_weights_are_refused_with_a_way_out(run_copy, junk):
    (run_copy / "model" / "model.safetensors").write_bytes(junk)
    with pytest.raises(CheckpointError, match=r"safetensors .*, or delete .*model and resume the run"):
        load_model(run_copy)


def test_a_missing_or_damaged_tokenizer_is_refused_by_name(run_copy):
    path = run_copy / "model" / "tokenizer.json"
    path.write_text("{")
    with pytest.raises(CheckpointError, match=r"the tokenizer in .* cannot be read"):
        load_tokenizer(run_copy)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"holds no tokenizer\.json"):
        load_tokenizer(run_copy)
    shutil.rmtree(run_copy / "model")
    with pytest.raises(CheckpointError, match="holds an unfinished run"):
        load_tokenizer(run_copy)
