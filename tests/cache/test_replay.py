"""Replay in machine code, beside step-by-step replay, a cache of ages in a dictionary and golden counts."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stickymoe.cache import POLICIES, CachePolicy, CacheReport, hit_rate_curve, make_policy, simulate
from stickymoe.cache.objects import ObjectCache, used
from stickymoe.core.errors import SettingError
from stickymoe.traces import PREFILL, RoutingTrace

patient = settings(deadline=None, max_examples=60)
GOLDEN = Path(__file__).resolve().parents[2].parent / "shared" / "golden" / "traces.json"
TRACES = st.from_type(RoutingTrace)
OPTIONS = st.fixed_dictionaries(
    {
        "scope": st.sampled_from(["layer", "model"]),
        "accesses": st.sampled_from(["topk", "top1"]),
        "replay": st.sampled_from(["atomic", "sequential"]),
        "prefill": st.sampled_from(["token", "pass"]),
        "count": st.sampled_from(["assignments", "unique"]),
        "reset": st.sampled_from(["sequence", "never"]),
        "batch": st.sampled_from([1, 2, 3]),
    }
)
NAMES = sorted(POLICIES)


def passes(trace: RoutingTrace, rows: list[int], prefill: str) -> Iterator[list[int]]:
    """Split a sequence's rows into what is one event, by hand."""
    now: list[int] = []
    for row in rows:
        if now:
            same = trace.event_ids is not None and trace.event_ids[row] == trace.event_ids[now[-1]]
            if trace.event_ids is None:
                same = trace.phases[row] == trace.phases[now[-1]] == PREFILL
            if prefill == "token" or not same:
                yield now
                now = []
        now.append(row)
    yield now


def steps(trace: RoutingTrace, prefill: str, batch: int) -> Iterator[tuple[list[int], bool, bool]]:
    """Yield the rows of each step, and whether a cold start or at least a new sequence comes before it."""
    sequences = []
    for name in dict.fromkeys(trace.sequence_ids.tolist()):
        rows = np.flatnonzero(trace.sequence_ids == name).tolist()
        sequences.append(list(passes(trace, rows, prefill)))
    for first in range(0, len(sequences), batch):
        group = sequences[first : first + batch]
        for number in range(max(map(len, group))):
            yield [row for each in group for row in each[number : number + 1] for row in row], number == 0, first == 0


def step_by_step(trace: RoutingTrace, policy: str, budget: int, sizes: np.ndarray, admission: str, **options: Any):
    """Count hits, misses, compulsory misses and loads by driving policy objects; (4, layers, phases)."""
    pooled, sequential = options["scope"] == "model", options["replay"] == "sequential"
    unique = options["count"] == "unique"
    slots = 1 if options["accesses"] == "top1" else trace.top_k
    counts = np.zeros((4, trace.num_layers, 2), dtype=int)
    for pool in range(1 if pooled else trace.num_layers):
        layers = list(range(trace.num_layers)) if pooled else [pool]
        events: list[tuple[str, Any]] = []
        for rows, opens, first in steps(trace, options["prefill"], options["batch"]):
            if opens:
                events.append(("cold" if options["reset"] == "sequence" or first else "sequence", None))
            for at, layer in enumerate(layers):
                events.append(("layer", at))
                asked = [
                    (int(trace.expert_ids[row, layer, slot]) + at * trace.num_experts, row, float(weight))
                    for row in rows
                    for slot, weight in enumerate(trace.expert_weights[row, layer, :slots])
                    if trace.expert_ids[row, layer, slot] >= 0
                ]
                events += [("ask", (layer, [each])) for each in asked] if sequential else [("ask", (layer, asked))]
        starts = [place for place, (what, _) in enumerate(events) if what == "cold"] + [len(events)]
        for start, stop in pairwise(starts):
            future = [[block for block, _, _ in told[1]] for what, told in events[start:stop] if what == "ask"]
            made = make_policy(policy, len(layers) * trace.num_experts, capacity=budget, layers=len(layers))
            made.foresee([used(event, unique) for event in future])
            room = np.repeat(sizes[layers], trace.num_experts).tolist()
            cache, seen = ObjectCache(made, budget, admission, room), set()
            for what, told in events[start:stop]:
                if what == "sequence":
                    made.open_sequence()
                elif what == "layer":
                    made.open_event(told)
                elif what == "ask":
                    layer, asked = told
                    blocks = [block for block, _, _ in asked]
                    found = cache.ask(blocks, [weight for _, _, weight in asked], unique=unique)
                    for place, (block, row, _) in enumerate(asked):
                        phase, first = trace.phases[row], block not in blocks[:place]
                        if first or not unique:
                            counts[0 if block in found else 1, layer, phase] += 1
                            counts[2, layer, phase] += block not in found and block not in seen
                        counts[3, layer, phase] += first and block not in found
                    seen |= set(blocks)
    return counts


