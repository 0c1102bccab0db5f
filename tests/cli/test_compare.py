"""Comparing from the command line: two runs, two traces, and what cannot be compared."""

import json

import pytest
from safetensors.torch import load_file, save_file


@pytest.fixture
def text(tmp_path):
    (tmp_path / "words.txt").write_text("Some experts stay, some experts go. " * 30)
    return tmp_path / "words.txt"


@pytest.fixture
def other(run_copy):
    """The run with its routers turned around."""
    weights = run_copy / "model" / "model.safetensors"
    tensors = load_file(weights)
    turned = {name: -tensor if "router" in name else tensor for name, tensor in tensors.items()}
    save_file(turned, weights, {"format": "pt"})
    return run_copy


def test_two_runs_are_compared_in_a_table_a_page_and_json(stickymoe, trained, other, text):
    done = stickymoe("compare", trained / "run", other, "--data", text, "--chunk", 16, "--json", "c.json")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert len(lines) <= 31
    assert lines[-1] == "page: compare.html"
    assert any(line.startswith("quality  perplexity") for line in lines)
    told = json.loads((text.parent / "c.json").read_text())
    figures = {figure["name"]: figure for figure in told["figures"]}
    assert figures["perplexity"]["difference"]["value"] != 0
    assert figures["expert_overlap"]["difference"]["low"] is not None
    assert told["first"]["name"] == str(trained / "run")
    assert "StickyMoE comparison" in (text.parent / "compare.html").read_text()


def test_two_traces_are_compared_without_quality(stickymoe, trained, other, text):
    for name, run in (("a", trained / "run"), ("b", other)):
        done = stickymoe("trace", "record", run, "--data", text, "--chunk", 16, "--out", f"{name}.parquet")
        assert done.exit_code == 0, done.output
    done = stickymoe("compare", "a.parquet", "b.parquet", "--no-report")
    assert done.exit_code == 0, done.output
    assert "perplexity" not in done.stdout
    assert "expert overlap" in done.stdout
    assert not (text.parent / "compare.html").exists()
    mixed = stickymoe("compare", "a.parquet", other, "--data", text)
    assert mixed.exit_code == 2
    assert "two models or two traces" in mixed.stderr


def test_the_second_is_looked_over_before_the_first_is_read(stickymoe, trained, other, text, tmp_path):
    (other / "model" / "model.safetensors").write_bytes(b"short")
    done = stickymoe("compare", trained / "run", other, "--data", text)
    assert done.exit_code == 2
    assert "model.safetensors" in done.stderr.splitlines()[-1]
    assert "reading A" not in done.stderr
    dense = tmp_path / "dense"
    dense.mkdir()
    (dense / "config.json").write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 1, "vocab_size": 300}))
    done = stickymoe("compare", trained / "run", dense, "--data", text)
    assert done.exit_code == 2
    assert "dense model" in done.stderr.splitlines()[-1]


def test_tokenizers_that_differ_are_no_comparison_of_perplexities(stickymoe, trained, other, text):
    file = other / "model" / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["merges"] = content["model"]["merges"][:1]
    file.write_text(json.dumps(content))
    done = stickymoe("compare", trained / "run", other, "--data", text)
    assert done.exit_code == 2
    told = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(told) == 1
    assert "must cut the text into the same tokens" in told[0]
    assert not (text.parent / "compare.html").exists()
