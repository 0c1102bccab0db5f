"""Batches of this project's corpora for models that call things otherwise."""

import pytest
import torch

from stickymoe.capture.tiny import tiny_model
from stickymoe.training.model_inputs import fitted_inputs

IDS = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 12, 13, 14]])
DOCUMENTS = torch.tensor([[0, 0, 1, 1, 1], [2, 3, 3, 3, 3]])
pytestmark = pytest.mark.hf


@pytest.fixture(scope="module")
def mixtral():
    return tiny_model("mixtral")


def test_the_reference_model_is_told_all_as_it_stands(tiny):
    batch = {"input_ids": IDS, "shift_labels": IDS, "document_ids": DOCUMENTS}
    assert fitted_inputs(tiny.model(), batch) == batch


def test_aligned_targets_go_to_others_under_both_names(mixtral):
    given = fitted_inputs(mixtral, {"input_ids": IDS, "shift_labels": IDS})
    assert given["labels"] is given["shift_labels"] is IDS
    targets = IDS.roll(-1, dims=1)
    with torch.no_grad():
        logits = mixtral(input_ids=IDS).logits
        loss = mixtral(**fitted_inputs(mixtral, {"input_ids": IDS, "shift_labels": targets})).loss
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()))


def test_documents_become_positions_that_restart(mixtral):
    given = fitted_inputs(mixtral, {"input_ids": IDS, "document_ids": DOCUMENTS})
    assert given["position_ids"].tolist() == [[0, 1, 0, 1, 2], [0, 0, 1, 2, 3]]
    assert given.keys() == {"input_ids", "position_ids", "use_cache"}


@pytest.mark.parametrize("pad", [3, 5])
def test_padding_beside_documents_is_cut_out(mixtral, pad):
    mask = torch.ones_like(IDS)
    mask[0, pad:] = 0
    batch = {"input_ids": IDS, "shift_labels": IDS + 1, "document_ids": DOCUMENTS, "attention_mask": mask}
    given = fitted_inputs(mixtral, batch)
    if pad == 5:  # a mask that masks nothing goes, for with it packed documents would not be told apart
        assert given["position_ids"].shape == (2, 5)
        return
    assert given["input_ids"].tolist() == [[5, 6, 7, 10, 11, 12, 13, 14]]
    assert given["shift_labels"].tolist() == [[6, 7, 8, 11, 12, 13, 14, 15]]
    assert given["position_ids"].tolist() == [[0, 1, 0, 0, 0, 1, 2, 3]]


def test_logits_of_packed_documents_are_those_of_each_alone(mixtral):
    mask = torch.ones_like(IDS)
    mask[0, 3:] = 0
    batch = {"input_ids": IDS, "document_ids": DOCUMENTS, "attention_mask": mask}
    with torch.no_grad():
        packed = mixtral(**fitted_inputs(mixtral, batch)).logits[0]
        alone = [
            mixtral(input_ids=IDS[row : row + 1, begin:end]).logits[0]
            for row, begin, end in ((0, 0, 2), (0, 2, 3), (1, 0, 1), (1, 1, 5))
        ]
    torch.testing.assert_close(packed, torch.cat(alone), rtol=1e-4, atol=1e-5)


def test_the_end_of_a_row_never_predicts_the_beginning_of_the_next(mixtral):
    mask = torch.ones_like(IDS)
    mask[0, :2] = 0
    batch = {"input_ids": IDS, "labels": IDS, "document_ids": DOCUMENTS, "attention_mask": mask}
    assert fitted_inputs(mixtral, batch)["labels"].tolist() == [[-100, 8, 9, -100, 11, 12, 13, 14]]
