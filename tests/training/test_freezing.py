"""Training the routers alone: nothing else moves, and the hash would notice if it did."""

from collections import Counter

import pytest
import torch

from stickymoe.capture.tiny import tiny_model
from stickymoe.core.errors import CaptureError, SettingError
from stickymoe.training import StickyTrainer, fingerprint, router_parameters, train_only, train_routers_only


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


@pytest.mark.hf
@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("mixtral", {"gate.weight": 3}),
        ("gpt_oss", {"router.weight": 3, "router.bias": 3}),
        ("laguna", {"gate.weight": 2}),  # its bias of the choice is a parameter, but none that learns
        ("deepseek_v4", {"gate.weight": 2}),  # the first layer chooses by a table
        ("gemma4", {"router.scale": 3, "router.per_expert_scale": 3, "proj.weight": 3}),
        ("jetmoe", {"layer.weight": 6}),
    ],
)
def test_routers_of_any_family_are_found_without_biases_of_the_choice(family, names):
    model = tiny_model(family)
    found = router_parameters(model)
    assert Counter(".".join(name.split(".")[-2:]) for name in found) == names
    assert train_routers_only(model) == found == sorted(found)
    assert found == sorted(name for name, weight in model.named_parameters() if weight.requires_grad)


@pytest.mark.hf
def test_dense_models_and_quantised_routers_have_nothing_to_train():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    with pytest.raises(CaptureError, match="has no router beside experts"):
        router_parameters(LlamaForCausalLM(LlamaConfig(vocab_size=8, **sizes)))
    model = tiny_model("mixtral")
    gate = model.model.layers[1].mlp.gate
    gate.weight = torch.nn.Parameter(gate.weight.to(torch.uint8), requires_grad=False)
    rule = r"^model.layers.1.mlp.gate.weight must be of a floating-point type to be trained, got 'uint8'; leave routers"
    with pytest.raises(SettingError, match=rule):
        router_parameters(model)


def test_training_only_some_parameters_leaves_types_and_whole_numbers_alone():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).half())
    model.register_parameter("packed", torch.nn.Parameter(torch.ones(2, dtype=torch.uint8), requires_grad=False))
    assert train_only(model, ["1.bias"]) == ["1.bias"]
    assert [name for name, weight in model.named_parameters() if weight.requires_grad] == ["1.bias"]
    assert [str(weight.dtype) for weight in model.parameters()] == [
        "torch.uint8", "torch.float32", "torch.float32", "torch.float16", "torch.float16",
    ]  # fmt: skip
