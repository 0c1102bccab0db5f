"""From the records of a home-made trace to a `RoutingTrace`: arrays filled, slots sorted, what is doubtful named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.checks import UNASSIGNED
from stickymoe.traces.importers import forwards
from stickymoe.traces.importers.generic_columns import settled_phases
from stickymoe.traces.importers.generic_records import FILL, Records
from stickymoe.traces.importers.generic_tokens import Places, layer_numbers, places
from stickymoe.traces.importers.importer import ReadOptions
from stickymoe.traces.importers.slots import by_weight, filled_first
from stickymoe.traces.trace import RoutingTrace

BLOCK = 2**18
ENOUGH_ROWS = 64


def trace_of(records: Records, options: ReadOptions, format: str) -> RoutingTrace:
    """Return the trace that the records are; `records` is used up, so that its memory goes as the trace's is taken.

    Raises:
        TraceError: The records contradict each other, or what the user says.
    """
    records.finish()
    _check_declared(records, options)
    if records.several or records.blocks[0].token is None:
        return _by_passes(records, options, format)
    at = places(records)
    names = layer_numbers(records)[1]
    shape = (len(at.positions), len(names), max(_width(records), records.declared.get("top_k", 1)))
    room = shape[0] * shape[1] * shape[2] * 8
    options.require_room(room, f"{shape[0]} tokens x {shape[1]} layers x {shape[2]} slots")
    columns = _settled_columns(_columns(records, at), at, options)
    slots = {name: _filled(records, name, at, shape) for name in records.slots}
    ids, num_experts, told = _settled_ids(slots.pop("ids"), names, records, options)
    told["format"] = format
    return RoutingTrace(
        num_experts=num_experts,
        layer_names=names,
        provenance=told,
        **_settled_slots(ids, slots, told),
        **columns,
    )


def _check_declared(records: Records, options: ReadOptions) -> None:
    found = {"num_layers": len(records.layers), "top_k": _width(records)}
    for name, number in found.items():
        forwards.require_told(name, getattr(options, name), number)
        declared = records.declared.get(name)
        if declared is not None and number > declared:
            raise TraceError(f"{name} must be at most {declared}, as the file declares, got {number}")


def _width(records: Records) -> int:
    return records.slots["ids"].width


def _columns(records: Records, at: Places) -> dict[str, np.ndarray]:
    """Return what each token says of itself; where its layers do not agree on a forward pass, these are left out."""
    found: dict[str, np.ndarray] = {}
    for name in ("phase", "token_id", "position", "document", "event"):
        if getattr(records.blocks[0], name) is None:
            continue
        said = records.taken(name)
        column = np.empty(len(at.positions), dtype=said.dtype)
        column[at.row] = said
        differs = column[at.row] != said
        if not differs.any():
            found[name] = column
        elif name == "event":
            forwards.warn("forward passes are left out: layers of one token name different ones")
        else:
            row = int(np.argmax(differs))
            record = int(records.taken("record")[row])
            raise TraceError(
                f"record {record} must have the {records.names[name]} of its token's other layers, got another"
            )
    return found


def _filled(records: Records, name: str, at: Places, shape: tuple[int, int, int]) -> np.ndarray:
    """Return (tokens, layers, slots) of what the records hold, which then hold it no longer."""
    values = records.slots[name].taken()
    if values.shape == (shape[0] * shape[1], shape[2]) and _in_place(at, shape[1]):
        return values.reshape(shape)
    array = np.full(shape, FILL[name], dtype=values.dtype)
    for start in range(0, len(values), BLOCK):
        rows = slice(start, start + BLOCK)
        array[at.row[rows], at.layer[rows], : values.shape[1]] = values[rows]
    return array


def _in_place(at: Places, layers: int) -> bool:
    """Whether the rows stand token by token, layer by layer."""
    for start in range(0, len(at.row), BLOCK):
        rows = slice(start, start + BLOCK)
        place = at.row[rows].astype(np.int64) * layers + at.layer[rows]
        if not np.array_equal(place, np.arange(start, start + len(place))):
            return False
    return True


def _settled_ids(
    ids: np.ndarray, names: tuple[str, ...], records: Records, options: ReadOptions
) -> tuple[np.ndarray, int, dict[str, Any]]:
    lowest, highest = _ranges(ids)
    told: dict[str, Any] = {}
    declared = records.declared.get("num_experts")
    known = options.num_experts or declared
    if known is not None and int(highest.max()) >= known:
        ids = _unflattened(ids, lowest, highest, names, known)
        told["expert_ids"] = "were numbered through the layers"
        highest = _ranges(ids)[1]
    elif known is None and _look_flat(ids, lowest, highest):
        raise TraceError(
            "expert ids must be numbered in each layer, got ids that rise from layer to layer; give num_experts"
        )
    num_experts, source = options.experts(declared, int(highest.max()))
    told["num_experts_from"] = source
    if "model" in records.declared:
        told["model"] = records.declared["model"]
    return ids, num_experts, told


def _ranges(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and the highest id of each layer; -1 and -1 where it has none."""
    largest = ids.max()
    bounds = [(layer[layer >= 0].min(initial=largest), layer.max()) for layer in np.moveaxis(ids, 1, 0)]
    lowest, highest = (np.array(each, dtype=np.int64) for each in zip(*bounds, strict=True))
    return np.where(highest < 0, -1, lowest), highest


