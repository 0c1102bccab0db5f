"""A pass ahead of time finds what would fail later, and leaves no trace."""

import pytest
import torch

from stickymoe.core.errors import SettingError
from stickymoe.data.encoding import EncodedText
from stickymoe.data.rows import PackedRows
from stickymoe.experiments.tuning.rehearsal import rehearse

pytestmark = pytest.mark.hf


def rows():
    return PackedRows([EncodedText(torch.arange(3, 50, dtype=torch.int32).numpy())], 40)


def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@pytest.mark.parametrize("training", [True, False])
def test_it_leaves_model_gradients_and_hooks_as_they_were(small, training):
    model = small.model().train(training)
    before = hooks(model)
    rehearse(model, rows(), small.settings("remoe"))
    assert model.training == training
    assert hooks(model) == before
    assert all(weight.grad is None for weight in model.parameters())


def test_a_model_that_a_term_cannot_take_is_found_before_anything_is_trained(small):
    model = small.model("switch_transformers").train()
    with pytest.raises(SettingError, match=r"objective.trust must be 0 for a model with an encoder and a decoder"):
        rehearse(model, rows(), small.settings("remoe"))
    assert hooks(model) == 0
    assert model.training
