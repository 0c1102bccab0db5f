"""vLLM `routed_experts`: an array (tokens, layers, k) as npy, base64 of npy, npz, or inside completion responses.

The engine's buffer is zeroed over all layers: layers without experts, and the last token generated, read as expert 0.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.bounded import whole_bytes
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.json_text import from_base64, integers, records, whole_number
from stickymoe.traces.importers.npy import MAGIC, ZIP_MAGIC, npy_array, npy_shape, npz_arrays, npz_names
from stickymoe.traces.importers.requests import Request, trace_of
from stickymoe.traces.trace import RoutingTrace

BASE64_MAGIC = b"k05VTVBZ"  # of an npy file
ARRAYS = frozenset({"routed_experts", "prompt_token_ids", "output_token_ids", "request_id"})


def _matches(head: Head) -> bool:
    if head.data.startswith(MAGIC):
        found = npy_shape(head.data)
        return found is not None and len(found[0]) == 3 and found[1].kind in "iu"
    if head.data.startswith(ZIP_MAGIC):
        return "routed_experts" in npz_names(head.path)
    text = head.data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.lstrip(b'"').startswith(BASE64_MAGIC):
        return True
    foreign = b'"meta_info"' in text or b'"sglext"' in text
    return text[:1] in (b"{", b"[") and b'routed_experts"' in text and not foreign


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    with path.open("rb") as file:
        start = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
        if start.startswith(MAGIC):
            file.seek(0)
            requests = [Request("the array", npy_array(file, path.stat().st_size, "the array", options))]
        elif start.startswith(ZIP_MAGIC):
            requests = [_from_arrays(npz_arrays(path, options, ARRAYS))]
        elif start.lstrip(b'"').startswith(BASE64_MAGIC):
            text = whole_bytes(path, options, 2).strip(b'" \r\n\t')
            requests = [Request("the array", _decoded(text, "the array", options))]
        else:
            requests = list(_from_responses(path, options))
    for request in requests:
        if request.expert_ids.dtype.kind not in "iu":
            raise TraceError(f"{request.name} must be whole numbers, got {request.expert_ids.dtype}")
    if not requests:
        raise TraceError("the file must hold 'routed_experts' of at least one request, found none")
    return trace_of(requests, options, zeroed=True)


def _from_arrays(arrays: dict[str, np.ndarray]) -> Request:
    if "routed_experts" not in arrays:
        raise TraceError("the file must hold an array 'routed_experts', found none")
    tokens = [arrays.get(name) for name in ("prompt_token_ids", "output_token_ids")]
    for name, ids in zip(("prompt_token_ids", "output_token_ids"), tokens, strict=True):
        if ids is not None and (ids.ndim != 1 or ids.dtype.kind not in "iu"):
            raise TraceError(f"array {name!r} must be one row of whole numbers, got {ids.dtype} of shape {ids.shape}")
    return _aligned("array 'routed_experts'", None, arrays["routed_experts"], tokens, [None, None])


def _from_responses(path: Path, options: ReadOptions) -> Iterator[Request]:
    for place, record in records(path, options):
        choices = record.get("choices", [record])
        if not isinstance(choices, list):
            raise TraceError(f"{place}: choices must be a list, got {type(choices).__name__}")
        split = "prompt_routed_experts" in record
        prompt = _array(record, "prompt_routed_experts", place, options)
        for number, choice in enumerate(choices):
            name = f"{place} choice {number}" if "choices" in record else place
            own = _array(choice, "routed_experts", name, options)
            if own is None:
                continue
            usage = record.get("usage")
            counts = [whole_number(usage, part, name) for part in ("prompt_tokens", "completion_tokens")]
            counts[1] = counts[1] if len(choices) == 1 else None  # told of all choices together
            yield _aligned(name, prompt, own, _token_ids(record, choice, name), counts, split=split)


def _token_ids(record: Any, choice: Any, name: str) -> list[np.ndarray | None]:
    """Return the vocabulary ids of prompt and output; None where they are not told."""
    found: list[np.ndarray | None] = []
    for words in (("prompt_token_ids",), ("token_ids", "output_token_ids")):
        told = [(word, holder[word]) for holder in (choice, record) for word in words if holder.get(word) is not None]
        found.append(integers(f"{name} {told[0][0]}", told[0][1], 1) if told else None)
    return found


def _array(record: Any, key: str, name: str, options: ReadOptions) -> np.ndarray | None:
    if not isinstance(record, dict):
        raise TraceError(f"{name} must be an object, got {type(record).__name__}")
    value = record.get(key)
    if value is None or value == []:
        return None
    if isinstance(value, str):
        return _decoded(value, f"{name} {key}", options)
    return integers(f"{name} {key}", value, 3)


def _decoded(text: str | bytes, name: str, options: ReadOptions) -> np.ndarray:
    data = from_base64(text, name)
    return npy_array(io.BytesIO(data), len(data), name, options)


def _aligned(
    name: str,
    prompt: np.ndarray | None,
    own: np.ndarray,
    token_ids: list[np.ndarray | None],
    counts: list[int | None],
    *,
    split: bool = False,
) -> Request:
    """Return a request whose rows stand at their positions.

    Args:
        name: The request.
        prompt: Rows of the prompt, where they stand apart.
        own: The other rows; where none stand apart, those of the prompt too, as far as they were asked for.
        token_ids: Vocabulary ids of prompt and output, None where not told.
        counts: Numbers of both, where the ids are not told.
        split: The rows of the prompt would stand apart, be they here or not.
    """
    known = [count if ids is None else len(ids) for ids, count in zip(token_ids, counts, strict=True)]
    if prompt is not None:
        if prompt.shape[1:] != own.shape[1:]:
            found = f"{prompt.shape[1:]} and {own.shape[1:]}"
            raise TraceError(f"{name} must have the same layers and slots in prompt and output, got {found}")
        known[0] = prompt_count = len(prompt) if known[0] is None else known[0]
        own, start = np.concatenate([prompt, own]), prompt_count - len(prompt)
    elif split or own.ndim != 3:
        start = known[0] or 0
    else:
        start = _start(own, *known)
    if start < 0 or (None not in known and start + len(own) > sum(filter(None, known))):
        told = " and ".join(map(str, known))
        raise TraceError(f"{name} must have at most a row a token of {told} in prompt and output, got {len(own)}")
    told_ids = [ids for ids in token_ids if ids is not None]
    ids = np.concatenate(told_ids)[start : start + len(own)] if len(told_ids) == 2 else None
    return Request(name, own, known[0], start, ids if ids is not None and len(ids) == len(own) else None)


def _start(rows: np.ndarray, prompt: int | None, output: int | None) -> int:
    """Return the position of the first row: the last one is that of the last token but one, the last to be fed back.

    One more row at the end belongs to the last token and was never written.
    """
    if prompt is None or output is None:
        return 0
    written = len(rows) - bool(len(rows) and not rows[-1].any())
    missing = prompt + max(0, output - 1) - written
    return max(0, missing) if len(rows) <= prompt + output else -1


IMPORTER = Importer(
    name="vllm",
    what="vLLM routed_experts: npy, base64 of npy, npz, or completion responses as JSON",
    matches=_matches,
    read=_read,
    needs="`num_experts`; `prompt_tokens` for a bare array",
    loses="not in the file: weights, forward passes (a prompt is taken for one); layers and tokens never written",
)
