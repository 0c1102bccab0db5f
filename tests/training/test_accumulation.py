"""Counts of a step: hand-worked micro-batches of uneven size."""

import pytest
import torch

from stickymoe.core.errors import SettingError
from stickymoe.losses import Objective
from stickymoe.training.accumulation import StepWeights, count_targets

CPU = torch.device("cpu")

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
    weights.count(BATCHES, CPU)
    assert int(count_targets(BATCHES, CPU)) == 3 + 4
    # pairs: 3 in the first; in the second one crosses documents and two touch padding
    assert {name: float(count) for name, count in weights.normalisers.items()} == {
        "consistency": 3 + 1,
        "router_z": 4 + 4,
    }


def test_labels_at_their_own_positions_count_without_the_first():
    labels = {"input_ids": torch.zeros(1, 4, dtype=torch.long), "labels": torch.tensor([[1, 2, -100, 3]])}
    assert int(count_targets([labels], CPU)) == 2


def test_a_step_without_targets_divides_by_one():
    nothing = {"input_ids": torch.zeros(1, 2, dtype=torch.long), "shift_labels": torch.full((1, 2), -100)}
    assert int(count_targets([nothing], CPU)) == 1


def test_a_batch_without_targets_by_any_name_is_refused():
    with pytest.raises(SettingError, match="labels or shift_labels, got 'input_ids'"):
        count_targets([{"input_ids": torch.zeros(1, 2, dtype=torch.long)}], CPU)


def test_packed_documents_are_counted_by_positions_and_by_borders_that_the_model_is_not_told():
    ids = torch.zeros(1, 6, dtype=torch.long)
    weights = StepWeights(Objective(consistency=1.0))
    weights.count([{"input_ids": ids, "position_ids": torch.tensor([[0, 1, 2, 0, 1, 0]])}], CPU)
    assert float(weights.normalisers["consistency"]) == 3
    weights.count([{"input_ids": ids, "pair_document_ids": torch.tensor([[0, 0, 0, 0, 1, 1]])}], CPU)
    assert float(weights.normalisers["consistency"]) == 4
    weights.forget()
    assert weights.normalisers == {}
