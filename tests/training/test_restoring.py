"""A checkpoint's weights come back, those of the experts too."""

import logging

import pytest
import torch
from transformers import Trainer, TrainerCallback

from stickymoe.core.errors import CheckpointError
from stickymoe.training.restoring import restore_weights

pytestmark = pytest.mark.hf
EXPERTS = "model.layers.0.mlp.experts.down_proj"


class StopAfterTwo(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step >= 2


def run(step, folder, *callbacks, kind, objective, resume=False, family="mixtral", **settings):
    chosen = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "learning_rate": 1e-2, **settings}
    trainer, _ = step.trainer(
        step.build(family), step.ragged_rows(), folder, 2, 1, kind=kind, objective=objective, **chosen
    )
    for callback in callbacks:
        trainer.add_callback(callback)
    trainer.train(resume_from_checkpoint=resume)
    return trainer.model.state_dict()


@pytest.mark.parametrize("family", ["mixtral", "gpt_oss"])
def test_a_resumed_trainer_with_the_mixin_ends_as_if_never_stopped(step, tmp_path, family):
    given = {"kind": step.Mixed, "objective": step.OBJECTIVE, "family": family}
    whole = run(step, tmp_path / "whole", **given)
    run(step, tmp_path / "parts", StopAfterTwo(), **given)
    parts = run(step, tmp_path / "parts", resume=True, **given)
    torch.testing.assert_close(parts, whole, rtol=0, atol=0)


def test_the_trainer_alone_leaves_the_experts_behind(step, tmp_path, caplog):
    # Should this fail, transformers has mended it, and `RestoresExperts` can go
    given = {"kind": Trainer, "objective": None, "learning_rate": 0.1}
    with caplog.at_level(logging.ERROR):
        before = run(step, tmp_path / "parts", StopAfterTwo(), **given)[EXPERTS].clone()
        after = run(step, tmp_path / "parts", resume=True, max_steps=2, kind=Trainer, objective=None)[EXPERTS]
    assert not torch.allclose(after, before, atol=1e-2)
    assert torch.equal(after, step.build("mixtral").state_dict()[EXPERTS])


def test_the_best_model_at_the_end_has_the_best_models_experts(step, tmp_path):
    settings = {
        "load_best_model_at_end": True,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "metric_for_best_model": "loss",
    }
    given = {"kind": step.Mixed, "objective": step.OBJECTIVE, "greater_is_better": True}  # the worst, then: the first
    best = run(step, tmp_path / "best", **settings, **given)
    saved = step.build("mixtral", seed=1)
    restore_weights(saved, tmp_path / "best" / "checkpoint-2")
    torch.testing.assert_close(best, saved.state_dict(), rtol=0, atol=0)


def test_every_weight_keeps_its_dtype(step, tmp_path):
    model = step.build("mixtral").to(torch.bfloat16)
    for layer in model.model.layers:
        layer.mlp.gate.float()
        torch.nn.init.normal_(layer.mlp.gate.weight)
    model.save_pretrained(tmp_path)
    other = step.build("mixtral", seed=1).to(torch.bfloat16)
    for layer in other.model.layers:
        layer.mlp.gate.float()
    restore_weights(other, tmp_path)
    torch.testing.assert_close(other.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_weights_of_another_model_are_refused(step, tmp_path):
    step.build("mixtral").save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="must be of shape"):
        restore_weights(step.build("qwen3_moe"), tmp_path)