def counted(report: CacheReport) -> list[Any]:
    hits, misses = (np.stack([report.per_phase[name][kind] for name in ("prefill", "decode")], 1) for kind in (0, 1))
    return [hits.tolist(), misses.tolist(), report.compulsory_per_layer.tolist(), report.loads_per_layer.tolist()]


@settings(deadline=None, max_examples=25)
@pytest.mark.parametrize("policy", [name for name in NAMES if name != "static"])
@given(TRACES, st.integers(0, 12), OPTIONS, st.sampled_from(["always", "whole", "bypass"]))
def test_the_compiled_loop_counts_what_the_policy_object_does_step_by_step(policy, trace, budget, options, admission):
    if POLICIES[policy].admission is not None or (admission == "bypass" and policy in ("slru", "arc", "sieve")):
        admission = "always"
    admits = POLICIES[policy].admission or admission
    blocks = trace.num_experts * (trace.num_layers if options["scope"] == "model" else 1)
    slots = min(budget, blocks) if "slots" in POLICIES[policy].needs else budget
    expected = step_by_step(trace, policy, slots, np.ones(trace.num_layers, int), admits, **options)
    report = simulate(trace, policy, budget, admission=admission, **options)
    kinds = [expected[0].tolist(), expected[1].tolist(), expected[2].sum(1).tolist(), expected[3].sum(1).tolist()]
    assert counted(report) == kinds


@settings(deadline=None, max_examples=25)
@pytest.mark.parametrize("policy", ["lru", "lfu", "sieve", "moe-infinity", "belady", "belady-bypass"])
@given(TRACES, st.integers(0, 20), OPTIONS, st.sampled_from(["always", "whole"]))
def test_experts_of_different_size_share_a_pool_to_the_byte(policy, trace, budget, options, admission):
    if POLICIES[policy].admission is not None:
        admission = "always"
    admits = POLICIES[policy].admission or admission
    options |= {"scope": "model"}
    report = simulate(trace, policy, capacity_bytes=budget, admission=admission, **options)
    sizes = trace.expert_bytes
    equal = len(set(sizes.tolist())) == 1
    room = budget // int(sizes[0]) if equal else budget
    expected = step_by_step(trace, policy, room, np.ones_like(sizes) if equal else sizes, admits, **options)
    assert report.hits_per_layer.tolist() == expected[0].sum(axis=1).tolist()
    assert report.loads_per_layer.tolist() == expected[3].sum(axis=1).tolist()
    assert report.bytes_moved == int((expected[3].sum(axis=1) * sizes).sum())


def by_age(trace: RoutingTrace, capacity: int, *, scope: str, accesses: str, replay: str, reset: str) -> np.ndarray:
    """Hits and misses per layer of LRU caches that keep the last use of every block; (layers, 2)."""
    counts = np.zeros((trace.num_layers, 2), dtype=int)
    caches: dict[int, set[tuple[int, int]]] = {}
    last_use: dict[tuple[int, int], int] = {}
    clock, sequence = 0, None
    for t in range(trace.num_tokens):
        if reset == "sequence" and trace.sequence_ids[t] != sequence:
            caches, sequence = {}, trace.sequence_ids[t]
        for layer in range(trace.num_layers):
            cache = caches.setdefault(layer if scope == "layer" else 0, set())
            ids = [(layer, int(e)) for e in trace.expert_ids[t, layer][: 1 if accesses == "top1" else None] if e >= 0]
            for event in [ids] if replay == "atomic" else [[block] for block in ids]:
                hits = sum(block in cache for block in event)
                counts[layer] += hits, len(event) - hits
                for block in event:
                    clock += 1
                    last_use[block] = clock
                cache |= set(event)
                while len(cache) > capacity:
                    cache.remove(min(cache - set(event) or cache, key=last_use.__getitem__))
    return counts


