"""The rules a policy is made of, by name: replay and the policy object call these, numba picks the policy's own.

A policy is a NamedTuple of arrays, its state, and one compiled function a rule, bound to the state's class by `binds`.
Blocks are the numbers 0 to size - 1. A block is held from its first `touch`, or the `fetch` before it, to `forget`;
whether it has a slot already is the caller's business, who pins those that may not leave.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
from numba.extending import overload

from stickymoe.core.compiled import INLINED, compiled


def clear(state: Any) -> None:
    """Forget everything: a cold start."""
    raise NotImplementedError


def open_sequence(state: Any) -> None:
    """Note that a new sequence starts in a cache that stays warm."""
    raise NotImplementedError


def open_event(state: Any, layer: int) -> None:
    """Note that `layer` (its number in the pool) is about to ask for its experts."""
    raise NotImplementedError


def touch(state: Any, block: int, weight: float) -> None:
    """Note a use of `block`, with its gate weight (0 if unknown); the first makes it held."""
    raise NotImplementedError


def fetch(state: Any, block: int) -> None:
    """Hold `block`, not held so far, ahead of its use: as the latest, but it was not used yet."""
    raise NotImplementedError


def victim(state: Any, pinned: Any) -> int:
    """Choose a held block that is not pinned, or -1 if there is none."""
    raise NotImplementedError


def forget(state: Any, block: int) -> None:
    """Let a held block go."""
    raise NotImplementedError


RULES = (clear, open_sequence, open_event, touch, fetch, victim, forget)


def no_sequences(state: Any) -> None:
    """Take no note of sequences."""


def no_events(state: Any, layer: int) -> None:
    """Take no note of events."""


def as_touch(state: Any, block: int) -> None:
    """Hold `block` as its first use does; for policies that do not count uses."""
    touch(state, block, 0.0)


def binds(
    kind: type,
    *,
    clear: Callable[..., Any],
    touch: Callable[..., Any],
    victim: Callable[..., Any],
    forget: Callable[..., Any],
    open_sequence: Callable[..., Any] = no_sequences,
    open_event: Callable[..., Any] = no_events,
    fetch: Callable[..., Any] = as_touch,
) -> None:
    """Make these functions the rules of states of class `kind`. Their parameters are named as above."""

    def chosen(rule: Callable[..., Any], state: Any) -> Callable[..., Any] | None:
        # numba wants a signature like that of the lambda, without annotations
        own = getattr(state, "instance_class", None) is kind
        return FunctionType(rule.__code__, rule.__globals__, rule.__name__) if own else None

    bind = [overload(rule, jit_options=INLINED) for rule in RULES]
    bind[0](lambda state: chosen(clear, state))
    bind[1](lambda state: chosen(open_sequence, state))
    bind[2](lambda state, layer: chosen(open_event, state))
    bind[3](lambda state, block, weight: chosen(touch, state))
    bind[4](lambda state, block: chosen(fetch, state))
    bind[5](lambda state, pinned: chosen(victim, state))
    bind[6](lambda state, block: chosen(forget, state))


# What a Python object calls, one step at a time.


@compiled
def clear_one(state: Any) -> None:
    """Run `clear` of the state's policy."""
    clear(state)


@compiled
def open_sequence_one(state: Any) -> None:
    """Run `open_sequence` of the state's policy."""
    open_sequence(state)


@compiled
def open_event_one(state: Any, layer: int) -> None:
    """Run `open_event` of the state's policy."""
    open_event(state, layer)


@compiled
def touch_one(state: Any, block: int, weight: float) -> None:
    """Run `touch` of the state's policy."""
    touch(state, block, weight)


@compiled
def fetch_one(state: Any, block: int) -> None:
    """Run `fetch` of the state's policy."""
    fetch(state, block)


@compiled
def evict_one(state: Any, pinned: np.ndarray) -> int:
    """Choose a victim, let it go and return it; -1 if there is none."""
    block = victim(state, pinned)
    if block >= 0:
        forget(state, block)
    return block
