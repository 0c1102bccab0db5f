"""What is tried before training: that a model fits into memory, runs, and keeps documents apart."""

import pytest
import torch

from stickymoe.capture.tiny import tiny_model
from stickymoe.core.errors import CaptureError, SettingError
from stickymoe.experiments import trial
from stickymoe.experiments.architecture import architecture_config, empty_model
from stickymoe.experiments.run_model import build_model
from stickymoe.experiments.trial import require_memory, require_running


def test_a_model_without_sizes_is_refused_before_its_weights_are_made(bare, monkeypatch):
    monkeypatch.setattr(trial, "free_bytes", lambda device: 2**33)
    with pytest.raises(SettingError) as caught:
        build_model(bare("model.architecture=mixtral"), 300)
    assert str(caught.value) == (
        "a model of 46,443 M parameters needs 692.1 GiB to be trained, and 8.0 GiB are free; give smaller sizes in "
        "[model], keys left out have the class' defaults"
    )


def test_the_memory_counted_is_sixteen_bytes_a_parameter(monkeypatch):
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = architecture_config("mixtral", sizes | {"num_key_value_heads": 2}, vocab_size=30, positions=8)
    empty = empty_model("mixtral", config)
    needed = 16 * sum(weight.numel() for weight in empty.parameters())
    monkeypatch.setattr(trial, "free_bytes", lambda device: needed)
    require_memory(empty)
    monkeypatch.setattr(trial, "free_bytes", lambda device: needed - 1)
    with pytest.raises(SettingError, match="GiB are free"):
        require_memory(empty)


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("model.num_attention_heads=3", "makes no mixtral model: .*; change its sizes"),
        ("model.head_dim=7", "makes no mixtral model: .*; change its sizes"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused_in_one_line(mixtral, override, reason):
    with pytest.raises(SettingError, match=reason) as caught:
        build_model(mixtral(override), 300)
    assert "\n" not in str(caught.value)


def test_an_architecture_whose_layers_are_all_dense_is_refused(bare):
    shape = ["hidden_size=16", "intermediate_size=16", "num_hidden_layers=1", "num_attention_heads=2", "head_dim=8"]
    dense = [*shape, "num_key_value_heads=2", "moe_intermediate_size=8", "mlp_only_layers=[0]"]
    with pytest.raises(CaptureError, match="has no router beside experts"):
        build_model(bare("model.architecture=qwen3_moe", *(f"model.{key}" for key in dense)), 300)


@pytest.mark.hf
def test_where_attention_runs_on_across_documents_the_recipe_must_say_so():
    leaking, tight = tiny_model("gpt_oss"), tiny_model("mixtral")
    require_running(tight, documents=True)
    require_running(leaking, documents=False)
    with pytest.raises(SettingError, match=r"data.respect_documents must be false with gpt_oss, .*reset_at_documents"):
        require_running(leaking, documents=True)


@pytest.mark.hf
def test_a_table_of_experts_that_only_pretrained_weights_fill_is_refused():
    model = tiny_model("deepseek_v4")
    require_running(model, documents=False)
    for name, table in model.named_buffers():
        if name.endswith("tid2eid"):
            table.zero_()
    with pytest.raises(SettingError, match="layer 0 gives a token the same expert twice"):
        require_running(model, documents=False)


def test_the_trial_changes_neither_weights_nor_the_random_numbers_to_come():
    model = tiny_model("mixtral").train()
    before, state = [weight.clone() for weight in model.parameters()], torch.get_rng_state()
    require_running(model, documents=True)
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert torch.equal(state, torch.get_rng_state())
    assert model.training
