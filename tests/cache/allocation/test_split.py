"""The best split beside every split there is."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stickymoe.cache.allocation import best_split, best_split_of_bytes, equal_split, misses_of
from stickymoe.cache.allocation import split as room
from stickymoe.core.errors import SettingError

patient = settings(deadline=None, max_examples=80)


@st.composite
def curves(draw, most: int = 4) -> np.ndarray:
    layers, columns = draw(st.integers(1, 4)), draw(st.integers(2, most + 1))
    misses = draw(st.lists(st.integers(0, 9), min_size=layers * columns, max_size=layers * columns))
    return np.array(misses).reshape(layers, columns)  # of any shape: more slots may even miss more


def every_split(misses: np.ndarray, sizes: np.ndarray, budget: int, at_least: int) -> list[np.ndarray]:
    choices = (range(at_least, misses.shape[1]) for _ in misses)
    return [np.array(split) for split in product(*choices) if np.dot(split, sizes) <= budget]


@patient
@given(curves(), st.integers(0, 20), st.integers(0, 1))
def test_the_split_is_the_best_of_all(misses, slots, at_least):
    ones = np.ones(len(misses), dtype=int)
    splits = every_split(misses, ones, slots, at_least)
    if not splits:
        with pytest.raises(SettingError, match=r"allocation.budget must be >= "):
            best_split(misses, slots, at_least=at_least)
        return
    found = best_split(misses, slots, at_least=at_least)
    assert found.sum() <= slots
    assert found.min() >= at_least
    assert misses_of(misses, found).sum() == min(misses_of(misses, split).sum() for split in splits)


@patient
@given(curves(), st.integers(0, 200), st.integers(0, 1), st.data())
def test_a_split_of_bytes_is_the_best_of_all(misses, budget, at_least, data):
    sizes = np.array(data.draw(st.lists(st.integers(1, 12), min_size=len(misses), max_size=len(misses))))
    splits = every_split(misses, sizes, budget, at_least)
    if not splits:
        with pytest.raises(SettingError, match="bytes"):
            best_split_of_bytes(misses, budget, sizes, at_least=at_least)
        return
    found = best_split_of_bytes(misses, budget, sizes, at_least=at_least)
    assert found @ sizes <= budget
    assert misses_of(misses, found) @ sizes == min(misses_of(misses, split) @ sizes for split in splits)


@patient
@given(curves(), st.integers(0, 4000), st.data())
def test_a_coarser_unit_never_passes_the_budget(misses, budget, data):
    sizes = np.array(data.draw(st.lists(st.integers(50, 250), min_size=len(misses), max_size=len(misses))))
    if budget < sizes.sum():
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "MAX_UNITS", 16)
        found = best_split_of_bytes(misses, budget, sizes)
    assert found @ sizes <= budget
    assert found.min() >= 1


@patient
@given(curves(most=6), st.integers(1, 30))
def test_it_never_misses_more_than_equal_shares_where_it_was_fitted(misses, slots):
    equal = equal_split(len(misses), slots, misses.shape[1] - 1)
    if equal.min() >= 1:
        assert misses_of(misses, best_split(misses, slots)).sum() <= misses_of(misses, equal).sum()


def test_splits_worked_by_hand():
    misses = np.array([[9, 8, 7, 6], [9, 1, 1, 1], [9, 9, 9, 0]])
    assert best_split(misses, 4, at_least=0).tolist() == [0, 1, 3]
    assert best_split(misses, 5).tolist() == [1, 1, 3]
    assert best_split(misses, 3).tolist() == [1, 1, 1]
    assert best_split(misses, 10**9).tolist() == [3, 1, 3]  # the second gains nothing from more
    assert equal_split(3, 7, 3).tolist() == [3, 2, 2]
    assert equal_split(3, 70, 3).tolist() == [3, 3, 3]
    assert misses_of(misses, np.array([1, 7, 3])).tolist() == [8, 1, 0]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"slots": 1}, "allocation.budget must be >= 2 slots, 1 slots for each of 2 layers, got 1"),
        ({"slots": -1}, "allocation.budget must be a whole number >= 0, got -1"),
        ({"at_least": -1}, "allocation.at_least must be a whole number >= 0"),
        ({"at_least": 3}, "allocation.at_least must be <= 1, the experts of a layer, got 3"),
    ],
)
def test_a_setting_that_breaks_its_rule_is_named(broken, words):
    with pytest.raises(SettingError, match=words):
        best_split(np.array([[1, 0], [1, 0]]), **({"slots": 2} | broken))
