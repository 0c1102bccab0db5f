"""Counts of a step: hand-worked micro-batches of uneven size."""

import torch

from stickymoe.losses import Objective
from stickymoe.training.accumulation import StepWeights

BATCHES = [
    {"input_ids": torch.zeros(1, 4, dtype=torch.long), "shift_labels": torch.tensor([[1, 2, -100, 3]])},
    {
        "input_ids": torch.zeros(2, 3, dtype=torch.long),
        "shift_labels": torch.tensor([[1, 2, 3], [4, -100, -100]]),
        "attention_mask": torch.tensor([[1, 1, 1], [1, 0, 0]]),
        "document_ids": torch.tensor([[0, 0, 1], [2, 2, 2]]),
    },
]


def test_targets_tokens_and_pairs_are_counted_over_all_micro_batches():
    weights = StepWeights(Objective(consistency=1.0, router_z=1.0, load_balancing=1.0))
    assert float(weights.count(BATCHES, torch.device("cpu"))) == 3 + 4
    # pairs: 3 in the first; in the second one crosses documents and two touch padding
    assert {name: float(count) for name, count in weights.normalisers.items()} == {
        "consistency": 3 + 1,
        "router_z": 4 + 4,
    }


def test_labels_at_their_own_positions_count_without_the_first():
    labels = {"input_ids": torch.zeros(1, 4, dtype=torch.long), "labels": torch.tensor([[1, 2, -100, 3]])}
    assert float(StepWeights(Objective()).count([labels], torch.device("cpu"))) == 2


def test_a_step_without_targets_divides_by_one():
    nothing = {"input_ids": torch.zeros(1, 2, dtype=torch.long), "shift_labels": torch.full((1, 2), -100)}
    assert float(StepWeights(Objective()).count([nothing], torch.device("cpu"))) == 1
