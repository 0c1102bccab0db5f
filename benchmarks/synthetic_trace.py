"""Routing made by a seeded chain, for benchmarks: popular experts (Zipf) that a token often keeps from the one before.

The shape is that of a real model: 48 layers, 128 experts, 8 of them a token, sequences of 512 tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stickymoe.traces import RoutingTrace

LAYERS, EXPERTS, TOP_K, SEQUENCE = 48, 128, 8, 512
ACCESSES_A_TOKEN = LAYERS * TOP_K
SKEW, KEPT = 0.8, 6.0  # popularity falls with rank ** -SKEW; a kept expert is so many times as likely as it was
PIECE = 4096


def pieces(tokens: int, seed: int = 0, rows: int = PIECE) -> Iterator[RoutingTrace]:
    """Yield a trace of so many tokens in pieces; the same seed gives the same routing, however it is cut."""
    rng = np.random.default_rng(seed)
    ranks = np.argsort(rng.random((LAYERS, EXPERTS)), axis=1)
    popular = ((1.0 + ranks) ** -SKEW).astype(np.float32)
    layer = np.arange(LAYERS)[:, None]
    chosen = np.argsort(-popular, axis=1)[:, :TOP_K]
    for start in range(0, tokens, rows):
        ids = np.empty((min(rows, tokens - start), LAYERS, TOP_K), dtype=np.int16)
        for place in range(len(ids)):
            # the k smallest of exponential times are k draws without replacement
            times = rng.standard_exponential((LAYERS, EXPERTS), dtype=np.float32) / popular
            times[layer, chosen] /= KEPT
            chosen = ids[place] = np.argpartition(times, TOP_K, axis=1)[:, :TOP_K]
        yield RoutingTrace(ids, (np.arange(len(ids)) + start) // SEQUENCE, EXPERTS, provenance={"seed": seed})


def whole(tokens: int, seed: int = 0) -> RoutingTrace:
    """Return such a trace in memory."""
    return RoutingTrace.concat(list(pieces(tokens, seed)), join_sequences=True)


def write_jsonl(path: Path, size: int) -> int:
    """Write a record a token and layer until the file has `size` bytes; return the tokens.

    The routing of some thousand tokens comes again and again under new token numbers: making it anew would take longer
    than reading it.
    """
    trace = next(pieces(PIECE))
    rows = [
        [f'"layer": {at}, "experts": {ids}}}' for at, ids in enumerate(token)] for token in trace.expert_ids.tolist()
    ]
    token = 0
    with path.open("w", encoding="ascii") as file:
        while file.tell() < size:
            begin = f'{{"request": {token // SEQUENCE}, "token": {token % SEQUENCE}, '
            file.write("".join([f"{begin}{row}\n" for row in rows[token % PIECE]]))
            token += 1
    return token