@patient
@given(TRACES, st.integers(0, 12), OPTIONS)
def test_lru_equals_a_cache_of_ages(trace, capacity, options):
    options = {name: options[name] for name in ("scope", "accesses", "replay", "reset")}
    report = simulate(trace, "lru", capacity, **options)
    expected = by_age(trace, capacity, **options)
    assert report.hits_per_layer.tolist() == expected[:, 0].tolist()
    assert report.misses_per_layer.tolist() == expected[:, 1].tolist()


@pytest.mark.skipif(not GOLDEN.exists(), reason="golden values are not here")
def test_golden_traces_have_their_golden_hits_and_misses():
    policies = set()
    for case in json.loads(GOLDEN.read_text()):
        trace = RoutingTrace.from_sequences(case["expert_ids"], num_experts=case["num_experts"])
        for name, scope, accesses, mode, reset, capacity, hits, misses in case["expected"]["simulations"]["rows"]:
            report = simulate(trace, name, capacity, scope=scope, accesses=accesses, replay=mode, reset=reset)
            assert (report.hits, report.misses) == (hits, misses), report.describe()
            policies.add(name)
    assert policies == {"lru", "fifo", "lfu", "belady"}


def test_the_public_conformance_trace_hits_12_of_30():
    sets = [[0, 1], [0, 2], [0, 1], [0, 3], [0, 1]]
    report = simulate(RoutingTrace.from_sequences([[[pair] * 3 for pair in sets]], num_experts=4), "lru", 2)
    assert (report.lookups, report.hits, report.misses) == (30, 12, 18)
    assert report.hits_per_layer.tolist() == [4, 4, 4]
    assert report.compulsory == 12


@patient
@given(TRACES, st.sampled_from(NAMES), st.integers(0, 12), OPTIONS)
def test_every_lookup_hits_or_misses_and_first_uses_miss(trace, policy, capacity, options):
    report = simulate(trace, policy, capacity, **options)
    slots = trace.expert_ids[..., :1] if options["accesses"] == "top1" else trace.expert_ids
    if options["count"] == "assignments" or options["replay"] == "sequential":
        assert report.lookups == (slots >= 0).sum()
    assert (report.compulsory_per_layer <= report.misses_per_layer).all()
    assert (report.loads_per_layer <= report.misses_per_layer).all()
    assert [sum(each) for each in zip(*map(report.phase, ("prefill", "decode")), strict=True)] == [
        report.hits,
        report.misses,
    ]


@patient
@given(TRACES, st.sampled_from([name for name in NAMES if name != "static"]), OPTIONS)
def test_a_cache_with_room_for_all_misses_first_uses_alone(trace, policy, options):
    report = simulate(trace, policy, 2 * trace.num_experts * trace.num_layers, **options)
    assert report.misses_per_layer.tolist() == report.compulsory_per_layer.tolist()
    assert "every expert fits" in report.describe()


@patient
@given(TRACES, st.sampled_from(NAMES), OPTIONS)
def test_a_cache_of_nothing_misses_everything_and_says_so(trace, policy, options):
    report = simulate(trace, policy, 0, **options)
    assert report.hits == 0
    assert "capacity 0 (nothing is kept)" in report.describe()


@patient
@given(TRACES, st.integers(0, 6), OPTIONS, st.sampled_from(["lru", "belady", "belady-bypass"]))
def test_a_larger_cache_never_hits_less_with_lru_or_a_bound(trace, capacity, options, policy):
    smaller, larger = (simulate(trace, policy, size, **options) for size in (capacity, capacity + 1))
    assert larger.loads <= smaller.loads
    assert policy != "lru" or (larger.hits_per_layer >= smaller.hits_per_layer).all()


