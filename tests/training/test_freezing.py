"""Training the routers alone: nothing else moves, and the hash would notice if it did."""

import pytest
import torch

from stickymoe.core.errors import SettingError
from stickymoe.training import StickyTrainer, fingerprint, train_routers_only


@pytest.mark.parametrize("settings", [{}, {"router_type": "hysteresis"}, {"experts_shared": "all"}])
def test_only_the_routers_change_and_all_of_them_do(tiny, tmp_path, settings):
    model = tiny.model(**settings)
    trained = train_routers_only(model)
    assert trained == [f"model.layers.{layer}.moe.router.weight" for layer in range(2)]
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    frozen = fingerprint(model, without=trained)
    StickyTrainer(model, tiny.arguments(tmp_path, objective={"consistency": 0.5}), tiny.chunks()).train()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]) == (name not in trained), name
    assert fingerprint(model, without=trained) == frozen


def test_the_fingerprint_notices_the_smallest_change_of_any_weight_and_ignores_what_is_left_out(tiny):
    model = tiny.model()
    found = {fingerprint(model)}
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.view(-1)[0] = torch.nextafter(parameter.view(-1)[0], torch.tensor(9.0))
        found.add(fingerprint(model))
    assert len(found) == 1 + len(list(model.parameters()))
    name = "model.layers.1.moe.router.weight"
    without = fingerprint(model, without=[name])
    with torch.no_grad():
        model.get_parameter(name).zero_()
    assert fingerprint(model, without=[name]) == without != fingerprint(model)


def test_two_models_of_equal_weights_have_one_fingerprint_in_any_precision(tiny):
    assert fingerprint(tiny.model(seed=4)) == fingerprint(tiny.model(seed=4)) != fingerprint(tiny.model(seed=5))
    assert fingerprint(tiny.model().bfloat16()) != fingerprint(tiny.model())


def test_a_router_without_parameters_cannot_be_trained_alone(tiny):
    with pytest.raises(SettingError, match=r"training.train_only must be 'all' where routers have nothing to learn"):
        train_routers_only(tiny.model(router_type="hash"))
