"""The objective of a tuning asks the frozen routers where a term needs them, and is the plain one otherwise."""

import pytest
import torch

from stickymoe.core.errors import SettingError
from stickymoe.experiments.tuning.arguments import TuningArguments
from stickymoe.losses import Objective, trust_loss
from stickymoe.routing import Routing


def routing():
    draw = torch.Generator().manual_seed(0)
    logits = tuple(torch.randn(2, 6, 4, generator=draw) for _ in range(2))
    gates = tuple(layer.softmax(dim=-1) for layer in logits)
    ids = tuple(layer.topk(2).indices for layer in gates)
    return Routing(logits, gates, ids, tuple(each.float() for each in ids))


def built(tmp_path, **settings):
    return TuningArguments(output_dir=str(tmp_path), use_cpu=True, **settings).build_objective()


def test_settings_reach_the_objective_and_nothing_decays(tmp_path):
    settings = {"objective": {"lag": 1.0, "working_set": 1.0, "anchor": 1.0}, "lags": [2], "working_set_window": 3}
    found = built(tmp_path, **settings, window=2)(routing())
    expected = Objective(settings["objective"], lags=[2], working_set_window=3, window=2)(routing())
    assert found.terms == expected.terms
    assert TuningArguments(output_dir=str(tmp_path), use_cpu=True).weight_decay == 0
    with pytest.raises(SettingError, match=r"objective.lags must be different whole numbers >= 1, got \[0\]"):
        TuningArguments(output_dir=str(tmp_path), use_cpu=True, lags=[0])


def test_the_frozen_gates_are_asked_for_once_a_batch(tmp_path):
    objective, asked = built(tmp_path, objective={"trust": 1.0}), []

    def reference(seen):
        asked.append(seen)
        return tuple(layer.flip(-1) for layer in seen.gate_probs)

    objective.reference = reference
    now = routing()
    found = objective(now).terms["trust"]
    torch.testing.assert_close(found, sum(trust_loss(gates, gates.flip(-1)) for gates in now.gate_probs) / 2)
    assert len(asked) == 1
    objective.reference = None
    with pytest.raises(SettingError, match=r"objective.trust must be used with routing.reference_probs"):
        objective(now)
