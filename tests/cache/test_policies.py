"""Each policy on a stream worked by hand, and the object that a runtime drives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stickymoe.cache import POLICIES, CachePolicy, make_policy, replay, simulate
from stickymoe.core.errors import SettingError
from stickymoe.traces import RoutingTrace


def hits(policy: str, stream: list[int], capacity: int, **options: float) -> list[int]:
    """The places of the stream that hit."""
    found, told = [], 0
    for end in range(1, len(stream) + 1):
        made = make_policy(policy, 10, capacity=capacity, options=options)
        now = replay([[expert] for expert in stream[:end]], made, capacity).hits
        found += [end - 1] if now > told else []
        told = now
    return found


@pytest.mark.parametrize(
    ("policy", "stream", "capacity", "expected"),
    [
        # request  0   1   0   2   1   0
        # holds    0  01  01  02  12  01
        ("lru", [0, 1, 0, 2, 1, 0], 2, [2]),
        # holds    0  01  01  12  12  02: the use of 0 did not save it
        ("fifo", [0, 1, 0, 2, 1, 0], 2, [2, 4]),
        # 0 is used 3 times, 1 and 2 once each: they drive each other out, and 0 stays
        ("lfu", [0, 0, 0, 1, 2, 1, 0], 2, [1, 2, 6]),
        # 1 was used 2 times before it left; back again it counts 3 against the 2 of 0
        ("lfu", [1, 1, 0, 0, 2, 1, 2, 1], 2, [1, 3, 7]),
        # back again it counts 1 against the 2 of 0, and leaves for 2
        ("lfu-cache", [1, 1, 0, 0, 2, 1, 2, 1, 0], 2, [1, 3, 8]),
        # at the second 2: 0 was used 3 times, long ago, 1 once, just now; 3/5 < 1/1
        ("lfru", [0, 0, 0, 1, 1, 1, 1, 2, 1], 2, [1, 2, 4, 5, 6, 8]),
        # 0 is protected by its second use; 1, 2, 3 pass by on probation
        ("slru", [0, 0, 1, 2, 3, 0], 2, [1, 5]),
        # the hand passes 0, which was used, and takes 1
        ("sieve", [0, 1, 0, 2, 0, 1], 2, [2, 4]),
        # 0 was used again, so that 1, 2, 3 leave each other the slot of those used once
        ("arc", [0, 0, 1, 2, 3, 0], 2, [1, 5]),
        # of 0 and 1, 0 comes sooner when 2 needs a slot; of 0 and 2, 2 never comes again
        ("belady", [0, 1, 2, 0, 1, 0], 2, [3, 5]),
    ],
)
def test_streams_worked_by_hand(policy, stream, capacity, expected):
    if policy != "belady":
        assert hits(policy, stream, capacity) == expected
    trace = RoutingTrace.from_sequences([[[[expert]] for expert in stream]], num_experts=10)
    assert simulate(trace, policy, capacity).hits == len(expected)


def test_aged_uses_fade():
    # 0 was used twice as often, long ago
    stream = [0] * 8 + [1] * 4 + [2, 2, 2, 0]
    assert 15 in hits("lfu", stream, 2)
    assert 15 not in hits("lfu-aged", stream, 2, half_life=1.0)
    assert 15 in hits("lfu-aged", stream, 2, half_life=1000.0)


def test_scores_weigh_the_gates_and_fade():
    ids = np.array([0, 1, 2, 0, 1])[:, None, None]
    weights = np.array([[0.9, 0.1, 0.2, 1, 1], [0.1, 0.9, 0.2, 1, 1]])[..., None, None]
    heavy, light = (RoutingTrace(ids, np.zeros(5, int), 3, expert_weights=each) for each in weights)
    # when 2 needs a slot, 0 is at 0.45 / 4 and 1 at 0.05 / 2; or 0 at 0.05 / 4 and 1 at 0.45 / 2
    assert [simulate(heavy.head(tokens), "score-ema", 2).hits for tokens in (3, 4, 5)] == [0, 1, 1]
    # then 0 needs one: 1 is at 0.45 / 4, 2 at 0.1 / 2
    assert [simulate(light.head(tokens), "score-ema", 2).hits for tokens in (3, 4, 5)] == [0, 0, 1]


def test_moe_infinity_spares_the_layer_whose_turn_is_next():
    # three layers, always the same expert, two slots: LRU lets each go just before its turn
    trace = RoutingTrace(np.zeros((3, 3, 1), int), np.zeros(3, int), 1)
    assert simulate(trace, "lru", 2, scope="model").hits == 0
    # when layer 2 needs a slot, layer 0 is next and layer 1 goes; when layer 1 needs one, layer 2 was used less at the
    # second token, and at the third 2/3 of 3 uses for layer 0 are as many as 2 for layer 2, but for e
    assert simulate(trace.head(2), "moe-infinity", 2, scope="model").hits_per_layer.tolist() == [1, 0, 0]
    assert simulate(trace, "moe-infinity", 2, scope="model").hits_per_layer.tolist() == [2, 0, 1]


def test_moe_infinity_starts_a_new_count_with_each_sequence():
    # 0 has all the uses of the first sequence, 1 those of the second
    ids = np.array([0, 0, 0, 1, 1, 2, 1])[:, None, None]
    one = RoutingTrace(ids, np.zeros(7, int), 3)
    two = RoutingTrace(ids, [0, 0, 0, 1, 1, 1, 1], 3)
    assert simulate(one, "moe-infinity", 2, reset="never").hits == 3
    assert simulate(two, "moe-infinity", 2, reset="never").hits == 4


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"belady", "belady-bypass"}))
def test_an_object_evicts_who_it_holds_and_is_not_pinned(policy):
    made = make_policy(policy, 6, capacity=3)
    for expert in [3, 1, 2, 3]:
        made.touch(expert)
    left = [made.evict(pinned={1}), made.evict(pinned={1}), made.evict(pinned=set())]
    assert sorted(left) == [1, 2, 3]
    assert left[2] == 1
    with pytest.raises(SettingError, match="asked for a victim while it holds one"):
        made.evict(pinned=set())


def test_the_oldest_unpinned_use_leaves():
    made = make_policy("lru", 4)
    for expert in [3, 1, 2, 3]:
        made.touch(expert)
    assert [made.evict(pinned={1}), made.evict(pinned=set()), made.evict(pinned=set())] == [2, 1, 3]


@pytest.mark.parametrize("expert", [-1, 4, 2**40])
def test_an_object_is_told_of_experts_it_knows(expert):
    with pytest.raises(SettingError, match="told of experts from 0 to 3"):
        make_policy("lru", 4).touch(expert)


@pytest.mark.parametrize("policy", ["lru", "fifo", "lfu", "lfu-cache", "slru", "sieve"])
@settings(deadline=None, max_examples=150)
@given(slots=st.integers(0, 5), steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=40))
def test_a_fetch_is_no_use_but_the_first_use_is_still_to_come(plain_policies, policy, slots, steps):
    made, plain = make_policy(policy, 6, capacity=slots), plain_policies[policy](slots)
    for expert, step in steps:
        if step == 0 and plain.held:
            pinned = {expert} if set(plain.held) != {expert} else set()
            assert made.evict(pinned) == plain.evict(pinned)
        elif step == 1 and expert not in plain.held:
            made.fetch(expert)
            plain.fetch(expert)
        else:
            made.touch(expert)
            plain.touch(expert)
    while plain.held:
        assert made.evict(set()) == plain.evict(set())


def test_arc_moves_its_border_at_the_use_of_what_was_fetched():
    # 1 left those used once; fetched again it is among those used again, and its use gives the others room
    made = make_policy("arc", 6, capacity=3)
    for expert in (0, 0, 1, 2, 3):
        made.touch(expert)
    assert made.evict(pinned={3}) == 1
    made.fetch(1)
    assert made._state.target[0] == 0
    made.touch(1)
    assert made._state.target[0] == 1
    made.touch(1)
    assert made._state.target[0] == 1


@pytest.mark.parametrize("policy", ["belady", "belady-bypass"])
def test_a_bound_is_told_of_no_fetches(policy):
    with pytest.raises(SettingError, match="one that knows no future, where experts are fetched"):
        make_policy(policy, 4).fetch(1)


def test_a_policy_of_ones_own_takes_a_fetch_for_a_use():
    class Mine(CachePolicy):
        touched = ()

        def touch(self, expert):
            self.touched += (expert,)

        def evict(self, pinned):
            return 0

    mine = Mine()
    mine.fetch(3)
    assert mine.touched == (3,)


def test_a_policy_nobody_knows_is_refused():
    with pytest.raises(SettingError, match="did you mean 'sieve'"):
        make_policy("siev", 4)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.lists(st.integers(0, 6), max_size=4), max_size=25),
    st.integers(0, 5),
    st.sampled_from(sorted(POLICIES)),
)
def test_a_cache_holds_no_more_than_its_capacity_between_events(events, capacity, policy):
    stats = replay(events, make_policy(policy, 7, capacity=capacity), capacity, count="unique")
    assert stats.hits + stats.misses == sum(len(set(event)) for event in events)
    if capacity == 0:
        assert stats.hits == 0


def test_an_expert_asked_for_twice_in_one_event_counts_as_the_setting_says():
    # [0 0 1] all miss; [0 0 2]: 0 hits, 2 misses
    events = [[0, 0, 1], [0, 0, 2]]
    assert replay(events, make_policy("lru", 3), 2) == (2, 4)
    assert replay(events, make_policy("lru", 3), 2, count="unique") == (1, 3)


def test_a_policy_that_evicts_what_it_must_not_is_named():
    made = make_policy("lru", 10)
    made.evict = lambda pinned: 7  # type: ignore[method-assign]
    with pytest.raises(SettingError, match=r"cache.policy must be .* got 7; mend CompiledPolicy.evict"):
        replay([[0], [1]], made, 1)
