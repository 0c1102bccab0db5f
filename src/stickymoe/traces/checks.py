"""What must hold in a routing trace, each rule with its one-line error."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError

UNASSIGNED = -1
PREFILL, DECODE = 0, 1
MAX_EXPERTS = 2**31
CHECKED_VALUES = 2**19
PAIRED_SLOTS = 16
ID_RULE = f"whole numbers from 0 to num_experts - 1, or {UNASSIGNED} for an unassigned slot"


def checked_num_experts(given: Any) -> int:
    """Return the number of experts as an `int` between 1 and 2**31."""
    try:
        num_experts = operator.index(given)
    except TypeError:
        num_experts = 0
    if isinstance(given, bool) or not 1 <= num_experts <= MAX_EXPERTS:
        raise TraceError(f"trace.num_experts must be a whole number from 1 to {MAX_EXPERTS}, got {given!r}")
    return num_experts


def id_dtype(num_experts: int) -> np.dtype[Any]:
    """Return the smaller of int16 and int32 that holds every id below `num_experts`."""
    return np.dtype(np.int16 if num_experts <= 2**15 else np.int32)


def as_integers(name: str, given: Any) -> np.ndarray:
    """Return `given` as an integer array; floats, text and ragged lists are refused rather than rounded."""
    try:
        array = np.asarray(given)
    except (ValueError, OverflowError) as error:
        raise TraceError(
            f"{name} must be a rectangular array of whole numbers, got ragged or too large values"
        ) from error
    if array.dtype.kind not in "iu" and array.size:
        raise TraceError(f"{name} must be whole numbers, got values of type {array.dtype}; convert them first")
    return array


def checked_expert_ids(given: Any, num_experts: int, name: str = "trace.expert_ids") -> np.ndarray:
    """Return ids in their smallest type after checking shape, bounds, slot order and repeats."""
    ids = as_integers(name, given)
    check_shape(ids, name)
    lowest, highest = int(ids.min()), int(ids.max())
    if lowest < UNASSIGNED or highest >= num_experts:
        outside = lowest if lowest < UNASSIGNED else highest
        raise TraceError(f"{name} must be {ID_RULE}, got {outside} with num_experts {num_experts}")
    if ids.shape[2] > num_experts:
        raise TraceError(
            f"{name} must have top_k <= num_experts, got top_k {ids.shape[2]} with num_experts {num_experts}"
        )
    ids = ids.astype(id_dtype(num_experts), copy=False)
    if lowest == UNASSIGNED:
        _check_unassigned(ids, name)
    _check_repeats(ids, name)
    return ids


def check_shape(ids: np.ndarray, name: str) -> None:
    """Raise unless `ids` is (tokens, layers, top_k) with at least one of each."""
    if ids.ndim != 3 or 0 in ids.shape:
        rule = "shaped (tokens, layers, top_k) with at least one of each"
        raise TraceError(f"{name} must be {rule}, got shape {ids.shape}")


def checked_column(name: str, given: Any, tokens: int) -> np.ndarray:
    """Return one whole number a token as int64."""
    column = as_integers(name, given)
    if column.shape != (tokens,):
        raise TraceError(f"{name} must have one value a token, shape ({tokens},), got shape {column.shape}")
    if column.dtype.kind == "u" and column.size and int(column.max()) >= 2**63:
        raise TraceError(f"{name} must fit in 64 bits with a sign, got {int(column.max())}")
    return column.astype(np.int64, copy=False)


def checked_sequence_ids(given: Any, tokens: int) -> np.ndarray:
    """Return sequence ids whose rows stand together."""
    ids = checked_column("trace.sequence_ids", given, tokens)
    runs = 1 + int(np.count_nonzero(ids[1:] != ids[:-1]))
    if runs != np.unique(ids).size:
        rule = "trace.sequence_ids must keep the tokens of a sequence together"
        raise TraceError(f"{rule}, got a sequence in several pieces; sort the rows")
    return ids


def checked_weights(given: Any, expert_ids: np.ndarray) -> np.ndarray:
    """Return router weights as float32: finite, shaped like the ids, slot 0 the largest."""
    name = "trace.expert_weights"
    try:
        weights = np.asarray(given)
    except ValueError as error:
        raise TraceError(f"{name} must be a rectangular array of numbers, got ragged values") from error
    if weights.dtype.kind not in "fiu":
        raise TraceError(f"{name} must be numbers, got values of type {weights.dtype}")
    if weights.shape != expert_ids.shape:
        raise TraceError(f"{name} must have the shape of expert_ids {expert_ids.shape}, got {weights.shape}")
    with np.errstate(over="ignore"):
        weights = weights.astype(np.float32, copy=False)
    for rows in _blocks(weights):
        part = weights[rows]
        if not np.isfinite(part).all():
            token, layer, slot = np.argwhere(~np.isfinite(part))[0].tolist()
            found = f"{float(part[token, layer, slot])} at token {rows.start + token}, layer {layer}, slot {slot}"
            raise TraceError(f"{name} must be finite in float32, got {found}")
        heavier = (part[..., 1:] > part[..., :1]) & (expert_ids[rows, :, 1:] != UNASSIGNED)
        if heavier.any():
            token, layer, _ = np.argwhere(heavier)[0].tolist()
            found = f"a heavier slot at token {rows.start + token}, layer {layer}"
            raise TraceError(f"{name} must be largest in slot 0, got {found}; sort the slots by weight")
    return weights


def checked_phases(given: Any, tokens: int) -> np.ndarray:
    """Return phases as uint8: 0 prefill, 1 decode."""
    phases = checked_column("trace.phases", given, tokens)
    if outside := phases[(phases != PREFILL) & (phases != DECODE)][:1].tolist():
        raise TraceError(f"trace.phases must be {PREFILL} (prefill) or {DECODE} (decode), got {outside[0]}")
    return phases.astype(np.uint8)


def checked_event_ids(given: Any, sequence_ids: np.ndarray) -> np.ndarray:
    """Return the number of each token's forward pass as int64; it never falls inside a sequence."""
    events = checked_column("trace.event_ids", given, len(sequence_ids))
    falls = np.flatnonzero((events[1:] < events[:-1]) & (sequence_ids[1:] == sequence_ids[:-1]))
    if falls.size:
        token = int(falls[0]) + 1
        found = f"{events[token]} after {events[token - 1]} at token {token}"
        raise TraceError(f"trace.event_ids must not fall inside a sequence, got {found}")
    return events


