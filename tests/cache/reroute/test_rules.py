"""What each rule needs of a trace, refused in one line where it is not there."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng

from stickymoe.cache.reroute import simulate_rerouting
from stickymoe.core.errors import SettingError
from stickymoe.traces import RoutingTrace


def recorded(slots: int, *, renormalised: bool = False, experts: int = 6) -> RoutingTrace:
    rng = default_rng(0)
    gates = -np.sort(-rng.dirichlet(np.ones(experts), (5, 2)), axis=-1)[..., :slots]
    if renormalised:
        gates /= gates.sum(-1, keepdims=True)
    ids = np.argsort(rng.random((5, 2, experts)), axis=-1)[..., :slots]
    return RoutingTrace(ids, np.zeros(5, int), experts, expert_weights=gates)


@pytest.mark.parametrize("rule", ["max-rank", "cumulative", "cache-prior"])
def test_with_no_more_slots_than_serve_only_dropping_can_be_replayed(rule):
    with pytest.raises(SettingError, match=f"{rule} needs weights of experts beyond the served ones, .* drop-missing"):
        simulate_rerouting(recorded(2), rule, 1, 2)
    assert simulate_rerouting(recorded(2), "drop-all", 1.0, 2).dropped_share == 0.5


def test_what_lies_past_the_recorded_slots_is_never_guessed():
    with pytest.raises(SettingError, match=r"cache-prior needs the weights of all 6 experts .* the trace has 4"):
        simulate_rerouting(recorded(4), "cache-prior", 0.1, 2, served=2)
    with pytest.raises(SettingError, match=r"reroute.strength must be <= the 4 slots recorded, got 5"):
        simulate_rerouting(recorded(4), "max-rank", 5, 2, served=2)
    with pytest.raises(SettingError, match=r"reroute.strength must be <= 0\.\d+, the least mass recorded \(\d+ of 10"):
        simulate_rerouting(recorded(4), "cumulative", 0.999, 2, served=2)
    with pytest.raises(SettingError, match="as after renormalising; use max-rank"):
        simulate_rerouting(recorded(4, renormalised=True), "cumulative", 0.5, 2, served=2)
    assert simulate_rerouting(recorded(4), "cumulative", 0.3, 2, served=2).choices == 20
    assert simulate_rerouting(recorded(4), "max-rank", 4, 2, served=2).choices == 20


def test_a_trace_without_weights_is_refused():
    bare = replace(recorded(2), expert_weights=None)
    with pytest.raises(SettingError, match=r"trace.expert_weights must be recorded .*; record the trace with gate"):
        simulate_rerouting(bare, "drop-all", 0.5, 2)


@pytest.mark.parametrize(
    ("value", "words"),
    [(np.nan, "got nan at token 3, layer 1, slot 1"), (-0.5, "got -0.5 at token 3, layer 1, slot 1; take the softmax")],
)
def test_weights_that_are_no_gate_mass_are_named(value, words):
    trace = recorded(2)
    weights = trace.expert_weights.copy()
    weights[3, 1, 1] = value
    object.__setattr__(trace, "expert_weights", weights)  # as a reader with a hole of its own might
    with pytest.raises(SettingError, match=words):
        simulate_rerouting(trace, "drop-all", 0.5, 2)


def test_weights_of_nothing_but_zeros_are_refused():
    trace = replace(recorded(2), expert_weights=np.zeros((5, 2, 2), np.float32))
    with pytest.raises(SettingError, match="must hold some gate mass"):
        simulate_rerouting(trace, "drop-all", 0.5, 2)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"rule": "maxrank"}, "did you mean 'max-rank'"),
        ({"strength": 0}, r"reroute.strength must be from 1 to .* \(ranks within"),
        ({"strength": 2.5}, "a whole number of ranks"),
        ({"strength": float("nan")}, "reroute.strength"),
        ({"rule": "drop-all", "strength": 1.5}, "from 0 to 1"),
        ({"keep": 0}, "reroute.keep must be a whole number from 1 to 2, got 0"),
        ({"keep": 3}, "reroute.keep"),
        ({"served": 7}, "reroute.served must be a whole number from 1 to 6, got 7"),
        ({"capacity": -1}, "cache.capacity"),
        ({"policy": "belady"}, "cache.policy must be an online policy, .* knows what will be asked for"),
        ({"policy": "static"}, "cache.policy must be an online policy, .* what a profile chose"),
        ({"policy": "arcs"}, "did you mean 'arc'"),
    ],
)
def test_a_setting_that_breaks_its_rule_is_named(broken, words):
    with pytest.raises(SettingError, match=words):
        simulate_rerouting(recorded(6), **({"rule": "max-rank", "strength": 3, "capacity": 2, "served": 2} | broken))