@patient
@given(TRACES, st.sampled_from(NAMES), st.integers(0, 8), OPTIONS, st.sampled_from(["always", "bypass"]))
def test_no_policy_beats_its_bound(trace, policy, capacity, options, admission):
    if POLICIES[policy].admission is not None or policy in ("slru", "arc", "sieve"):
        admission = "always"
    report = simulate(trace, policy, capacity, admission=admission, **options)
    bound = simulate(
        trace, "belady" if report.semantics["admission"] == "always" else "belady-bypass", capacity, **options
    )
    assert report.loads + report.profile.get("loads_ahead", 0) * report.profile.get("cold_starts", 0) >= bound.loads


@patient
@given(TRACES, st.permutations(range(5)), st.sampled_from(NAMES), st.integers(0, 6), OPTIONS)
def test_other_names_for_the_experts_change_no_count(trace, names, policy, capacity, options):
    renamed = RoutingTrace(
        np.append(names, -1)[trace.expert_ids],
        trace.sequence_ids,
        5,
        expert_weights=trace.expert_weights,
        phases=trace.phases,
        event_ids=trace.event_ids,
    )
    before, after = (simulate(each, policy, capacity, **options) for each in (trace, renamed))
    if policy == "static":  # equals are told apart by their names
        assert after.hits == before.hits
    else:
        assert after.hits_per_layer.tolist() == before.hits_per_layer.tolist()


def test_a_cache_smaller_than_an_event_keeps_what_the_policy_likes_best():
    # [1 0]: 0 is resident and hits; both were used, 0 last, so that 1 leaves again
    trace = RoutingTrace.from_sequences([[[[0, -1]], [[1, 0]], [[1, -1]], [[0, -1]]]], num_experts=2)
    report = simulate(trace, "lru", 1)
    assert (report.hits, report.misses) == (1, 4)


def test_an_event_that_is_never_split_may_take_more_than_the_capacity():
    trace = RoutingTrace.from_sequences([[[[0, 1]], [[1, 0]], [[2, -1]], [[0, -1]]]], num_experts=3)
    assert simulate(trace, "lru", 1, admission="whole").hits == 2
    assert simulate(trace, "lru", 1).hits == 1


def test_a_users_own_policy_is_given_the_slots():
    seen = []

    def own(capacity: int) -> CachePolicy:
        seen.append(capacity)
        return make_policy("lru", 5)

    trace = RoutingTrace.from_sequences([[[[0]], [[1]], [[0]]]], num_experts=2)
    report = simulate(trace, own, 1)
    assert (report.hits, report.misses, seen) == (0, 3, [1])
    assert report.semantics["policy"] == "own"


@patient
@given(TRACES, st.integers(0, 6), OPTIONS, st.sampled_from(["lru", "belady"]))
def test_a_users_own_policy_is_counted_as_ours(trace, capacity, options, name):
    blocks = trace.num_experts * trace.num_layers
    own = simulate(trace, lambda slots: make_policy(name, blocks, capacity=slots), capacity, **options)
    assert counted(own) == counted(simulate(trace, name, capacity, **options))


