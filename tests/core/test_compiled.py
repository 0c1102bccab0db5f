"""Machine code is kept on disk: a second start does not compile."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from stickymoe.core.compiled import borrowed, compiled, inlined

REPLAY = """
import sys
from stickymoe.cache import hit_rate_curve, simulate
from stickymoe.cache.ranks_kernel import add_ranks
from stickymoe.cache.replay_kernel import replay_together
from stickymoe.traces import RoutingTrace

trace = RoutingTrace.from_sequences([[[[0, 1]], [[0, 2]]]], num_experts=4)
simulate(trace, "fifo", 2)
simulate(trace, "belady", 2)
hit_rate_curve(trace, "lru", [1, 2])
for code in (replay_together, add_ranks):
    print(sum(code.stats.cache_hits.values()), sum(code.stats.cache_misses.values()))
"""

ONE = """
import numpy as np
from stickymoe.cache.policies.belady_kernel import next_uses

ids, cold, room = np.zeros((1, 1, 1), np.int32), np.zeros(1, np.bool_), np.zeros(1, np.int64)
next_uses(ids, 1, np.arange(2), cold, False, False, room, room.copy())
print(sum(next_uses.stats.cache_hits.values()), sum(next_uses.stats.cache_misses.values()))
"""


def start(folder: Path, code: str = ONE) -> list[list[int]]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    return [[int(number) for number in line.split()] for line in done.stdout.splitlines()]


def test_a_second_start_finds_the_code_of_the_first(tmp_path):
    assert start(tmp_path, REPLAY) == [[0, 2], [0, 1]]
    assert start(tmp_path, REPLAY) == [[2, 0], [1, 0]]


def test_nowhere_to_write_means_no_more_than_compiling_again(tmp_path):
    # a file where the folder should be
    place = tmp_path / "file"
    place.write_text("")
    code = "from stickymoe.core.compiled import compiled; print(compiled(lambda x: x + 1)(1))"
    source = tmp_path / "code.py"
    source.write_text(code)
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(place),
        "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator",
    }
    done = subprocess.run([sys.executable, source], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == ["2"]


CALLED_BY_C = """
from ctypes import CFUNCTYPE, c_long
from numba import types
from stickymoe.core import compiled

def twice(number):
    return 2 * number

address = compiled.c_function(twice, types.int64(types.int64))
print(CFUNCTYPE(c_long, c_long)(address)(21), compiled._KEPT[0].cache_hits)
"""


def test_what_c_calls_is_found_by_a_second_start_too(tmp_path):
    source = tmp_path / "doubling.py"
    source.write_text(CALLED_BY_C)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    for hits in "01":
        done = subprocess.run([sys.executable, source], capture_output=True, text=True, env=environment, check=True)
        assert done.stdout.split() == ["42", hits]


@inlined
def add_one(values):
    values[0] += 1


@compiled
def add_two(pair):
    pair = borrowed(pair)
    add_one(pair[0])
    add_one(pair[1][0])


def test_borrowed_arrays_are_the_callers_own():
    left, right = np.zeros(1), np.zeros(1, dtype=np.int64)
    for _ in range(3):
        add_two((left, (right, 5)))
    assert (left[0], right[0]) == (3, 3)
    assert sys.getrefcount(left) == 2


def test_a_damaged_store_is_written_anew(tmp_path):
    start(tmp_path)
    for path in tmp_path.rglob("*.nb[ic]"):
        path.write_bytes(path.read_bytes()[:40])
    assert start(tmp_path) == [[0, 1]]
    assert start(tmp_path) == [[1, 0]]


def test_code_of_other_sources_is_not_opened_and_cleared_away(tmp_path):
    start(tmp_path)
    kept = next(tmp_path.rglob("belady_kernel.next_uses-*.nbi"))
    stem = kept.name.split(".py3")[0] + ".py3" + kept.name.split(".py3")[1].split(".")[0]
    old = kept.with_name(f"{stem}.0123456789abcdef.nbi")
    old.write_bytes(b"not to be read")
    kept.unlink()
    assert start(tmp_path) == [[0, 1]]
    assert not old.exists()
