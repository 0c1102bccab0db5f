"""Every policy at the budget: hit rate, loads, and how much of the gap between LRU and foresight it captures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stickymoe.cache import POLICIES, CacheReport
from stickymoe.experiments.diagnosis.facts import TraceFacts
from stickymoe.experiments.diagnosis.misses import gap_captured

LABELS = {
    "lru": "LRU",
    "fifo": "FIFO",
    "lfu": "LFU",
    "lfu-cache": "LFU in cache",
    "lfu-aged": "LFU aged",
    "lfru": "LFRU",
    "slru": "SLRU",
    "arc": "ARC",
    "sieve": "SIEVE",
    "static": "Pinned, in hindsight",
    "moe-infinity": "MoE-Infinity",
    "score-ema": "Score EMA",
    "belady": "Belady",
    "belady-bypass": "Belady with bypass",
}


@dataclass(frozen=True)
class PolicyResult:
    """One policy at the budget.

    Args:
        policy: Name.
        kind: `online`: can be built; `hindsight`: knows this trace's counts; `bound`: knows the future.
        hit_rate: Hits over lookups.
        loads_per_token: Experts that a token loads.
        bytes_per_token: Bytes of them, None where no size is known.
        gap_captured: See `gap_captured`.
    """

    policy: str
    kind: str
    hit_rate: float
    loads_per_token: float
    bytes_per_token: float | None
    gap_captured: float | None

    @property
    def label(self) -> str:
        """The policy as readers know it."""
        return label_of(self.policy)


def label_of(policy: str) -> str:
    """Return a policy's name for readers."""
    return LABELS.get(policy, policy)


def kind_of(policy: str) -> str:
    """Return whether a policy is `online`, `hindsight` or a `bound`."""
    needs = POLICIES[policy].needs
    return "bound" if "future" in needs else "hindsight" if "profile" in needs else "online"


def policy_results(reports: Mapping[str, CacheReport], facts: TraceFacts) -> list[PolicyResult]:
    """Return the policies, the best hit rate first; LRU and Belady are among the reports."""
    lru, belady = reports["lru"].hit_rate, reports["belady"].hit_rate
    results = []
    for policy, report in reports.items():
        rate = report.hit_rate
        results.append(
            PolicyResult(
                policy,
                kind_of(policy),
                rate,
                loads_of(report) / facts.tokens,
                bytes_per_token(report, facts),
                gap_captured(rate, lru, belady),
            )
        )
    return sorted(results, key=lambda result: -result.hit_rate)


def loads_of(report: CacheReport) -> int:
    """Return the experts that were loaded; several misses of one event may share a load."""
    return report.misses if report.loads is None else report.loads


def bytes_per_token(report: CacheReport, facts: TraceFacts) -> float | None:
    """Return the bytes that the misses load, a token; None where no size is known."""
    moved = report.bytes_moved
    return None if moved is None else moved / facts.tokens


def best_online(results: list[PolicyResult]) -> PolicyResult:
    """Return the policy of the highest hit rate that can be built; LRU among equals."""
    online = [result for result in results if result.kind == "online"]
    return max(online, key=lambda result: (result.hit_rate, result.policy == "lru"))
