"""libCacheSim as a second opinion on one request at a time. It is GPL: never imported here, run where it is installed.

STICKYMOE_LIBCACHESIM=/path/to/python pytest tests/cache/test_libcachesim.py
"""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from numpy.random import default_rng

from stickymoe.cache import hit_rate_curve
from stickymoe.traces import RoutingTrace

PYTHON = os.environ.get("STICKYMOE_LIBCACHESIM") or (
    sys.executable if importlib.util.find_spec("libcachesim") else None
)
pytestmark = pytest.mark.skipif(PYTHON is None, reason="libcachesim is not installed")

NAMES = {"LRU": "lru", "FIFO": "fifo", "LFU": "lfu-cache", "ARC": "arc", "Sieve": "sieve", "Belady": "belady"}
CAPACITIES = [1, 2, 3, 5, 8, 13, 21, 34]

# oracleGeneral: time, object, size, place of the next request of the same object (-1: none)
ORACLE = """
import json, sys
import libcachesim as lcs

file, names, capacities, requests = json.loads(sys.argv[1])
found = {}
for name in names:
    for capacity in capacities:
        reader = lcs.TraceReader(trace=file, trace_type=lcs.TraceType.ORACLE_GENERAL_TRACE)
        cache = getattr(lcs, name)(cache_size=capacity, hashpower=12)
        missed, _ = cache.process_trace(reader)
        found[f"{name} {capacity}"] = requests - round(missed * requests)
print(json.dumps(found))
"""
RECORD = np.dtype([("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])


def requests_file(stream: np.ndarray) -> np.ndarray:
    records = np.zeros(stream.size, dtype=RECORD)
    records["time"], records["object"], records["size"], records["next"] = np.arange(stream.size), stream, 1, -1
    last: dict[int, int] = {}
    for place, block in enumerate(stream.tolist()):
        if block in last:
            records["next"][last[block]] = place
        last[block] = place
    return records


@pytest.mark.parametrize("skew", [0.0, 1.0])
def test_one_request_at_a_time_is_counted_alike(tmp_path, skew):
    rng = default_rng(int(skew))
    weight = (1.0 + np.arange(40)) ** -skew
    # a popular half that drifts, so that recency and frequency both tell something
    stream = np.concatenate([rng.permutation(40)[rng.choice(40, 700, p=weight / weight.sum())] for _ in range(6)])
    file = tmp_path / "requests.bin"
    requests_file(stream + 1).tofile(file)
    asked = json.dumps([str(file), list(NAMES), CAPACITIES, stream.size])
    done = subprocess.run([PYTHON, "-c", ORACLE, asked], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    trace = RoutingTrace(stream[:, None, None], np.zeros(stream.size, int), 40)
    for name, policy in NAMES.items():
        reports = hit_rate_curve(trace, policy, CAPACITIES, replay="sequential")
        assert [report.hits for report in reports] == [told[f"{name} {capacity}"] for capacity in CAPACITIES], name
