"""LRU worked by hand."""

from stickymoe.cache import LRU, replay


def test_lru_on_a_hand_worked_stream():
    # request   0   1   0   2   1   0
    # resident  0  01  01  02  12  01   <- capacity 2; the hit is request 3
    assert replay([[0], [1], [0], [2], [1], [0]], LRU(), 2) == (1, 5)


def test_the_oldest_unpinned_use_leaves():
    policy = LRU()
    for expert in [3, 1, 2, 3]:
        policy.touch(expert)
    assert policy.evict(pinned={1}) == 2
    assert policy.evict(pinned=set()) == 1
    assert policy.evict(pinned=set()) == 3
