"""Sweeps as files: read whole or refused in one line."""

import pytest

from stickymoe.core.errors import SettingError
from stickymoe.experiments.sweeps.plan import plan
from stickymoe.experiments.sweeps.sweep_file import load_sweep, shipped_sweeps

GOOD = """
variants = ["vanilla"]
[sizes.small]
recipe = "demo"
"""


def write(tmp_path, text):
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_what_a_file_leaves_out_has_a_default(tmp_path):
    sweep = load_sweep(write(tmp_path, GOOD), ["training.steps=5"])
    assert (sweep.name, sweep.seeds, sweep.split, sweep.time_limit_minutes) == ("mine", (42,), "test", None)
    assert sweep.overrides == ("training.steps=5",)
    assert plan(sweep)[0].recipe.training.steps == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("variants = [", "is not valid TOML"),
        (GOOD.replace("variants", "variant"), "sweep key variants is missing; add it"),
        ("lambdas = [0.1]\n" + GOOD, "sweep key lambdas is unknown; known keys: name, title, note, variants, seeds"),
        ("seed = [1]\n" + GOOD, "sweep key seed is unknown; did you mean 'seeds'?"),
        (GOOD + "recipes = 'x'", "sweep key sizes.small.recipes is unknown; did you mean 'recipe'?"),
        (GOOD.replace("[sizes.small]\nrecipe", "sizes"), "sizes must be a table, got 'demo'"),
        (GOOD.replace('["vanilla"]', "[]"), "variants must be a list that is not empty, got []"),
        (GOOD.replace('["vanilla"]', '"vanilla"'), "variants must be a list, got 'vanilla'"),
        (GOOD.replace('["vanilla"]', '["a", "a"]'), "variants must be a list in which each stands once"),
        ("seeds = [1, -1]\n" + GOOD, "seeds.1 must be >= 0, got -1"),
        ("seeds = [1.5]\n" + GOOD, "seeds.0 must be a valid integer, got 1.5"),
        ("time_limit_minutes = 0\n" + GOOD, "time_limit_minutes must be > 0, got 0"),
        ('name = "../elsewhere"\n' + GOOD, "name must be a plain name, without / or \\, got '../elsewhere'"),
        (GOOD.replace("sizes.small", "sizes.'a/b'"), "sizes.a/b.[key] must be a plain name"),
    ],
)
def test_a_fault_is_named_in_one_line(tmp_path, text, said):
    with pytest.raises(SettingError) as caught:
        load_sweep(write(tmp_path, text))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_sweep_that_is_not_there_is_named_with_the_nearest(tmp_path):
    with pytest.raises(SettingError, match=r"sweep papr not found; did you mean 'paper'\?"):
        load_sweep("papr")
    with pytest.raises(SettingError, match=f"sweep {tmp_path} is a folder; give a TOML file"):
        load_sweep(tmp_path)


def test_the_shipped_sweeps_plan_without_a_fault():
    assert {"demo", "paper", "paper-short"} <= shipped_sweeps().keys()
    for name in shipped_sweeps():
        assert plan(load_sweep(name))


def test_the_papers_sweep_is_the_papers_grid():
    sweep = load_sweep("sweeps/paper.toml")
    runs = plan(sweep)
    assert {run.size for run in runs} == {"small", "medium"}
    assert {run.seed for run in runs} == {42, 43, 44}
    assert {run.recipe.data.corpus for run in runs} == {"wikitext-2-raw"}
    assert {run.recipe.data.tokenizer for run in runs} == {"gpt2"}
    steps = {run.recipe.training.steps for run in runs if run.variant.starts_from is None}
    assert steps == {10_000}
    names = {run.variant.name for run in runs}
    assert {"vanilla", "dense", "soft-0.01", "soft-0.5", "soft-hard-0.1-1", "hard-window-8", "remoe", "oracle"} <= names


def test_the_short_sweep_says_that_it_is_short():
    sweep = load_sweep("paper-short")
    assert sweep.note
    training = plan(sweep)[0].recipe.training
    assert f"{training.steps:,} steps of {training.batch_size} x 256 tokens" in sweep.note
    assert sweep.corpora == ("wikitext-2-raw", "wikitext-2-v1")
