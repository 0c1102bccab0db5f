"""Layer by layer, as engines run, to token by token, as traces are: finds forward passes, puts rows in their place."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError, TraceWarning
from stickymoe.traces.checks import DECODE, PREFILL, UNASSIGNED
from stickymoe.traces.importers.importer import ReadOptions
from stickymoe.traces.importers.slots import by_weight
from stickymoe.traces.trace import RoutingTrace

MAX_LAYERS = 2**16
# For the provenance: what the phases come from
GIVEN_PROMPT = "prompt_tokens given"
ASSUMED_PHASES = "assumed: a forward pass of several tokens is prefill, one of a single token decode"


@dataclass(frozen=True)
class Blocks:
    """What a file says in its own order: block after block of rows that one layer routed in one go.

    Args:
        layers: The layer of each block.
        rows: How many tokens it routed there, >= 1.
        expert_ids: (all rows, top_k), -1 where a slot is empty, which only formats of ragged rows have.
        weights: The same shape, None if not told.
        unit: What a block is called in errors: "record", "line".
        numbers: The block's number or first line, for errors; counted from 0 if not given.
        restarts: Whether the file says that a new sequence starts with a block.
        begins: Whether the file says that a new forward pass begins with a block, even if its layer rises.
    """

    layers: np.ndarray
    rows: np.ndarray
    expert_ids: np.ndarray
    weights: np.ndarray | None = None
    unit: str = "record"
    numbers: np.ndarray | None = None
    restarts: np.ndarray | None = None
    begins: np.ndarray | None = None

    def place(self, block: int) -> str:
        """Where a block stands in the file."""
        return f"{self.unit} {block if self.numbers is None else int(self.numbers[block])}"


@dataclass(frozen=True)
class Passes:
    """Blocks as forward passes: `names` are the layers, `passes` gives each block's, `tokens` each pass's tokens."""

    blocks: Blocks
    names: np.ndarray
    passes: np.ndarray
    tokens: np.ndarray


def trace_of(
    blocks: Blocks,
    options: ReadOptions,
    *,
    format: str,
    declared: int | None = None,
    clears_at_prefill: bool = False,
    layer_names: Sequence[str] | None = None,
    ragged: bool = False,
    drafts: bool = False,
    told: dict[str, Any] | None = None,
) -> RoutingTrace:
    """Return the trace that the blocks are.

    A forward pass ends where the layer does not rise: engines' own call counters are not always moved. One of several
    tokens is taken for prefill, one of a single token for decode, unless the user gives `prompt_tokens`. The last layer
    may have the last tokens of a pass alone: engines leave out what no logits were asked for. What is left out of the
    trace is warned of: a pass that the file's end cuts short, a head that drafts tokens.

    Args:
        blocks: The file's contents.
        options: What the user knows.
        format: For the provenance.
        declared: Experts a layer, where the file says so.
        clears_at_prefill: Each pass of several tokens starts a sequence: the writer clears the context there.
        layer_names: By the layers' numbers in `blocks`, where these are not names enough.
        ragged: Rows may have empty slots.
        drafts: The last layer may be a head that drafts tokens, in passes of its own, and is then left out.
        told: More provenance.

    Raises:
        TraceError: A pass lacks a layer, a layer has another number of rows, or ids break a rule.
    """
    _check_ids(blocks, UNASSIGNED if ragged else 0)
    left_out: list[str] = []
    passes = _forward_passes(blocks)
    passes = _without_cut_end(_without_drafts(passes, left_out) if drafts else passes, left_out)
    _check_complete(passes)
    for what in left_out:
        warn(what)
    blocks = passes.blocks
    num_layers, top_k = len(passes.names), blocks.expert_ids.shape[1]
    require_told("num_layers", options.num_layers, num_layers)
    tokens = int(passes.tokens.sum())
    cells = tokens * num_layers * top_k
    options.require_room(
        cells * (8 if blocks.weights is None else 12), f"{tokens} tokens x {num_layers} layers x {top_k}"
    )
    num_experts, source = options.experts(declared, int(blocks.expert_ids.max()))
    ids, weights = _placed(passes, tokens)
    if weights is not None:
        ids, weights = by_weight(ids, weights)
    sequence_ids = _sequence_ids(passes, options, clears_at_prefill)
    return RoutingTrace(
        ids,
        sequence_ids,
        num_experts,
        expert_weights=weights,
        phases=_phases(passes, options, sequence_ids),
        event_ids=np.repeat(np.arange(len(passes.tokens)), passes.tokens),
        layer_names=tuple(layer_names[layer] if layer_names else str(layer) for layer in passes.names.tolist()),
        provenance={
            "format": format,
            "num_experts_from": source,
            "phases_from": ASSUMED_PHASES if options.prompt_tokens is None else GIVEN_PROMPT,
            **(told or {}),
        },
    )


def _check_ids(blocks: Blocks, least: int) -> None:
    lowest = int(blocks.expert_ids.min(initial=least))
    if lowest < least:
        row = int(np.argmax(blocks.expert_ids.min(axis=1) == lowest))
        place = blocks.place(int(np.searchsorted(np.cumsum(blocks.rows), row, side="right")))
        raise TraceError(f"{place} must hold expert ids >= 0, got {lowest}")


def require_told(name: str, given: int | None, found: int) -> None:
    """Raise where the user gave a number that the file contradicts."""
    if given is not None and given != found:
        raise TraceError(f"{name} must be what the file holds, got {name} {given} against {found}; leave it out")


def _forward_passes(blocks: Blocks) -> Passes:
    if blocks.layers.size == 0:
        raise TraceError("must hold at least one token, found none")
    if int(blocks.layers.min()) < 0:
        block = int(np.argmax(blocks.layers < 0))
        raise TraceError(f"{blocks.place(block)} must have a layer >= 0, got {int(blocks.layers[block])}")
    names = np.unique(blocks.layers)
    if len(names) > MAX_LAYERS:
        raise TraceError(f"must have at most {MAX_LAYERS} layers, got {len(names)}")
    starts = np.ones(len(blocks.layers), dtype=bool)
    starts[1:] = blocks.layers[1:] <= blocks.layers[:-1]
    for told in (blocks.restarts, blocks.begins):
        if told is not None:
            starts |= told
    tokens = np.maximum.reduceat(blocks.rows, np.flatnonzero(starts))
    return Passes(blocks, names, np.cumsum(starts) - 1, tokens)


def _without_drafts(passes: Passes, left_out: list[str]) -> Passes:
    """Leave the last layer out where it runs in passes of its own, as a head that drafts tokens does."""
    blocks, last = passes.blocks, passes.names[-1]
    if len(passes.names) == 1:
        return passes
    others = np.zeros(len(passes.tokens), dtype=bool)
    others[passes.passes[blocks.layers != last]] = True
    if others.all():
        return passes
    left_out.append(f"layer {last} is left out: it runs in passes of its own, as a head that drafts tokens does")
    return _forward_passes(part(blocks, blocks.layers != last))


def _without_cut_end(passes: Passes, left_out: list[str]) -> Passes:
    """Leave the last pass out where it lacks what the file's end cut off."""
    blocks, end = passes.blocks, len(passes.tokens) - 1
    first = int(np.searchsorted(passes.passes, end))
    layers, rows = blocks.layers[first:], blocks.rows[first:]
    whole = len(layers) == len(passes.names) and rows[-1] <= rows[0]
    could_be_cut = np.array_equal(layers, passes.names[: len(layers)]) and (rows[:-1] == rows[0]).all()
    if end == 0 or whole or not could_be_cut:
        return passes
    left_out.append(f"the last forward pass, from {blocks.place(first)} on, is left out: the file ends before it does")
    return _forward_passes(part(blocks, np.arange(len(blocks.layers)) < first))


