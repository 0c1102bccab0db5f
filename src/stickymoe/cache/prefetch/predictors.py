"""What will be asked for next, guessed from a trace alone: the predictors by name."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from stickymoe.cache.prefetch import predictor_kernel
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_at_least, require_one_of
from stickymoe.metrics.rows import sequence_firsts
from stickymoe.traces import RoutingTrace

Predictions = Int[np.ndarray, "tokens layers width"]
# Takes the trace, the lookahead in events and how many experts to name; see `predict`.
Predictor = Callable[[RoutingTrace, int, int], np.ndarray]

# A table of transitions has the square of this many cells.
MAX_LEARNED_EXPERTS = 2**13


def predict(trace: RoutingTrace, predictor: str, *, lookahead: int = 1, width: int | None = None) -> Predictions:
    """Name for every event the experts it is expected to ask for, with what is known `lookahead` events before.

    An event is one layer of one token: a lookahead of 1 is the layer before, one of `num_layers` the token before.
    The experts of the event at which the guess is made are known; the future is not, but to the oracle.

    - `next-layer`: from the experts chosen `lookahead` layers before, by transition counts learned along the trace.
      A stand-in for routers read early, which a trace of ids cannot replay.
    - `previous-token`: the experts the same layer chose for the last token known by then.
    - `markov`: from those, by transition counts of the layer learned along the trace.
    - `frequency`: the layer's experts used most often so far. What a predictor must beat.
    - `oracle`: what will be asked for.

    What was learned outlives the borders of sequences; no guess or transition crosses one.

    Args:
        trace: The routing.
        predictor: A name of `PREDICTORS`.
        lookahead: Events between the guess and the use, >= 1.
        width: Experts to name, best first; `top_k` if not given.

    Returns:
        Expert ids, -1 behind the last guess.

    Raises:
        SettingError: A setting breaks its rule, or a layer has too many experts for a table of transitions.
    """
    require_one_of("prefetch.predictor", predictor, PREDICTORS)
    require_at_least("prefetch.lookahead", lookahead, 1)
    names = trace.top_k if width is None else width
    require_at_least("prefetch.width", names, 1)
    return PREDICTORS[predictor](trace, lookahead, min(names, trace.num_experts))


def _oracle(trace: RoutingTrace, lookahead: int, width: int) -> np.ndarray:
    return np.ascontiguousarray(trace.expert_ids[:, :, :width], dtype=np.int32)


def _previous_token(trace: RoutingTrace, lookahead: int, width: int) -> np.ndarray:
    back = _tokens_back(trace, lookahead)
    found = np.full((*trace.expert_ids.shape[:2], min(width, trace.top_k)), -1, dtype=np.int32)
    rows = np.arange(trace.num_tokens)
    known = np.flatnonzero(rows - back >= sequence_firsts(trace))
    found[known] = trace.expert_ids[known - back, :, :width]
    return found


def _markov(trace: RoutingTrace, lookahead: int, width: int) -> np.ndarray:
    return _learned(trace, lookahead, _tokens_back(trace, lookahead) * trace.num_layers, width)


def _next_layer(trace: RoutingTrace, lookahead: int, width: int) -> np.ndarray:
    return _learned(trace, lookahead, lookahead, width)


def _frequency(trace: RoutingTrace, lookahead: int, width: int) -> np.ndarray:
    experts = _learnable(trace)
    delay = _tokens_back(trace, lookahead)
    ids = _by_layer(trace)
    return np.stack([predictor_kernel.popularity(layer, delay, experts, width) for layer in ids], axis=1)


def _learned(trace: RoutingTrace, lookahead: int, offset: int, width: int) -> np.ndarray:
    """Predict each event from the one `offset` events before it."""
    experts, layers = _learnable(trace), trace.num_layers
    ids, first, delay = _by_layer(trace), sequence_firsts(trace), _tokens_back(trace, lookahead)
    found = []
    for layer in range(layers):
        source = (layer - offset) % layers
        back = (offset - layer + source) // layers
        found.append(predictor_kernel.transitions(ids[source], ids[layer], first, back, delay, experts, width))
    return np.stack(found, axis=1)


def _tokens_back(trace: RoutingTrace, lookahead: int) -> int:
    """How many tokens before its own a layer's last known choice lies."""
    return -(-lookahead // trace.num_layers)


def _by_layer(trace: RoutingTrace) -> np.ndarray:
    return np.ascontiguousarray(trace.expert_ids.transpose(1, 0, 2), dtype=np.int32)


def _learnable(trace: RoutingTrace) -> int:
    if trace.num_experts > MAX_LEARNED_EXPERTS:
        rule = f"previous-token or oracle above {MAX_LEARNED_EXPERTS} experts a layer"
        raise SettingError.broken("prefetch.predictor", rule, trace.num_experts)
    return trace.num_experts


PREDICTORS: dict[str, Predictor] = {
    "next-layer": _next_layer,
    "previous-token": _previous_token,
    "markov": _markov,
    "frequency": _frequency,
    "oracle": _oracle,
}
