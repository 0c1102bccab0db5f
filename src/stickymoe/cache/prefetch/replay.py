"""Replay a trace with experts fetched ahead of their use."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from stickymoe.cache.intervention import Slots, intervention, replayed_pools
from stickymoe.cache.lru import count_whole
from stickymoe.cache.order import order_of
from stickymoe.cache.prefetch.predictors import predict
from stickymoe.cache.prefetch.prefetch_kernel import FETCHED, KINDS, NOT_AHEAD, USEFUL, late_uses, replay_ahead
from stickymoe.cache.prefetch.report import PrefetchReport
from stickymoe.cache.replay_kernel import HITS, MISSES, SAME
from stickymoe.cache.simulation import Simulation
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_at_least
from stickymoe.traces import RoutingTrace


def simulate_prefetch(
    trace: RoutingTrace,
    predictor: str | np.ndarray,
    capacity: Slots,
    *,
    budget: int,
    lookahead: int = 1,
    width: int | None = None,
    transfer_events: float = 0.0,
    policy: str = "lru",
    scope: str = "layer",
    reset: str = "sequence",
    options: Mapping[str, float] | None = None,
    expert_bytes: Any = None,
) -> PrefetchReport:
    """Count what a cache with prefetch would have found on a trace.

    An event is one layer of one token. Its experts are looked up together and the missing ones admitted, as `simulate`
    does with `atomic` replay; then, while it computes, the experts predicted for the event `lookahead` later are
    fetched into the same cache as its most recent ones. A fetch never drives out an expert of the running event or of
    its own prediction; where nothing else is left it is not made. It counts as a use only when the expert is asked for.

    A prefetch moves loads off the critical path and adds some: read `misses` beside `loaded_bytes`.

    Args:
        trace: The routing.
        predictor: A name of `PREDICTORS`, or the predictions of your own, ids as (tokens, layers, width), -1 for none.
        capacity: Slots of a layer, or of the model if that is the scope, or a share of its experts; with scope `layer`
            also one number a layer.
        budget: Most experts fetched ahead an event, >= 0. With 0 this is plain replay.
        lookahead: Events between the fetch and the use, >= 1: 1 is the layer before, `num_layers` the token before.
        width: Experts predicted an event; `top_k` if not given.
        transfer_events: Events that one fetch occupies the link for; an expert asked for before it has arrived is
            late. 0: fetches arrive in time. Loads on demand and waiting do not move this clock.
        policy: An online policy of `POLICIES`: not a bound, whose future fetches change, nor `static`, which holds the
            same experts whatever is fetched.
        scope: `layer` or `model`; see `simulate`.
        reset: `sequence` or `never`; see `simulate`. No prefetch crosses the border of a sequence.
        options: The policy's own settings.
        expert_bytes: Bytes of one expert, or of one of each layer; as the trace says if not given.

    Returns:
        Hits, late ones, misses, fetches useful and wasted, beside the misses without prefetch.

    Raises:
        SettingError: A setting breaks its rule.
    """
    simulation = intervention(
        trace, capacity, policy, scope=scope, reset=reset, options=options, expert_bytes=expert_bytes
    )
    for setting, value, least in (("budget", budget, 0), ("lookahead", lookahead, 1)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise SettingError.broken(f"prefetch.{setting}", f"a whole number >= {least}", value)
    require_at_least("prefetch.transfer_events", transfer_events, 0.0)
    if isinstance(predictor, str):
        name, guesses = predictor, predict(trace, predictor, lookahead=lookahead, width=width)
    else:
        name, guesses = "given", _checked(trace, predictor)
    ahead, most = min(lookahead, trace.num_tokens * trace.num_layers), min(budget, guesses.shape[2])
    counts, late = _replay(simulation, trace, guesses, ahead, most, float(transfer_events))
    count_whole([simulation], trace)
    semantics = simulation.told() | {
        "predictor": name,
        "lookahead": lookahead,
        "budget": budget,
        "width": guesses.shape[2],
        "transfer_events": float(transfer_events),
    }
    return PrefetchReport(
        hits_per_layer=counts[HITS] - late,
        late_per_layer=late,
        misses_per_layer=counts[MISSES],
        fetched_per_layer=counts[FETCHED],
        useful_per_layer=counts[USEFUL],
        plain_misses_per_layer=simulation.counts[MISSES].sum(axis=1),
        expert_bytes=simulation.layout.expert_bytes,
        semantics=semantics,
    )


def _replay(
    simulation: Simulation, trace: RoutingTrace, guesses: np.ndarray, lookahead: int, budget: int, transfer: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts (kind, layer) of all pools, and the late lookups of each layer.

    When a fetch arrives does not change what a pool holds, so that pools are replayed one after the other and the link
    that they share afterwards.
    """
    heads = order_of(trace, simulation.settings).heads
    sequence = np.cumsum(heads != SAME)
    tokens, layers, slots = trace.expert_ids.shape
    counts = np.zeros((KINDS, layers), dtype=np.int64)
    fetches = np.zeros((tokens, layers), dtype=np.int32)
    used = np.full((layers, tokens, slots) if transfer else (layers, 0, 0), NOT_AHEAD, dtype=np.int64)
    for pool, requests in replayed_pools(simulation, trace):
        told = counts[:, pool.layers].copy()
        pool.drive(
            replay_ahead,
            requests,
            _steps(pool.layers, layers, lookahead),
            sequence,
            np.ascontiguousarray(guesses[:, pool.layers]),
            budget,
            told,
            fetches,
            used[pool.layers],
        )
        counts[:, pool.layers] = told
    if not transfer:
        return counts, np.zeros(layers, dtype=np.int64)
    return counts, late_uses(fetches, used, heads, guesses.shape[2], transfer)


def _steps(pool: slice, layers: int, lookahead: int) -> np.ndarray:
    """Return for each layer's turn in a token what the pool has to do with it; see `prefetch_kernel`."""
    turn = np.arange(layers)
    rows_ahead, wanted = np.divmod(turn + lookahead, layers)
    asks, fetches_for = (
        np.where((pool.start <= layer) & (layer < pool.stop), layer - pool.start, -1) for layer in (turn, wanted)
    )
    steps = np.stack([turn, asks, fetches_for, rows_ahead], axis=1)
    return steps[(asks >= 0) | (fetches_for >= 0)]


def _checked(trace: RoutingTrace, given: np.ndarray) -> np.ndarray:
    guesses = np.asarray(given)
    if guesses.dtype.kind not in "iu" or guesses.ndim != 3 or guesses.shape[:2] != trace.expert_ids.shape[:2]:
        rule = f"whole numbers shaped {trace.expert_ids.shape[:2]} and a width"
        raise SettingError.broken("prefetch.predictor", rule, f"{guesses.dtype} {guesses.shape}")
    if guesses.size and not -1 <= guesses.min() <= guesses.max() < trace.num_experts:
        rule = f"expert ids from 0 to {trace.num_experts - 1}, or -1 for none"
        raise SettingError.broken("prefetch.predictor", rule, (int(guesses.min()), int(guesses.max())))
    return np.ascontiguousarray(guesses, dtype=np.int32)
