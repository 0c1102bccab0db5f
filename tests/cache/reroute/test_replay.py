"""Rerouting and dropping, beside rules written down token by token."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.cache import simulate
from stickymoe.cache.intervention import online_policies
from stickymoe.cache.reroute import RULES, simulate_rerouting
from stickymoe.traces import RoutingTrace

patient = settings(deadline=None, max_examples=80)
EXPERTS = 6
STRENGTHS = {
    "max-rank": [1, 2, 3, 6, 9],
    "cumulative": [0.0, 0.3, 0.8, 1.0],
    "cache-prior": [0.0, 0.05, 0.5, 3.0],
    "drop-missing": [0.0, 0.4, 1.0],
    "drop-all": [0.0, 0.4, 1.0],
}
ONLINE = sorted(online_policies())
OPTIONS = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(ONLINE),
        "scope": st.sampled_from(["layer", "model"]),
        "reset": st.sampled_from(["sequence", "never"]),
    }
)


def weighted(seed: int, tokens: int, layers: int, slots: int, *, coarse: bool = False, holes: bool = False):
    """Softmax over all experts, of which `slots` are recorded, the heaviest first and the others in any order."""
    rng = default_rng(seed)
    logits = np.cumsum(rng.normal(size=(tokens, layers, EXPERTS)), axis=0) * 0.6
    logits = np.round(logits) if coarse else logits
    gates = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    order = np.argsort(-gates, axis=-1, kind="stable")[..., :slots]
    shuffled = np.concatenate([order[..., :1], rng.permuted(order[..., 1:], axis=-1)], axis=-1)
    weights = np.take_along_axis(gates, shuffled, axis=-1)
    if holes:
        filled = rng.integers(0, slots + 1, (tokens, layers))
        filled[0] = np.maximum(filled[0], 1)
        shuffled[np.arange(slots) >= filled[..., None]] = -1
    return RoutingTrace(shuffled, np.sort(rng.integers(0, 3, tokens)), EXPERTS, expert_weights=weights)


def slowly(trace, rule, strength, capacity, make, *, keep, served, policy, scope, reset):
    """Hits, misses, changed, dropped per layer, and gate mass before and after."""
    layers, pooled = trace.num_layers, scope == "model"
    counts = np.zeros((layers, 4), dtype=int)
    mass = np.zeros((layers, 2))
    caches: dict[int, set] = {}
    policies: dict = {}
    ranges: dict[int, list[float]] = {layer: [] for layer in range(layers)}
    for t in range(trace.num_tokens):
        starts = t == 0 or trace.sequence_ids[t] != trace.sequence_ids[t - 1]
        if t and starts and reset == "never":
            for each in policies.values():
                each.open_sequence()
        elif starts:
            size, numbers = (layers, range(1)) if pooled else (1, range(layers))
            policies = {place: make(policy, size * EXPERTS, min(capacity, size * EXPERTS), size) for place in numbers}
            caches = {}
        for layer in range(layers):
            cache = caches.setdefault(0 if pooled else layer, set())
            rules = policies[0 if pooled else layer]
            rules.open_event(layer if pooled else 0)
            slots = [i for i, e in enumerate(trace.expert_ids[t, layer]) if e >= 0]
            if not slots:
                continue
            weight = {i: float(trace.expert_weights[t, layer, i]) for i in slots}
            block = {i: EXPERTS * layer * pooled + int(trace.expert_ids[t, layer, i]) for i in slots}
            ranked = sorted(slots, key=lambda i: (-weight[i], i))
            own, kept, rest = ranked[:served], ranked[: min(keep, served)], ranked[min(keep, served) :]
            logit = {i: math.log(max(weight[i], 1e-38)) for i in slots}
            ranges[layer].append(logit[ranked[0]] - logit[ranked[-1]])
            if rule.startswith("drop"):
                heavy = [i for i in own[len(kept) :] if weight[i] >= strength * weight[ranked[0]]]
                spared = [i for i in own[len(kept) :] if rule == "drop-missing" and block[i] in cache]
                chosen = set(kept) | set(heavy) | set(spared)
            else:
                if rule == "cache-prior":
                    bonus = strength * np.mean(ranges[layer])
                    rest = sorted(rest, key=lambda i: (-(logit[i] + bonus * (block[i] in cache)), ranked.index(i)))
                else:
                    reach = int(strength)
                    if rule == "cumulative":
                        sums = np.cumsum([weight[i] for i in ranked])
                        reach = next((n + 1 for n, total in enumerate(sums) if total >= strength), len(ranked))
                    promoted = [i for i in rest if block[i] in cache and ranked.index(i) < reach]
                    rest = promoted + [i for i in rest if i not in promoted]
                chosen = set((kept + rest)[: len(own)])
            mass[layer] += sum(weight[i] for i in own), sum(weight[i] for i in chosen)
            counts[layer, 3 if rule.startswith("drop") else 2] += len(set(own) - chosen)
            asked = [block[i] for i in slots if i in chosen]
            missing = [b for b in asked if b not in cache]
            counts[layer, :2] += len(asked) - len(missing), len(missing)
            for i in slots:
                if i in chosen:
                    rules.touch(block[i], weight[i])
            cache |= set(missing)
            while len(cache) > capacity:
                cache.remove(rules.evict(set(asked) if cache - set(asked) else set()))
    return counts, mass


@pytest.mark.parametrize("rule", sorted(RULES))
@patient
@given(
    sizes=st.tuples(st.integers(0, 2**32), st.integers(1, 14), st.integers(1, 3)),
    shape=st.fixed_dictionaries({"coarse": st.booleans(), "holes": st.booleans()}),
    capacity=st.integers(0, 9),
    data=st.data(),
    options=OPTIONS,
)
def test_counts_and_mass_equal_those_of_rules_written_down(slow_policy, rule, sizes, shape, capacity, data, options):
    trace = weighted(*sizes, EXPERTS, **shape)
    strength = data.draw(st.sampled_from(STRENGTHS[rule]))
    served = data.draw(st.integers(1, EXPERTS))
    keep = data.draw(st.integers(1, served))
    report = simulate_rerouting(trace, rule, strength, capacity, keep=keep, served=served, **options)
    counts, mass = slowly(trace, rule, strength, capacity, slow_policy, keep=keep, served=served, **options)
    columns = ("hits", "misses", "changed", "dropped")
    found = np.stack([getattr(report, f"{column}_per_layer") for column in columns], axis=1)
    assert found.tolist() == counts.tolist()
    assert report.own_mass_per_layer == pytest.approx(mass[:, 0])
    assert report.served_mass_per_layer == pytest.approx(mass[:, 1])


@patient
@given(st.integers(0, 2**32), st.integers(0, 9), st.sampled_from(sorted(RULES)), OPTIONS)
def test_a_rule_of_no_strength_is_plain_replay(seed, capacity, rule, options):
    trace = weighted(seed, 14, 2, 3, holes=True)
    weakest = {"max-rank": 2}.get(rule, 0.0)
    if not rule.startswith("drop"):
        trace = weighted(seed, 14, 2, EXPERTS)
    served = 2 if not rule.startswith("drop") else 3
    report = simulate_rerouting(trace, rule, weakest, capacity, served=served, **options)
    assert report.misses_per_layer.tolist() == report.plain_misses_per_layer.tolist()
    assert (report.changed_share, report.dropped_share, report.mass_lost, report.misses_saved) == (0, 0, 0, 0)
    if rule.startswith("drop"):  # all slots are served, so the trace itself is replayed
        plain = simulate(trace, options["policy"], capacity, scope=options["scope"], reset=options["reset"])
        assert report.misses_per_layer.tolist() == plain.misses_per_layer.tolist()


@patient
@given(st.integers(0, 2**32), st.integers(1, 6), st.floats(0, 1))
def test_shares_stay_in_their_ranges_and_choices_add_up(seed, capacity, strength):
    trace = weighted(seed, 14, 2, EXPERTS, holes=True)
    for rule in ("cumulative", "drop-missing", "drop-all"):
        report = simulate_rerouting(trace, rule, strength, capacity, served=3)
        assert report.hits + report.misses + report.dropped_per_layer.sum() == report.choices
        assert 0 <= report.mass_lost <= 1
        assert 0 <= report.changed_share <= 1
        assert report.hit_rate <= 1


def test_promotion_and_dropping_worked_by_hand():
    # one layer, one slot, served by 2 of three recorded: {0 1} {1 0} {1 2}
    ids = np.array([[[0, 1, 2]], [[1, 0, 2]], [[1, 2, 0]]])
    weights = np.array([[[0.5, 0.3, 0.2]], [[0.5, 0.4, 0.1]], [[0.6, 0.3, 0.1]]])
    trace = RoutingTrace(ids, np.zeros(3, int), 3, expert_weights=weights)
    # 0 and 1 miss, 1 stays | 1 hits, 0 misses and is what stays | 1 misses, then 0 hits in the place of 2; 1 stays
    promoted = simulate_rerouting(trace, "max-rank", 3, 1, served=2)
    assert (promoted.hits, promoted.misses, int(promoted.changed_per_layer.sum())) == (2, 4, 1)
    assert promoted.mass_lost == pytest.approx(0.2 / 2.6)
    dropped = simulate_rerouting(trace, "drop-missing", 1.0, 1, served=2)
    # 0 misses, 1 is not worth a load | 1 misses, 0 hits, used last: it stays | 1 misses, 2 is not worth a load
    assert (dropped.hits, dropped.misses) == (1, 3)
    assert dropped.mass_lost == pytest.approx(1 - (0.5 + 0.9 + 0.6) / (0.8 + 0.9 + 0.9))


def test_cache_prior_turns_a_close_choice_but_not_a_clear_one():
    # ranges 2, 2, 2 (logits 2 1 0); served 1 of 3 beside... keep 1 of 2: the second place goes to a resident third
    logits = np.array([[[2.0, 1.0, 0.0]], [[2.0, 0.1, 0.0]], [[2.0, 1.9, 0.0]]])
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    ids = np.array([[[0, 1, 2]], [[0, 2, 1]], [[0, 2, 1]]])
    trace = RoutingTrace(ids, np.zeros(3, int), 3, expert_weights=weights)
    report = simulate_rerouting(trace, "cache-prior", 0.5, 2, served=2)  # a bonus of 1 logit
    # token 1: resident 1 (logit 0) passes 2 (0.1); token 2: 1 (0 + 1) does not pass 2 (1.9)
    assert (report.hits, report.misses, int(report.changed_per_layer.sum())) == (3, 3, 1)


def test_a_report_is_json_and_says_how_it_was_counted():
    trace = weighted(0, 14, 2, EXPERTS)
    report = simulate_rerouting(trace, "max-rank", 4, 2, served=2)
    told = json.loads(json.dumps(report.as_dict()))
    assert told["misses"] == report.misses
    assert (
        told["description"]
        == report.describe()
        == (
            "max-rank 4 (ranks within which a cached expert is promoted), top 1 always kept, "
            "2 of 6 recorded slots served, LRU, capacity 2 a layer, atomic, cold at each sequence"
        )
    )
