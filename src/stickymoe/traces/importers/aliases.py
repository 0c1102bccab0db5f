"""The one table of the names that home-made traces use, and how they spell the phases."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stickymoe.traces.checks import DECODE, PREFILL

# What a record may say -> the names it is met under, the likeliest first. Other names are no business of ours.
ALIASES: dict[str, tuple[str, ...]] = {
    "layer": ("layer", "layer_idx", "layer_id", "layer_index", "layer_number", "moe_layer", "l"),
    "token": ("token", "token_idx", "token_index", "token_position", "token_pos", "position", "pos", "t", "step"),
    "request": (
        *(
            "req_id",
            "request_id",
            "request",
            "prompt_id",
            "prompt_idx",
            "p",
            "sequence_id",
            "sequence",
            "seq_id",
            "seq",
        ),
        *("sample_id", "sample", "conversation_id", "turn"),
    ),
    "experts": (
        *("experts", "expert_ids", "selected_ids", "selected_experts", "topk_ids", "topk_experts", "topk_indices"),
        *("topk_idx", "top_indices", "expert_indices", "expert_idxs", "ids", "e"),
    ),
    "weights": (
        *("gate_weights", "topk_weights", "selected_probabilities", "router_scores", "expert_weights"),
        *("routing_weights", "weights", "topk_scores", "topk_probs", "scores", "gates", "probs", "s"),
    ),
    "expert": ("expert", "expert_id", "expert_idx", "expert_index"),
    "weight": ("gate_weight", "weight", "gate", "expert_weight", "routing_weight", "score", "prob", "probability"),
    "slot": ("slot", "rank", "expert_rank", "k_idx"),
    "phase": ("phase", "ph", "is_prefill", "is_decode"),
    "event": ("event_id", "event", "forward_pass_id", "forward_id", "forward", "step", "call", "batch_id", "iteration"),
    "token_id": ("token_id", "ti", "input_id", "vocab_id"),
    "position": ("position", "pos", "token_position"),
    "document": ("document_id", "document", "doc_id"),
    "resident": ("cache_hit", "cache_hits", "hit", "hits", "resident", "residency"),
    "state": ("assignment_state",),
    "block": ("block", "stack", "stage", "component"),
    "num_experts": (
        *("num_experts", "n_experts", "n_expert", "experts_per_layer", "num_routed_experts", "n_routed_experts"),
        "num_local_experts",
    ),
    "top_k": ("top_k", "topk", "num_experts_per_tok", "n_expert_used", "experts_per_token"),
    "num_layers": ("num_layers", "n_layers", "n_layer", "num_moe_layers", "n_moe_layers"),
    "model": ("model_id", "model_name", "model"),
}
# One column a slot: e0, expert_1, topk_2, ...; w0, weight_1, ...
WIDE = {
    "experts": re.compile(r"(?:e|experts?|expert_ids?|topk|topk_ids?|ids?)_?(\d+)"),
    "weights": re.compile(r"(?:w|weights?|gates?|scores?|probs?|s|topk_weights?)_?(\d+)"),
}
PHASES = {
    **dict.fromkeys(("prefill", "prompt", "context", "prompt_processing", "pp", "p"), PREFILL),
    **dict.fromkeys(("decode", "decoding", "generated", "generation", "generate", "output", "tg", "gen", "d"), DECODE),
}


def resolve(names: Iterable[str]) -> dict[str, str]:
    """Return for what a record says the name it says it under; the first alias met wins, and each name serves once."""
    met = {name.strip().lower(): name for name in names}
    found: dict[str, str] = {}
    for what, aliases in ALIASES.items():
        for alias in aliases:
            if alias in met and met[alias] not in found.values():
                found[what] = met[alias]
                break
    return found


def wide(names: Iterable[str], what: str) -> list[str]:
    """Return the columns that hold one slot each, in the order of their numbers."""
    numbered = [(int(match[1]), name) for name in names if (match := WIDE[what].fullmatch(name.strip().lower()))]
    return [name for _, name in sorted(numbered)] if len({number for number, _ in numbered}) == len(numbered) else []


def is_routing(found: dict[str, str]) -> bool:
    """Whether the names found are those of a record of routing."""
    return ("experts" in found and ("layer" in found or "token" in found)) or found.keys() >= {
        "expert",
        "layer",
        "token",
    }
