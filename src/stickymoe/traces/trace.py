"""`RoutingTrace`: which experts served which token, layer by layer, as integers in memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from jaxtyping import Bool, Float, Int

from stickymoe.core.errors import TraceError
from stickymoe.traces import checks

COLUMNS = ("token_ids", "document_ids", "positions")
# What has one row a token and what has one a layer, besides the ids.
TOKEN_FIELDS = ("sequence_ids", *COLUMNS, "phases", "event_ids", "expert_weights", "resident")
LAYER_FIELDS = ("layer_names", "expert_bytes")


@dataclass(frozen=True, eq=False)
class RoutingTrace:
    """What was routed where: one row a token, in the order the model saw them.

        # one sequence, two tokens, one layer, top-2
        trace = RoutingTrace.from_sequences([[[[0, 1]], [[0, 2]]]], num_experts=4)

    Slot 0 is the top-1 expert, the one of largest weight. A slot is -1 where a router left it empty (a token over an
    expert's capacity, fewer than k experts chosen); empty slots come last. The arrays are read-only, ids int16 or
    int32.

    Args:
        expert_ids: Whole numbers, 0 to num_experts - 1 or -1.
        sequence_ids: Which sequence a token belongs to; rows of one sequence stand together.
        num_experts: Experts a layer, 1 to 2**31.
        expert_weights: Weights of the slots, kept as float32.
        token_ids: Vocabulary ids.
        document_ids: Where given, neighbours of two documents are no pair.
        positions: Where given, rows whose positions differ by other than 1 are no pair (a masked token stood between).
        provenance: Where the trace comes from; JSON.
        phases: `PREFILL` (0) or `DECODE` (1), kept as uint8.
        event_ids: The forward pass that a token belongs to; never falls inside a sequence.
        layer_names: One a layer, unique, such as "3" or "mtp0.3".
        expert_bytes: Bytes of one expert of each layer.
        resident: What the recording device itself saw: 0 a miss, 1 a hit, 2 prefetched, -1 not told or an empty slot.

    Raises:
        TraceError: A rule above is broken.
    """

    # __post_init__ checks more than the annotations say, in words for users: runtime type checkers stay out.
    __no_type_check__ = True

    expert_ids: Int[np.ndarray, "tokens layers top_k"]
    sequence_ids: Int[np.ndarray, " tokens"]
    num_experts: int
    expert_weights: Float[np.ndarray, "tokens layers top_k"] | None = None
    token_ids: Int[np.ndarray, " tokens"] | None = None
    document_ids: Int[np.ndarray, " tokens"] | None = None
    positions: Int[np.ndarray, " tokens"] | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    phases: Int[np.ndarray, " tokens"] | None = None
    event_ids: Int[np.ndarray, " tokens"] | None = None
    layer_names: tuple[str, ...] | None = None
    expert_bytes: Int[np.ndarray, " layers"] | None = None
    resident: Int[np.ndarray, "tokens layers top_k"] | None = None

    def __post_init__(self) -> None:
        """Check every rule and freeze the arrays."""
        num_experts = checks.checked_num_experts(self.num_experts)
        ids = checks.checked_expert_ids(self.expert_ids, num_experts)
        self._keep("num_experts", num_experts)
        self._keep("expert_ids", ids)
        self._keep("sequence_ids", checks.checked_sequence_ids(self.sequence_ids, len(ids)))
        self._keep_optional("expert_weights", checks.checked_weights, ids)
        for name in COLUMNS:
            if getattr(self, name) is not None:
                self._keep(name, checks.checked_column(f"trace.{name}", getattr(self, name), len(ids)))
        self._keep_optional("phases", checks.checked_phases, len(ids))
        self._keep_optional("event_ids", checks.checked_event_ids, self.sequence_ids)
        self._keep_optional("resident", checks.checked_resident, ids)
        self._keep_optional("expert_bytes", checks.checked_expert_bytes, ids.shape[1])
        if self.layer_names is not None:
            self._keep("layer_names", checks.checked_layer_names("trace.layer_names", self.layer_names, ids.shape[1]))
        self._keep("provenance", checks.checked_provenance(self.provenance))

    def _keep_optional(self, name: str, checked: Callable[[Any, Any], np.ndarray], against: Any) -> None:
        if getattr(self, name) is not None:
            self._keep(name, checked(getattr(self, name), against))

    def _keep(self, name: str, value: Any) -> None:
        if isinstance(value, np.ndarray):
            value = value.view()
            value.flags.writeable = False
        object.__setattr__(self, name, value)

    @classmethod
    def from_sequences(
        cls, sequences: Iterable[Any], num_experts: SupportsIndex, provenance: dict[str, Any] | None = None
    ) -> "RoutingTrace":
        """Build a trace from one (tokens, layers, top_k) integer array, or nested list, a sequence.

        Raises:
            TraceError: A sequence is empty, not integer, or shaped unlike the first; the message names it.
        """
        count = checks.checked_num_experts(num_experts)
        arrays: list[np.ndarray] = []
        for number, sequence in enumerate(sequences):
            name = f"trace sequence {number}"
            ids = checks.as_integers(name, sequence)
            checks.check_shape(ids, name)
            if arrays and ids.shape[1:] != arrays[0].shape[1:]:
                raise TraceError(
                    f"{name} must have the layers and slots of sequence 0, {arrays[0].shape[1:]}, got {ids.shape[1:]}"
                )
            arrays.append(ids)
        if not arrays:
            raise TraceError("a trace must have at least one sequence, got none")
        sequence_ids = np.repeat(np.arange(len(arrays)), [len(ids) for ids in arrays])
        return cls(np.concatenate(arrays), sequence_ids, count, provenance=provenance or {})

    @property
    def num_tokens(self) -> int:
        """Rows of the trace."""
        return int(self.expert_ids.shape[0])

    @property
    def num_layers(self) -> int:
        """MoE layers."""
        return int(self.expert_ids.shape[1])

    @property
    def top_k(self) -> int:
        """Slots a token and layer."""
        return int(self.expert_ids.shape[2])

    @property
    def num_sequences(self) -> int:
        """Sequences; a cache that starts cold at each starts this often."""
        return len(self.sequence_starts()) - 1

    @property
    def names(self) -> tuple[str, ...]:
        """The layers' names, "0", "1", ... where none were given."""
        return self.layer_names or tuple(map(str, range(self.num_layers)))

    def sequence_starts(self) -> Int[np.ndarray, " bounds"]:
        """Return the first row of each sequence and, last, the number of rows."""
        changes = np.flatnonzero(self.sequence_ids[1:] != self.sequence_ids[:-1]) + 1
        return np.concatenate([[0], changes, [self.num_tokens]]).astype(np.int64)

    def sequences(self) -> Iterator[Int[np.ndarray, "_ layers top_k"]]:
        """Yield the expert ids of one sequence after the other: what `from_sequences` takes."""
        starts = self.sequence_starts().tolist()
        for start, stop in pairwise(starts):
            yield self.expert_ids[start:stop]

    def valid_pairs(self) -> Bool[np.ndarray, " pairs"]:
        """Return for rows (t-1, t) whether they are neighbours in one sequence and document."""
        valid: np.ndarray = self.sequence_ids[1:] == self.sequence_ids[:-1]
        if self.document_ids is not None:
            valid &= self.document_ids[1:] == self.document_ids[:-1]
        if self.positions is not None:
            valid &= self.positions[1:] - self.positions[:-1] == 1
        return valid

    def head(self, tokens: int) -> "RoutingTrace":
        """Return the first `tokens` tokens, or all where there are fewer.

        Raises:
            SettingError: `tokens` is below 1.
        """
        from stickymoe.traces.parts import head

        return head(self, tokens)

    def select(
        self,
        layers: Iterable[int | str] | None = None,
        phase: str | int | None = None,
        sequences: Iterable[int] | None = None,
    ) -> "RoutingTrace":
        """Return the part of the trace that meets every condition given.

        Args:
            layers: Layers to keep, in this order, by number or by name.
            phase: `"prefill"` or `"decode"`. Tokens left as neighbours by what went between them are no pair: where the
                trace knows no positions, the part is given some that say so.
            sequences: Sequence ids to keep; they stay in the trace's order.

        Raises:
            TraceError: The trace has no such layer, phase or sequence; or nothing is left.
        """
        from stickymoe.traces.parts import select

        return select(self, layers, phase, sequences)

    @classmethod
    def concat(cls, traces: "Sequence[RoutingTrace]", *, join_sequences: bool = False) -> "RoutingTrace":
        """Put traces of one model behind each other.

        Args:
            traces: At least one, alike in experts, layers and in what they know; the widest `top_k` is taken.
            join_sequences: The traces are pieces of one: sequence ids stay, and equal ids are one sequence. Otherwise
                each trace's sequences are its own and are numbered anew from 0.

        Raises:
            TraceError: There is no trace, or two that do not belong together; the message names what differs.
        """
        from stickymoe.traces.parts import concat

        return concat(traces, join_sequences=join_sequences)

    def save(self, path: Path | str) -> None:
        """Write the trace as Parquet, whole or not at all (see docs/trace-format.md)."""
        from stickymoe.traces.writer import save_trace

        save_trace(self, Path(path))

    @classmethod
    def load(cls, path: Path | str, *, max_bytes: int = 2**33) -> "RoutingTrace":
        """Read a trace file; one that would need more than `max_bytes` of memory is refused before any is taken."""
        from stickymoe.traces.reader import load_trace

        return load_trace(Path(path), max_bytes=max_bytes)

    def __eq__(self, other: object) -> bool:
        """Equal in every array, the number of experts, the layers' names and the provenance."""
        if not isinstance(other, RoutingTrace):
            return NotImplemented
        plain = ("num_experts", "layer_names", "provenance")
        arrays = ("expert_ids", *TOKEN_FIELDS, "expert_bytes")
        return all(getattr(self, name) == getattr(other, name) for name in plain) and all(
            same_array(getattr(self, name), getattr(other, name)) for name in arrays
        )


def same_array(left: np.ndarray | None, right: np.ndarray | None) -> bool:
    """Whether two optional arrays are equal: both absent, or both there with the same shape and values."""
    if left is None or right is None:
        return left is right
    return np.array_equal(left, right)
