"""Recipe files: what is written comes back, overrides win, and every fault is one line with a way out."""

import tomllib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stickymoe.core.errors import SettingError
from stickymoe.experiments import recipe_file
from stickymoe.experiments.recipe import Recipe
from stickymoe.experiments.recipe_file import build_recipe, load_recipe, save_recipe, shipped_recipes
from stickymoe.experiments.run_model import model_config
from stickymoe.model import StickyMoEForCausalLM

SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)


@given(st.one_of(SCALARS, st.lists(st.text(st.characters(exclude_categories=["Cs"])))))
def test_whatever_value_is_written_toml_reads_it_back(value):
    found = tomllib.loads(f"value = {recipe_file._toml(value)}")["value"]
    assert found == value
    assert type(found) is type(value)


def test_a_saved_recipe_loads_as_itself(tmp_path):
    recipe = build_recipe(
        {"label": 'λ "0.1" \\ 🙂', "data": {"corpus": "C:\\texts"}, "training": {"report_to": ["tensorboard"]}},
        ["objective.consistency=1e-7", "model.preset=paper-small", "model.dropout=0.1", "training.precision=fp32"],
    )
    save_recipe(recipe, tmp_path / "recipe.toml")
    assert load_recipe(tmp_path / "recipe.toml") == recipe


def test_tables_and_odd_keys_of_an_architecture_come_back_from_a_saved_recipe(tmp_path):
    table = {"architecture": "mixtral", "rope_parameters": {"rope_theta": 1e4, "kind of": ["a", {"b": True}]}, "ä b": 1}
    recipe = build_recipe({"model": table})
    save_recipe(recipe, tmp_path / "recipe.toml")
    assert load_recipe(tmp_path / "recipe.toml", ["name=run"]) == recipe


def test_a_recipe_is_called_like_its_file_unless_it_says_otherwise(tmp_path):
    (tmp_path / "mine.toml").write_text("")
    assert load_recipe(tmp_path / "mine.toml").name == "mine"
    assert load_recipe(tmp_path / "mine.toml", ["name=other"]).name == "other"
    assert load_recipe(tmp_path / "mine.toml") == Recipe(name="mine")


def test_overrides_win_over_the_file_and_later_ones_over_earlier_ones():
    recipe = load_recipe("demo", ["training.steps=5", "training.steps=6", "data.corpus = my texts "])
    assert (recipe.training.steps, recipe.data.corpus) == (6, "my texts")


FAULTS = {
    "objective.consistancy=1": "recipe key objective.consistancy is unknown; did you mean 'consistency'?",
    "modle.hidden_size=8": "recipe key modle is unknown; did you mean 'model'?",
    "steps=8": "recipe key steps is unknown; did you mean 'training.steps'?",
    "zzz=8": "recipe key zzz is unknown; known keys: name, label, data, model, objective, training",
    "model=3": "--set must be of the form model.KEY=VALUE, got 'model=3'; a whole table cannot be set",
    "training.steps=many": "training.steps must be a valid integer, got 'many'",
    "training.precision=fp8": "training.precision must be 'bf16' or 'fp32', got 'fp8'",
    "training.report_to=wandb": "training.report_to must be a list, got 'wandb'",
    "objective.window=0": "objective.window must be >= 1, got 0",
    "objective.consistency=-0.1": "objective.consistency must be >= 0, got -0.1",
    "objective.consistency=nan": "objective.consistency must be a finite number, got nan",
    "training.keep_checkpoints=1": "training.keep_checkpoints must be >= 2, got 1",
    "model.dropout=1.0": "model.dropout must be < 1, got 1.0",
    "data.corpus=": "data.corpus must be a text that is not empty, got ''",
    "name=a/b": "name must be a plain name, without / or \\, got 'a/b'",
}


@pytest.mark.parametrize("override", FAULTS)
def test_a_broken_rule_is_one_line_that_names_setting_rule_and_value(override):
    with pytest.raises(SettingError) as caught:
        load_recipe("demo", [override])
    assert str(caught.value) == FAULTS[override]


@pytest.mark.parametrize("override", ["nothing", "", "=", "a.b.c=1", ".x=1", "model.=1"])
def test_an_override_of_another_form_is_refused_with_an_example(override):
    with pytest.raises(
        SettingError, match=r"--set must be of the form table\.key=value, .* objective\.consistency=0\.1"
    ):
        load_recipe("demo", [override])


def test_an_override_sets_its_one_key_and_no_other():
    recipe = load_recipe("demo", ["data.corpus=1\nname = 2"])
    assert recipe.data.corpus == "1\nname = 2"


@pytest.mark.parametrize("overrides", [[], ["model.hidden_size=3"]])
def test_a_scalar_where_a_table_belongs_is_refused(tmp_path, overrides):
    (tmp_path / "x.toml").write_text("model = 3")
    with pytest.raises(SettingError, match=r"model must be a table, got 3; write a line \[model\]"):
        load_recipe(tmp_path / "x.toml", overrides)


@pytest.mark.parametrize("content", [b"\x00\xff", b"[data", b"x = " + b"[" * 5000, b"a = 1\na = 2"])
def test_a_file_that_is_no_toml_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "x.toml").write_bytes(content)
    with pytest.raises(SettingError, match=r"x\.toml is not valid TOML: ") as caught:
        load_recipe(tmp_path / "x.toml")
    assert "\n" not in str(caught.value)


def test_a_missing_recipe_names_the_nearest_shipped_one(tmp_path):
    with pytest.raises(SettingError, match="recipe paper-smal not found; did you mean 'paper-small'"):
        load_recipe("paper-smal")
    with pytest.raises(SettingError, match=r"not found; shipped recipes: .*demo, .*mixtral-small, .*paper-medium"):
        load_recipe(tmp_path / "zzz.toml")


def test_a_run_folder_given_as_recipe_is_told_its_recipes_name(tmp_path):
    with pytest.raises(SettingError, match="is a folder; give a TOML file"):
        load_recipe(tmp_path)
    (tmp_path / "recipe.toml").write_text("")
    with pytest.raises(SettingError, match=r"is a folder; give .*recipe\.toml"):
        load_recipe(tmp_path)


def test_a_shipped_recipe_is_found_by_name_and_by_its_place_in_the_project(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert load_recipe("demo") == load_recipe("demo.toml") == load_recipe("recipes/demo.toml")


@pytest.mark.parametrize(("name", "parameters"), [("paper-small", 8_841_600), ("paper-medium", 22_401_792)])
def test_the_papers_recipes_build_models_of_the_papers_size(name, parameters):
    with torch.device("meta"):
        model = StickyMoEForCausalLM(model_config(load_recipe(name), 50257))
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_every_shipped_recipe_loads_fits_its_model_and_says_where_it_is():
    recipes = shipped_recipes()
    assert {"demo", "paper-small", "paper-medium"} <= set(recipes)
    for name, path in recipes.items():
        recipe = load_recipe(name)
        assert recipe.name == path.stem == name
        assert model_config(recipe, 4096).max_position_embeddings >= recipe.data.sequence_length
