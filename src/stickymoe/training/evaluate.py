"""One pass over a whole split: cross-entropy of every token, gates, and the trace of what was routed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stickymoe.cache import PAPER_SEMANTICS, CacheReport, hit_rate_curve
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_at_least
from stickymoe.data import TokenChunks, collate_chunks
from stickymoe.losses import gate_entropy_bits, gate_margin
from stickymoe.model import StickyMoEForCausalLM
from stickymoe.routing import Routing
from stickymoe.traces import RoutingTrace
from stickymoe.training.evaluation import Evaluation
from stickymoe.training.memory import keep_freed_memory
from stickymoe.training.parameters import count_parameters

PAPER_CAPACITY = 2
MOST_CAPACITIES = 4


def evaluate(
    model: StickyMoEForCausalLM,
    chunks: TokenChunks,
    *,
    batch_size: int,
    device: torch.device | str = "cpu",
    capacities: Sequence[int] | None = None,
    split: str = "validation",
    keep_weights: bool = False,
    provenance: dict[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Measure a model on a whole split, no token left out and none predicted twice.

        perplexity = exp( mean over every token but the split's first of  -log P(token | earlier tokens of its chunk) )

    Computed without autocast, in the dtype of the weights. Draws no random numbers and leaves the model's training mode
    as it was, so it may stand in the middle of a run.

    Args:
        model: The model; it is moved to `device`.
        chunks: The split, cut with `keep_tail=True`.
        batch_size: Chunks a forward pass, >= 1.
        device: Where to compute.
        capacities: Slots a layer for the LRU replays with all k experts; up to four from k to N - 1 if not given.
        split: The split's name.
        keep_weights: Whether the trace keeps the experts' weights.
        provenance: What the trace shall say of its origin; JSON.
        progress: Called as `progress(chunks_done, chunks_in_all)` after every batch.

    Raises:
        SettingError: `batch_size` below 1, or `chunks` leave tokens of the split out.

    Source: Sticky Routing, eq. 17 to 20.
    """
    require_at_least("evaluate.batch_size", batch_size, 1)
    predicted = require_whole(chunks)
    sums = _Sums()
    if torch.device(device).type == "cpu":
        keep_freed_memory()
    was_training = model.training
    device = torch.device(device)
    model.to(device).eval()  # type: ignore[arg-type]  # transformers wraps `to` in an odd signature
    try:
        for done, batch in _batches(chunks, batch_size):
            _measure(model, {name: tensor.to(device) for name, tensor in batch.items()}, sums, keep_weights)
            if progress is not None:
                progress(done, len(chunks))
    finally:
        model.train(was_training)
    trace = trace_of_split(
        chunks,
        np.concatenate(sums.expert_ids),
        model.config.num_experts,
        expert_weights=np.concatenate(sums.expert_weights) if sums.expert_weights else None,
        provenance=provenance or {},
    )
    return Evaluation(
        split=split,
        cross_entropy=math.fsum(sums.cross_entropy) / predicted,
        predicted_tokens=predicted,
        gate_entropy_bits=(np.sum(sums.entropy, axis=0) / predicted).tolist(),
        gate_margin=(np.sum(sums.margin, axis=0) / predicted).tolist(),
        trace=trace,
        cache=cache_reports(trace, capacities),
        parameters=count_parameters(model),
    )


def default_capacities(top_k: int, num_experts: int) -> list[int]:
    """Return at most four cache sizes, spread evenly from the k slots a token needs to all experts but one."""
    last = max(num_experts - 1, top_k)
    count = min(MOST_CAPACITIES, last - top_k + 1)
    return [int(size) for size in np.unique(np.linspace(top_k, last, count).round().astype(int))]


def sum_of_lengths(chunks: TokenChunks) -> int:
    """Return how many tokens the chunks cover."""
    return (len(chunks) - 1) * chunks.seq_len + len(chunks[len(chunks) - 1]["input_ids"])


def require_whole(chunks: TokenChunks) -> int:
    """Return how many tokens of the split are predicted; refuse chunks that leave some out."""
    predicted = sum_of_lengths(chunks)
    if predicted != chunks.split.num_tokens - 1:
        rule = f"of {chunks.split.num_tokens - 1} tokens, the split's without its first"
        raise SettingError.broken("evaluate.chunks", rule, predicted, "make them with keep_tail=True")
    return predicted


@dataclass
class _Sums:
    """What the batches add up to, one entry a batch."""

    cross_entropy: list[float] = field(default_factory=list)
    entropy: list[np.ndarray] = field(default_factory=list)
    margin: list[np.ndarray] = field(default_factory=list)
    expert_ids: list[np.ndarray] = field(default_factory=list)
    expert_weights: list[np.ndarray] = field(default_factory=list)


def _batches(chunks: TokenChunks, batch_size: int) -> Iterator[tuple[int, dict[str, Tensor]]]:
    for begin in range(0, len(chunks), batch_size):
        end = min(begin + batch_size, len(chunks))
        yield end, collate_chunks([chunks[index] for index in range(begin, end)])


@torch.no_grad()
def _measure(model: StickyMoEForCausalLM, batch: dict[str, Tensor], sums: _Sums, keep_weights: bool) -> None:
    with torch.autocast(batch["input_ids"].device.type, enabled=False):
        out = model(**batch, num_items_in_batch=1, use_cache=False)
    routing: Routing = out.routing
    real = batch["attention_mask"].bool() if "attention_mask" in batch else torch.ones_like(batch["input_ids"]).bool()
    tokens = int(real.sum())
    gates = torch.stack(routing.gate_probs)
    sums.cross_entropy.append(float(out.loss))
    sums.entropy.append(gate_entropy_bits(gates, routing.token_mask).double().cpu().numpy() * tokens)
    sums.margin.append(gate_margin(gates, routing.token_mask).double().cpu().numpy() * tokens)
    ids = torch.stack(routing.expert_ids, dim=2)[real]
    sums.expert_ids.append(ids.to(torch.int32).cpu().numpy())
    if keep_weights:
        sums.expert_weights.append(torch.stack(routing.expert_weights, dim=2)[real].float().cpu().numpy())


def trace_of_split(chunks: TokenChunks, expert_ids: np.ndarray, num_experts: int, **known: Any) -> RoutingTrace:
    """Return the trace of a whole split, whose chunks follow each other, so that its rows are the split's tokens.

    Args:
        chunks: The split, cut with `keep_tail=True`.
        expert_ids: Of every token but the split's last, (tokens, layers, top_k).
        num_experts: Experts of a layer.
        known: Further arguments of `RoutingTrace`.
    """
    rows = np.arange(chunks.split.num_tokens - 1)
    return RoutingTrace(
        expert_ids=expert_ids,
        sequence_ids=rows // chunks.seq_len,
        num_experts=num_experts,
        token_ids=np.asarray(chunks.split.tokens[:-1]),
        document_ids=np.asarray(chunks.split.document_ids[:-1]) if chunks.respect_documents else None,
        positions=rows % chunks.seq_len,
        **known,
    )


def cache_reports(trace: RoutingTrace, capacities: Sequence[int] | None = None) -> tuple[CacheReport, ...]:
    """Return the paper's LRU replay and, with all k experts, those of `capacities` or of `default_capacities`."""
    sizes = default_capacities(trace.top_k, trace.num_experts) if capacities is None else list(capacities)
    papers = hit_rate_curve(trace, "lru", [PAPER_CAPACITY], **PAPER_SEMANTICS)
    return (*papers, *(hit_rate_curve(trace, "lru", sizes) if sizes else ()))
