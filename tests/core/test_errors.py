"""The error tree: one base, and messages of one line that say what to do."""

import pytest

from stickymoe.core import errors
from stickymoe.core.errors import SettingError, StickyMoEError, TraceWarning

TREE = [value for value in vars(errors).values() if isinstance(value, type) and not issubclass(value, Warning)]


@pytest.mark.parametrize("error", TREE, ids=lambda error: error.__name__)
def test_every_error_is_a_stickymoe_error_and_drawn_in_the_tree(error):
    assert issubclass(error, StickyMoEError)
    assert f"{error.__name__} " in errors.__doc__ or error is StickyMoEError


def test_the_tree_draws_no_error_that_does_not_exist():
    drawn = {word for word in errors.__doc__.replace("`", " ").split() if word.endswith("Error")}
    assert drawn - {"ValueError"} == {error.__name__ for error in TREE}


def test_a_warning_is_no_error_and_stands_beside_the_tree():
    assert not issubclass(TraceWarning, StickyMoEError)
    assert f"`{TraceWarning.__name__}`" in errors.__doc__


def test_a_broken_setting_names_setting_rule_value_and_way_out():
    error = SettingError.broken("cache.capacity", ">= 1", 0, "a cache without room holds nothing")
    assert str(error) == "cache.capacity must be >= 1, got 0; a cache without room holds nothing"


def test_a_broken_setting_without_a_way_out_ends_with_the_value():
    assert str(SettingError.broken("model.router_type", "one of softmax", "soft")) == (
        "model.router_type must be one of softmax, got 'soft'"
    )


def test_a_setting_error_is_caught_as_a_value_error_too():
    with pytest.raises(ValueError, match="window must be"):
        raise SettingError.broken("window", ">= 1", 0)
