"""Replay a trace with experts fetched ahead of their use."""

from typing import Any

import numpy as np

from stickymoe.cache.capacity import layout_of
from stickymoe.cache.prefetch import prefetch_kernel
from stickymoe.cache.prefetch.predictors import predict
from stickymoe.cache.prefetch.report import PrefetchReport
from stickymoe.cache.scan import POLICIES, Capacity, ScanSettings, sequence_numbers
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_at_least
from stickymoe.traces import RoutingTrace


def simulate_prefetch(
    trace: RoutingTrace,
    predictor: str | np.ndarray,
    capacity: Capacity,
    *,
    budget: int,
    lookahead: int = 1,
    width: int | None = None,
    transfer_events: float = 0.0,
    policy: str = "lru",
    scope: str = "layer",
    reset: str = "sequence",
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
        capacity: Slots of a layer, or of the model if that is the scope; with scope `layer` also one number a layer.
        budget: Most experts fetched ahead an event, >= 0. With 0 this is plain replay.
        lookahead: Events between the fetch and the use, >= 1: 1 is the layer before, `num_layers` the token before.
        width: Experts predicted an event; `top_k` if not given.
        transfer_events: Events that one fetch occupies the link for; an expert asked for before it has arrived is
            late. 0: fetches arrive in time. Loads on demand and waiting do not move this clock.
        policy: `lru`, `fifo` or `lfu`.
        scope: `layer` or `model`; see `simulate`.
        reset: `sequence` or `never`; see `simulate`. No prefetch crosses the border of a sequence.
        expert_bytes: Bytes of one expert, or of one of each layer; as the trace says if not given.

    Returns:
        Hits, late ones, misses, fetches useful and wasted, beside the misses without prefetch.

    Raises:
        SettingError: A setting breaks its rule.
    """
    settings = ScanSettings.checked(trace, capacity, policy, scope, reset)
    for name, value, least in (("budget", budget, 0), ("lookahead", lookahead, 1)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise SettingError.broken(f"prefetch.{name}", f"a whole number >= {least}", value)
    require_at_least("prefetch.transfer_events", transfer_events, 0.0)
    sizes = layout_of(trace, expert_bytes).expert_bytes
    if isinstance(predictor, str):
        name, guesses = predictor, predict(trace, predictor, lookahead=lookahead, width=width)
    else:
        name, guesses = "given", _checked(trace, predictor)
    ids, sequence = np.ascontiguousarray(trace.expert_ids, dtype=np.int32), sequence_numbers(trace)
    fixed = (trace.num_experts, settings.capacities(trace), scope == "model", POLICIES[policy], reset == "sequence")
    ahead = min(lookahead, trace.num_tokens * trace.num_layers)
    runs = [
        prefetch_kernel.replay_ahead(ids, sequence, guesses, *fixed, ahead, most, float(transfer_events))
        for most in (min(budget, 2**31), 0)
    ]
    semantics = settings.told | {
        "predictor": name,
        "lookahead": lookahead,
        "budget": budget,
        "width": guesses.shape[2],
        "transfer_events": float(transfer_events),
        "top_k": trace.top_k,
        "accesses": "topk",
        "replay": "atomic",
        "prefill": "token",
        "count": "assignments",
    }
    counts, plain = runs
    return PrefetchReport(
        hits_per_layer=counts[:, prefetch_kernel.HITS],
        late_per_layer=counts[:, prefetch_kernel.LATE],
        misses_per_layer=counts[:, prefetch_kernel.MISSES],
        fetched_per_layer=counts[:, prefetch_kernel.FETCHED],
        useful_per_layer=counts[:, prefetch_kernel.USEFUL],
        plain_misses_per_layer=plain[:, prefetch_kernel.MISSES],
        expert_bytes=sizes,
        semantics=semantics,
    )


def _checked(trace: RoutingTrace, given: np.ndarray) -> np.ndarray:
    guesses = np.asarray(given)
    if guesses.dtype.kind not in "iu" or guesses.ndim != 3 or guesses.shape[:2] != trace.expert_ids.shape[:2]:
        rule = f"whole numbers shaped {trace.expert_ids.shape[:2]} and a width"
        raise SettingError.broken("prefetch.predictor", rule, f"{guesses.dtype} {guesses.shape}")
    if guesses.size and not -1 <= guesses.min() <= guesses.max() < trace.num_experts:
        rule = f"expert ids from 0 to {trace.num_experts - 1}, or -1 for none"
        raise SettingError.broken("prefetch.predictor", rule, (int(guesses.min()), int(guesses.max())))
    return np.ascontiguousarray(guesses, dtype=np.int32)
