"""A model's own load balancing: its weight in a loss, found without being told."""

import pytest
import torch
from torch import nn

from stickymoe.capture.tiny import tiny_model
from stickymoe.training.own_aux import OwnAuxLoss, own_aux_coefficient, own_aux_loss, weight_in

pytestmark = pytest.mark.hf
IDS = torch.arange(3, 13).view(2, 5)


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "gpt_oss", "jetmoe", "granitemoe", "dbrx", "phimoe"])
def test_the_coefficient_that_a_model_tells_is_the_weight_in_its_loss(family):
    model = tiny_model(family, output_router_logits=True).train()
    outputs = model(input_ids=IDS, labels=IDS)
    assert own_aux_coefficient(model) == pytest.approx(weight_in(outputs.loss, own_aux_loss(outputs)), rel=1e-6)
    assert own_aux_coefficient(model) > 0


def test_a_loss_without_it_has_weight_zero():
    model = tiny_model("mixtral", output_router_logits=True).train()
    outputs = model(input_ids=IDS)
    assert weight_in(outputs.logits.sum(), outputs.aux_loss) == 0.0
    assert weight_in(outputs.logits.sum() - 2.5 * outputs.aux_loss, outputs.aux_loss) == -2.5
    assert weight_in(outputs.logits.detach().sum(), outputs.aux_loss) == 0.0


def test_a_model_without_it_has_none():
    model = tiny_model("deepseek_v3", output_router_logits=True)
    assert own_aux_loss(model(input_ids=IDS)) is None
    assert own_aux_coefficient(nn.Linear(1, 1)) == 0.0
    assert own_aux_loss((torch.zeros(1),)) is None


def test_only_passes_that_are_trained_on_are_noted():
    model, noted = tiny_model("mixtral", output_router_logits=True), OwnAuxLoss()
    noted.attach(model)
    model(input_ids=IDS)
    model.train()
    with torch.no_grad():
        model(input_ids=IDS)
    assert noted.take() is None
    outputs = model(input_ids=IDS)
    assert noted.take() is outputs.aux_loss
    model(input_ids=IDS)
    model(input_ids=IDS)
    assert noted.take() is None
    noted.attach(tiny_model("mixtral"))
    model(input_ids=IDS)
    assert noted.take() is None
