"""Opening checkpoints: what is whole opens and can be captured, what is not ends in one line before weights load."""

import json
import shutil

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from stickymoe.capture import capture_routing
from stickymoe.capture.opening import memory, open_model, place, require_choice
from stickymoe.capture.opening.weights import read_weights
from stickymoe.capture.tiny import families, tiny_config, tiny_model
from stickymoe.core.errors import CaptureError, CheckpointError, SettingError
from stickymoe.model import StickyMoEConfig, StickyMoEForCausalLM

pytestmark = pytest.mark.hf


def refused(kind, name, **settings):
    with pytest.raises(kind) as caught:
        open_model(name, device="cpu", **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_checkpoint_of_several_shards_opens_as_it_was_saved(checkpoint):
    opened = open_model(checkpoint, device="cpu")
    expected = tiny_model("mixtral", vocab_size=288).state_dict()
    found = opened.model.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert not opened.model.training
    assert opened.folder == checkpoint
    with capture_routing(opened.model) as capture:
        opened.model(**opened.tokenizer("the expert that stays", return_tensors="pt"))
    assert capture.routing.num_layers == 3


def test_the_model_inside_a_run_folder_is_found(checkpoint, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.toml").write_text("")
    assert "unfinished run" in refused(CheckpointError, run)
    checkpoint.rename(run / "model")
    assert open_model(str(run), device="cpu").folder == run / "model"


def test_training_gets_float32_and_training_mode_recording_what_was_saved(tokenizer, tmp_path):
    tiny_model("qwen3_moe", vocab_size=288).bfloat16().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert open_model(tmp_path, device="cpu").model.dtype == torch.bfloat16
    tuned = open_model(tmp_path, device="cpu", for_training=True).model
    assert (tuned.dtype, tuned.training) == (torch.float32, True)
    assert open_model(tmp_path, device="cpu", dtype="float16").model.dtype == torch.float16


@pytest.mark.parametrize("family", ["deepseek_v3", "gpt_oss"])
def test_other_families_open_too(tokenizer, tmp_path, family):
    tiny_model(family, vocab_size=288).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert open_model(tmp_path, device="cpu").model.config.model_type == family


def test_what_is_no_checkpoint_is_told_from_what_is_not_there(tmp_path, checkpoint):
    assert "does not exist" in refused(CheckpointError, tmp_path / "nothing")
    assert "no config.json" in refused(CheckpointError, tmp_path)
    assert "got a file" in refused(CheckpointError, checkpoint / "config.json")
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "adapter" in refused(CheckpointError, tmp_path)
    (tmp_path / "adapter_config.json").unlink()
    (tmp_path / "model.gguf").write_text("")
    assert "GGUF" in refused(CheckpointError, tmp_path)


def test_a_name_on_a_hub_that_does_not_answer_is_told(monkeypatch):
    def unreachable(*_):
        raise place.HubUnreachable("hub not reachable: no network")

    monkeypatch.setattr(place, "download", unreachable)
    assert "no network" in refused(CheckpointError, "somebody/some-model")


def test_from_the_hub_everything_but_the_weights_is_looked_at_first(checkpoint, tmp_path, monkeypatch):
    hub, asked = tmp_path / "snapshot", []

    def snapshot(name, allow_patterns, local_files_only=False):
        asked.append(tuple(allow_patterns))
        hub.mkdir(exist_ok=True)
        for pattern in allow_patterns:
            for path in checkpoint.glob(pattern):
                shutil.copy(path, hub)
        return str(hub)

    monkeypatch.setattr(place, "download", lambda name, file, kind: checkpoint / file)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    opened = open_model("somebody/mixtral", device="cpu")
    assert (opened.name, opened.folder) == ("somebody/mixtral", hub)
    assert ["*.safetensors" in patterns for patterns in asked] == [False, True]
    tiny_config("doge").save_pretrained(checkpoint)
    refused(CaptureError, "somebody/mixtral")
    assert not any("*.safetensors" in patterns for patterns in asked[2:])


def test_a_hub_that_breaks_off_is_told_in_one_line(monkeypatch, checkpoint):
    def broken(*_, **__):
        raise RuntimeError("403 Client Error\nlong story")

    monkeypatch.setattr(place, "download", lambda name, file, kind: checkpoint / file)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", broken)
    assert "403 Client Error; give the path" in refused(CheckpointError, "somebody/mixtral")


def test_four_bit_weights_are_counted_as_what_they_become(checkpoint, edit, monkeypatch):
    values = sum(tensor.values for tensor in read_weights(checkpoint).tensors.values())
    monkeypatch.setattr(memory, "available_ram_bytes", lambda: values * 2)
    edit(checkpoint / "config.json", quantization_config={"quant_method": "mxfp4"})
    assert "unpacked from 4 bits" in refused(CheckpointError, checkpoint)
    edit(checkpoint / "config.json", quantization_config={"quant_method": "awq", "bits": 4})
    assert "quantised form" in refused(CheckpointError, checkpoint)


def test_a_dense_model_is_refused_before_its_weights_are_looked_for(tokenizer, tmp_path):
    AutoConfig.for_model(
        "llama", vocab_size=288, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2
    ).save_pretrained(tmp_path)
    assert "dense model, LlamaForCausalLM" in refused(CaptureError, tmp_path)


@pytest.mark.parametrize("experts", [1, 2])
def test_a_model_whose_experts_serve_every_token_opens_and_leaves_nothing_to_choose(tokenizer, tmp_path, experts):
    sizes = {"vocab_size": 288, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    control = StickyMoEConfig(**sizes, num_experts=experts, num_experts_per_tok=experts)
    StickyMoEForCausalLM(control).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    opened = open_model(tmp_path, device="cpu")
    with pytest.raises(CaptureError, match="dense in effect"):
        require_choice(opened.model.config, "control")


@pytest.mark.parametrize("family", families())
def test_models_that_choose_are_not_taken_for_dense_ones(family):
    require_choice(tiny_config(family), family)


def test_a_family_that_is_refused_says_why(tmp_path):
    tiny_config("doge").save_pretrained(tmp_path)
    assert "mixes the scores of different tokens" in refused(CaptureError, tmp_path)


def test_an_encoder_decoder_is_no_model_that_reads_on(tmp_path):
    tiny_config("switch_transformers").save_pretrained(tmp_path)
    assert "encoder-decoder" in refused(CheckpointError, tmp_path)


def test_code_that_comes_with_a_checkpoint_is_never_run(checkpoint, edit):
    mine = checkpoint / "modeling_mine.py"
    mine.write_text("raise SystemExit('executed')")
    remote = {"AutoConfig": "modeling_mine.Config", "AutoModelForCausalLM": "modeling_mine.Model"}
    edit(checkpoint / "config.json", auto_map=remote)
    edit(checkpoint / "tokenizer_config.json", auto_map={"AutoTokenizer": ["modeling_mine.Tokenizer", None]})
    assert type(open_model(checkpoint, device="cpu").model).__name__ == "MixtralForCausalLM"
    edit(checkpoint / "config.json", model_type="mine")
    assert "never run" in refused(CheckpointError, checkpoint)


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ({"model_type": "mixtrel"}, "did you mean 'mixtral'?"),
        ({"model_type": None}, "must name its model_type"),
        ({"model_type": 7}, "must name its model_type"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"num_local_experts": -1}, "describes no model"),
        ({"num_attention_heads": 0}, "config.json"),
    ],
)
def test_a_config_that_breaks_its_rules_is_told(checkpoint, edit, entries, told):
    edit(checkpoint / "config.json", **entries)
    assert told in refused(CheckpointError, checkpoint)


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000])
def test_a_config_that_is_no_json_object_is_told(checkpoint, text):
    (checkpoint / "config.json").write_text(text)
    assert "config.json" in refused(CheckpointError, checkpoint)


