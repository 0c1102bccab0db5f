"""Checks of settings: what passes, what is refused, and the word that was meant."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import nearest, require_at_least, require_one_of


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_a_value_passes_exactly_if_it_reaches_the_minimum(value, minimum):
    if value >= minimum:
        require_at_least("x", value, minimum)
    else:
        with pytest.raises(SettingError):
            require_at_least("x", value, minimum)


def test_nan_reaches_no_minimum():
    with pytest.raises(SettingError, match=r"^objective\.consistency must be >= 0, got nan$"):
        require_at_least("objective.consistency", math.nan, 0)


def test_the_way_out_is_passed_on():
    with pytest.raises(SettingError, match=r"^window must be >= 1, got 0; use 4$"):
        require_at_least("window", 0, 1, "use 4")


def test_an_unknown_word_is_answered_with_the_allowed_ones_and_the_nearest():
    with pytest.raises(SettingError) as caught:
        require_one_of("model.preset", "paper-smal", ["paper-small", "paper-medium"])
    assert str(caught.value) == (
        "model.preset must be one of paper-medium, paper-small, got 'paper-smal'; did you mean 'paper-small'?"
    )


def test_an_allowed_word_passes_even_from_an_iterator():
    require_one_of("model.preset", "b", iter(["a", "b"]))


@pytest.mark.parametrize(
    ("word", "answer"),
    [("consistencey", "did you mean 'consistency'?"), ("Anchor", "did you mean 'anchor'?"), ("qqq", "")],
)
def test_the_nearest_word_is_named_only_if_it_is_near(word, answer):
    assert nearest(word, ["consistency", "anchor", "reuse"]) == answer


def test_nothing_is_near_when_nothing_is_known():
    assert nearest("anchor", []) == ""
