"""Made-up traces for the tests of the cache (`st.from_type(RoutingTrace)` draws them), and policies in plain lists."""

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.cache import make_policy
from stickymoe.traces import RoutingTrace

EXPERTS = 5


@st.composite
def traces(draw: st.DrawFn) -> RoutingTrace:
    """Draw a trace with all that a replay looks at: empty slots, phases, passes, weights and bytes."""
    tokens, layers, top_k = draw(st.integers(1, 15)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rng = default_rng(draw(st.integers(0, 2**32)))
    ids = np.argsort(rng.random((tokens, layers, EXPERTS)), axis=-1)[..., :top_k]
    filled = rng.integers(draw(st.sampled_from([0, top_k])), top_k + 1, (tokens, layers))
    filled[0, 0] = max(filled[0, 0], 1)
    ids[np.arange(top_k) >= filled[..., None]] = -1
    return RoutingTrace(
        ids,
        np.sort(rng.integers(0, 3, tokens)),
        EXPERTS,
        expert_weights=np.sort(rng.random(ids.shape), axis=-1)[..., ::-1],
        phases=rng.integers(0, 2, tokens),
        event_ids=np.cumsum(rng.integers(0, 2, tokens)) if draw(st.booleans()) else None,
        expert_bytes=rng.integers(1, 4, layers),
    )


st.register_type_strategy(RoutingTrace, traces())


class Plain:
    """A policy in plain lists: whom it holds, those first who leave first among equals."""

    def __init__(self, slots: int) -> None:
        self.slots, self.held, self.uses = slots, [], {}
        self.ahead: set[int] = set()

    def open_event(self, layer: int) -> None:
        pass

    def open_sequence(self) -> None:
        pass

    def evict(self, pinned: set[int]) -> int:
        victim = self.choose([block for block in self.held if block not in pinned])
        self.leave(victim)
        return victim

    def choose(self, free: list[int]) -> int:
        return free[0]

    def leave(self, block: int) -> None:
        self.held.remove(block)

    def touch(self, block: int, weight: float = 0.0) -> None:
        if block in self.held:
            self.held.remove(block)
        self.held.append(block)

    def fetch(self, block: int) -> None:
        self.held.append(block)


class PlainFIFO(Plain):
    def touch(self, block: int, weight: float = 0.0) -> None:
        if block not in self.held:
            self.held.append(block)


class PlainLFU(Plain):
    def touch(self, block: int, weight: float = 0.0) -> None:
        super().touch(block)
        self.uses[block] = self.uses.get(block, 0) + 1

    def choose(self, free: list[int]) -> int:
        return min(free, key=lambda block: self.uses.get(block, 0))


class PlainCachedLFU(PlainLFU):
    def leave(self, block: int) -> None:
        super().leave(block)
        self.uses.pop(block, None)


class PlainSLRU(Plain):
    """`held` are those on probation, then the protected ones, each oldest first."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.protected: set[int] = set()

    def touch(self, block: int, weight: float = 0.0) -> None:
        if block in self.held and block not in self.ahead:
            self.protected.add(block)
        super().touch(block)
        self.ahead.discard(block)
        shielded = [block for block in self.held if block in self.protected]
        over = shielded[: max(0, len(shielded) - int(0.8 * self.slots))]
        self.protected -= set(over)
        on_probation = [block for block in self.held if block not in self.protected and block not in over]
        self.held = on_probation + over + [block for block in shielded if block not in over]

    def fetch(self, block: int) -> None:
        self.held.insert(len(self.held) - len(self.protected), block)
        self.ahead.add(block)

    def leave(self, block: int) -> None:
        super().leave(block)
        self.protected.discard(block)
        self.ahead.discard(block)


class PlainSieve(Plain):
    """`uses` has who was used again since the hand passed; the hand is on a block, or nowhere."""

    hand: int | None = None

    def touch(self, block: int, weight: float = 0.0) -> None:
        if block not in self.held:
            self.held.append(block)
        elif block in self.ahead:
            self.ahead.remove(block)
        else:
            self.uses[block] = 1

    def fetch(self, block: int) -> None:
        self.held.append(block)
        self.ahead.add(block)

    def choose(self, free: list[int]) -> int:
        at = 0 if self.hand is None else self.held.index(self.hand)
        while self.held[at] not in free or self.uses.get(self.held[at]):
            if self.held[at] in free:
                self.uses[self.held[at]] = 0
            at = (at + 1) % len(self.held)
        after = [block for block in self.held[at + 1 :] if block in free]
        self.hand = after[0] if after else None
        return self.held[at]

    def leave(self, block: int) -> None:
        super().leave(block)
        self.uses.pop(block, None)
        self.ahead.discard(block)


PLAIN = {
    "lru": Plain,
    "fifo": PlainFIFO,
    "lfu": PlainLFU,
    "lfu-cache": PlainCachedLFU,
    "slru": PlainSLRU,
    "sieve": PlainSieve,
}


@pytest.fixture(scope="session")
def plain_policies() -> dict[str, type[Plain]]:
    """Policies written down a second time, in lists and dictionaries, by name."""
    return PLAIN


@pytest.fixture(scope="session")
def slow_policy():
    """Make a policy to be driven step by step: written in plain lists, else the package's own object."""

    def make(name: str, blocks: int, slots: int, layers: int):
        if name in PLAIN:
            return PLAIN[name](slots)
        return make_policy(name, blocks, capacity=slots, layers=layers)

    return make
