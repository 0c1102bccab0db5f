"""Sizes and capacities as people write them, and what is refused in one line."""

import click
import pytest

from stickymoe.cli.quantities import Bytes, Capacities, Capacity


def capacities(text, **options):
    return Capacities(**options).convert(text, None, None)


def slots(text):
    return [each.slots for each in capacities(text)]


def test_a_range_has_both_ends():
    assert slots("8:64:8") == [8, 16, 24, 32, 40, 48, 56, 64]
    assert slots("2:4") == [2, 3, 4]
    assert slots("8:20:8") == [8, 16]
    assert slots("5:5:1") == [5]


def test_lists_ranges_shares_and_bytes_mix_in_the_order_given():
    assert capacities("32, 25%,4GiB,1:2") == [
        Capacity("32", slots=32),
        Capacity("25%", share=0.25),
        Capacity("4GiB", total_bytes=2**32),
        Capacity("1", slots=1),
        Capacity("2", slots=2),
    ]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("13219200", 13219200),
        ("4GiB", 2**32),
        ("4GB", 4 * 10**9),
        ("4G", 2**32),
        ("512 mib", 2**29),
        ("1.5k", 1536),
        ("100B", 100),
        (".5TiB", 2**39),
    ],
)
def test_bytes_know_their_units(text, count):
    assert Bytes().convert(text, None, None) == count


def test_each_spelling_becomes_the_argument_that_simulate_takes():
    keywords = [each.keywords() for each in capacities("32,25%,1KiB")]
    assert keywords == [{"capacity": 32}, {"capacity": 0.25}, {"capacity_bytes": 1024}]


@pytest.mark.parametrize(
    "text",
    ["", "x", "4QiB", "8:", "64:8:8", "8:64:0", "8:64:-8", "1:2:3:4", "0%", "101%", "3.5", "-4", "8,,16", "1:99999999"],
)
def test_what_is_no_capacity_is_refused_with_the_way_out(text):
    with pytest.raises(click.BadParameter) as caught:
        capacities(text)
    assert repr(text.split(",")[0])[1:-1] in caught.value.message or "at most" in caught.value.message
    assert "\n" not in caught.value.message


def test_a_budget_is_one_size():
    with pytest.raises(click.BadParameter, match="one size"):
        capacities("8,16", single=True)
    assert capacities("8", single=True) == [Capacity("8", slots=8)]


@pytest.mark.parametrize("text", ["25%", "x", ""])
def test_a_share_is_no_number_of_bytes(text):
    with pytest.raises((click.BadParameter, ValueError)):
        Bytes().convert(text, None, None)
