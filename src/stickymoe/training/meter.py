"""What a training step measured: kept on the device, reduced over ranks and brought to the CPU when it is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from stickymoe.losses import diagnose
from stickymoe.routing import Routing

PER_LAYER = ("switch_rate", "gate_entropy_bits", "gate_margin")


@dataclass(frozen=True)
class StepFigures:
    """One optimiser step, over all micro-batches and ranks.

    Attributes:
        step: Its number, the first is 1.
        batch_cross_entropies: What each micro-batch adds to the step's cross-entropy.
        terms: The objective's terms, unweighted.
        grad_norm: Norm of the gradient before clipping; None where it was not measured.
        tokens: Real tokens.
        pairs: Valid pairs of neighbouring tokens.
        layer_sums: (layers, 3): switches over the pairs; gate entropy and margin over the tokens.
        load: (layers, experts): how many tokens each expert served.
        terms_by_layer: The values whose means the terms are, one a layer.
    """

    step: int
    batch_cross_entropies: list[float]
    terms: dict[str, float]
    grad_norm: float | None
    tokens: float
    pairs: float
    layer_sums: np.ndarray
    load: np.ndarray
    terms_by_layer: dict[str, list[float]] = field(default_factory=dict)

    @property
    def cross_entropy(self) -> float:
        """Mean cross-entropy of the step's targets."""
        return sum(self.batch_cross_entropies)


class Meter:
    """Collects micro-batches into steps. Only `read` waits for the device."""

    def __init__(self) -> None:
        self._terms: list[str] = []
        self._layer_widths: dict[str, int] = {}
        self._batches: list[tuple[Tensor, Tensor]] = []
        self._steps: list[tuple[int, list[Tensor], Tensor]] = []
        self._shape = (0, 0)
        self._has_norm = False

    @property
    def has_open_step(self) -> bool:
        """Whether micro-batches wait for `close_step`."""
        return bool(self._batches)

    @torch.no_grad()
    def add(
        self,
        cross_entropy: Tensor,
        terms: dict[str, Tensor],
        *routings: Routing,
        by_layer: dict[str, Tensor] | None = None,
    ) -> None:
        """Take a micro-batch in.

        Args:
            cross_entropy: Its share of the step's cross-entropy, times the number of ranks.
            terms: Its shares of the objective's terms; over micro-batches they add up, over ranks they average.
            routings: What was routed, one a forward pass.
            by_layer: The values whose means the terms are, one a layer, shares too.
        """
        by_layer = by_layer or {}
        self._terms = list(terms)
        self._layer_widths = {name: len(values) for name, values in by_layer.items()}
        found = [cross_entropy, *terms.values(), *by_layer.values()]
        shares = torch.cat([value.detach().float().reshape(-1) for value in found])
        self._batches.append((shares, torch.stack([self._sums(routing) for routing in routings]).sum(dim=0)))

    def _sums(self, routing: Routing) -> Tensor:
        """Return tokens, pairs, the layers' measures and loads as one vector of sums."""
        found = diagnose(routing)
        first = routing.gate_probs[0]
        tokens = first.new_tensor(first.shape[0] * first.shape[1], dtype=torch.float32)
        if routing.token_mask is not None:
            tokens = routing.token_mask.sum(dtype=torch.float32)
        valid = routing.valid_pairs()
        pairs = first.new_tensor(first.shape[0] * (first.shape[1] - 1), dtype=torch.float32)
        if valid is not None:
            pairs = valid.sum(dtype=torch.float32)
        counts = {"switch_rate": pairs, "gate_entropy_bits": tokens, "gate_margin": tokens}
        # Where nothing counts the means are NaN, and their sums are 0.
        of_layers = [torch.where(counts[name] > 0, found[name], 0.0) * counts[name] for name in PER_LAYER]
        layers = torch.stack(of_layers, dim=1)
        load = torch.where(tokens > 0, found["load"], 0.0) * tokens
        self._shape = (load.shape[0], load.shape[1])
        return torch.cat([tokens[None], pairs[None], layers.flatten(), load.flatten()])

    def close_step(self, step: int, grad_norm: Tensor | float | None) -> None:
        """Make the micro-batches since the last call step number `step`."""
        shares = [shares for shares, _ in self._batches]
        norm = torch.as_tensor(0.0 if grad_norm is None else grad_norm, dtype=torch.float32, device=shares[0].device)
        self._has_norm = grad_norm is not None
        sums = torch.stack([sums for _, sums in self._batches]).sum(dim=0)
        self._steps.append((step, shares, torch.cat([norm.reshape(1), sums])))
        self._batches = []

    def read(self) -> list[StepFigures]:
        """Return the closed steps since the last call. With several ranks, all must call it after the same step."""
        if not self._steps:
            return []
        flat = torch.cat([part for _, shares, sums in self._steps for part in (*shares, sums)])
        ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        if ranks > 1:
            dist.all_reduce(flat)
        values = flat.cpu().double().numpy()
        figures, begin = [], 0
        for step, shares, sums in self._steps:
            middle = begin + len(shares) * len(shares[0])
            end = middle + len(sums)
            by_batch = values[begin:middle].reshape(len(shares), -1) / ranks
            figures.append(self._figures(step, by_batch, values[middle] / ranks, values[middle + 1 : end]))
            begin = end
        self._steps = []
        return figures

    def _figures(self, step: int, by_batch: np.ndarray, grad_norm: float, sums: np.ndarray) -> StepFigures:
        layers, _ = self._shape
        border = 2 + layers * len(PER_LAYER)
        shares = by_batch[:, 1:].sum(axis=0)
        ends = np.cumsum([len(self._terms), *self._layer_widths.values()])
        of_layers = np.split(shares, ends)[1:-1]
        return StepFigures(
            step=step,
            batch_cross_entropies=by_batch[:, 0].tolist(),
            terms=dict(zip(self._terms, shares[: len(self._terms)].tolist(), strict=True)),
            terms_by_layer={name: values.tolist() for name, values in zip(self._layer_widths, of_layers, strict=True)},
            grad_norm=float(grad_norm) if self._has_norm else None,
            tokens=float(sums[0]),
            pairs=float(sums[1]),
            layer_sums=sums[2:border].reshape(layers, len(PER_LAYER)),
            load=sums[border:].reshape(self._shape),
        )


def summarise_steps(steps: list[StepFigures]) -> dict[str, Any]:
    """Return the figures of a log row: losses averaged over steps, measures of routing over all of their tokens.

    A measure is None in a layer where nothing counted.
    """
    row: dict[str, Any] = {"cross_entropy": float(np.mean([step.cross_entropy for step in steps]))}
    row |= {name: float(np.mean([step.terms[name] for step in steps])) for name in steps[0].terms}
    layered = {name: [step.terms_by_layer[name] for step in steps] for name in steps[0].terms_by_layer}
    row["terms_by_layer"] = {name: np.mean(values, axis=0).tolist() for name, values in layered.items()}
    sums = np.sum([step.layer_sums for step in steps], axis=0)
    tokens, pairs = sum(step.tokens for step in steps), sum(step.pairs for step in steps)
    for column, (name, count) in enumerate(zip(PER_LAYER, (pairs, tokens, tokens), strict=True)):
        row[name] = [float(total / count) if count else None for total in sums[:, column]]
    return row
