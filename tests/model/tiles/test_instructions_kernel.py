"""The vectors' arithmetic against numpy and torch; it needs no tiles."""

import math

import numpy as np
import pytest
import torch
from numba import njit

from stickymoe.model.tiles.instructions_kernel import add_exponentials, largest, rounded, widened, write_exponentials
from stickymoe.model.tiles.job_kernel import address


@njit
def exponentials_of_row(row, references, to):
    write_exponentials(address(row), address(references), address(to))


@njit
def exponentials_of_pair(rows, references, sums, to):
    add_exponentials(address(rows), rows.shape[1] * 4, address(references), address(sums), address(to))


@njit
def largest_of(rows, result):
    largest(address(rows), rows.shape[1] * 4, address(result))


@njit
def rounded_all(values, bits, back):
    for place in range(values.size):
        bits[place] = rounded(values[place])
        back[place] = widened(bits[place])


def as_floats(pairs):
    """Return what pairs of bfloat16 stand for, the first of each pair, then the second."""
    halves = torch.from_numpy(pairs.view(np.int16).reshape(-1, 2).T.copy())
    return halves.view(torch.bfloat16).double().numpy()


@pytest.mark.parametrize("reference", [0.0, -40.0, 1e6])
def test_an_exponential_is_right_to_the_rounding_over_its_whole_range(reference):
    for start in np.arange(-87, 31, 0.77):
        row = np.linspace(start, start + 0.77, 32).astype(np.float32) + np.float32(reference)
        pairs = np.zeros(16, np.int32)
        exponentials_of_row(row, np.full(32, reference, np.float32), pairs)
        wanted = np.exp(row.astype(np.float64) - reference).reshape(2, 16)
        np.testing.assert_allclose(as_floats(pairs), wanted, rtol=2**-8 + 1e-5)


def test_sums_take_the_exponentials_before_they_are_rounded():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(2, 16)).astype(np.float32) * 5
    references = generator.normal(size=16).astype(np.float32)
    sums, pairs = np.full(16, 0.5, np.float32), np.zeros(16, np.int32)
    exponentials_of_pair(rows, references, sums, pairs)
    wanted = np.exp(rows.astype(np.float64) - references)
    np.testing.assert_allclose(sums, 0.5 + wanted.sum(axis=0), rtol=5e-6)
    np.testing.assert_allclose(as_floats(pairs), wanted, rtol=2**-8 + 1e-5)


def test_an_exponential_of_nothing_is_one_and_of_nan_nan_and_none_is_below_the_smallest_float():
    row = np.zeros(32, np.float32)
    row[:5] = 0, np.nan, -np.nan, -np.inf, -1e30
    pairs = np.zeros(16, np.int32)
    exponentials_of_row(row, np.zeros(32, np.float32), pairs)
    got = as_floats(pairs)[0, :5]
    assert got[0] == 1
    assert np.isnan(got[1:3]).all()
    assert (got[3:] == 2.0**-126).all()


def test_the_largest_of_sixteen_rows_raises_the_result_only():
    rows = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    result = np.zeros(16, np.float32)
    result[3] = 100
    largest_of(rows, result)
    np.testing.assert_array_equal(
        result, np.maximum(rows.max(axis=0), [100 if place == 3 else 0 for place in range(16)])
    )


def test_rounding_to_bfloat16_is_torchs():
    generator = np.random.default_rng(0)
    values = generator.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    ties = ((generator.integers(0, 2**16, 2000, dtype=np.uint32) << 16) + 0x8000).view(np.float32)
    special = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 3.4e38, 1e-45], np.float32)
    values = np.concatenate([values, ties, special])
    bits, back = np.zeros(len(values), np.uint16), np.zeros(len(values), np.float32)
    rounded_all(values, bits, back)
    wanted = torch.from_numpy(values).bfloat16().float().numpy()
    np.testing.assert_array_equal(back, wanted)
    known = ~np.isnan(values)
    np.testing.assert_array_equal(np.signbit(back[known]), np.signbit(wanted[known]))
