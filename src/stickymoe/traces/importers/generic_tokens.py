"""Puts the records of a home-made trace in their place: requests, appended runs, tokens, layers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.generic_records import Records

# A file whose records are in no order would seem to be full of restarts.
MOST_RUNS = 16


@dataclass(frozen=True)
class Places:
    """Where the rows of `Records` go.

    Args:
        row: The token of each row, counted through the trace.
        layer: Its layer, counted through the trace.
        sequence_ids: One a token.
        positions: The token's number in its sequence, one a token.
    """

    row: np.ndarray
    layer: np.ndarray
    sequence_ids: np.ndarray
    positions: np.ndarray


def places(records: Records) -> Places:
    """Find the token, sequence and layer of each row; the rows' token numbers are the file's and are taken.

    A row that says again what was said before begins an appended run, and so does, in requests with such rows, a token
    number that falls while the layer does not rise. Runs of a single token go on with the sequence before them: their
    file numbers tokens anew in each forward pass.

    Raises:
        TraceError: The rows are in no order.
    """
    layer = layer_numbers(records)[0][records.taken("layer")]
    request, token = records.taken("request"), records.taken("token")
    order = None if (request[1:] >= request[:-1]).all() else np.argsort(request, kind="stable")
    if order is not None:
        request, token, layer = request[order], token[order], layer[order]
    starts = _run_starts(request, token, layer)
    run = np.cumsum(starts, dtype=np.int32) - 1
    by_token = None if _rises(run, token) else np.lexsort((token, run))
    runs, numbers = (run, token) if by_token is None else (run[by_token], token[by_token])
    begins = np.ones(len(runs), dtype=bool)
    begins[1:] = (runs[1:] != runs[:-1]) | (numbers[1:] != numbers[:-1])
    row = np.cumsum(begins, dtype=np.int32 if len(begins) < 2**31 else np.int64) - 1
    for each in (by_token, order):
        if each is not None:
            back = np.empty_like(row)
            back[each] = row
            row = back
    if order is not None:
        back = np.empty_like(layer)
        back[order] = layer
        layer = back
    sequence_ids, positions = _sequences(runs[begins], numbers[begins], request[starts])
    return Places(row, layer, sequence_ids, positions)


def layer_numbers(records: Records) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return each layer's place in the trace and, in that order, the layers' names.

    Layers rise by the numbers in their names; those of a block stand together, blocks as they are first met.
    """
    keys = [key if isinstance(key, tuple) else (key,) for key in records.layers]
    blocks = list(dict.fromkeys(key[0] for key in keys)) if len(keys[0]) > 1 else []
    ranked = sorted(
        range(len(keys)), key=lambda code: (blocks.index(keys[code][0]) if blocks else 0, _natural(keys[code][-1]))
    )
    place = np.empty(len(keys), dtype=np.int16 if len(keys) < 2**15 else np.int32)
    place[ranked] = np.arange(len(keys))
    several = len(blocks) > 1
    return place, tuple(".".join(map(str, keys[code] if several else keys[code][-1:])) for code in ranked)


def _natural(word: Any) -> list[tuple[int, Any]]:
    parts = [part for part in re.split("([0-9]+)", str(word)) if part]
    return [(0, int(part)) if part[0] in "0123456789" else (1, part) for part in parts]


def _run_starts(request: np.ndarray, token: np.ndarray, layer: np.ndarray) -> np.ndarray:
    """Return where a request, or another run of it, begins; the rows of a request stand together."""
    starts = np.ones(len(request), dtype=bool)
    starts[1:] = request[1:] != request[:-1]
    if _rises(request, token, layer, strictly=True):
        return starts
    order = np.lexsort((layer, token, request))
    same = np.all([key[order[1:]] == key[order[:-1]] for key in (request, token, layer)], axis=0)
    if not same.any():
        return starts
    before = np.full(len(request), -1, dtype=np.int64)
    before[order[1:][same]] = order[:-1][same]
    again = np.zeros(int(request[-1]) + 1, dtype=bool)
    again[request[before >= 0]] = True
    falls = np.zeros(len(request), dtype=bool)
    falls[1:] = ~starts[1:] & again[request[1:]] & (token[1:] < token[:-1])
    falls[1:] &= (layer[1:] < layer[:-1]) | (layer.max() == layer.min())
    begin, found = 0, 0
    candidates = np.flatnonzero(starts | falls | (before >= 0))
    for row, first, earlier in zip(
        candidates.tolist(), (starts | falls)[candidates].tolist(), before[candidates].tolist(), strict=True
    ):
        if first or earlier >= begin:
            begin = row
            starts[row] = True
            found += 1
    most = 1 + int(np.diff(np.flatnonzero(np.append(~np.append(False, same), True))).max())
    if found - len(np.unique(request)) > MOST_RUNS * most:
        raise TraceError(f"records must stand in the order they were made in, got {found} restarts; sort them")
    return starts


def _rises(*keys: np.ndarray, strictly: bool = False) -> bool:
    """Whether rows are in the order of their keys, the first counting most."""
    equal = np.ones(len(keys[0]) - 1, dtype=bool)
    for key in keys:
        if (equal & (key[1:] < key[:-1])).any():
            return False
        equal &= key[1:] == key[:-1]
    return not (strictly and equal.any())


def _sequences(run: np.ndarray, number: np.ndarray, request: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sequence ids and positions of tokens in the order of their runs.

    Args:
        run: One a token.
        number: The file's number of the token.
        request: One a run.
    """
    sizes = np.bincount(run)
    goes_on = np.zeros(len(sizes), dtype=bool)
    goes_on[1:] = (sizes[1:] == 1) & (request[1:] == request[:-1])
    sequence = (np.cumsum(~goes_on) - 1)[run]
    if not goes_on.any():
        return sequence, number
    first = np.flatnonzero(np.append(True, sequence[1:] != sequence[:-1]))
    counted = np.arange(len(run)) - np.repeat(first, np.diff(np.append(first, len(run))))
    joined = np.bincount(sequence[np.append(True, run[1:] != run[:-1])]) > 1
    return sequence, np.where(joined[sequence], counted, number)
