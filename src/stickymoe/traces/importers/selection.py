"""Experts chosen from router logits by a rule that the user names: the logits alone do not tell it."""

from __future__ import annotations

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.core.settings import require_one_of
from stickymoe.traces.importers.importer import ReadOptions

# The weights differ, the choice does not: both scores rise with the logit. `-norm`: weights of a token sum to 1, as
# when the softmax is taken over the chosen ones alone. A router that adds a bias or limits groups cannot be recovered.
SELECTIONS = ("softmax-topk", "softmax-topk-norm", "sigmoid-topk", "sigmoid-topk-norm")
ROWS = 2**15


def checked_selection(num_experts: int, options: ReadOptions) -> tuple[str, int]:
    """Return rule and k.

    Raises:
        SettingError: An unknown rule.
        TraceError: One is not given, or k is more than the experts.
    """
    if options.selection is None or options.top_k is None:
        missing = "selection" if options.selection is None else "top_k"
        raise TraceError(
            f"router logits need top_k and selection (one of {', '.join(SELECTIONS)}), got no {missing}; "
            "the model's config tells them"
        )
    require_one_of("selection", options.selection, SELECTIONS)
    if options.top_k > num_experts:
        raise TraceError(f"top_k must be <= the {num_experts} experts of the logits, got {options.top_k}")
    return options.selection, options.top_k


def choose(logits: np.ndarray, selection: str, top_k: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and weights (tokens, top_k), heaviest first; of equal logits the lower expert.

    Args:
        logits: (tokens, experts).
        selection: One of `SELECTIONS`.
        top_k: Experts a token.
        name: What the logits are, for the error.

    Raises:
        TraceError: A logit is not finite.
    """
    ids = np.empty((len(logits), top_k), dtype=np.int32)
    weights = np.empty((len(logits), top_k), dtype=np.float32)
    for start in range(0, len(logits), ROWS):
        with np.errstate(over="ignore"):  # what overflows is refused below
            rows = logits[start : start + ROWS].astype(np.float32)
        if not np.isfinite(rows).all():
            token, expert = np.argwhere(~np.isfinite(rows))[0].tolist()
            found = f"{rows[token, expert]} at token {start + token}, expert {expert}"
            raise TraceError(f"{name} must be finite in float32, got {found}")
        best = np.argsort(-rows, axis=1, kind="stable")[:, :top_k]
        chosen = np.take_along_axis(rows, best, axis=1)
        if selection.startswith("softmax"):
            shifted = np.exp(rows - rows.max(axis=1, keepdims=True))
            score = np.exp(chosen - rows.max(axis=1, keepdims=True)) / shifted.sum(axis=1, keepdims=True)
        else:
            score = np.exp(-np.logaddexp(0, -chosen))
        if selection.endswith("-norm"):
            score = score / np.maximum(score.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
        ids[start : start + ROWS], weights[start : start + ROWS] = best, score
    return ids, weights
