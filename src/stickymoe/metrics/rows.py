"""The rows of a trace as the kernels want them: who follows whom, and one layer's experts."""

import numpy as np
from jaxtyping import Int, Int32

from stickymoe.traces import RoutingTrace
from stickymoe.traces.checks import UNASSIGNED

# Up to this many experts a table with a place for each is cheaper than renumbering the used ones.
TABLE = 2**12


def run_starts(trace: RoutingTrace) -> Int[np.ndarray, " tokens"]:
    """Return for each row the first row of its run: tokens that follow each other in one sequence and document."""
    return _starts(np.flatnonzero(~trace.valid_pairs()) + 1, trace.num_tokens)


def sequence_firsts(trace: RoutingTrace) -> Int[np.ndarray, " tokens"]:
    """Return for each row the first row of its sequence."""
    return _starts(trace.sequence_starts()[1:-1], trace.num_tokens)


def layer_ids(trace: RoutingTrace, layer: int) -> tuple[Int32[np.ndarray, "tokens top_k"], int]:
    """Return one layer's experts, -1 in empty slots, and how large a table their ids need.

    Where a layer has very many experts the used ones are renumbered, so that no table grows with `num_experts`.
    """
    ids = np.ascontiguousarray(trace.expert_ids[:, layer], dtype=np.int32)
    if trace.num_experts <= TABLE:
        return ids, trace.num_experts
    used, places = np.unique(ids, return_inverse=True)
    empty = int(used[0] == UNASSIGNED)
    return (places.reshape(ids.shape) - empty).astype(np.int32), max(1, used.size - empty)


def _starts(borders: np.ndarray, tokens: int) -> np.ndarray:
    starts = np.zeros(tokens, dtype=np.int64)
    starts[borders] = borders
    first: np.ndarray = np.maximum.accumulate(starts)
    return first
