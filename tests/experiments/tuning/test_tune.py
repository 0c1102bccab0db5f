"""A whole tuning: three measured models from one start, equal batches for both arms, a proof, and going on."""

import json
import signal

import pytest
import torch
from safetensors.torch import load_file

from stickymoe.capture.opening import open_model
from stickymoe.core.errors import SettingError
from stickymoe.data.samples import load_samples
from stickymoe.experiments.tuning import run as run_module
from stickymoe.experiments.tuning.table import tuning_table
from stickymoe.experiments.tuning.tune import tune
from stickymoe.traces import RoutingTrace
from stickymoe.training import Interrupted

pytestmark = pytest.mark.hf


def seen_batches(model):
    """Note the tokens of every pass in training, until the hook is removed."""
    batches = []

    def note(module, args, kwargs):
        if module.training:
            batches.append(kwargs["input_ids"].clone())

    return batches, model.register_forward_pre_hook(note, with_kwargs=True)


def test_both_arms_read_the_same_batches_and_only_routers_differ_from_the_checkpoint(small, tmp_path):
    opened = small.open()
    batches, hook = seen_batches(opened.model)
    told, said = [], []
    out = tmp_path / "out"
    result = tune(
        opened, load_samples(small.text), out, small.settings(), say=said.append, progress=lambda *t: told.append(t)
    )
    hook.remove()
    assert list(result.arms) == ["baseline", "control", "tuned"]
    batches = batches[1:]  # a short pass ahead of all
    half = len(batches) // 2
    assert half > result.content["steps"] > 4
    assert all(torch.equal(one, other) for one, other in zip(batches[:half], batches[half:], strict=True))
    gates = [f"model.layers.{layer}.mlp.gate.weight" for layer in range(3)]
    assert result.proof.chosen == result.proof.moved == gates
    assert result.content["on_disk"]["changed"] == [name.replace("mlp", "block_sparse_moe") for name in gates]
    assert result.content["on_disk"]["missing"] == []
    control, tuned = (load_file(out / arm / "chosen.safetensors") for arm in ("control", "tuned"))
    saved = open_model(out / "model", device="cpu").model
    for name in gates:
        assert torch.equal(saved.get_parameter(name), tuned[name])
        assert not torch.equal(control[name], tuned[name])
    assert json.loads((out / "tuning.json").read_text()) == json.loads(json.dumps(result.content))
    for arm, found in result.arms.items():
        assert RoutingTrace.load(out / arm / "trace.parquet").num_tokens == found.sizes["tokens"]
    assert set(result.content["cross_entropy_difference"]) == {"tuned - baseline", "tuned - control"}
    assert {what for what, _, _ in told} >= {"training control", "training tuned", "measuring tuned"}
    assert ["little will change" in line for line in said] == [False, True]
    assert said[0].startswith("ReMoE: reuse mass, ")
    assert "CE only" in [column.header for column in tuning_table(result.arms).columns]


def test_stopped_in_the_second_arm_it_goes_on_and_ends_as_if_unbroken(small, tmp_path, monkeypatch):
    samples, settings = load_samples(small.text), small.settings("paper")
    straight = tune(small.open(), samples, tmp_path / "straight", settings, save_model=False)

    def stopping(what, done, total):
        if what == "training tuned" and done == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match=r"saved in .*tuned/checkpoint-4"):
        tune(small.open(), samples, tmp_path / "broken", settings, save_model=False, progress=stopping)
    with pytest.raises(SettingError, match=r"^out must be a new or empty folder, .*or resume with --resume"):
        tune(small.open(), samples, tmp_path / "broken", settings)
    with pytest.raises(SettingError, match=r"^learning_rate must be as when .* began, got 0.5, it began with 0.01"):
        tune(small.open(), samples, tmp_path / "broken", small.settings("paper", learning_rate=0.5), resume=True)
    with monkeypatch.context() as patch:
        read = []
        patch.setattr(run_module, "read_held_out", lambda *given, **named: read.append(1) or original(*given, **named))
        again = tune(small.open(), samples, tmp_path / "broken", settings, resume=True, save_model=False)
    assert read == [1]  # the baseline and the control were measured before
    assert again.arms == straight.arms
    assert again.proof == straight.proof
    assert not (tmp_path / "broken" / "model").exists()


original = run_module.read_held_out


def test_without_a_control_and_with_adapters_the_merged_model_can_be_opened(small, tmp_path):
    pytest.importorskip("peft")
    settings = small.settings(control=False, lora=2, packed=False)
    result = tune(small.open(), load_samples(small.text), tmp_path / "out", settings)
    assert list(result.arms) == ["baseline", "tuned"]
    assert sum("lora_" in name for name in result.proof.moved) == 2 * 4 * 3
    saved = open_model(tmp_path / "out" / "model", device="cpu").model
    assert not [name for name, _ in saved.named_parameters() if "lora" in name]
    changed = result.content["on_disk"]["changed"]
    assert {name.split(".")[-2] for name in changed} == {"gate", "q_proj", "k_proj", "v_proj", "o_proj"}


def test_the_models_own_balance_is_off_while_it_trains_and_as_it_was_in_what_is_saved(small, tmp_path):
    opened = small.open()
    opened.model.config.output_router_logits = True
    seen = []
    opened.model.register_forward_hook(lambda module, _, out: seen.append((module.training, out.get("aux_loss"))))
    tune(opened, load_samples(small.text), tmp_path / "out", small.settings(control=False))
    assert [aux for training, aux in seen if training] == [None] * sum(training for training, _ in seen)
    assert opened.model.config.output_router_logits is True
    assert json.loads((tmp_path / "out" / "model" / "config.json").read_text())["output_router_logits"] is True


def test_a_tuning_too_short_to_move_anything_says_so():
    start = {"gate.weight": torch.full((4, 4), 0.02), "q_proj.lora_A.default.weight": torch.full((4,), 100.0)}
    (note,) = run_module.reach_notes(start, 5e-5, 20)
    assert note == (
        "20 steps at a peak rate of 5e-05 can move a router's weights by some 0.0006, and these are 0.02 on average: "
        "little will change; give more tokens or a higher learning rate"
    )
    assert not list(run_module.reach_notes(start, 5e-5, 2000))


def test_several_processes_are_refused(small, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SettingError, match="WORLD_SIZE must be 1, since tuning runs in one process, got '2'"):
        tune(small.open(), load_samples(small.text), tmp_path / "out", small.settings())
    assert not (tmp_path / "out").exists()
