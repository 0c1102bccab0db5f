"""The device's own counters: each expert once a pass, and the published runs to the tenth of a percent."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from stickymoe.cache.settings import Semantics
from stickymoe.experiments.diagnosis.budget import Budget, budget_for
from stickymoe.experiments.diagnosis.device import device_check
from stickymoe.experiments.diagnosis.facts import facts_of
from stickymoe.traces import RoutingTrace, read_trace

TRACES = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "traces" / "bigmoeonedge"
BUDGET = Budget(2, 4, None, "")


def trace(**more):
    # two passes: three tokens of prefill, one of decode; expert 1 is asked for twice in the first
    ids = np.array([[[0, 1]], [[1, 2]], [[2, 3]], [[3, 0]]])
    resident = np.array([[[0, 0]], [[0, 1]], [[1, 0]], [[1, 2]]])
    fields = {"phases": np.array([0, 0, 0, 1]), "event_ids": np.array([0, 0, 0, 1]), "resident": resident}
    return RoutingTrace(ids, np.zeros(4, dtype=int), 4, **(fields | more))


def test_an_expert_of_several_tokens_counts_once_a_pass_as_its_first_request():
    found = device_check(trace(), BUDGET, Semantics(), {})
    # prefill asks 0 miss, 1 miss, 2 hit, 3 miss; decode 3 hit, 0 prefetched
    assert found.lookups == 6
    assert found.hit_rate == pytest.approx(3 / 6)
    assert found.decode_hit_rate == 1.0
    assert found.prefetched == pytest.approx(1 / 6)
    assert "each expert once an event" in found.counted


def test_without_passes_every_token_is_one():
    found = device_check(trace(event_ids=None), BUDGET, Semantics(), {})
    assert found.lookups == 8
    assert found.hit_rate == pytest.approx(4 / 8)


def test_what_the_device_did_not_tell_is_left_out():
    some = np.where(np.arange(8).reshape(4, 1, 2) < 6, -1, 1)
    assert device_check(trace(resident=some), BUDGET, Semantics(), {}).lookups == 2


def test_a_trace_without_the_devices_word_says_so(plain_trace):
    unanswered = {}
    assert device_check(plain_trace, BUDGET, Semantics(), unanswered) is None
    assert "resident" in unanswered["the device's hits"]


@pytest.mark.skipif(not TRACES.is_dir(), reason="needs the shared traces")
@pytest.mark.parametrize(
    ("name", "mebibytes", "all_tokens", "decode"), [("gptoss", 3000, 0.324, 0.448), ("qwen", 4000, 0.749, 0.803)]
)
def test_device_and_replay_agree_on_the_published_runs(name, mebibytes, all_tokens, decode):
    run = read_trace(TRACES / f"{name}.route.csv")
    pool = budget_for(facts_of(run, "").sizes, "model", total_bytes=mebibytes * 2**20, asked="")
    found = device_check(run, pool, Semantics(scope="model"), {})
    assert found.hit_rate == pytest.approx(all_tokens, abs=0.0005)
    assert found.replayed == pytest.approx(all_tokens, abs=0.0005)
    assert found.decode_hit_rate == pytest.approx(decode, abs=0.0005)
    assert found.decode_replayed == pytest.approx(decode, abs=0.0005)
    assert found.agrees
    smaller = dataclasses.replace(pool, asked_bytes=500 * 2**20)
    assert not device_check(run, smaller, Semantics(scope="model"), {}).agrees