TINY = RoutingTrace.from_sequences([[[[0]]]], num_experts=2)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"capacity": -1}, r"cache.capacity must be a whole number of slots >= 0 or a share in \(0, 1\], got -1"),
        ({"capacity": 1.5}, "cache.capacity .* got 1.5"),
        ({"capacity": float("nan")}, "cache.capacity .* got nan"),
        ({"capacity": True}, "cache.capacity"),
        ({"capacity": None}, "cache.capacity must be given once"),
        ({"capacity_bytes": 5}, "cache.capacity must be given once"),
        ({"capacity": None, "capacity_bytes": 5}, "cache.capacity_bytes must be used with a trace that knows"),
        ({"capacity": None, "capacity_bytes": -5, "expert_bytes": 1}, "cache.capacity_bytes .* got -5"),
        ({"expert_bytes": 0}, "cache.expert_bytes"),
        ({"expert_bytes": [1, 2]}, "cache.expert_bytes"),
        ({"policy": "lruu"}, "cache.policy must be one of .*, got 'lruu'; did you mean 'lru'"),
        ({"policy": "score-ema"}, "cache.policy must be one that needs no weights for this trace"),
        ({"scope": "layers"}, "cache.scope .* did you mean 'layer'"),
        ({"scope": [1, -1]}, "cache.scope .* got -1"),
        ({"capacity": None, "scope": [1, 1]}, "cache.scope must be as long as the trace has layers, 1"),
        ({"accesses": "all"}, "cache.accesses must be one of top1, topk"),
        ({"replay": "sequence"}, "cache.replay"),
        ({"prefill": "pass"}, "cache.prefill must be token for a trace without phases or event_ids"),
        ({"reset": "always"}, "cache.reset"),
        ({"count": "uniq"}, "cache.count"),
        ({"admission": "never"}, "cache.admission"),
        ({"admission": "bypass", "policy": "arc"}, "cache.admission .* for arc"),
        ({"admission": "whole", "policy": "static"}, "cache.admission must be left out for static"),
        ({"batch": 0}, "cache.batch"),
        ({"options": {"decay": 1}}, "cache.options must be none: lru has no options, got 'decay'"),
        ({"policy": "slru", "options": {"protekted": 1}}, "did you mean 'protected'"),
        ({"policy": "slru", "options": {"protected": 1}}, "cache.options.protected"),
        ({"profile": 0.5}, "cache.profile must be left out unless the policy is static"),
    ],
)
def test_a_setting_that_breaks_its_rule_is_named(broken, words):
    with pytest.raises(SettingError, match=words) as raised:
        simulate(TINY, **({"capacity": 1} | broken))
    assert "\n" not in str(raised.value)


def test_a_report_says_how_it_was_counted():
    trace = RoutingTrace.from_sequences([[[[0, 1], [1, 0]], [[0, 1], [0, 1]]]], num_experts=4)
    paper = simulate(trace, "lru", 2, accesses="top1", replay="sequential")
    assert paper.describe() == "LRU, capacity 2 a layer, top-1 accesses, sequential, cold at each sequence"
    pooled = simulate(trace, "slru", 3, scope="model", reset="never", count="unique", admission="whole", batch=2)
    assert pooled.describe() == (
        "SLRU, capacity 3 for the whole model, top-2 accesses, atomic, one cache through the whole trace, "
        "2 sequences a step, each expert once an event, the running event is never split, protected 0.8"
    )
    assert pooled.semantics == {
        "policy": "slru",
        "capacity": 3,
        "capacity_bytes": None,
        "scope": "model",
        "accesses": "topk",
        "top_k": 2,
        "num_experts": 4,
        "replay": "atomic",
        "prefill": "token",
        "count": "unique",
        "reset": "never",
        "admission": "whole",
        "batch": 2,
        "options": {"protected": 0.8},
    }


def test_a_report_is_json_with_its_rates():
    trace = RoutingTrace.from_sequences([[[[0], [1]], [[0], [0]]]], num_experts=2)
    report = simulate(trace, "lru", 1, expert_bytes=[3, 4])
    assert isinstance(report, CacheReport)
    told = json.loads(json.dumps(report.as_dict()))
    assert told["hit_rate"] == 0.25
    assert told["hit_rate_per_layer"] == [0.5, 0.0]
    assert (told["lookups"], told["hits"], told["misses"], told["compulsory"]) == (4, 1, 3, 3)
    assert (told["loads"], told["bytes_moved"]) == (3, 11)
    assert told["description"] == report.describe()


def test_a_layer_that_nobody_asked_has_no_hit_rate():
    trace = RoutingTrace(np.array([[[0], [-1]], [[0], [-1]]]), [0, 0], 2)
    report = simulate(trace, "lru", 1)
    assert report.hit_rate == 0.5
    assert np.isnan(report.hit_rate_per_layer[1])
    assert json.loads(json.dumps(report.as_dict(), allow_nan=False))["hit_rate_per_layer"] == [0.5, None]