def part(blocks: Blocks, stay: np.ndarray) -> Blocks:
    """Return the blocks that `stay`; a sequence, or pass, whose first block goes starts with the next that stays."""
    rows = np.repeat(stay, blocks.rows)
    return Blocks(
        blocks.layers[stay],
        blocks.rows[stay],
        blocks.expert_ids[rows],
        None if blocks.weights is None else blocks.weights[rows],
        blocks.unit,
        np.flatnonzero(stay) if blocks.numbers is None else blocks.numbers[stay],
        _starts_of(blocks.restarts, stay),
        _starts_of(blocks.begins, stay),
    )


def _starts_of(starts: np.ndarray | None, stay: np.ndarray) -> np.ndarray | None:
    if starts is None:
        return None
    number = np.cumsum(starts)[stay]
    changed: np.ndarray = np.diff(number, prepend=-1) != 0
    return changed


def warn(what: str) -> None:
    """Tell by name that something of the file is not in the trace."""
    warnings.warn(what, TraceWarning, stacklevel=2)


def _check_complete(passes: Passes) -> None:
    """Raise unless every pass has every layer with all rows; the last layer may lack the first rows of a prefill."""
    blocks, names, count = passes.blocks, passes.names, len(passes.tokens)
    missing_rows = (blocks.rows != passes.tokens[passes.passes]) & (blocks.layers != names[-1])
    if missing_rows.any():
        block = int(np.argmax(missing_rows))
        found = f"{int(blocks.rows[block])} of {int(passes.tokens[passes.passes[block]])}"
        raise TraceError(
            f"{blocks.place(block)}: layer {int(blocks.layers[block])} must have as many tokens as the others of its "
            f"forward pass, got {found}; the file may be cut, or {len(names)} layers are those of several models"
        )
    has_last = np.zeros(count, dtype=bool)
    has_last[passes.passes[blocks.layers == names[-1]]] = True
    held = np.bincount(passes.passes, minlength=count) - has_last
    pruned = ~has_last & (passes.tokens > 1) & (np.arange(count) != count - 1)
    lacking = (held != len(names) - 1) | ~(has_last | pruned)
    if lacking.any():
        number = int(np.argmax(lacking))
        first = int(np.searchsorted(passes.passes, number))
        got = int(held[number] + has_last[number])
        raise TraceError(
            f"forward pass {number}, which starts with {blocks.place(first)}, must have all {len(names)} layers, "
            f"got {got}; the file is cut, or its layers change midway"
        )