def _look_flat(ids: np.ndarray, lowest: np.ndarray, highest: np.ndarray) -> bool:
    """Whether layers use ranges of ids one above the other, as they do where ids are numbered through the model."""
    enough = len(ids) >= ENOUGH_ROWS and len(lowest) > 1 and bool((highest > lowest).all())
    return enough and bool((lowest[1:] > highest[:-1]).all())


def _unflattened(
    ids: np.ndarray, lowest: np.ndarray, highest: np.ndarray, names: tuple[str, ...], num_experts: int
) -> np.ndarray:
    """Return ids numbered in each layer, from ids numbered through all layers or through the MoE layers."""
    numberings = [np.arange(len(names))]
    if all(name.isascii() and name.isdigit() for name in names):
        numberings.append(np.array([int(name) for name in names]))
    for layers in numberings:
        base = layers * num_experts
        if ((lowest >= base) & (highest < base + num_experts) | (highest < 0)).all():
            return np.where(ids == UNASSIGNED, UNASSIGNED, ids - base[:, None])
    return ids


def _settled_slots(ids: np.ndarray, slots: dict[str, np.ndarray], told: dict[str, Any]) -> dict[str, Any]:
    """Return ids, weights and residency with slots in order; weights that are not all finite are left out."""
    weights, resident = slots.get("weights"), slots.get("resident")
    rest = () if resident is None else (resident,)
    if weights is not None and not np.isfinite(weights.sum(dtype=np.float64)) and not np.isfinite(weights).all():
        forwards.warn(f"weights are left out: {int(np.count_nonzero(~np.isfinite(weights)))} of them are not finite")
        weights = None
    if weights is None:
        if ids.shape[2] > 1 and len(ids) >= ENOUGH_ROWS and _ascend(ids):
            told["slots"] = "ids ascend in every token: which expert is the top-1 is not known"
        ids, *others = filled_first(ids, *rest)
    else:
        ids, weights, *others = by_weight(ids, weights, *rest)
    found = {"expert_ids": ids} | ({} if weights is None else {"expert_weights": weights})
    return found | ({"resident": others[0]} if others else {})


def _ascend(ids: np.ndarray) -> bool:
    return bool(((ids[..., 1:] > ids[..., :-1]) | (ids[..., 1:] == UNASSIGNED)).all())


def _settled_columns(columns: dict[str, np.ndarray], at: Places, options: ReadOptions) -> dict[str, Any]:
    sequence_ids = at.sequence_ids
    phases = settled_phases(columns["phase"]) if "phase" in columns else None
    if options.prompt_tokens is not None:
        if phases is not None:
            raise TraceError("prompt_tokens must be left out where the file tells the phases, got both")
        phases = forwards.phases_by_prompt(sequence_ids, options.prompt_tokens)
    elif "phase" in columns and phases is None:
        forwards.warn("phases are left out: some records do not say theirs")
    events = columns.get("event")
    if events is not None and ((events[1:] < events[:-1]) & (sequence_ids[1:] == sequence_ids[:-1])).any():
        forwards.warn("forward passes are left out: their numbers fall inside a sequence")
        events = None
    if options.chunk_tokens is not None:
        sequence_ids = forwards.in_chunks(sequence_ids, options.chunk_tokens)
    return {
        "sequence_ids": sequence_ids,
        "positions": columns.get("position", at.positions),
        "phases": phases,
        "event_ids": events,
        "token_ids": columns.get("token_id"),
        "document_ids": columns.get("document"),
    }


def _by_passes(records: Records, options: ReadOptions, format: str) -> RoutingTrace:
    """Return the trace of records without token numbers: forward passes are told by the layers."""
    place, names = layer_numbers(records)
    request, record, layer = records.taken("request"), records.taken("record"), place[records.taken("layer")]
    order = np.argsort(request, kind="stable")
    request, record, layer = request[order], record[order], layer[order]
    begins = np.ones(len(layer), dtype=bool)
    keys = (layer, request, record) if records.several else (layer, request)
    begins[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    first = np.flatnonzero(begins)
    restarts = np.append(True, request[first][1:] != request[first][:-1])
    at = Places(order.argsort(), np.zeros(len(order), dtype=np.int64), request, request)
    shape = (len(order), 1, _width(records))
    slots = {name: _filled(records, name, at, shape) for name in records.slots if name != "resident"}
    told: dict[str, Any] = {"model": records.declared["model"]} if "model" in records.declared else {}
    has_phases = records.blocks[0].phase is not None and options.prompt_tokens is None
    if has_phases:
        told["phases_from"] = "the file"
    found = _settled_slots(slots.pop("ids"), slots, told)
    weights = found.get("expert_weights")
    blocks = forwards.Blocks(
        layer[first],
        np.diff(np.append(first, len(layer))),
        found["expert_ids"][:, 0],
        None if weights is None else weights[:, 0],
        numbers=record[first],
        restarts=restarts,
    )
    trace = forwards.trace_of(
        blocks,
        options,
        format=format,
        declared=records.declared.get("num_experts"),
        layer_names=names,
        ragged=True,
        told=told,
    )
    if not has_phases:
        return trace
    spelled = records.taken("phase")[order][layer == 0]
    return replace(trace, phases=settled_phases(spelled[: trace.num_tokens]))
