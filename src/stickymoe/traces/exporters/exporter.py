"""What an exporter to a trace format is, and the order in which engines write."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from stickymoe.core.errors import TraceError, TraceWarning
from stickymoe.traces.checks import UNASSIGNED
from stickymoe.traces.trace import RoutingTrace


@dataclass(frozen=True)
class Exporter:
    """One format to write.

    Args:
        name: What `--to` takes; the importer of the same name reads it back.
        what: One line for docs and `--help`.
        suffix: With which the format's files usually end.
        write: Writes a trace to a path that takes the final file's place later; `TraceError` where the format has no
            way to say what the trace holds, `TraceWarning` where something is lost.
    """

    name: str
    what: str
    suffix: str
    write: Callable[[RoutingTrace, Path], None]


def warn_of_loss(format: str, what: str) -> None:
    """Tell by name what a format cannot keep."""
    warnings.warn(f"{format} files do not keep {what}", TraceWarning, stacklevel=4)


def require_served(trace: RoutingTrace, format: str, whole: bool) -> None:
    """Raise where a layer did not serve a token or, if `whole`, where a slot is empty.

    Raises:
        TraceError: The format numbers tokens by counting, so that a hole would shift all that follow.
    """
    holes = trace.expert_ids == UNASSIGNED if whole else trace.expert_ids[..., :1] == UNASSIGNED
    if holes.any():
        token, layer, _ = np.argwhere(holes)[0].tolist()
        rule = "an expert in every slot" if whole else "an expert for every token and layer"
        raise TraceError(f"{format} files must hold {rule}, got none at token {token}, layer {trace.names[layer]}")


def layer_numbers(trace: RoutingTrace, format: str) -> list[int]:
    """Return the layers' numbers: their names where all are rising numbers, else their places, which is warned of."""
    names = trace.names
    numbers = [int(name) for name in names if name.isascii() and name.isdigit() and len(name) <= 9]
    if len(numbers) == len(names) and all(low < high for low, high in pairwise(numbers)):
        return numbers
    warn_of_loss(format, "names of layers that are no rising numbers: layers are numbered from 0")
    return list(range(len(names)))


def passes(trace: RoutingTrace) -> Iterator[slice]:
    """Yield the tokens of each forward pass; each token is one where the trace does not know them."""
    starts = np.ones(trace.num_tokens, dtype=bool)
    if trace.event_ids is not None:
        starts[1:] = np.diff(trace.event_ids) != 0
        starts[trace.sequence_starts()[:-1]] = True
    bounds = np.append(np.flatnonzero(starts), trace.num_tokens).tolist()
    for start, stop in pairwise(bounds):
        yield slice(start, stop)
