"""Replay with prefetch, beside caches kept in plain dictionaries."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.cache import simulate
from stickymoe.cache.intervention import online_policies
from stickymoe.cache.prefetch import PREDICTORS, predict, simulate_prefetch
from stickymoe.core.errors import SettingError
from stickymoe.traces import RoutingTrace

patient = settings(deadline=None, max_examples=40)
GOLDEN = Path(__file__).resolve().parents[3].parent / "shared" / "golden" / "traces.json"
EXPERTS = 6
ONLINE = sorted(online_policies())
OPTIONS = st.fixed_dictionaries(
    {
        "scope": st.sampled_from(["layer", "model"]),
        "reset": st.sampled_from(["sequence", "never"]),
    }
)


@st.composite
def traces(draw) -> RoutingTrace:
    tokens, layers, top_k = draw(st.integers(1, 14)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rng = default_rng(draw(st.integers(0, 2**32)))
    ids = np.argsort(rng.random((tokens, layers, EXPERTS)), axis=-1)[..., :top_k]
    filled = rng.integers(draw(st.sampled_from([0, top_k])), top_k + 1, (tokens, layers))
    filled[0] = np.maximum(filled[0], 1)
    ids[np.arange(top_k) >= filled[..., None]] = -1
    weights = -np.sort(-rng.random(ids.shape), axis=-1)
    return RoutingTrace(ids, np.sort(rng.integers(0, 3, tokens)), EXPERTS, expert_weights=weights)


def slowly(trace, guesses, capacity, make, *, budget, lookahead, transfer_events, policy, scope, reset):
    """Hits, late, misses, fetched and useful per layer of caches held as {block: facts}; (layers, 5)."""
    layers, pooled = trace.num_layers, scope == "model"
    counts = np.zeros((layers, 5), dtype=int)
    caches: dict[int, dict] = {}
    policies: dict = {}
    busy = 0.0

    def of(layer):
        number = 0 if pooled else layer
        return caches.setdefault(number, {}), policies[number]

    for event in range(trace.num_tokens * layers):
        t, layer = divmod(event, layers)
        starts = t == 0 or trace.sequence_ids[t] != trace.sequence_ids[t - 1]
        if layer == 0 and t and starts and reset == "never":
            for each in policies.values():
                each.open_sequence()
        elif layer == 0 and starts:
            size = layers if pooled else 1
            number = range(1 if pooled else layers)
            policies = {place: make(policy, size * EXPERTS, min(capacity, size * EXPERTS), size) for place in number}
            caches, busy = {}, 0.0
        cache, rules = of(layer)
        rules.open_event(layer if pooled else 0)
        wanted = [
            (EXPERTS * layer * pooled + int(e), slot) for slot, e in enumerate(trace.expert_ids[t, layer]) if e >= 0
        ]
        for block, slot in wanted:
            held = cache.get(block)
            if held is None:
                counts[layer, 2] += 1
            else:
                counts[layer, 1 if held["ahead"] and held["arrives"] > event else 0] += 1
                counts[layer, 4] += held["ahead"]
                held["ahead"] = False
            rules.touch(block, 0.0 if trace.expert_weights is None else float(trace.expert_weights[t, layer, slot]))
        wanted = [block for block, _ in wanted]
        cache.update({block: {"ahead": False} for block in wanted if block not in cache})
        while len(cache) > capacity:
            del cache[rules.evict(set(wanted) if set(cache) - set(wanted) else set())]
        row, target = divmod(event + lookahead, layers)
        if row >= trace.num_tokens or trace.sequence_ids[row] != trace.sequence_ids[t]:
            continue
        if not pooled and target != layer:
            wanted = []
        cache, rules = of(target)
        expected = [EXPERTS * target * pooled + int(e) for e in guesses[row, target] if e >= 0]
        made = 0
        for block in expected:
            if made == budget:
                break
            if block in cache:
                continue
            if len(cache) >= capacity and not set(cache) - set(expected) - set(wanted):
                break
            rules.fetch(block)
            busy = max(busy, event) + transfer_events
            cache[block] = {"ahead": True, "arrives": busy}
            if len(cache) > capacity:
                del cache[rules.evict(set(expected) | set(wanted))]
            counts[target, 3] += 1
            made += 1
    return counts


@patient
@given(
    trace=traces(),
    name=st.sampled_from(sorted(PREDICTORS)),
    capacity=st.integers(0, 9),
    budget=st.integers(0, 4),
    lookahead=st.integers(1, 5),
    transfer=st.sampled_from([0.0, 0.25, 0.5, 1.5]),
    options=OPTIONS,
)
@pytest.mark.parametrize("policy", ONLINE)
def test_counts_equal_those_of_slow_caches(
    slow_policy, policy, trace, name, capacity, budget, lookahead, transfer, options
):
    settings_ = {"budget": budget, "lookahead": lookahead, "transfer_events": transfer, "policy": policy} | options
    report = simulate_prefetch(trace, name, capacity, **settings_)
    expected = slowly(trace, predict(trace, name, lookahead=lookahead), capacity, slow_policy, **settings_)
    columns = ("hits", "late", "misses", "fetched", "useful")
    found = np.stack([getattr(report, f"{column}_per_layer") for column in columns], axis=1)
    assert found.tolist() == expected.tolist()


@patient
@given(traces(), st.sampled_from(sorted(PREDICTORS)), st.integers(1, 9), st.sampled_from(ONLINE), OPTIONS)
def test_a_budget_of_nothing_is_plain_replay(trace, name, capacity, policy, options):
    report = simulate_prefetch(trace, name, capacity, budget=0, policy=policy, **options)
    plain = simulate(trace, policy, capacity, **options)
    assert report.hits_per_layer.tolist() == plain.hits_per_layer.tolist()
    assert report.misses_per_layer.tolist() == plain.misses_per_layer.tolist()
    assert report.plain_misses_per_layer.tolist() == plain.misses_per_layer.tolist()
    assert (report.fetched, report.late, report.accuracy) == (0, 0, None)


@pytest.mark.skipif(not GOLDEN.exists(), reason="golden values are not here")
@pytest.mark.parametrize("policy", ["lru", "fifo", "lfu"])
def test_a_budget_of_nothing_has_the_golden_hits_and_misses(policy):
    rows = 0
    for case in json.loads(GOLDEN.read_text()):
        trace = RoutingTrace.from_sequences(case["expert_ids"], num_experts=case["num_experts"])
        for name, scope, accesses, mode, reset, capacity, hits, misses in case["expected"]["simulations"]["rows"]:
            if (name, accesses, mode) == (policy, "topk", "atomic"):
                cache = {"policy": policy, "scope": scope, "reset": reset}
                report = simulate_prefetch(trace, "oracle", capacity, budget=0, **cache)
                assert (report.hits, report.misses) == (hits, misses), report.describe()
                rows += 1
    assert rows > 0


@patient
@given(traces(), st.integers(3, 9), st.integers(1, 4), st.data())
def test_an_oracle_turns_misses_into_fetches_one_for_one(trace, capacity, budget, data):
    # True while nothing else happens in that cache between fetch and use: up to one token ahead, a cache a layer. And
    # of LRU: what is pinned while a fetch looks for room would be the last to leave anyway, not so of few uses.
    lookahead = data.draw(st.integers(1, trace.num_layers))
    report = simulate_prefetch(trace, "oracle", capacity, budget=budget, lookahead=lookahead, policy="lru")
    assert report.misses + report.fetched == report.plain_misses
    assert report.useful == report.fetched


@patient
@given(traces(), st.integers(3, 9), st.integers(1, 4))
def test_an_oracle_one_layer_ahead_never_misses_more_in_a_pool(trace, capacity, budget):
    report = simulate_prefetch(trace, "oracle", capacity, budget=budget, scope="model")
    assert report.misses <= report.plain_misses


@patient
@given(
    traces(),
    st.sampled_from(sorted(PREDICTORS)),
    st.integers(1, 9),
    st.integers(0, 4),
    st.sampled_from(ONLINE),
    OPTIONS,
)
def test_lookups_and_fetches_add_up(trace, name, capacity, budget, policy, options):
    sizes = np.arange(1, trace.num_layers + 1)
    report = simulate_prefetch(trace, name, capacity, budget=budget, policy=policy, expert_bytes=sizes, **options)
    assert report.lookups == np.count_nonzero(trace.expert_ids >= 0)
    assert 0 <= report.useful <= report.fetched == report.useful + report.wasted
    assert report.loaded_bytes == (sizes * (report.misses_per_layer + report.fetched_per_layer)).sum()
    assert report.over_fetch_bytes == (sizes * (report.fetched_per_layer - report.useful_per_layer)).sum()


def test_prefetch_worked_by_hand():
    # One layer, one slot: 0 1 0 1. The oracle fetches each while the one before runs, but may not drive that one out.
    trace = RoutingTrace.from_sequences([[[[0]], [[1]], [[0]], [[1]]]], num_experts=2)
    assert simulate_prefetch(trace, "oracle", 1, budget=1).fetched == 0
    # Two slots: 1 is fetched while 0 runs for the first time, and from then on both are there.
    report = simulate_prefetch(trace, "oracle", 2, budget=1)
    assert (report.hits, report.misses, report.fetched, report.plain_misses) == (3, 1, 1, 2)
    # A fetch that takes one event and a half is not there at the next.
    late = simulate_prefetch(trace, "oracle", 2, budget=1, transfer_events=1.5)
    assert (late.hits, late.late, late.misses, late.useful) == (2, 1, 1, 1)


def test_the_last_token_is_no_guess_worth_making_where_it_is_resident():
    trace = RoutingTrace(default_rng(0).integers(0, 6, (40, 3, 1)), np.zeros(40, int), 6)
    assert simulate_prefetch(trace, "previous-token", 2, budget=4).fetched == 0
    pooled = simulate_prefetch(trace, "previous-token", 2, budget=4, scope="model")
    assert pooled.fetched > 0


def test_a_split_of_slots_and_predictions_of_ones_own_are_taken():
    trace = RoutingTrace(default_rng(0).integers(0, 6, (40, 2, 1)), np.zeros(40, int), 6)
    report = simulate_prefetch(trace, trace.expert_ids, [1, 3], budget=1, lookahead=2)
    assert report.semantics["predictor"] == "given"
    assert report.plain_misses_per_layer.tolist() == [
        simulate(trace, "lru", capacity).misses_per_layer[layer] for layer, capacity in enumerate((1, 3))
    ]
    assert report.misses_per_layer[1] == 1  # the very first
    half, three = (simulate_prefetch(trace, "oracle", size, budget=1).as_dict() for size in (0.5, 3))
    assert half == three
    sizes = [each.hits for each in (simulate_prefetch(trace, "oracle", size, budget=1) for size in (6, 10**30))]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"predictor": "oracles"}, "did you mean 'oracle'"),
        ({"predictor": np.zeros((1, 1, 1))}, "prefetch.predictor must be whole numbers shaped"),
        ({"predictor": np.full((2, 1, 1), 9)}, "expert ids from 0 to 1"),
        ({"capacity": -1}, r"cache.capacity must be a whole number of slots >= 0 or a share in \(0, 1\], got -1"),
        ({"capacity": [1, 2]}, "as long as the trace has layers, 1, where it is a split"),
        ({"capacity": 1.5}, "cache.capacity must be a whole number of slots"),
        ({"capacity": [1], "scope": "model"}, "cache.capacity must be one number unless the scope is layer"),
        ({"budget": -1}, "prefetch.budget must be a whole number >= 0"),
        ({"budget": True}, "prefetch.budget"),
        ({"lookahead": 0}, "prefetch.lookahead must be a whole number >= 1"),
        ({"transfer_events": -1.0}, "prefetch.transfer_events"),
        ({"policy": "belady"}, "cache.policy must be an online policy, .* knows what will be asked for"),
        ({"policy": "belady-bypass"}, "cache.policy must be an online policy, .* knows what will be asked for"),
        ({"policy": "static"}, "cache.policy must be an online policy, .* what a profile chose"),
        ({"policy": "lrru"}, "did you mean 'lru'"),
        ({"policy": "score-ema"}, "cache.policy must be one that needs no weights for this trace"),
        ({"policy": "slru", "options": {"protected": 2}}, "cache.options.protected"),
        ({"scope": "all"}, "cache.scope"),
        ({"reset": "always"}, "cache.reset"),
        ({"expert_bytes": 0}, "cache.expert_bytes must be whole bytes >= 1"),
        ({"expert_bytes": [1, 2, 3]}, "cache.expert_bytes"),
    ],
)
def test_a_setting_that_breaks_its_rule_is_named(broken, words):
    trace = RoutingTrace.from_sequences([[[[0]], [[1]]]], num_experts=2)
    with pytest.raises(SettingError, match=words):
        simulate_prefetch(trace, **({"predictor": "oracle", "capacity": 1, "budget": 1} | broken))


def test_a_report_is_json_and_says_how_it_was_counted():
    trace = RoutingTrace.from_sequences([[[[0]], [[1]]]], num_experts=2)
    report = simulate_prefetch(trace, "oracle", 2, budget=1, transfer_events=0.5)
    told = json.loads(json.dumps(report.as_dict()))
    assert told["over_fetch_bytes"] is None
    assert (told["hits"], told["misses"], told["semantics"]["lookahead"]) == (1, 1, 1)
    assert (
        told["description"]
        == report.describe()
        == (
            "oracle prefetch, 1 ahead, at most 1 an event, LRU, capacity 2 (every expert fits) a layer, "
            "top-1 accesses, atomic, "
            "cold at each sequence, each fetch takes 0.5 events on one link"
        )
    )
