"""Other people's traces: the counts that their own engines and simulators published, or measured on the device."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stickymoe.cache import hit_rate_curve, simulate
from stickymoe.traces import RoutingTrace, read_trace

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
TRACES = SHARED / "data" / "traces"
pytestmark = pytest.mark.skipif(not TRACES.exists(), reason="the public traces are not here")

# The engine's own way: an event is a forward pass, never split; all layers share one pool of bytes.
ENGINE = {"prefill": "pass", "count": "unique", "reset": "never", "scope": "model", "admission": "whole"}


@cache
def expected() -> dict[str, Any]:
    return json.loads((SHARED / "golden" / "public_traces.json").read_text())


@cache
def trace_of(name: str) -> RoutingTrace:
    found = read_trace(TRACES / name)
    assert isinstance(found, RoutingTrace)
    return found


@pytest.mark.parametrize("model", ["gptoss", "qwen"])
def test_lru_finds_what_the_phone_found(model):
    told = expected()["bigmoeonedge"][model]
    trace = trace_of(f"bigmoeonedge/{model}.route.csv")
    report = simulate(trace, "lru", capacity_bytes=told["budget_mib"] * 2**20, **ENGINE)
    assert round(100 * report.hit_rate, 1) == told["device_measured_cumulative_hit_pct"]
    # what the device noted beside each access, decode alone: prefill's rows tell one access several times
    decode = trace.select(phase="decode")
    assert report.phase("decode")[0] == np.count_nonzero(decode.resident == 1)
    assert report.phase("decode")[1] == np.count_nonzero(decode.resident == 0)


@pytest.mark.parametrize("model", ["gptoss", "qwen"])
@pytest.mark.parametrize("policy", ["lru", "lfu", "per_layer_lru"])
def test_decode_hit_rates_of_a_budget_in_bytes_are_the_published_ones(model, policy):
    told = expected()["bigmoeonedge"][model]["decode_hit_pct"][policy]
    options = ENGINE | {"scope": "layer" if policy == "per_layer_lru" else "model"}
    name = "lfu" if policy == "lfu" else "lru"
    budgets = [int(mib) * 2**20 for mib in told]
    reports = hit_rate_curve(trace_of(f"bigmoeonedge/{model}.route.csv"), name, budgets, in_bytes=True, **options)
    for report, percent in zip(reports, told.values(), strict=True):
        hits, misses = report.phase("decode")
        # half a digit, and the published ones were rounded from binary fractions
        assert abs(100 * hits / (hits + misses) - percent) <= 0.05 + 1e-9, report.describe()


@pytest.mark.parametrize("model", ["gptoss", "qwen"])
def test_belady_over_experts_of_different_size_is_the_published_one(model):
    rows = expected()["bigmoeonedge"][model]["belady_random"]
    rows = {int(key.split(":")[0]): value for key, value in rows.items() if key.endswith("belady")}
    for mib, (cumulative, decode) in rows.items():
        report = simulate(trace_of(f"bigmoeonedge/{model}.route.csv"), "belady", capacity_bytes=mib * 2**20, **ENGINE)
        hits, misses = report.phase("decode")
        assert round(100 * report.hit_rate, 3) == cumulative
        assert round(100 * hits / (hits + misses), 3) == decode


def test_the_seventy_granite_counts_come_out():
    names = {"oracle": "belady", "fifo": "fifo", "lru": "lru", "lfu": "lfu", "static_pin": "static"}
    per_layer = {"equal_oracle": "belady", "equal_lru": "lru"}
    trace = trace_of("onnx-genai/moe_expert_trace.json")
    counts = 0
    for prompt, rows in expected()["onnx-genai"]["page_ins"].items():
        number = trace.provenance["sequences"].index(prompt)
        decode = trace.select(phase="decode", sequences=[number])
        for share, row in rows.items():
            for name in names | per_layer:
                scope = "layer" if name in per_layer else "model"
                report = simulate(decode, (names | per_layer)[name], float(share), scope=scope)
                assert (report.misses, report.lookups) == (row[name], row["accesses"]), report.describe()
                assert scope == "layer" or report.semantics["capacity"] == row["budget"]
                counts += 1
    assert counts == 70


@pytest.mark.parametrize("model", ["a-main-s1", "b-main-s1"])
def test_misses_a_token_are_the_published_ones_and_the_true_belady(model):
    told = expected()["cacheable-by-design"]
    trace = trace_of(f"cacheable-by-design/{model}/trace_prose.npz")
    for policy in ("lru", "static", "belady"):
        reports = hit_rate_curve(trace, policy, [0.125, 0.25, 0.5], replay="sequential", reset="never")
        for report, (share, row) in zip(reports, told["published"][model]["prose"]["miss"].items(), strict=True):
            right = row[policy]
            if policy == "belady":  # the published bound is not optimal: it may drop what the same token still needs
                right = told["true_belady"][model]["prose"][str(report.semantics["capacity"])]
                assert right < row[policy]
            assert round(report.misses / trace.num_tokens, 4) == right, (share, report.describe())


@pytest.mark.parametrize("text", ["code", "general"])
def test_qwen_is_counted_as_libcachesim_and_independent_code_count_it(text):
    told = expected()["qwen3-30b-a3b first 2000 tokens"]["data"][f"qwen3-30b-a3b/{text}[first 2000 tokens]"]
    trace = trace_of(f"qwen3-30b-a3b/{text}.npz").head(2000)
    capacities = [8, 16, 24, 32, 64]
    sequential = {"LRU": "lru", "LFU": "lfu-cache", "Belady": "belady", "FIFO": "fifo", "ARC": "arc", "Sieve": "sieve"}
    atomic = {"LRU": "lru", "Belady_forced_admit": "belady"}
    for kind, names in (("sequential", sequential), ("atomic", atomic)):
        found = "sequential_hits" if kind == "sequential" else "event_atomic_hits"
        for name, policy in names.items():
            reports = hit_rate_curve(trace, policy, capacities, replay=kind, reset="never")
            right = [told[f"per_layer_{capacity}"][found][name] for capacity in capacities]
            assert [report.hits for report in reports] == right, name
