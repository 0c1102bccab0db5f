"""Variants: each changes what its name says and shares everything else."""

import re
from pathlib import Path

import pytest

from stickymoe.core.errors import SettingError
from stickymoe.experiments.demo import DEMO_VARIANTS
from stickymoe.experiments.recipe_file import load_recipe
from stickymoe.experiments.run_model import model_config
from stickymoe.experiments.variants import (
    DENSE,
    FAMILIES,
    HASH,
    ORACLE,
    REMOE,
    VANILLA,
    VARIANTS,
    Variant,
    boundary,
    choose_variants,
    cross_layer,
    document_reset,
    hard_window,
    hysteresis,
    resolve,
    reuse,
    shared_experts,
    soft,
    soft_hard,
    trajectory,
)

BASES = ("demo", "paper-small", "paper-medium")


def difference(recipe, base):
    """Keys of the outcome in which two recipes differ, with the new value."""
    old, new = base.outcome(), recipe.outcome()
    return {
        f"{table}.{key}": new[table][key] for table in new for key in new[table] if new[table][key] != old[table][key]
    }


def window(kind, size, bonus, recursive=False):
    return {
        "model.router_type": kind, "model.router_window": size, "model.router_bonus": bonus,
        "model.router_recursive": recursive,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("variant", "changes"),
    [
        (VANILLA, {}),
        (soft(0.3), {"objective.consistency": 0.3}),
        (soft_hard(0.1, 2.0, window=8), {"objective.consistency": 0.1, "objective.anchor": 2.0, "objective.window": 8}),
        (DENSE, {"model.num_experts": 2}),
        (hard_window(4), window("hard_window", 4, 10.0)),
        (hard_window(4, recursive=True), window("hard_window", 4, 10.0, recursive=True)),
        (hysteresis(1, 0.4), window("hysteresis", 1, 0.4)),
        (soft(0.1) + hysteresis(2, 1), {"objective.consistency": 0.1, **window("hysteresis", 2, 1.0)}),
        (reuse(0.05, 0.1), {"objective.reuse": 0.05, "objective.load_balancing": 0.1}),
        (ORACLE, {"model.router_input": "attended"}),
        (shared_experts("groups:2"), {"model.experts_shared": "groups:2"}),
        (
            shared_experts("all") + soft(0.1) + cross_layer(0.2),
            {"model.experts_shared": "all", "objective.consistency": 0.1, "objective.cross_layer": 0.2},
        ),
        (
            trajectory(4),
            {"model.router_type": "trajectory", "model.router_span": 4, "objective.load_balancing": 0.0},
        ),
        (HASH, {"model.router_type": "hash", "objective.load_balancing": 0.0}),
        (boundary(0.1), {"objective.consistency": 0.1, "objective.boundary_weight": 0.0}),
        (document_reset(0.1), {"objective.consistency": 0.1, "objective.reset_at_documents": True}),
        (
            REMOE,
            {
                "objective.consistency": 0.1, "objective.warmup_steps": 0,
                "training.steps": 60, "training.warmup_steps": 6,
                "training.peak_learning_rate": 1e-4, "training.train_only": "routers",
                "training.start_from": "vanilla",
            },
        ),
    ],
)  # fmt: skip
def test_a_variant_changes_what_it_says_and_shares_everything_else(variant, changes):
    base = load_recipe("demo")
    recipe = variant.apply(base)
    assert difference(recipe, base) == changes
    assert (recipe.name, recipe.label) == (variant.name, variant.label)


@pytest.mark.parametrize("overrides", [[], ["model.preset=paper-small"], ["model.num_experts_per_tok=3"]])
@pytest.mark.parametrize("recipe", ["demo", "paper-medium"])
def test_the_dense_control_has_as_many_experts_as_a_token_uses(recipe, overrides):
    config = model_config(DENSE.apply(load_recipe(recipe, overrides)), 300)
    assert config.num_experts == config.num_experts_per_tok
    routed = model_config(VANILLA.apply(load_recipe(recipe, overrides)), 300)
    assert config.num_experts_per_tok == routed.num_experts_per_tok < routed.num_experts


def test_the_demos_variants_differ_in_name_label_and_outcome():
    recipes = [variant.apply(load_recipe("demo")) for variant in DEMO_VARIANTS]
    for key in ("name", "label"):
        assert len({getattr(recipe, key) for recipe in recipes}) == len(recipes)
    assert len({recipe.fingerprint() for recipe in recipes}) == len(recipes)
    assert recipes[0].name == "vanilla"  # the baseline of tables and headline


