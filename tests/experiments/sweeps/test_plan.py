"""From a sweep to its runs: order, keys, starts, and what is refused before anything runs."""

import pytest

from stickymoe.core.errors import SettingError
from stickymoe.experiments.sweeps import plan as planning
from stickymoe.experiments.sweeps.plan import chosen, plan
from stickymoe.experiments.variants import FAMILIES


def test_the_first_seed_is_run_whole_before_the_second(grid):
    size = grid().sizes["tiny"]
    runs = plan(grid(variants=["vanilla", "dense"], seeds=[3, 1], sizes={"a": size, "b": size}))
    assert [run.name for run in runs] == [
        f"{size}/{seed}/{variant}" for seed in (3, 1) for size in "ab" for variant in ("vanilla", "dense")
    ]
    assert [run.recipe.training.seed for run in runs] == [3] * 4 + [1] * 4
    assert runs[1].recipe.model.num_experts == runs[1].recipe.model.num_experts_per_tok


def test_a_family_stands_for_its_grid_and_all_for_everything(grid):
    assert [run.variant for run in plan(grid(variants=["soft"]))] == list(FAMILIES["soft"])
    runs = plan(grid(variants=["all"], overrides=["model.num_hidden_layers=4"]))
    assert {run.family for run in runs} == set(FAMILIES)


def test_overrides_of_the_size_win_over_the_sweeps_and_the_seed_over_both(grid):
    size = grid().sizes["tiny"].model_copy(update={"overrides": ("training.steps=5", "training.seed=9")})
    (run,) = plan(
        grid(variants=["vanilla"], overrides=["training.steps=3", "training.batch_size=2"], sizes={"s": size})
    )
    training = run.recipe.training
    assert (training.steps, training.batch_size, training.seed) == (5, 2, 1)


def test_a_key_follows_what_decides_the_result_and_nothing_else(grid, monkeypatch):
    def key(**changes):
        return plan(grid(variants=["vanilla"], **changes))[0].key

    first = key()
    assert key(name="other", title="T", note="N", time_limit_minutes=3.0) == first
    assert key(overrides=["training.log_every=1"]) == first
    assert len({first, key(seeds=[2]), key(split="validation"), key(overrides=["training.steps=7"])}) == 4
    monkeypatch.setattr(planning, "TRAINING_VERSION", 99)
    assert key() != first


def test_the_key_of_a_run_that_starts_from_another_follows_that_ones(grid):
    def keys(**changes):
        return {run.variant.name: run.key for run in plan(grid(variants=["vanilla", "remoe"], **changes))}

    runs = plan(grid(variants=["remoe", "vanilla"]))
    assert runs[0].start == runs[1]
    one, other = keys(), keys(overrides=["training.warmup_steps=3"])
    assert one["vanilla"] != other["vanilla"]
    assert one["remoe"] != other["remoe"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"variants": ["soft-0.2", "sfot-0.1"]}, "variant 'sfot-0.1' is unknown; did you mean 'soft-0.1'?"),
        ({"variants": ["remoe"]}, "variant remoe begins with the model of vanilla; add 'vanilla' to variants"),
        (
            {"variants": ["hard-window-8"], "overrides": ["data.sequence_length=4"]},
            "variant hard-window-8 at size tiny: model.router_window must be <= data.sequence_length (4), got 8",
        ),
        (
            {"variants": ["vanilla"], "overrides": ["objective.cross_layer=0.1"]},
            "variant vanilla at size tiny: objective.cross_layer",
        ),
        ({"variants": ["vanilla"], "overrides": ["objectiv.consistency=1"]}, "recipe key objectiv is unknown"),
    ],
)
def test_what_breaks_a_rule_is_one_line_before_any_run(grid, changes, said):
    with pytest.raises(SettingError) as caught:
        plan(grid(**changes))
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_a_trajectory_with_a_consistency_loss_is_refused(grid):
    fixed = ["model.router_type=trajectory", "objective.load_balancing=0.0"]
    with pytest.raises(
        SettingError, match=r"variant soft-0.1 at size tiny: objective.consistency must be 0 with .*traj"
    ):
        plan(grid(variants=["soft-0.1"], overrides=fixed))


@pytest.mark.parametrize(
    ("only", "names"),
    [
        ([], ["vanilla", "soft-0.1", "remoe"]),
        (["soft*"], ["soft-0.1"]),
        (["tiny/1/*"], ["vanilla", "soft-0.1", "remoe"]),
        (["remoe", "*vanilla"], ["vanilla", "remoe"]),
    ],
)
def test_runs_are_chosen_by_variant_or_by_their_whole_name(grid, only, names):
    assert [run.variant.name for run in chosen(plan(grid()), only)] == names


def test_a_pattern_that_matches_nothing_is_refused_with_the_nearest_name(grid):
    with pytest.raises(
        SettingError, match="--only must be a pattern that matches a run, as tiny/1/vanilla, got 'vanila'"
    ):
        chosen(plan(grid()), ["remoe", "vanila"])