def checked_resident(given: Any, expert_ids: np.ndarray) -> np.ndarray:
    """Return what the device saw as int8: 0 miss, 1 hit, 2 prefetched, -1 not told or nothing there."""
    name = "trace.resident"
    resident = as_integers(name, given)
    if resident.shape != expert_ids.shape:
        raise TraceError(f"{name} must have the shape of expert_ids {expert_ids.shape}, got {resident.shape}")
    if resident.min() < -1 or resident.max() > 2:
        outside = int(resident.min()) if resident.min() < -1 else int(resident.max())
        raise TraceError(f"{name} must be 0 (miss), 1 (hit), 2 (prefetched) or -1 (not told), got {outside}")
    told = np.argwhere((expert_ids == UNASSIGNED) & (resident != -1))
    if told.size:
        token, layer, slot = told[0].tolist()
        raise TraceError(f"{name} must be -1 in empty slots, got another at token {token}, layer {layer}, slot {slot}")
    return resident.astype(np.int8, copy=False)


def checked_layer_names(name: str, given: Any, layers: int) -> tuple[str, ...]:
    """Return one name a layer: text, not empty, none twice."""
    names = () if isinstance(given, str) else tuple(given)
    if len(names) != layers or not all(isinstance(word, str) and word for word in names):
        raise TraceError(f"{name} must be {layers} words, one a layer, got {_short(given)}")
    if len(set(names)) != layers:
        twice = next(word for word in names if names.count(word) > 1)
        raise TraceError(f"{name} must differ from layer to layer, got {twice!r} twice")
    return names


def checked_expert_bytes(given: Any, layers: int) -> np.ndarray:
    """Return the bytes of one expert of each layer as int64."""
    sizes = as_integers("trace.expert_bytes", given)
    if sizes.shape != (layers,):
        raise TraceError(f"trace.expert_bytes must have one value a layer, shape ({layers},), got shape {sizes.shape}")
    if sizes.min() < 1 or int(sizes.max()) >= 2**63:
        outside = int(sizes.min()) if sizes.min() < 1 else int(sizes.max())
        raise TraceError(f"trace.expert_bytes must be from 1 to 2**63 - 1, got {outside}")
    return sizes.astype(np.int64, copy=False)


def checked_provenance(given: Any) -> dict[str, Any]:
    """Return provenance as JSON would give it back, so that a saved trace equals the one in memory."""
    try:
        copy = json.loads(json.dumps(given, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TraceError(f"trace.provenance must be JSON (no NaN, no objects), got one that is not: {error}") from error
    if not isinstance(copy, dict):
        raise TraceError(f"trace.provenance must be a mapping, got {type(given).__name__}")
    return copy


def _blocks(array: np.ndarray) -> Iterator[slice]:
    """Yield the rows of an array in parts that stay small: what is held beside a trace to check it must not grow."""
    step = max(1, CHECKED_VALUES // (array.shape[1] * array.shape[2]))
    for start in range(0, len(array), step):
        yield slice(start, start + step)


def _check_unassigned(ids: np.ndarray, name: str) -> None:
    served = False
    for rows in _blocks(ids):
        assigned = ids[rows] != UNASSIGNED
        late = assigned[..., 1:] & ~assigned[..., :-1]
        if late.any():
            token, layer, _ = np.argwhere(late)[0].tolist()
            found = f"an expert after an unassigned slot at token {rows.start + token}, layer {layer}"
            raise TraceError(f"{name} must fill slots from the front, got {found}")
        served = served or bool(assigned.any())
    if not served:
        raise TraceError(f"{name} must serve at least one token in some layer, got only unassigned slots")


def _check_repeats(ids: np.ndarray, name: str) -> None:
    for rows in _blocks(ids):
        part = ids[rows]
        if part.shape[2] <= PAIRED_SLOTS:
            # Slot by slot, each in a row of its own: far faster than sorting many short rows
            slots = np.ascontiguousarray(np.moveaxis(part, 2, 0))
            repeated = any(
                bool(((later == slot) & (slot != UNASSIGNED)).any())
                for number, slot in enumerate(slots)
                for later in slots[number + 1 :]
            )
            if not repeated:
                continue
        ordered = np.sort(part, axis=-1)
        repeats = np.argwhere((ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] != UNASSIGNED))
        if repeats.size:
            token, layer, slot = repeats[0].tolist()
            found = f"{int(ordered[token, layer, slot])} twice at token {rows.start + token}, layer {layer}"
            raise TraceError(f"{name} must name an expert once a token and layer, got {found}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
