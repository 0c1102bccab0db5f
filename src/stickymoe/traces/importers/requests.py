"""Requests laid one after the other as a trace: what servers and dumps by prompt have in common."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError, TraceWarning
from stickymoe.traces.checks import DECODE, PREFILL
from stickymoe.traces.importers.importer import ReadOptions
from stickymoe.traces.importers.raw_ids import check_not_wrapped, layer_names, routed_layers, unrouted_where_zero
from stickymoe.traces.importers.slots import by_weight, filled_first
from stickymoe.traces.trace import RoutingTrace

# For the provenance: engines prefill in chunks and decode in batches, of which these files say nothing
ASSUMED_PASSES = "assumed: a prompt is one forward pass, each token after it one of its own"


@dataclass(frozen=True)
class Request:
    """The routing of one request.

    Args:
        name: What it is, for errors.
        expert_ids: (tokens, layers, top_k); -1 where nothing was routed.
        prompt_tokens: Length of the prompt; tokens at positions from there on were decoded. None: not told.
        start: Position of the first token.
        token_ids: Vocabulary ids of these tokens.
        expert_weights: Of the shape of the ids.
    """

    name: str
    expert_ids: np.ndarray
    prompt_tokens: int | None = None
    start: int = 0
    token_ids: np.ndarray | None = None
    expert_weights: np.ndarray | None = None


def trace_of(
    requests: Sequence[Request],
    options: ReadOptions,
    *,
    num_experts: int | None = None,
    zeroed: bool = False,
    names: Sequence[str] | None = None,
    provenance: dict[str, Any] | None = None,
) -> RoutingTrace:
    """Make each request a sequence; layers that route nothing are left out, the others keep their numbers as names.

    The prompt of a request counts as one forward pass, and so does each token after it; the provenance says so.

    Args:
        requests: At least one, alike in layers and top_k.
        options: What the user says.
        num_experts: What the file says.
        zeroed: Slots never written hold 0 and not -1. Tokens at a request's end that no layer routed, such as the last
            one generated, are then left out.
        names: Names of the layers; their numbers if not given.
        provenance: What else to keep of the file.

    Raises:
        TraceError: There is no token, two requests differ in shape, or an id breaks its rule.
    """
    requests = [_checked(request, requests[0], options) for request in requests]
    if zeroed:
        requests = [_without_silent_end(request) for request in requests]
    lengths = [len(request.expert_ids) for request in requests]
    if not sum(lengths):
        raise TraceError("a trace must have at least one token, got none")
    raw = np.concatenate([request.expert_ids for request in requests])
    experts, told = options.experts(num_experts, int(raw.max()))
    check_not_wrapped(raw, experts, told)
    ids = unrouted_where_zero(raw) if zeroed else raw
    layers = routed_layers(ids)
    if unknown := int((ids < 0).all(axis=(1, 2)).sum()):
        warnings.warn(f"{unknown} of {len(ids)} tokens are routed in no layer", TraceWarning, stacklevel=2)
    ids = ids[:, layers] if len(layers) < ids.shape[1] else ids
    filled = [request for request in requests if len(request.expert_ids)]
    weights = None
    if all(request.expert_weights is not None for request in filled):
        weights = np.concatenate([request.expert_weights for request in filled])[:, layers]
        ids, weights = by_weight(ids, weights)
    else:
        (ids,) = filled_first(ids)
    columns = _phases(filled)
    known = (provenance or {}) | {"num_experts_from": told} | ({"events_from": ASSUMED_PASSES} if columns else {})
    if all(request.token_ids is not None for request in filled):
        columns["token_ids"] = np.concatenate([request.token_ids for request in filled])
    return RoutingTrace(
        ids,
        np.repeat(np.arange(len(requests)), lengths),
        experts,
        expert_weights=weights,
        positions=np.concatenate([request.start + np.arange(len(request.expert_ids)) for request in filled]),
        layer_names=tuple(names[layer] for layer in layers) if names else layer_names(layers, raw.shape[1]),
        provenance=known,
        **columns,
    )


def _checked(request: Request, first: Request, options: ReadOptions) -> Request:
    ids = request.expert_ids
    if ids.ndim != 3:
        raise TraceError(f"{request.name} must be shaped (tokens, layers, top_k), got shape {ids.shape}")
    if ids.shape[1:] != first.expert_ids.shape[1:]:
        wanted = f"the layers and slots of {first.name}, {first.expert_ids.shape[1:]}"
        raise TraceError(f"{request.name} must have {wanted}, got {ids.shape[1:]}")
    for name, found in (("num_layers", ids.shape[1]), ("top_k", ids.shape[2])):
        wanted = getattr(options, name)
        if found == 0 or wanted not in (None, found):
            raise TraceError(f"{request.name} must have {name} {wanted or '>= 1'}, got {found}")
    if options.prompt_tokens is None:
        return request
    if request.prompt_tokens not in (None, options.prompt_tokens):
        found = f"{request.prompt_tokens} in the file against prompt_tokens {options.prompt_tokens}"
        raise TraceError(f"{request.name} must have the prompt that the file tells, got {found}; leave it out")
    return replace(request, prompt_tokens=options.prompt_tokens)


def _without_silent_end(request: Request) -> Request:
    routed = np.flatnonzero((request.expert_ids > 0).any(axis=(1, 2)))
    stop = int(routed[-1]) + 1 if routed.size else 0
    token_ids = None if request.token_ids is None else request.token_ids[:stop]
    return replace(request, expert_ids=request.expert_ids[:stop], token_ids=token_ids)


def _phases(requests: Sequence[Request]) -> dict[str, Any]:
    """Return phases and forward passes where every request tells the length of its prompt."""
    phases, events, passes = [], [], 0
    for request in requests:
        if request.prompt_tokens is None:
            return {}
        rows = np.arange(len(request.expert_ids))
        decoded = request.start + rows >= request.prompt_tokens
        phases.append(np.where(decoded, DECODE, PREFILL))
        events.append(passes - 1 + np.cumsum(decoded | (rows == 0)))
        passes = int(events[-1][-1]) + 1
    return {"phases": np.concatenate(phases), "event_ids": np.concatenate(events)}
