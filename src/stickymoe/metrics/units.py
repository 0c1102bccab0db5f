"""The parts of a trace that intervals are drawn over: sequences, or blocks of the only one."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from stickymoe.traces import RoutingTrace

# More units tell no more about the spread and only cost memory.
MOST_UNITS = 256
# Blocks of one sequence: long against the few tokens that routing remembers, and enough of them to see a spread.
SHORTEST_BLOCK = 32
MOST_BLOCKS = 20


@dataclass(frozen=True)
class Units:
    """Which unit each row belongs to. What spans two units counts for the one of its last row, so nothing is lost.

    Args:
        of_row: 0 to count - 1, never falling.
        count: Units; with 1 there is no spread to see and no interval.
        kind: What they are, in words.
        block: Tokens of a block where the units are cut from one sequence.
    """

    of_row: Int[np.ndarray, " tokens"]
    count: int
    kind: str
    block: int | None = None


def units_of(trace: RoutingTrace) -> Units:
    """Cut a trace into the units that may be taken for independent.

    Sequences where there are two or more, up to 256 of them, groups of neighbouring sequences beyond. One sequence is
    cut into up to 20 contiguous blocks of at least 32 tokens: such an interval tells of this text alone, not of others.
    A sequence too short for two blocks is one unit.
    """
    starts = trace.sequence_starts()
    sequences = len(starts) - 1
    if sequences > 1:
        count = min(sequences, MOST_UNITS)
        of_sequence = np.arange(sequences) * count // sequences
        kind = "sequences" if count == sequences else f"groups of {sequences / count:.3g} sequences"
        return Units(np.repeat(of_sequence, np.diff(starts)).astype(np.int64), count, kind)
    blocks = min(MOST_BLOCKS, trace.num_tokens // SHORTEST_BLOCK)
    if blocks < 2:
        return whole(trace)
    of_row = np.arange(trace.num_tokens) * blocks // trace.num_tokens
    kind = f"contiguous blocks of {trace.num_tokens / blocks:.4g} tokens of the only sequence"
    return Units(of_row, blocks, kind, trace.num_tokens // blocks)


def whole(trace: RoutingTrace) -> Units:
    """Take the trace as one unit."""
    return Units(np.zeros(trace.num_tokens, dtype=np.int64), 1, "one unit")