def test_prefill_and_decode_are_told_apart():
    trace = RoutingTrace(np.array([[[0]], [[0]], [[0]]]), [0, 0, 0], 2, phases=[0, 0, 1])
    report = simulate(trace, "lru", 1)
    assert report.phase("prefill") == (1, 1)
    assert report.phase("decode") == (1, 0)
    assert report.as_dict()["phases"] == {"prefill": {"hits": 1, "misses": 1}, "decode": {"hits": 1, "misses": 0}}
    # in one pass, both prefill tokens are looked up before anything is loaded; it is loaded once
    united = simulate(trace, "lru", 1, prefill="pass")
    assert united.phase("prefill") == (0, 2)
    assert united.loads == 1
    assert simulate(trace, "lru", 1, prefill="pass", count="unique").phase("prefill") == (0, 1)


def test_a_batch_unites_the_sequences_of_a_step():
    trace = RoutingTrace(np.array([0, 1, 0, 1])[:, None, None], [0, 0, 1, 1], 2)
    alone = simulate(trace, "lru", 1, reset="never")
    together = simulate(trace, "lru", 1, reset="never", batch=2)
    assert (alone.hits, alone.loads) == (0, 4)
    assert (together.hits, together.misses, together.loads) == (0, 4, 2)
    assert simulate(trace, "lru", 1, reset="never", batch=2, replay="sequential").hits == 2


def test_a_shared_pool_under_one_tokens_demand_is_warned_of():
    rng = np.random.default_rng(0)
    ids = np.argsort(rng.random((40, 3, 4)), axis=-1)[..., :2]
    trace = RoutingTrace(ids, np.zeros(40, int), 4)
    warned = simulate(trace, "lru", 4, scope="model")
    assert warned.hits == 0
    assert warned.cliff == warned.as_dict()["cliff"]
    assert "asks for 6 slots over 3 layers and the shared pool holds 4" in warned.cliff
    assert "cannot hit between neighbouring tokens at 4 slots or fewer" in warned.cliff
    assert simulate(trace, "lru", 5, scope="model").hits > 0
    assert simulate(trace, "lru", 6, scope="model").cliff is None
    assert simulate(trace, "lru", 1).cliff is None


def test_a_share_and_bytes_are_turned_into_slots():
    rng = np.random.default_rng(0)
    ids = np.argsort(rng.random((40, 2, 5)), axis=-1)[..., :2]
    trace = RoutingTrace(ids, np.zeros(40, int), 5, expert_bytes=[10, 20])
    assert simulate(trace, "lru", 0.5).semantics["capacity"] == 3
    assert simulate(trace, "lru", 0.5, scope="model").semantics["capacity"] == 5
    assert simulate(trace, "lru", 1.0).hits == simulate(trace, "lru", 5).hits
    assert simulate(trace, "lru", 1).hits < simulate(trace, "lru", 1.0).hits
    of_bytes = simulate(trace, "lru", capacity_bytes=80)
    assert of_bytes.semantics["capacity"] == [4, 2]
    assert of_bytes.hits_per_layer.tolist() == simulate(trace, "lru", scope=[4, 2]).hits_per_layer.tolist()
    assert "capacity 80 bytes (6 slots) shared out evenly over the layers" in of_bytes.describe()
    assert simulate(trace, "lru", scope=[4, 2]).describe().startswith("LRU, capacity 6 split over 2 layers")
    assert simulate(trace, "lru", capacity_bytes=70, scope="model", expert_bytes=10).semantics["capacity"] == 7


def test_more_experts_than_a_table_can_hold_are_renumbered():
    rng = np.random.default_rng(0)
    ids = np.argsort(rng.random((60, 2, 6)), axis=-1)[..., :2]
    small = RoutingTrace(ids, np.zeros(60, int), 6)
    huge = RoutingTrace(ids * 300_000_000, np.zeros(60, int), 2**31)
    for policy in ("lru", "lfu", "belady", "static"):
        assert simulate(huge, policy, 3).hits == simulate(small, policy, 3).hits
    assert hit_rate_curve(huge, "lru", [3])[0].hits == simulate(small, "lru", 3).hits
    assert simulate(huge, "lru", 3).semantics["num_experts"] == 2**31
