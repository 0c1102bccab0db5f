"""The shape of the model: presets, rules, one-line errors, JSON."""

import pytest

from stickymoe.core.errors import CheckpointError, SettingError, StickyMoEError
from stickymoe.model import PRESETS, StickyMoEConfig, StickyMoEForCausalLM


def parameters_by_hand(config):
    """Count the parameters from the sizes alone, matrix by matrix."""
    d, w, n = config.hidden_size, config.expert_intermediate_size, config.num_experts
    embeddings = (config.vocab_size + config.max_position_embeddings) * d
    norm = 2 * d
    attention = (d * 3 * d + 3 * d) + (d * d + d)
    expert = (d * w + w) + (w * d + d)
    layer = norm + attention + norm + n * d + n * expert
    return embeddings + config.num_hidden_layers * layer + norm


@pytest.mark.parametrize(("name", "count"), [("paper-small", 8_841_600), ("paper-medium", 22_401_792)])
def test_presets_have_the_papers_sizes_and_exact_parameter_counts(name, count):
    config = StickyMoEConfig.preset(name)
    assert (config.num_hidden_layers, config.num_attention_heads) == (4, 4)
    assert (config.num_experts, config.num_experts_per_tok) == (4, 2)
    assert (config.vocab_size, config.max_position_embeddings) == (50257, 256)
    assert parameters_by_hand(config) == count
    assert StickyMoEForCausalLM(config).num_parameters() == count


def test_single_fields_of_a_preset_can_be_replaced():
    config = StickyMoEConfig.preset("paper-medium", num_experts=8, dropout=0.1, attn_implementation="eager")
    assert (config.hidden_size, config.num_experts, config.dropout) == (256, 8, 0.1)
    assert PRESETS["paper-medium"] == {"hidden_size": 256, "expert_intermediate_size": 1024}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"num_experts_per_tok": 5},
            "model.num_experts_per_tok must be <= model.num_experts (4), got 5; lower it or add experts",
        ),
        ({"num_experts_per_tok": 0}, "model.num_experts_per_tok must be >= 1, got 0"),
        ({"num_experts": 0, "num_experts_per_tok": 1}, "model.num_experts must be >= 1, got 0"),
        ({"hidden_size": 130}, "model.hidden_size must be a multiple of num_attention_heads (4), got 130"),
        ({"num_hidden_layers": 0}, "model.num_hidden_layers must be >= 1, got 0"),
        ({"vocab_size": -1}, "model.vocab_size must be >= 1, got -1"),
        ({"dropout": 1.0}, "model.dropout must be in [0, 1), got 1.0"),
        ({"dropout": float("nan")}, "model.dropout must be in [0, 1), got nan"),
        ({"initializer_range": -0.1}, "model.initializer_range must be > 0, got -0.1"),
        ({"initializer_range": 0.0}, "model.initializer_range must be > 0, got 0.0"),
        ({"layer_norm_eps": 0.0}, "model.layer_norm_eps must be > 0, got 0.0"),
        (
            {"router_type": "softmx"},
            "model.router_type must be one of hard_window, hash, hysteresis, softmax, trajectory, got 'softmx'; "
            "did you mean 'softmax'?",
        ),
        ({"hidden_size": "large"}, "model.hidden_size must be of type int, got 'large'"),
        ({"num_experts": 2.5}, "model.num_experts must be of type int, got 2.5"),
        ({"norm_topk_prob": "yes"}, "model.norm_topk_prob must be of type bool, got 'yes'"),
        ({"pad_token_id": "x"}, "model.pad_token_id must be of type int | None, got 'x'"),
        (
            {"num_expert": 8},
            "model.num_expert is no setting of the model; did you mean 'num_experts'?",
        ),
    ],
)
def test_a_broken_setting_is_one_line_with_rule_value_and_way_out(settings, message):
    with pytest.raises(SettingError) as caught:
        StickyMoEConfig(**settings)
    assert str(caught.value) == message
    assert isinstance(caught.value, StickyMoEError)
    with pytest.raises(SettingError) as caught:
        StickyMoEConfig.preset("paper-small", **settings)
    assert str(caught.value) == message


def test_unknown_presets_and_settings_name_the_nearest_known():
    with pytest.raises(SettingError, match="did you mean 'paper-small'"):
        StickyMoEConfig.preset("paper-smal")
    with pytest.raises(SettingError, match=r"model\.zzz is no setting of the model; vocab_size, hidden_size, "):
        StickyMoEConfig.preset("paper-small", zzz=1)


def test_a_wrong_type_is_refused_at_assignment_too():
    config = StickyMoEConfig()
    with pytest.raises(SettingError, match=r"model\.num_experts must be of type int, got '4'"):
        config.num_experts = "4"


def test_an_integer_is_welcome_where_a_float_is_asked_for():
    assert StickyMoEConfig(dropout=0).dropout == 0.0


def test_a_config_survives_json(tmp_path):
    config = StickyMoEConfig.preset("paper-medium", num_experts=8, num_experts_per_tok=3, norm_topk_prob=False)
    config.save_pretrained(tmp_path)
    loaded = StickyMoEConfig.from_pretrained(tmp_path)
    assert loaded.to_diff_dict() == config.to_diff_dict()
    assert (loaded.num_experts, loaded.num_experts_per_tok, loaded.norm_topk_prob) == (8, 3, False)
    assert StickyMoEConfig.from_dict(config.to_dict()).to_dict() == config.to_dict()


def test_broken_json_settings_are_the_same_one_line(tmp_path):
    config = StickyMoEConfig()
    config.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace('"num_experts_per_tok": 2', '"num_experts_per_tok": 9'))
    with pytest.raises(SettingError, match=r"model.num_experts_per_tok must be <= model.num_experts \(4\), got 9"):
        StickyMoEConfig.from_pretrained(tmp_path)


def test_another_architectures_config_is_refused_by_name(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "vocab_size": 10}')
    with pytest.raises(CheckpointError, match="must hold a model of type sticky_moe, got 'gpt2'"):
        StickyMoEConfig.from_pretrained(tmp_path)
