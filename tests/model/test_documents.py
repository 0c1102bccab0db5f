"""Where documents begin, worked by hand."""

import torch

from stickymoe.model.documents import document_mask, documents_by_position, positions_in_documents


def ids(*rows):
    return torch.tensor(rows)


def mask(*rows):
    return torch.tensor(rows, dtype=torch.bool)


def test_positions_restart_where_the_id_changes():
    assert positions_in_documents(None, ids([4, 4, 4, 9, 9, 2])).tolist() == [[0, 1, 2, 0, 1, 0]]


def test_an_id_that_comes_back_is_a_new_document():
    packed = ids([7, 7, 1, 7, 7])
    assert positions_in_documents(None, packed).tolist() == [[0, 1, 0, 0, 1]]
    allowed = document_mask(None, packed)[0, 0].int().tolist()
    assert allowed == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 1]]


def test_positions_count_from_the_first_real_token_whatever_id_padding_has():
    real = mask([0, 0, 1, 1, 1, 1, 0])
    for padding in (0, 5, 6, -1):
        packed = ids([padding, padding, 5, 5, 6, 6, padding])
        assert positions_in_documents(real, packed)[0, 2:6].tolist() == [0, 1, 0, 1]


def test_padding_inside_a_document_does_not_end_it():
    real = mask([1, 1, 0, 1, 0, 1])
    packed = ids([3, 3, 8, 3, 8, 4])
    assert positions_in_documents(real, packed)[0, [0, 1, 3, 5]].tolist() == [0, 1, 2, 0]
    allowed = document_mask(real, packed)[0, 0].int()
    assert allowed[3].tolist() == [1, 1, 0, 1, 0, 0]
    assert allowed[5].tolist() == [0, 0, 0, 0, 0, 1]


def test_the_mask_hides_padding_other_documents_and_the_future():
    allowed = document_mask(mask([0, 1, 1, 1, 0]), ids([1, 1, 1, 2, 2]))[0, 0].int().tolist()
    assert allowed[1:4] == [[0, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0]]
    for place, row in enumerate(allowed):
        assert row[place] == 1, "every token, padding too, sees itself, or softmax would be NaN"


def test_all_padding_has_positions_and_a_mask():
    nothing = mask([0, 0, 0])
    assert positions_in_documents(nothing, ids([1, 2, 3])).tolist() == [[0, 0, 0]]
    assert document_mask(nothing, ids([1, 2, 3]))[0, 0].int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_positions_alone_tell_documents_apart():
    assert documents_by_position(ids([0, 1, 2, 0, 1, 0], [3, 4, 5, 6, 7, 8])).tolist() == [
        [0, 0, 0, 1, 1, 2],
        [0, 0, 0, 0, 0, 0],
    ]
