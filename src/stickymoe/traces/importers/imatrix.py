"""llama.cpp's `imatrix.gguf`: an importance matrix of a mixture of experts counts how often each expert was chosen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.counts import profile_of
from stickymoe.traces.importers.gguf import MAGIC, GGUFFile
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.profile import UsageProfile

TYPE_KEY, TYPE = b"general.type", "imatrix"
COUNTS = re.compile(r"blk\.(\d{1,6})\.ffn_(\w+)_exps\.weight\.counts")
TOLD = {"imatrix.datasets": "datasets", "imatrix.chunk_count": "chunks", "imatrix.chunk_size": "chunk_tokens"}


def _matches(head: Head) -> bool:
    at = head.data.find(TYPE_KEY) + len(TYPE_KEY)
    return head.data.startswith(MAGIC) and at >= len(TYPE_KEY) and TYPE.encode() in head.data[at : at + 32]


def _read(path: Path, options: ReadOptions) -> UsageProfile:
    """A model's matrices of one layer (gate, up, down) share their choices; where they disagree the file is refused."""
    options.require_room(path.stat().st_size, f"a file of {path.stat().st_size} bytes")
    with GGUFFile(path) as file:
        if file.keys.get(TYPE_KEY.decode()) != TYPE:
            raise TraceError(f"general.type must be {TYPE!r}, got {file.keys.get(TYPE_KEY.decode())!r:.40}")
        layers: dict[int, tuple[str, np.ndarray]] = {}
        for name in file.tensors:
            if found := COUNTS.fullmatch(name):
                counts = file.float32(name).reshape(-1)
                first, known = layers.setdefault(int(found[1]), (name, counts))
                if not np.array_equal(known, counts, equal_nan=True):
                    raise TraceError(
                        f"{name!r} must count what {first!r} counts, got other numbers; merged from parts?"
                    )
        told: dict[str, Any] = {word: file.keys[key] for key, word in TOLD.items() if file.keys.get(key) is not None}
    if not layers:
        raise TraceError(
            "must hold counts of experts (blk.<n>.ffn_*_exps.weight.counts), found none: a dense model, or an imatrix "
            "made before expert counts were kept"
        )
    by_layer = {layer: layers[layer][1] for layer in sorted(layers)}
    return profile_of(by_layer, options, format=IMPORTER.name, declared=True, told=told)


IMPORTER = Importer(
    name="imatrix",
    what="llama.cpp imatrix.gguf: how often each expert was chosen",
    matches=_matches,
    read=_read,
    gives="profile",
    loses="not in the file: order",
)
