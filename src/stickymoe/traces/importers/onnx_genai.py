"""onnx-genai JSON: prompts by name, each `prefill[position][layer][slot]` and `decode[step][layer][slot]`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.json_text import integers, read_documents, whole_number
from stickymoe.traces.importers.requests import Request, trace_of
from stickymoe.traces.trace import RoutingTrace


def _matches(head: Head) -> bool:
    start = head.data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    return start == b"{" and b'"prompts"' in head.data and (b'"prefill"' in head.data or b'"decode"' in head.data)


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    (_, document), *more = read_documents(path, options)
    prompts = document.get("prompts") if isinstance(document, dict) else None
    if more or not isinstance(prompts, dict) or not prompts:
        raise TraceError("the document must be one object whose 'prompts' holds prompts by name, found none")
    requests = [_request(name, prompt) for name, prompt in prompts.items()]
    for name, axis in (("num_layers", 1), ("top_k", 2)):
        wanted = whole_number(document, name, "the document")
        for request in requests:
            if wanted is not None and request.expert_ids.shape[axis] != wanted:
                found = request.expert_ids.shape[axis]
                raise TraceError(f"{request.name} must have the {name} declared, {wanted}, got {found}")
    provenance = {"model": str(document.get("model", "")), "sequences": list(prompts)}
    declared = whole_number(document, "num_experts", "the document")
    return trace_of(requests, options, num_experts=declared, provenance=provenance)


def _request(name: str, prompt: Any) -> Request:
    if not isinstance(prompt, dict):
        raise TraceError(f"prompt {name!r} must be an object, got {type(prompt).__name__}")
    parts = [integers(f"prompt {name!r} {part}", prompt[part], 3) for part in ("prefill", "decode") if prompt.get(part)]
    if not parts:
        raise TraceError(f"prompt {name!r} must hold 'prefill' or 'decode', found neither")
    if parts[0].shape[1:] != parts[-1].shape[1:]:
        found = f"{parts[0].shape[1:]} and {parts[-1].shape[1:]}"
        raise TraceError(f"prompt {name!r} must have the same layers and slots in prefill and decode, got {found}")
    prefilled = len(parts[0]) if prompt.get("prefill") else 0
    length = whole_number(prompt, "prompt_len", f"prompt {name!r}")
    if prefilled and length not in (None, prefilled):
        raise TraceError(f"prompt {name!r} prefill must have prompt_len {length} positions, got {prefilled}")
    prompt_tokens = prefilled or length or 0
    start = prompt_tokens - prefilled
    return Request(f"prompt {name!r}", np.concatenate(parts), prompt_tokens, start)


IMPORTER = Importer(
    name="onnx-genai",
    what="onnx-genai's JSON: prompts by name, prefill and decode as [position][layer][slot]",
    matches=_matches,
    read=_read,
    loses="not in the file: weights, forward passes (a prompt is taken for one)",
)
