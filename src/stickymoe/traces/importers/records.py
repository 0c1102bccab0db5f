"""Finds where binary records begin whose headers say how long they are."""

from __future__ import annotations

import numpy as np

from stickymoe.core.errors import TraceError

MAX_TOP_K = 2**10
MAX_LAYER = 2**16


def record_starts(words: np.ndarray, header: int, top_k: int | None = None, offset: int = 0) -> tuple[np.ndarray, int]:
    """Return the first word of each record, and the k that all have.

    A record is a layer, a number of tokens, k itself unless it is given, then tokens x k ids.

    Args:
        words: The records, nothing else.
        header: Words before the ids.
        top_k: Where the records do not say it.
        offset: Bytes of the file before `words`, for errors.

    Raises:
        TraceError: A record does not fit in the file, is empty, or has another k than the first.
    """
    found: list[np.ndarray] = []
    at = count = 0
    window, k = 16, top_k
    while at < len(words):
        head = words[at : at + header].tolist()
        place = f"record {count} at byte {offset + at * words.itemsize}"
        _check_header(head, header, k, place)
        tokens, k = head[1], k or head[2]
        length = header + tokens * k
        if at + length > len(words):
            raise TraceError(
                f"{place} must lie in the file whole, {length * words.itemsize} bytes, found "
                f"{(len(words) - at) * words.itemsize}; cut it off with head -c {offset + at * words.itemsize}"
            )
        # Records mostly come in runs of one length: look at many at once, more after each success
        many = min((len(words) - at) // length, window)
        alike = (words[at : at + many * length].reshape(many, length)[:, 1:header] == head[1:]).all(axis=1)
        run = many if alike.all() else int(np.argmin(alike))
        window = min(window * 2, 2**16) if run == many else 16
        found.append(at + np.arange(run) * length)
        at, count = at + run * length, count + run
    if not found or k is None:
        raise TraceError("must hold at least one record, found none")
    starts = np.concatenate(found)
    layers = words[starts]
    if (wrong := (layers < 0) | (layers >= MAX_LAYER)).any():
        number = int(np.argmax(wrong))
        raise TraceError(f"record {number} must have a layer from 0 to {MAX_LAYER - 1}, got {int(layers[number])}")
    return starts, k


def ids_between(words: np.ndarray, starts: np.ndarray, header: int, top_k: int) -> np.ndarray:
    """Return the ids of all records as (rows, top_k): what is left without the headers."""
    is_id = np.ones(len(words), dtype=bool)
    is_id[(starts[:, None] + np.arange(header)).reshape(-1)] = False
    return words[is_id].reshape(-1, top_k)


def _check_header(head: list[int], header: int, top_k: int | None, place: str) -> None:
    if len(head) < header:
        raise TraceError(f"{place} must have a header of {header} numbers, found {len(head)}; the file is cut short")
    if head[1] < 1:
        raise TraceError(f"{place} must have at least one token, got {head[1]}")
    found = head[2] if header > 2 else top_k
    if found is None or not 1 <= found <= MAX_TOP_K:
        raise TraceError(f"{place} must have a k from 1 to {MAX_TOP_K}, got {found}")
    if top_k is not None and found != top_k:
        raise TraceError(f"{place} must have the k of the first record, {top_k}, got {found}")
