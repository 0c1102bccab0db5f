"""One model reads the text: its trace, and for each token the cross-entropy and how decided the gates were."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from stickymoe.capture.opening import OpenedModel
from stickymoe.capture.passes import CapturedPass
from stickymoe.capture.recording import Prompts
from stickymoe.capture.recording.facts import provenance
from stickymoe.capture.recording.run_batch import padded
from stickymoe.capture.recording.watch import Watch
from stickymoe.core.errors import CaptureError
from stickymoe.data.progress import ProgressCallback, silent
from stickymoe.traces import RoutingTrace


@dataclass(frozen=True, eq=False)
class TokenValues:
    """What is known of each row of a trace beside its experts.

    Attributes:
        cross_entropy: Nats of predicting this token from those before it; NaN for the first of a sequence.
        gate_entropy_bits: (tokens, layers), from 0, decided, to log2 of the experts.
        gate_margin: (tokens, layers), the largest gate less the second, from 0 to 1.
    """

    cross_entropy: np.ndarray
    gate_entropy_bits: np.ndarray
    gate_margin: np.ndarray


@torch.no_grad()
def read_text(
    opened: OpenedModel, prompts: Prompts, batch_size: int, what: str, progress: ProgressCallback = silent
) -> tuple[RoutingTrace, TokenValues]:
    """Return what a model routes and predicts on sequences, a batch at a time, all of it held in memory.

    Args:
        opened: The model.
        prompts: The sequences.
        batch_size: Sequences side by side.
        what: What progress is reported as.
        progress: Called as `progress(what, done, total)`.

    Raises:
        CaptureError: The model's routing was not seen, or what it predicts is no number.
    """
    model, sequences = opened.model, prompts.sequences
    told = provenance(opened.name, model)
    pieces: list[RoutingTrace] = []
    values: list[tuple[np.ndarray, ...]] = []
    gates: list[Tensor] = []
    with Watch(model, on_pass=lambda done: gates.append(_decided(done))) as watch:
        for start in range(0, len(sequences), batch_size):
            progress(what, start, len(sequences))
            batch = sequences[start : start + batch_size]
            ids, real = padded(batch, opened.fill, model.device, left=False)
            logits = _logits(model, ids, real, len(batch))
            numbers = np.arange(start, start + len(batch))
            documents = np.array([prompt.document for prompt in batch])
            pieces.append(watch.piece(ids, real.bool(), numbers, documents, told))
            keep = real.bool()
            decided = gates.pop()[keep].cpu().numpy()
            values.append((_surprise(opened.name, logits, ids, real), decided[..., 0], decided[..., 1]))
            del logits
    progress(what, len(sequences), len(sequences))
    nats, entropy, margin = (np.concatenate(parts) for parts in zip(*values, strict=True))
    return RoutingTrace.concat(pieces), TokenValues(nats, entropy, margin)


def _logits(model: Any, ids: Tensor, real: Tensor, rows: int) -> Tensor:
    try:
        logits: Tensor = model(input_ids=ids, attention_mask=real, use_cache=False).logits
    except torch.OutOfMemoryError as error:
        raise CaptureError(
            f"the memory of {model.device} is too small for {rows} sequences at once; lower --batch-size or --chunk"
        ) from error
    return logits


def _surprise(name: str, logits: Tensor, ids: Tensor, real: Tensor) -> np.ndarray:
    """Return -log P(token) of each real token of a batch padded on the right, row by row in float32."""
    found = []
    for row, length in enumerate(real.sum(dim=1).tolist()):
        nats = logits.new_full((length,), math.nan, dtype=torch.float32)
        nats[1:] = cross_entropy(logits[row, : length - 1].float(), ids[row, 1:length], reduction="none")
        if not bool(nats[1:].isfinite().all()):
            raise CaptureError(
                f"{name} gives some token no finite probability; the checkpoint is damaged, or its numbers overflow in "
                f"{str(logits.dtype).removeprefix('torch.')} (try --dtype bfloat16 or float32)"
            )
        found.append(nats.cpu().numpy())
    return np.concatenate(found)


def _decided(done: CapturedPass) -> Tensor:
    """Return entropy in bits and margin of each token and layer, (batch, seq, layers, 2)."""
    layers = []
    for gates in done.routing.gate_probs:
        entropy = torch.special.entr(gates.float()).sum(dim=-1) / math.log(2)
        top = gates.float().topk(min(2, gates.shape[-1]), dim=-1).values
        layers.append(torch.stack([entropy, top[..., 0] - top[..., 1:].sum(dim=-1)], dim=-1))
    return torch.stack(layers, dim=2)
