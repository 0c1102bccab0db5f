"""Columns of home-made traces as arrays: lists of any length as slots, names as numbers, phases as they are spelled."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stickymoe.core.errors import TraceError
from stickymoe.traces.checks import DECODE, PREFILL, UNASSIGNED
from stickymoe.traces.importers.aliases import PHASES

MAX_SLOTS = 1024
NO_PHASE = 255
INT16 = np.iinfo(np.int16)


@dataclass(frozen=True)
class Lists:
    """A column of lists: `values` of all of them, `lengths` one a list, `inner` how many lists each record holds."""

    values: pa.Array
    lengths: np.ndarray
    inner: np.ndarray | None

    @classmethod
    def of(cls, column: pa.Array, name: str, nulls: float | None = None) -> Lists:
        """Read a column of numbers, of lists, or of lists of lists; a number is a list of one, a null an empty list.

        Raises:
            TraceError: The lists are nested deeper, or hold a null and `nulls`, which takes its place, is not given.
        """
        if not _is_list(column.type):
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            values = column.drop_null()
            values = values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values
            return cls(values, valid.astype(np.int64), None)
        inner = None
        if _is_list(column.type.value_type):
            inner = _lengths(column)
            column = column.flatten()
        lengths, values = _lengths(column), column.flatten()
        if _is_list(values.type):
            raise TraceError(f"{name} must be lists, or lists of lists, of numbers, got deeper ones")
        if pa.types.is_boolean(values.type):
            values = values.cast(pa.int8())
        if values.null_count:
            if nulls is None:
                raise TraceError(f"{name} must be numbers, got a null among them")
            values = (values.cast(pa.float64()) if isinstance(nulls, float) else values).fill_null(nulls)
        return cls(values, lengths, inner)

    def records(self) -> tuple[np.ndarray, np.ndarray]:
        """Return for each list the record that holds it, counted from 0, and which of the record's lists it is."""
        if self.inner is None:
            return np.arange(len(self.lengths)), np.zeros(len(self.lengths), dtype=np.int64)
        of = np.repeat(np.arange(len(self.inner)), self.inner)
        return of, np.arange(len(of)) - np.repeat(np.cumsum(self.inner) - self.inner, self.inner)

    def padded(self, fill: float, dtype: Any) -> np.ndarray:
        """Return (lists, longest list), filled up behind each list's end."""
        values: np.ndarray = self.values.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
        width = max(1, int(self.lengths.max(initial=0)))
        if (self.lengths == width).all():
            return values.reshape(-1, width)
        array = np.full((len(self.lengths), width), fill, dtype=dtype)
        array[np.arange(width) < self.lengths[:, None]] = values
        return array


def expert_ids(lists: Lists) -> np.ndarray:
    """Return lists of ids as int16 or int32, -1 behind each list's end.

    Raises:
        TraceError: An id is below -1, or a list has more than 1024.
    """
    if int(lists.lengths.max(initial=0)) > MAX_SLOTS:
        raise TraceError(f"a token must have at most {MAX_SLOTS} experts a layer, got {int(lists.lengths.max())}")
    lowest, highest = (value or 0 for value in pc.min_max(lists.values).as_py().values())
    if lowest < UNASSIGNED or highest >= 2**31:
        raise TraceError(
            f"expert ids must be from 0 to 2**31 - 1, or -1 for an empty slot, got "
            f"{lowest if lowest < UNASSIGNED else highest}"
        )
    return lists.padded(UNASSIGNED, np.int16 if highest <= INT16.max else np.int32)


