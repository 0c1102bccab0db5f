"""BigMoeOnEdge `--route-trace` CSV: a `#` preamble, a header row, one row a (turn, phase, step, layer, slot)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from stickymoe.core.errors import TraceError, TraceWarning
from stickymoe.traces.checks import DECODE, UNASSIGNED
from stickymoe.traces.importers.cells import Cells
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.raw_ids import layer_names
from stickymoe.traces.importers.route_preamble import NEEDED, Preamble
from stickymoe.traces.importers.slots import by_weight
from stickymoe.traces.trace import RoutingTrace

# By name, for newer writers append columns under the same version
TYPES = dict.fromkeys((*NEEDED, "residency", "dropped"), pa.int64()) | {"weight": pa.float64()}
LIMITS = {"turn": 2**31, "phase": 2, "step": 2**31, "layer": 2**16, "slot": 2**15, "expert": 2**31}
LIMITS |= {"residency": 3, "dropped": 2}
DECLARED = {"layer": "n_layer", "slot": "n_expert_used", "expert": "n_expert"}
Columns = Mapping[str, np.ndarray]


def _matches(head: Head) -> bool:
    rows = [line for line in head.lines if not line.startswith("#")]
    return head.data.startswith(b"# route_trace v") or (bool(rows) and set(NEEDED) <= set(rows[0].split(",")))


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    preamble = Preamble(path)
    columns = _columns(path, preamble, options)
    turn, phase, step = (columns[name] for name in ("turn", "phase", "step"))
    first, token = _tokens((turn * 2 + phase) * 2**31 + step)
    top_k = preamble.number("n_expert_used") or int(columns["slot"].max()) + 1
    cells = Cells(len(first), token, columns["layer"], columns["slot"], top_k)
    cells.check(options)
    if (row := cells.repeated()) is not None:
        raise TraceError(f"{_row(columns, row, preamble)} must be there once, got a second row")
    ids = cells.array(columns["expert"], np.int32, UNASSIGNED)
    weights, resident = _weights(cells, columns), None
    if "residency" in columns:
        resident = cells.array(columns["residency"], np.int8, -1)
    if weights is not None and resident is not None:
        ids, weights, resident = by_weight(ids, weights, resident)
    elif weights is not None:
        ids, weights = by_weight(ids, weights)
    tokens = slice(0, _whole_tokens(cells, columns, first, preamble))
    experts, told = options.experts(preamble.number("n_expert"), int(ids.max()))
    known = all(layer in preamble.expert_bytes for layer in cells.layers.tolist())
    return RoutingTrace(
        ids[tokens],
        turn[first][tokens],
        experts,
        expert_weights=None if weights is None else weights[tokens],
        resident=None if resident is None else resident[tokens],
        positions=step[first][tokens],
        phases=phase[first][tokens],
        event_ids=_passes(columns)[first][tokens],
        layer_names=layer_names(cells.layers, int(cells.layers[-1]) + 1),
        expert_bytes=np.array([preamble.expert_bytes[layer] for layer in cells.layers.tolist()]) if known else None,
        provenance={"model": preamble.facts.get("model"), "arch": preamble.facts.get("arch"), "num_experts_from": told},
    )


def _columns(path: Path, preamble: Preamble, options: ReadOptions) -> dict[str, np.ndarray]:
    """Return the columns that we know, every number within its bounds."""
    # Nine columns of at least two characters become eight numbers of eight bytes
    options.require_room(4 * path.stat().st_size, "a table of its rows")
    names = [name for name in TYPES if name in preamble.columns]
    with path.open("rb") as file:
        file.seek(preamble.size)
        try:
            table = pc.read_csv(
                file,
                read_options=pc.ReadOptions(column_names=preamble.columns, use_threads=False),
                parse_options=pc.ParseOptions(quote_char=False),
                convert_options=pc.ConvertOptions(column_types=TYPES, include_columns=names, null_values=[]),
            )
        except pa.ArrowInvalid as error:
            told = re.sub(r"Row #(\d+)", lambda row: f"line {int(row[1]) + preamble.lines}", str(error))
            found = " ".join(told.split())[:160]
            raise TraceError(f"rows must hold {len(preamble.columns)} numbers each, got: {found}") from error
    columns = {name: table.column(name).to_numpy() for name in names}
    for name, values in columns.items():
        limit = min(LIMITS.get(name, 1), preamble.number(DECLARED.get(name, "")) or 2**31)
        wrong = np.flatnonzero((values < 0) | (values >= limit)) if name in LIMITS else np.array([])
        if wrong.size:
            rule = f"{name} must be from 0 to {limit - 1}, got {values[wrong[0]]}"
            raise TraceError(f"{_row(columns, wrong[0], preamble)}: {rule}")
    turn = columns["turn"]
    if (falls := np.flatnonzero(turn[1:] < turn[:-1])).size:
        found = f"{turn[falls[0] + 1]} after {turn[falls[0]]}; split a file of several runs"
        raise TraceError(f"{_row(columns, falls[0] + 1, preamble)}: turns must not fall, got {found}")
    if dropped := int(np.count_nonzero(columns.get("dropped", 0))):
        _warn(f"the engine dropped {dropped} of {len(turn)} choices unread; they are kept as the router made them")
    return columns


def _tokens(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row of each token in order, and the token of each row; rows of one come mostly in runs."""
    starts = np.concatenate([[0], np.flatnonzero(key[1:] != key[:-1]) + 1])
    _, first, token = np.unique(key[starts], return_index=True, return_inverse=True)
    return starts[first], np.repeat(token, np.diff(starts, append=len(key)))


