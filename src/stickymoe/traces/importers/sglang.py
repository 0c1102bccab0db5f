"""SGLang `routed_experts`: base64 of raw little-endian int32 without any header, alone or inside responses.

-1 stands in layers without experts. The split of a row into layers and slots is not in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.bounded import whole_bytes
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.json_text import from_base64, records, whole_number
from stickymoe.traces.importers.requests import Request, trace_of
from stickymoe.traces.trace import RoutingTrace

KEY = "routed_experts"
WAY_OUT = "give num_layers (all layers of the model) and top_k"


def _matches(head: Head) -> bool:
    text = head.data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] in (b"{", b"["):
        return b'"routed_experts"' in text and (b'"meta_info"' in text or b'"sglext"' in text)
    start = b"".join(text.strip(b'" \r\n\t').split())[:4096]
    if len(start) < 16 or not re.fullmatch(rb"[A-Za-z0-9+/]*={0,2}", start):
        return False
    whole = start.rstrip(b"=")  # sixteen letters are three ids
    ids = np.frombuffer(from_base64(whole[: len(whole) // 16 * 16], "the head"), "<i4")
    return bool(((ids >= -1) & (ids < 2**16)).all())


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    with path.open("rb") as file:
        is_json = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")
    if is_json:
        requests = list(_from_responses(path, options))
    else:
        requests = [_request("the array", whole_bytes(path, options, 2).strip(b'" \r\n\t'), None, None, options)]
    if not requests:
        raise TraceError(f"the file must hold {KEY!r} of at least one request, found none")
    return trace_of(requests, options)


def _from_responses(path: Path, options: ReadOptions) -> Iterator[Request]:
    for place, record in records(path, options):
        choices = record.get("choices", [record])
        if not isinstance(choices, list):
            raise TraceError(f"{place}: choices must be a list, got {type(choices).__name__}")
        for number, choice in enumerate(choices):
            name = f"{place} choice {number}" if "choices" in record else place
            holders = [_part(choice, "meta_info"), _part(choice, "sglext"), _part(record, "sglext")]
            told = next((holder[KEY] for holder in holders if holder.get(KEY) is not None), None)
            if told is None:
                continue
            if not isinstance(told, str):
                raise TraceError(f"{name} {KEY} must be base64 text, got {type(told).__name__}")
            counts = holders[0] if "prompt_tokens" in holders[0] or len(choices) > 1 else _part(record, "usage")
            prompt, output = (whole_number(counts, part, name) for part in ("prompt_tokens", "completion_tokens"))
            yield _request(f"{name} {KEY}", told, prompt, output, options)


def _part(holder: Any, name: str) -> dict[str, Any]:
    part = holder.get(name) if isinstance(holder, dict) else None
    return part if isinstance(part, dict) else {}


def _request(name: str, text: str | bytes, prompt: int | None, output: int | None, options: ReadOptions) -> Request:
    """Return one request; its last row is that of the last token but one, the last to be fed back."""
    data = from_base64(text, name)
    if not data or len(data) % 4:
        raise TraceError(f"{name} must hold int32 numbers, got {len(data)} bytes; it may be cut short")
    ids = np.frombuffer(data, "<i4")
    forwarded = None if prompt is None or output is None else prompt + max(0, output - 1)
    layers, top_k = _shape(name, len(ids), forwarded, options)
    if len(ids) % (layers * top_k):
        raise TraceError(f"{name} must hold rows of {layers} layers of {top_k} slots, got {len(ids)} ids; {WAY_OUT}")
    rows = ids.reshape(-1, layers, top_k)
    start = 0 if forwarded is None else forwarded - len(rows)
    if start < 0:
        raise TraceError(f"{name} must have at most {forwarded} rows, a token each, got {len(rows)}; {WAY_OUT}")
    return Request(name, rows, prompt, start)


def _shape(name: str, ids: int, forwarded: int | None, options: ReadOptions) -> tuple[int, int]:
    layers, top_k = options.num_layers, options.top_k
    if layers is not None and top_k is not None:
        return layers, top_k
    known = layers or top_k
    if known is None or not forwarded or ids % (forwarded * known):
        found = f"{ids} ids" + (f" of {forwarded} tokens" if forwarded else "")
        raise TraceError(f"{name} must be cut into layers and slots, got {found}; {WAY_OUT}")
    other = ids // (forwarded * known)
    return (layers, other) if layers is not None else (other, known)


IMPORTER = Importer(
    name="sglang",
    what="SGLang routed_experts: base64 of int32, alone or in responses; num_layers and top_k must be given",
    matches=_matches,
    read=_read,
    needs="`num_layers` and `top_k`, or one of them where a response tells its tokens; `num_experts`",
    loses="not in the file: weights, forward passes (a prompt is taken for one)",
)
