"""What llama.cpp computes otherwise than it was trained is refused, with the reason."""

import json
from pathlib import Path

import pytest

from stickymoe.capture.tiny import tiny_config
from stickymoe.core.errors import SettingError
from stickymoe.experiments.export import CHECKED, require_convertible
from stickymoe.model import StickyMoEConfig

SAME = [
    ("mixtral", {"sliding_window": None}),
    ("mixtral", {"sliding_window": None, "tie_word_embeddings": True}),
    ("granitemoe", {}),
    ("deepseek_v3", {"norm_topk_prob": True}),
    ("deepseek_v3", {"norm_topk_prob": False, "tie_word_embeddings": True}),
    ("qwen3_moe", {"norm_topk_prob": True}),
    ("qwen3_moe", {"norm_topk_prob": True, "use_sliding_window": False, "sliding_window": 64}),
    ("qwen2_moe", {}),
    ("olmoe", {"num_key_value_heads": 4}),
]
OTHERWISE = [
    ("deepseek_v3", {"rope_interleave": False}, "it rotates neighbouring numbers of a head, rope_interleave is false"),
    ("mixtral", {"sliding_window": 8}, "its attention sees the whole context, sliding_window is 8"),
    ("mixtral", {"sliding_window": None, "hidden_act": "gelu"}, "its experts are gated by silu, hidden_act is 'gelu'"),
    ("qwen3_moe", {}, "it always divides the weights of the chosen experts by their sum, norm_topk_prob is False"),
    ("qwen3_moe", {"norm_topk_prob": True, "mlp_only_layers": [0]}, "all its layers have experts"),
    ("qwen3_moe", {"norm_topk_prob": True, "decoder_sparse_step": 2}, "all its layers have experts"),
    ("qwen2_moe", {"norm_topk_prob": True}, "it never divides the weights"),
    ("olmoe", {"norm_topk_prob": True}, "it never divides the weights of the chosen experts by their sum"),
    ("olmoe", {"tie_word_embeddings": True}, "it asks for an output matrix of its own"),
    ("olmoe", {}, "every head has keys of its own there, num_key_value_heads is 2"),
]


@pytest.mark.parametrize(("family", "changes"), SAME)
def test_a_model_that_llama_cpp_computes_alike_passes(family, changes):
    require_convertible(tiny_config(family, **changes))


@pytest.mark.parametrize(("family", "changes", "reason"), OTHERWISE)
def test_a_model_that_it_computes_otherwise_is_refused_even_where_anything_is_allowed(family, changes, reason):
    config = tiny_config(family, **changes)
    with pytest.raises(SettingError) as caught:
        require_convertible(config, unchecked=True)
    assert str(caught.value).startswith(f"llama.cpp would turn this {family} into another model: {reason}")


def test_a_family_that_was_not_compared_passes_only_when_asked_for():
    config = tiny_config("deepseek_v2")
    with pytest.raises(
        SettingError, match=r"whose conversion was compared \(deepseek_v3, .*got 'deepseek_v2'; add --unch"
    ):
        require_convertible(config)
    require_convertible(config, unchecked=True)


@pytest.mark.parametrize("unchecked", [True, False])
def test_the_reference_model_has_no_form_in_gguf(unchecked):
    with pytest.raises(SettingError, match=r"the reference model .* has no architecture in GGUF; train .*'mixtral'"):
        require_convertible(StickyMoEConfig(), unchecked=unchecked)


def test_what_passes_was_found_the_same_and_what_is_refused_was_not():
    result = json.loads((Path(__file__).parents[3] / "benchmarks" / "results" / "gguf_check.json").read_text())
    exact = [row for row in result["models"] if row["type"] == "f32" and row["converter"] == "llama.cpp"]
    passed = [row for row in exact if row["refused"] is None]
    refused = [row for row in exact if row["refused"] and "--unchecked" not in row["refused"]]
    assert {row["model"].partition(",")[0] for row in passed} >= set(CHECKED)
    assert all(row["same"] and row["tokens_equal"] for row in passed)
    assert len(refused) >= len(OTHERWISE) - 2
    assert not any(row.get("same") for row in refused)


def test_every_compared_family_has_a_case_of_either_kind():
    assert {family for family, _ in SAME} == set(CHECKED)
    assert {family for family, *_ in OTHERWISE} | {"granitemoe"} == set(CHECKED)