def beside(lists: Lists, column: pa.Array, name: str, dtype: Any, fill: float, record: np.ndarray) -> np.ndarray:
    """Return what a column says of each expert in `lists`, as wide as these; `fill` where a record says nothing.

    Raises:
        TraceError: A record has not as many values as experts; the message names it.
    """
    values = Lists.of(column, name, nulls=fill)
    if np.array_equal(values.lengths, lists.lengths):
        array = values.padded(0 if dtype == np.float32 else -1, dtype)
        return array
    if values.inner is not None or len(values.lengths) != len(lists.lengths):
        raise TraceError(f"{name} must be nested as the expert ids are, got another nesting")
    wrong = (values.lengths != lists.lengths) & (values.lengths != 0)
    if wrong.any():
        row = int(np.argmax(wrong))
        found = f"{values.lengths[row]} {name} for {lists.lengths[row]} experts"
        raise TraceError(f"record {record[row]} must have one of {name} an expert, got {found}")
    array = np.full((len(lists.lengths), max(1, int(lists.lengths.max()))), fill, dtype=dtype)
    said = values.lengths != 0
    part = values.padded(0 if dtype == np.float32 else -1, dtype)[said]
    array[said, : part.shape[1]] = part
    return array


def codes(columns: list[pa.Array], known: dict[Hashable, int]) -> np.ndarray:
    """Return for each row's values the number they have in `known`, which grows by those first met here."""
    parts = [column.dictionary_encode(null_encoding="encode") for column in columns]
    words = [part.dictionary.to_pylist() for part in parts]
    indices = [part.indices.to_numpy(zero_copy_only=False) for part in parts]
    sizes = [max(1, len(each)) for each in words]
    # Once more, of the columns together: what dictionaries hold stands in the order in which it was met
    together = parts[0] if len(parts) == 1 else pa.array(np.ravel_multi_index(indices, sizes)).dictionary_encode()
    met = np.arange(len(words[0])) if len(parts) == 1 else together.dictionary.to_numpy(zero_copy_only=False)
    places = np.unravel_index(met, sizes)
    keys = zip(*[map(each.__getitem__, index) for each, index in zip(words, places, strict=True)], strict=True)
    numbers = np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int32)
    found: np.ndarray = numbers[together.indices.to_numpy(zero_copy_only=False)]
    return found


def whole_numbers(column: pa.Array, name: str, records: np.ndarray) -> np.ndarray:
    """Return a column of whole numbers as int64.

    Raises:
        TraceError: It has a null; the message names the record.
    """
    if column.null_count:
        record = records[int(np.argmin(column.is_valid().to_numpy(zero_copy_only=False)))]
        raise TraceError(f"record {record} must name its {name}, as others do, got none")
    values: np.ndarray = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return values


def phases(column: pa.Array, name: str) -> np.ndarray:
    """Return a column of phases as uint8: words as `PREFILL` and `DECODE`, numbers as they are, `NO_PHASE` for nulls.

    Args:
        column: Words, numbers, or yes and no.
        name: The file's name for it, which says what a yes means.
    """
    encoded = column.dictionary_encode(null_encoding="encode")
    spelled = np.array([_phase(word, name) for word in encoded.dictionary.to_pylist()] or [NO_PHASE], dtype=np.uint8)
    found: np.ndarray = spelled[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


def settled_phases(spelled: np.ndarray) -> np.ndarray | None:
    """Return phases as the trace has them: numbers 1 and 2 count from 1; None where a record does not say."""
    met = set(np.unique(spelled).tolist())
    if NO_PHASE in met:
        return None
    if 2 in met:
        if PREFILL in met:
            raise TraceError("phases must be 0 and 1, or 1 and 2, got 0 and 2")
        return spelled - 1
    return spelled


def _phase(word: Any, name: str) -> int:
    if word is None:
        return NO_PHASE
    if isinstance(word, str) and word.strip().lower() in PHASES:
        return PHASES[word.strip().lower()]
    text = str(word).strip().lower()
    if name.strip().lower() in ("is_prefill", "is_decode") and text in ("true", "false", "0", "1"):
        return PREFILL if (text in ("true", "1")) == (name.strip().lower() == "is_prefill") else DECODE
    if text in ("0", "1", "2"):
        return int(text)
    raise TraceError(f"{name} must be prefill or decode, in one of their usual spellings, got {word!r}")


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _lengths(column: pa.Array) -> np.ndarray:
    lengths: np.ndarray = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths
