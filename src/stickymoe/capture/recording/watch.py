"""Watches a model run a batch and turns what its routers chose into a piece of a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stickymoe.capture.capture import Capture, capture_routing
from stickymoe.capture.passes import CapturedPass, by_falling_weight
from stickymoe.capture.recording.facts import LayerFacts, layer_facts
from stickymoe.core.errors import CaptureError
from stickymoe.traces import DECODE, PREFILL, RoutingTrace


@dataclass
class _Seen:
    """What a batch's passes chose, one entry a pass: ids and weights of each layer, (batch, seq, top_k)."""

    ids: list[list[Tensor]] = field(default_factory=list)
    weights: list[list[Tensor]] = field(default_factory=list)
    phases: list[int] = field(default_factory=list)

    @property
    def lengths(self) -> list[int]:
        """Columns of each pass."""
        return [int(layers[0].shape[1]) for layers in self.ids]


class Watch:
    """Notes the experts of every forward pass; `piece` makes a trace of those since the last one.

    What the hooks see stays where the model computes and is sorted and fetched once a batch, which keeps recording
    cheap beside decoding steps of single tokens.

    Args:
        model: Any model whose routing can be captured.
        on_pass: Called after each pass; may raise to end the run.
    """

    def __init__(self, model: nn.Module, on_pass: Callable[[CapturedPass], None] | None = None) -> None:
        self._model = model
        self._after = on_pass
        self._seen = _Seen()
        self._prompt: int | None = None
        self._facts: LayerFacts | None = None
        self._events = 0
        self._capture: Capture | None = None

    @property
    def facts(self) -> LayerFacts:
        """What is known of the layers once a pass was seen."""
        if self._facts is None:
            raise CaptureError("no forward pass was seen: run the model inside the block")
        return self._facts

    def __enter__(self) -> Watch:
        """Attach the hooks."""
        self._capture = capture_routing(self._model, gradients=False, on_pass=self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Take the hooks off."""
        if self._capture is not None:
            self._capture.remove()

    def _note(self, done: CapturedPass) -> None:
        if self._facts is None:
            self._facts = layer_facts(self._model, done)
        chosen = done.chosen()
        if len(chosen) != len(self._facts.names):
            raise CaptureError(f"a pass ran {len(chosen)} MoE layers, the first one {len(self._facts.names)}")
        ids, weights = zip(*chosen, strict=True)
        self._seen.ids.append(list(ids))
        self._seen.weights.append(list(weights))
        self._seen.phases.append(DECODE if done.phase == "decode" else PREFILL)
        if self._after is not None:
            self._after(done)

    def piece(
        self, token_ids: Tensor, real: Tensor, sequences: np.ndarray, documents: np.ndarray, provenance: dict[str, Any]
    ) -> RoutingTrace:
        """Return the trace of the passes since the last piece, and forget them.

        Args:
            token_ids: (batch, columns), what was fed in all passes together.
            real: Which of them count: no padding, nothing after the end of a text.
            sequences: The number of each row's sequence.
            documents: The number of each row's document.
            provenance: Of the trace.

        Raises:
            CaptureError: The passes fed other tokens than these, or some router's weights are no numbers.
        """
        seen, self._seen = self._seen, _Seen()
        lengths, columns = seen.lengths, int(token_ids.shape[1])
        if sum(lengths) != columns or any(len(layers[0]) != len(token_ids) for layers in seen.ids):
            raise CaptureError(f"{columns} columns of tokens were to be run, the model ran {lengths}")
        first = self._events
        self._events += len(lengths)
        ids, weights = self._chosen(seen)
        kept = real.cpu().numpy()
        rows = np.nonzero(kept)
        chosen, weighed = ids[rows], weights[rows]
        self._require_numbers(weighed)
        return RoutingTrace(
            expert_ids=chosen,
            expert_weights=weighed,
            sequence_ids=sequences[rows[0]],
            document_ids=documents[rows[0]],
            token_ids=token_ids.cpu().numpy()[rows],
            positions=(kept.cumsum(axis=1) - 1)[rows],
            phases=np.repeat(seen.phases, lengths)[rows[1]],
            event_ids=np.repeat(first + np.arange(len(lengths)), lengths)[rows[1]],
            num_experts=self.facts.num_experts,
            layer_names=self.facts.names,
            expert_bytes=self.facts.expert_bytes,
            provenance=provenance,
        )

    def _require_numbers(self, weights: np.ndarray) -> None:
        broken = np.argwhere(~np.isfinite(weights))
        if broken.size:
            raise CaptureError(
                f"the router of layer {self.facts.names[broken[0][1]]} gave a weight that is not a number; the "
                "checkpoint is damaged, or its numbers overflow in this dtype (try bfloat16 or float32)"
            )

    def _chosen(self, seen: _Seen) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and weights (batch, columns, layers, top_k), heaviest first; what loaded no expert is -1."""
        layers = range(len(self.facts.names))
        width = max(passes.shape[-1] for passes in seen.ids[0])
        ids_of, weights_of = [], []
        for layer in layers:
            ids = torch.cat([each[layer] for each in seen.ids], dim=1)
            weights = torch.cat([each[layer].float() for each in seen.weights], dim=1)
            idle = (ids >= self.facts.experts[layer]) | (weights == 0)
            ids, weights = ids.masked_fill(idle, -1), weights.masked_fill(idle, float("-inf"))
            ids, weights = by_falling_weight(ids, weights)
            room = (0, width - ids.shape[-1])
            ids_of.append(nn.functional.pad(ids.to(torch.int32), room, value=-1).cpu())
            weights_of.append(nn.functional.pad(weights.masked_fill(ids < 0, 0), room).cpu())
        return torch.stack(ids_of, dim=2).numpy(), torch.stack(weights_of, dim=2).numpy()
