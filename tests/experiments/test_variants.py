"""Variants: each changes what its name says and shares everything else."""

import pytest

from stickymoe.core.errors import SettingError
from stickymoe.experiments.demo import DEMO_VARIANTS
from stickymoe.experiments.recipe_file import load_recipe
from stickymoe.experiments.run_model import model_config
from stickymoe.experiments.variants import DENSE, VANILLA, Variant, soft, soft_hard


def difference(recipe, base):
    """Keys of the outcome in which two recipes differ, with the new value."""
    old, new = base.outcome(), recipe.outcome()
    return {
        f"{table}.{key}": new[table][key] for table in new for key in new[table] if new[table][key] != old[table][key]
    }


@pytest.mark.parametrize(
    ("variant", "changes"),
    [
        (VANILLA, {}),
        (soft(0.3), {"objective.consistency": 0.3}),
        (soft_hard(0.1, 2.0, window=8), {"objective.consistency": 0.1, "objective.anchor": 2.0, "objective.window": 8}),
        (DENSE, {"model.num_experts": 2}),
    ],
)
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


def test_a_variant_that_breaks_a_rule_is_refused():
    with pytest.raises(SettingError, match=r"objective\.consistency must be >= 0, got -1"):
        soft(-1.0).apply(load_recipe("demo"))
    with pytest.raises(SettingError, match="is unknown"):
        Variant("x", "X", {"objective.stickiness": 1.0}).apply(load_recipe("demo"))