def test_missing_shards_are_counted_and_the_first_named(checkpoint):
    shards = sorted(checkpoint.glob("model-*.safetensors"))
    assert len(shards) > 2
    for shard in shards[1:3]:
        shard.unlink()
    told = refused(CheckpointError, checkpoint)
    assert f"lacks 2 of {len(shards)} files" in told
    assert shards[1].name in told


@pytest.mark.parametrize("kept", [0, 4, 300, -1])
def test_a_shard_cut_short_is_told_with_its_bytes(checkpoint, kept):
    shard = min(checkpoint.glob("model-*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:kept])
    assert shard.name in refused(CheckpointError, checkpoint)


def test_a_shard_that_lies_about_its_header_allocates_nothing(checkpoint):
    shard = min(checkpoint.glob("model-*.safetensors"))
    shard.write_bytes((2**62).to_bytes(8, "little") + b"x" * 100)
    assert "by its header" in refused(CheckpointError, checkpoint)


def test_an_index_that_points_elsewhere_or_names_too_much_is_told(checkpoint):
    index = checkpoint / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    place_of = content["weight_map"]
    some = min(place_of)
    for broken, told in (
        ({**place_of, some: "../elsewhere.safetensors"}, "beside it"),
        ({**place_of, "more.weight": place_of[some]}, "lacks more.weight"),
        ({}, "weight_map"),
        ({some: 3}, "weight_map"),
    ):
        index.write_text(json.dumps({**content, "weight_map": broken}))
        assert told in refused(CheckpointError, checkpoint)


def test_weights_that_the_checkpoint_lacks_are_not_drawn_at_random(checkpoint):
    tensors = {}
    for shard in checkpoint.glob("model-*.safetensors"):
        tensors |= load_file(shard)
        shard.unlink()
    (checkpoint / "model.safetensors.index.json").unlink()
    tensors.pop("model.norm.weight")
    save_file(tensors, checkpoint / "model.safetensors", {"format": "pt"})
    assert "model.norm.weight" in refused(CheckpointError, checkpoint)


def test_weights_of_another_shape_than_the_config_says_are_told(checkpoint, edit):
    edit(checkpoint / "config.json", num_local_experts=6)
    assert "shape" in refused(CheckpointError, checkpoint)


def test_pickled_weights_are_not_opened(checkpoint):
    for path in checkpoint.glob("model*"):
        path.unlink()
    assert "model.safetensors" in refused(CheckpointError, checkpoint)
    (checkpoint / "pytorch_model.bin").write_bytes(b"")
    assert "pickled" in refused(CheckpointError, checkpoint)


def test_the_memory_needed_is_what_the_weights_will_take(checkpoint, monkeypatch):
    model = open_model(checkpoint, device="cpu").model
    stored = read_weights(checkpoint)
    assert stored.bytes_in(None) == sum(tensor.nbytes for tensor in model.state_dict().values())
    assert stored.bytes_in(torch.bfloat16) == stored.bytes_in(None) // 2
    assert stored.dtype == torch.float32
    needed = stored.bytes_in(None)
    monkeypatch.setattr(memory, "available_ram_bytes", lambda: needed)
    told = refused(CheckpointError, checkpoint)
    assert "GiB of memory for its weights in float32" in told
    assert open_model(checkpoint, device="cpu", dtype="bfloat16").model.dtype == torch.bfloat16


def test_a_tokenizer_that_is_missing_damaged_or_larger_than_the_vocabulary_is_told(checkpoint, tmp_path):
    tokenizer = checkpoint / "tokenizer.json"
    whole = tokenizer.read_text()
    tokenizer.write_text(whole[: len(whole) // 2])
    assert "cannot be read" in refused(CheckpointError, checkpoint)
    tokenizer.unlink()
    assert "holds no tokenizer" in refused(CheckpointError, checkpoint)
    tokenizer.write_text(whole)
    small = tmp_path / "small"
    tiny_model("mixtral").save_pretrained(small)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (small / name).write_text((checkpoint / name).read_text())
    largest = len(open_model(checkpoint, device="cpu").tokenizer) - 1
    assert f"vocabulary has 64 tokens: its ids go up to {largest}" in refused(CheckpointError, small)


def test_a_tokenizer_without_a_word_on_its_class_is_read_by_its_own_rules(checkpoint):
    text = "the expert that stays"
    expected = open_model(checkpoint, device="cpu").tokenizer(text).input_ids
    (checkpoint / "tokenizer_config.json").unlink()
    assert open_model(checkpoint, device="cpu").tokenizer(text).input_ids == expected


def test_a_dtype_or_device_that_is_none_is_told(checkpoint):
    assert "bfloat16" in refused(SettingError, checkpoint, dtype="bfloat61")
    with pytest.raises(SettingError, match="device must be one that this machine has"):
        open_model(checkpoint, device="cuda:99")
    with pytest.raises(SettingError, match="device"):
        open_model(checkpoint, device="gpuu")
