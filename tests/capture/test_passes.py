"""What a pass says was chosen, with and without the work for gates."""

import pytest
import torch

from stickymoe.capture import capture_routing

pytestmark = pytest.mark.hf


@pytest.mark.parametrize("family", ["mixtral", "deepseek_v3", "dbrx", "llama4", "jetmoe", "zaya", "ernie4_5_vl_moe"])
def test_the_choice_alone_is_that_of_the_routing(shared, token_ids, family):
    model = shared(family)
    with torch.no_grad(), capture_routing(model) as capture:
        model(input_ids=token_ids(2, 6))
    routing, chosen = capture.routing, capture.last.chosen()
    assert len(chosen) == routing.num_layers
    for layer, (ids, weights) in enumerate(chosen):
        order = weights.argsort(dim=-1, descending=True, stable=True)
        assert torch.equal(ids.gather(-1, order), routing.expert_ids[layer])
        assert torch.equal(weights.gather(-1, order), routing.expert_weights[layer])


def test_the_reference_models_choice_alone_is_that_of_the_routing(build, token_ids):
    model = build("stickymoe")
    with capture_routing(model) as capture:
        model(input_ids=token_ids(2, 6))
    for (ids, weights), expected in zip(capture.last.chosen(), capture.routing.expert_ids, strict=True):
        assert torch.equal(ids, expected)
        assert not weights.requires_grad