def _placed(passes: Passes, tokens: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return ids and weights as (tokens, layers, top_k); the rows of a block go to the last tokens of its pass."""
    blocks, shape = passes.blocks, (tokens, len(passes.names), passes.blocks.expert_ids.shape[1])
    if len(blocks.rows) == tokens * len(passes.names):
        return blocks.expert_ids.reshape(shape), None if blocks.weights is None else blocks.weights.reshape(shape)
    ends = np.cumsum(passes.tokens)
    # Row r of the file, in block b, is token end_of_pass(b) - rows_to_come_in_b
    to_token = ends[passes.passes] - np.cumsum(blocks.rows)
    token = np.arange(len(blocks.expert_ids)) + np.repeat(to_token, blocks.rows)
    layer = np.repeat(np.searchsorted(passes.names, blocks.layers), blocks.rows)
    ids = np.full(shape, UNASSIGNED, dtype=blocks.expert_ids.dtype)
    ids[token, layer] = blocks.expert_ids
    if blocks.weights is None:
        return ids, None
    weights = np.zeros(shape, dtype=np.float32)
    weights[token, layer] = blocks.weights
    return ids, weights


def _sequence_ids(passes: Passes, options: ReadOptions, clears_at_prefill: bool) -> np.ndarray:
    starts = np.zeros(len(passes.tokens), dtype=bool)
    starts[0] = True
    if passes.blocks.restarts is not None:
        starts[passes.passes[passes.blocks.restarts]] = True
    if clears_at_prefill and options.chunk_tokens is None:
        starts |= passes.tokens > 1
    sequence_ids = np.repeat(np.cumsum(starts) - 1, passes.tokens)
    return sequence_ids if options.chunk_tokens is None else in_chunks(sequence_ids, options.chunk_tokens)


def _phases(passes: Passes, options: ReadOptions, sequence_ids: np.ndarray) -> np.ndarray:
    if options.prompt_tokens is not None:
        return phases_by_prompt(sequence_ids, options.prompt_tokens)
    return np.repeat(np.where(passes.tokens > 1, PREFILL, DECODE), passes.tokens)


def phases_by_prompt(sequence_ids: np.ndarray, prompt_tokens: int) -> np.ndarray:
    """Return the phase of each token where each sequence begins with `prompt_tokens` of prompt."""
    return np.where(_within(sequence_ids) < prompt_tokens, PREFILL, DECODE)


def in_chunks(sequence_ids: np.ndarray, chunk_tokens: int) -> np.ndarray:
    """Return sequence ids that change after every `chunk_tokens` tokens of a sequence too."""
    chunked: np.ndarray = np.cumsum(_within(sequence_ids) % chunk_tokens == 0) - 1
    return chunked


def _within(sequence_ids: np.ndarray) -> np.ndarray:
    """Return each token's number in its sequence."""
    starts = np.flatnonzero(np.r_[True, sequence_ids[1:] != sequence_ids[:-1]])
    return np.arange(len(sequence_ids)) - np.repeat(starts, np.diff(np.r_[starts, len(sequence_ids)]))
