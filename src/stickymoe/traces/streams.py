"""A trace as streams of events: what a cache is asked for, in order, between two cold starts."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Int

from stickymoe.traces.checks import UNASSIGNED
from stickymoe.traces.trace import RoutingTrace

SCOPES = ("layer", "model")
ACCESSES = ("topk", "top1")
REPLAYS = ("atomic", "sequential")
RESETS = ("sequence", "never")


@dataclass(frozen=True)
class Stream:
    """The lookups of one cache from a cold start on.

    Args:
        events: The experts each event asks for, in request order. Where one cache serves the whole model, expert e of
            layer l is the block l * num_experts + e.
        layers: The layer of each event.
    """

    events: list[list[int]]
    layers: Int[np.ndarray, " events"]


def streams(
    trace: RoutingTrace,
    *,
    scope: str = "layer",
    accesses: str = "topk",
    replay: str = "atomic",
    reset: str = "sequence",
) -> Iterator[Stream]:
    """Yield what each cache sees between two cold starts.

    Args:
        trace: The routing.
        scope: `layer`: one cache a layer; `model`: one for all, events running through the layers of a token.
        accesses: `topk`: every expert of a token; `top1`: slot 0 alone.
        replay: `atomic`: one event a token and layer; `sequential`: one event an expert.
        reset: `sequence`: a cold start at each sequence; `never`: one stream a cache.
    """
    ids = trace.expert_ids[:, :, :1] if accesses == "top1" else trace.expert_ids
    layers = np.arange(trace.num_layers)
    bounds = trace.sequence_starts().tolist() if reset == "sequence" else [0, trace.num_tokens]
    for start, stop in pairwise(bounds):
        rows = ids[start:stop]
        if scope == "layer":
            for layer in range(trace.num_layers):
                yield _stream(rows[:, layer], rows[:, layer] != UNASSIGNED, np.full(len(rows), layer), replay)
        else:
            blocks = rows + layers[:, None] * trace.num_experts
            width = rows.shape[2]
            yield _stream(
                blocks.reshape(-1, width), rows.reshape(-1, width) != UNASSIGNED, np.tile(layers, len(rows)), replay
            )


def _stream(wanted: np.ndarray, assigned: np.ndarray, layers: np.ndarray, replay: str) -> Stream:
    if replay == "sequential":
        return Stream(wanted[assigned][:, None].tolist(), np.repeat(layers, assigned.sum(axis=1)))
    events = wanted.tolist()
    if not assigned.all():
        events = [event[:size] for event, size in zip(events, assigned.sum(axis=1).tolist(), strict=True)]
    return Stream(events, layers)