def test_the_registrys_grids_are_those_of_the_comparison():
    expected = {
        "soft": [soft(value) for value in (0.01, 0.05, 0.1, 0.2, 0.5)],
        "soft-hard": [soft_hard(0.1, value, window=4) for value in (0.05, 0.1, 0.5, 1.0)],
        "hard-window": [hard_window(value) for value in (2, 4, 8)],
        "hard-window-recursive": [hard_window(value, recursive=True) for value in (2, 4, 8)],
        "hysteresis": [hysteresis(size, bonus) for size in (1, 2, 4) for bonus in (0.4, 1.0, 2.0)],
        "reuse": [reuse(0.05, 0.1)],
    }
    for name, variants in expected.items():
        assert list(FAMILIES[name]) == variants
    assert sum(len(grid) for grid in FAMILIES.values()) == len(VARIANTS), "every name once"
    assert len({variant.label for variant in VARIANTS.values()}) == len(VARIANTS)


@pytest.mark.parametrize("base", BASES)
def test_every_variant_of_the_registry_is_a_valid_recipe_unlike_all_others_on_every_shipped_base(base):
    recipe = load_recipe(base)
    resolved = [resolve(recipe, name) for name in VARIANTS]
    for variant in resolved:
        model_config(variant, 300)
    # A preset's choice is the resolved shape's, and the demo ends its pairs at documents anyway; both are other recipes
    assert len({variant.fingerprint() for variant in resolved}) == len(resolved)
    assert [variant.name for variant in resolved] == list(VARIANTS)


def test_variants_are_chosen_by_name_family_or_all_and_come_once():
    names = [variant.name for variant in choose_variants(["soft-0.1", "vanilla", "soft", "vanilla"])]
    assert names == ["soft-0.1", "vanilla", "soft-0.01", "soft-0.05", "soft-0.2", "soft-0.5"]
    assert choose_variants(["all"]) == list(VARIANTS.values())
    assert [variant.name for variant in choose_variants(["oracle", "all"])][:2] == ["oracle", "vanilla"]


def test_an_unknown_variant_is_refused_with_the_nearest_known():
    with pytest.raises(
        SettingError, match=r"^variant 'hysteresis-w1-b3' is unknown; did you mean 'hysteresis-w1-b2'\?$"
    ):
        choose_variants(["vanilla", "hysteresis-w1-b3"])
    with pytest.raises(SettingError, match=r"^variant 'oracel' is unknown; did you mean 'oracle'\?$"):
        resolve(load_recipe("demo"), "oracel")
    with pytest.raises(SettingError, match=r"^variant 'xyzzy' is unknown; known are vanilla, dense, soft"):
        choose_variants(["xyzzy"])


def test_a_variant_that_starts_from_another_names_one_of_the_registry():
    starts = {variant.starts_from for variant in VARIANTS.values()} - {None}
    assert starts == {"vanilla"}
    assert REMOE.apply(load_recipe("paper-small")).training.steps == 1000


def test_a_phase_of_a_short_run_has_at_least_one_step():
    recipe = REMOE.apply(load_recipe("demo", ["training.steps=3", "training.warmup_steps=1"]))
    assert (recipe.training.steps, recipe.training.warmup_steps) == (1, 1)


def test_variants_that_contradict_each_other_do_not_add_up():
    with pytest.raises(SettingError) as caught:
        _ = soft(0.1) + soft(0.2)
    assert str(caught.value) == (
        "soft-0.1 and soft-0.2 cannot go together: objective.consistency would be both 0.1 and 0.2"
    )


def test_a_variant_that_breaks_a_rule_is_refused():
    with pytest.raises(SettingError, match=r"objective\.consistency must be >= 0, got -1"):
        soft(-1.0).apply(load_recipe("demo"))
    with pytest.raises(SettingError, match="is unknown"):
        Variant("x", "X", {"objective.stickiness": 1.0}).apply(load_recipe("demo"))


def test_the_page_of_the_variants_names_every_family_and_its_first_variant():
    page = (Path(__file__).parents[2] / "docs" / "variants.md").read_text(encoding="utf-8")
    for family, grid in FAMILIES.items():
        assert f"\n| `{family}` | " in page, family
        assert any(f"`{variant.name}`" in page for variant in grid), family
    kinds = "soft|hard-window|hysteresis|shared|trajectory|boundary|document"
    for mentioned in re.findall(rf"`((?:{kinds})-[\w.-]*\d[\w.-]*)`", page):
        assert mentioned in VARIANTS, mentioned


@pytest.mark.parametrize(
    ("recipe", "key", "chosen"),
    [
        ("mixtral-demo", "num_local_experts", 2),
        ("qwen3-moe-demo", "num_experts", 8),
        ("deepseek-v3-demo", "n_routed_experts", 4),
    ],
)
def test_the_dense_control_of_an_architecture_has_as_many_experts_as_a_token_uses(recipe, key, chosen):
    settings = DENSE.apply(load_recipe(recipe)).model.settings
    assert settings[key] == chosen == settings["num_experts_per_tok"]
    assert "num_experts" in key or "num_experts" not in settings
