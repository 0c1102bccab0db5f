"""Objectives that contradict the model are refused before a step is made."""

import pytest

from stickymoe.core.errors import SettingError
from stickymoe.training import StickyTrainer, read_log
from stickymoe.training.fitting import require_fitting


@pytest.mark.parametrize("kind", ["trajectory", "hash"])
@pytest.mark.parametrize("term", ["consistency", "anchor", "load_balancing", "reuse"])
def test_no_term_can_move_fixed_routing(tiny, tmp_path, kind, term):
    arguments = tiny.arguments(tmp_path, objective={term: 0.1})
    with pytest.raises(SettingError) as caught:
        StickyTrainer(tiny.model(router_type=kind), arguments, tiny.chunks())
    assert str(caught.value) == (
        f"objective.{term} must be 0 with model.router_type '{kind}', whose routing no loss can move, got 0.1; "
        "leave it out"
    )


@pytest.mark.parametrize(("shared", "told"), [("none", 2), ("all", 1)])
def test_a_cross_layer_term_must_know_how_layers_share_their_experts(tiny, tmp_path, shared, told):
    arguments = tiny.arguments(tmp_path, objective={"cross_layer": 0.1}, layers_per_pool=told, allow_unshared=True)
    with pytest.raises(SettingError, match=r"objective.layers_per_pool must be \d, as the model's experts_shared"):
        StickyTrainer(tiny.model(experts_shared=shared), arguments, tiny.chunks())


def test_models_of_other_architectures_are_taken_at_their_word():
    require_fitting(object(), {"consistency": 0.1, "cross_layer": 0.1}, 3)
    require_fitting(None, {"consistency": 0.1}, 1)


def test_with_shared_experts_the_cross_layer_term_is_trained_and_logged(tiny, tmp_path):
    arguments = tiny.arguments(tmp_path, objective={"consistency": 0.1, "cross_layer": 2.0}, layers_per_pool=2)
    trainer = StickyTrainer(tiny.model(experts_shared="all"), arguments, tiny.chunks())
    trainer.train()
    rows = read_log(tmp_path / "log.jsonl")
    values = [row["cross_layer"] for row in rows if "cross_layer" in row]
    assert values[-1] < values[0]
