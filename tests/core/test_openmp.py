"""Machine code on torch's threads."""

import subprocess
import sys

import numpy as np
import pytest
import torch  # brings the threads
from numba import carray, types

from stickymoe.core import openmp
from stickymoe.core.compiled import c_function

SIGNATURE = types.void(types.CPointer(types.int64))


def count_up(data):
    numbers = carray(data, 2)
    numbers[0] += numbers[1]


@pytest.mark.skipif(not openmp.shares_threads(), reason="torch's threads are not of GNU OpenMP")
def test_every_thread_calls_the_code_and_the_call_waits_for_all():
    # unguarded additions may be lost, but not all of them, and none comes late
    numbers = np.array([0, 3])
    openmp.on_all_threads(c_function(count_up, SIGNATURE), numbers.ctypes.data, 4)
    after = int(numbers[0])
    assert after in (3, 6, 9, 12)
    torch.ones(1000, 1000).sum()
    assert numbers[0] == after


@pytest.mark.parametrize("threads", [1, 4])
def test_alone_or_without_openmp_the_code_is_called_once(monkeypatch, threads):
    if threads > 1:
        monkeypatch.setattr(openmp, "_gomp_parallel", lambda: None)
        assert not openmp.shares_threads()
    numbers = np.array([5, 3])
    openmp.on_all_threads(c_function(count_up, SIGNATURE), numbers.ctypes.data, threads)
    assert numbers[0] == 8


def test_no_second_library_is_loaded_for_it():
    code = "from stickymoe.core.openmp import shares_threads; print(shares_threads())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