def _weights(cells: Cells, columns: Columns) -> np.ndarray | None:
    if "weight" not in columns:
        return None
    if unknown := int(np.isnan(columns["weight"]).sum()):
        _warn(f"weights are nan in {unknown} of {len(columns['weight'])} rows; the trace is read without weights")
        return None
    return cells.array(columns["weight"], np.float32, 0)


def _passes(columns: Columns) -> np.ndarray:
    """Return the forward pass of each row: a step of decode, or a run of prefill rows through the layers."""
    turn, phase, step, layer = (columns[name] for name in ("turn", "phase", "step", "layer"))
    new = (turn[1:] != turn[:-1]) | (phase[1:] != phase[:-1])
    new |= np.where(phase[1:] == DECODE, step[1:] != step[:-1], layer[1:] < layer[:-1])
    return np.concatenate([[0], np.cumsum(new)])


def _whole_tokens(cells: Cells, columns: Columns, first: np.ndarray, preamble: Preamble) -> int:
    """Return how many tokens are whole: all, or all but the last of a run that was stopped.

    In prefill the last layer may pass tokens over: llama.cpp routes only those there whose logits are wanted.
    """
    filled = cells.filled()
    holes = filled != cells.top_k
    holes[:, -1] &= (columns["phase"][first] == DECODE) | (filled[:, -1] > 0)
    broken = np.flatnonzero(holes.any(axis=1))
    if not broken.size:
        return cells.tokens
    token, layer = int(broken[0]), int(np.argmax(holes[broken[0]]))
    found = f"{filled[token, layer]} rows of {cells.top_k} in layer {cells.layers[layer]}"
    if token != cells.tokens - 1 or columns["phase"][first[token]] != DECODE or token == 0:
        raise TraceError(f"the token of {_row(columns, first[token], preamble)} must be whole, got {found}")
    _warn(f"the last token is cut off, with {found}; it is left out")
    return token


def _row(columns: Columns, row: int | np.integer, preamble: Preamble) -> str:
    place = ", ".join(f"{name} {columns[name][row]}" for name in ("turn", "phase", "step", "layer", "slot"))
    return f"line {preamble.lines + 1 + int(row)} ({place})"


def _warn(message: str) -> None:
    warnings.warn(message, TraceWarning, stacklevel=2)


IMPORTER = Importer(
    name="bigmoeonedge",
    what="BigMoeOnEdge --route-trace CSV, with weights and what the device had resident",
    matches=_matches,
    read=_read,
    loses="which choices the engine dropped (their number is told); a last token cut off",
)
