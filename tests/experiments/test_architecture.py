"""Architectures of transformers as recipes' models: every key checked against the class that it is for."""

import re
import tomllib
from pathlib import Path

import pytest

from stickymoe.capture.tiny import SIZES
from stickymoe.core.errors import SettingError
from stickymoe.experiments.architecture import architecture_config, architectures, empty_model, model_class, settings_of
from stickymoe.experiments.export import require_convertible
from stickymoe.experiments.recipe_file import build_recipe, load_recipe
from stickymoe.experiments.run_model import model_config

NAMED = ["dbrx", "deepseek_v3", "gpt_oss", "granitemoe", "mixtral", "olmoe", "phimoe", "qwen2_moe", "qwen3_moe"]
SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}


def config(architecture="mixtral", settings=SMALL, **more):
    return architecture_config(architecture, settings, **{"vocab_size": 300, "positions": 256, **more})


def test_every_family_with_a_causal_language_model_that_capture_reads_is_an_architecture():
    assert set(NAMED) <= set(architectures())
    assert not {"doge", "gpt2", "switch_transformers", "llama", "sticky_moe"} & set(architectures())
    assert len(architectures()) > 50


def test_the_table_decides_the_shape_and_the_tokenizer_the_vocabulary():
    made = config(settings=SMALL | {"num_local_experts": 6, "tie_word_embeddings": True}, end_of_text=7)
    assert (made.num_local_experts, made.hidden_size, made.tie_word_embeddings) == (6, 16, True)
    assert (made.vocab_size, made.bos_token_id, made.eos_token_id, made.pad_token_id) == (300, 7, 7, None)
    assert made.max_position_embeddings == 256
    assert config(settings=SMALL | {"max_position_embeddings": 99}).max_position_embeddings == 99


def test_an_alias_is_the_same_setting_and_a_whole_number_does_for_a_fraction():
    assert config(settings=SMALL | {"num_experts": 5}).num_local_experts == 5
    assert config(settings=SMALL | {"rms_norm_eps": 1}).rms_norm_eps == 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hiden_size": 8}, "recipe key model.hiden_size is no setting of mixtral; did you mean 'hidden_size'?"),
        ({"router_type": "softmax"}, "recipe key model.router_type is no setting of mixtral; did you mean"),
        ({"hidden_size": "8"}, "model.hidden_size must be of type int, got '8'"),
        ({"tie_word_embeddings": 1}, "model.tie_word_embeddings must be of type bool, got 1"),
        ({"vocab_size": 8}, "model.vocab_size is the tokenizer's to say; leave it out"),
        ({"num_experts": 4, "num_local_experts": 4}, "model.num_experts and model.num_local_experts are the same"),
        (
            {"num_experts_per_tok": 9, "num_local_experts": 4},
            "model.num_experts_per_tok must be in [1, 4], the number of experts, got 9; lower it or add experts",
        ),
        ({"num_experts_per_tok": 0}, "model.num_experts_per_tok must be in [1, 8], the number of experts, got 0"),
    ],
)
def test_a_setting_that_breaks_a_rule_is_refused_in_one_line(settings, message):
    with pytest.raises(SettingError) as caught:
        config(settings=SMALL | settings)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_an_unknown_architecture_names_the_nearest():
    with pytest.raises(SettingError, match=r"model\.architecture must be one of .* did you mean 'mixtral'\?"):
        config("mixtrall")
    with pytest.raises(SettingError, match=r"model\.architecture must be one of .*, got 'doge'"):
        config("doge")


@pytest.mark.hf
@pytest.mark.parametrize("architecture", NAMED)
def test_an_architecture_is_shaped_by_the_keys_of_its_own_config(architecture):
    known = settings_of(architecture)
    aliases = model_class(architecture).config_class.attribute_map
    given = {name: value for name, value in SIZES.items() if name in known and name not in aliases}
    assert {"hidden_size", "d_model"} & given.keys()
    assert {"num_hidden_layers", "num_layers", "n_layers"} & known
    made = config(architecture, given)
    assert made.get_text_config().vocab_size == 300


def test_what_a_model_reads_if_it_is_there_is_a_setting_too():
    assert config("qwen3_moe", {"hidden_size": 16, "head_dim": 4}).head_dim == 4


def test_a_shape_that_no_constructor_takes_is_refused_with_its_reason():
    made = config("gpt_oss", SMALL | {"num_key_value_heads": 0})
    with pytest.raises(SettingError, match=r"the table \[model\] makes no gpt_oss model: .*; change its sizes"):
        empty_model("gpt_oss", made)


def test_the_shipped_mixtral_has_the_papers_size_and_can_be_exported():
    recipe = load_recipe("mixtral-small")
    shape, paper = recipe.model.settings, model_config(load_recipe("paper-small"), 50_257)
    made = model_config(recipe, 50_257)
    require_convertible(made)
    counted = sum(weight.numel() for weight in empty_model("mixtral", made).parameters())
    assert counted == 8_860_928
    assert abs(counted / 8_841_600 - 1) < 0.01, (
        "the reference model of the paper's size, see tests/model/test_config.py"
    )
    same = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_experts_per_tok")
    assert [shape[name] for name in same] == [getattr(paper, name) for name in same]
    assert made.num_local_experts == paper.num_experts
    assert made.intermediate_size % 32 == 0
    assert recipe.training == load_recipe("paper-small").training


def test_the_recipes_of_the_page_are_recipes():
    page = Path(__file__).parents[2] / "docs" / "architectures.md"
    scratch, on = (tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL))
    made = model_config(build_recipe(scratch), 4096)
    assert (made.num_experts, made.head_dim, made.rope_parameters["rope_theta"]) == (64, 64, 10000.0)
    require_convertible(made)
    empty_model("qwen3_moe", made)
    assert build_recipe(on).model.pretrained == on["model"]["pretrained"]


def test_a_recipe_is_checked_against_its_architecture_before_its_corpus_is_read():
    shape = {"architecture": "mixtral", "hidden_size": 16, "max_position_embeddings": 8}
    with pytest.raises(SettingError, match=r"sequence_length must be <= model.max_position_embeddings \(8\), got 256"):
        model_config(build_recipe({"model": shape}), 1)
    with pytest.raises(SettingError, match=r"objective\.window must be <= data\.sequence_length"):
        model_config(
            build_recipe({"model": {"architecture": "mixtral"}, "objective": {"anchor": 1.0, "window": 999}}), 1
        )
