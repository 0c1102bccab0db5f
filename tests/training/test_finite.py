"""A step that is no number is named with its batch; an fp16 overflow is none of ours."""

import math

import numpy as np
import pytest

from stickymoe.core.errors import TrainingError
from stickymoe.training.finite import require_finite
from stickymoe.training.meter import StepFigures


def figures(step=1, losses=(1.0,), terms=None, grad_norm=1.0):
    return StepFigures(step, list(losses), terms or {}, grad_norm, 1.0, 1.0, np.zeros((1, 3)), np.zeros((1, 2)))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            figures(losses=[math.nan]),
            r"cross-entropy is nan at step 1 \(batch 1 of epoch 1, seed 3\); there is no",
        ),
        (figures(step=4, losses=[1.0, math.inf]), r"cross-entropy is inf at step 4 \(batch 2 of epoch 2, seed 3\)"),
        (figures(step=2, losses=[1.0, 1.0], terms={"reuse": math.nan}), r"reuse is nan at step 2 \(batches 3 to 4 of"),
        (figures(step=3, grad_norm=math.inf), r"the gradient's norm is inf at step 3 \(batch 5 of epoch 1"),
    ],
)
def test_what_is_not_finite_is_named_with_step_and_batch(tiny, tmp_path, step, message):
    args = tiny.arguments(tmp_path, gradient_accumulation_steps=2)
    with pytest.raises(TrainingError, match=message) as raised:  # 5 batches an epoch: steps of 2, 2 and 1
        require_finite(step, args, batches_per_epoch=5)
    assert "\n" not in str(raised.value)


def test_finite_steps_pass(tiny, tmp_path):
    require_finite(figures(terms={"reuse": 0.1}, grad_norm=None), tiny.arguments(tmp_path), batches_per_epoch=5)


def test_a_gradient_that_overflows_under_fp16_is_left_to_the_loss_scaler(tiny, tmp_path):
    args = tiny.arguments(tmp_path)
    args.fp16 = True
    require_finite(figures(grad_norm=math.inf), args, batches_per_epoch=5)
