"""Prefill against decode at the budget."""

from __future__ import annotations

from dataclasses import dataclass

from stickymoe.cache import CacheReport
from stickymoe.experiments.diagnosis.facts import TraceFacts


@dataclass(frozen=True)
class PhaseResult:
    """One phase at the budget.

    Args:
        phase: `prefill` or `decode`.
        tokens: Its tokens.
        lru: LRU's hit rate.
        belady: Belady's.
        misses_per_token: LRU's misses a token.
    """

    phase: str
    tokens: int
    lru: float
    belady: float
    misses_per_token: float


def phase_results(
    lru: CacheReport, belady: CacheReport, facts: TraceFacts, unanswered: dict[str, str]
) -> list[PhaseResult]:
    """Return both phases, or none with the reason in `unanswered`."""
    if facts.prefill_tokens is None:
        unanswered["prefill or decode"] = "the trace does not say which tokens are prefill"
        return []
    found = []
    for phase, tokens in (("prefill", facts.prefill_tokens), ("decode", facts.decode_tokens)):
        hits, misses = lru.phase(phase)
        if tokens and hits + misses:
            belady_hits, belady_misses = belady.phase(phase)
            rates = (hits / (hits + misses), belady_hits / (belady_hits + belady_misses))
            found.append(PhaseResult(phase, tokens, *rates, misses / tokens))
    return found
