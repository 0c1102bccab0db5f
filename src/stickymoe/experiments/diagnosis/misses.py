"""Why lookups miss at the budget, and whose failure it is."""

from __future__ import annotations

from dataclasses import dataclass

from stickymoe.cache import CacheReport

_FITS = 0.02
_GAP = 0.005
_MOST = 0.6


@dataclass(frozen=True)
class MissShares:
    """LRU's misses in three parts, as shares of all lookups; with LRU's hit rate they add up to 1.

    Args:
        first_use: No cache of any size avoids them: the first use after a cold start.
        working_set: Belady misses them too: what is in use does not fit.
        policy: Belady hits them and LRU does not: a better choice of victims could.
    """

    first_use: float
    working_set: float
    policy: float

    @property
    def misses(self) -> float:
        """LRU's miss rate."""
        return self.first_use + self.working_set + self.policy


@dataclass(frozen=True)
class Verdict:
    """Whose failure the misses are: `fits`, `first uses`, `working set`, `policy` or `mixed`, and why in a sentence."""

    name: str
    sentence: str


def miss_shares(lru: CacheReport, belady: CacheReport) -> MissShares:
    """Split LRU's misses; both reports are of the same capacity and semantics."""
    lookups = lru.lookups
    first = min(lru.compulsory, belady.misses)
    return MissShares(first / lookups, (belady.misses - first) / lookups, (lru.misses - belady.misses) / lookups)


def verdict_of(shares: MissShares, slots: int, where: str) -> Verdict:
    """Name the part that is three fifths of the misses or more; `mixed` where none is.

    Args:
        shares: LRU's misses in parts.
        slots: The budget's.
        where: `a layer` or `in one pool`.
    """
    total = shares.misses
    if total <= _FITS:
        return Verdict("fits", f"{slots:,} slots {where} hold nearly all that is asked for: LRU misses {_p(total)}")
    parts = {"policy": shares.policy, "working set": shares.working_set, "first uses": shares.first_use}
    ranked = sorted(parts, key=lambda part: -parts[part])
    others = ", ".join(f"{part} {_p(parts[part] / total)}" for part in ranked)
    name, share = ranked[0], _p(parts[ranked[0]] / total)
    if parts[name] < _MOST * total:
        return Verdict("mixed", f"No single failure; of LRU's misses {others}")
    rest = others.split(", ", 1)[1]
    said = {
        "policy": f"Policy failure: in the same slots foresight would avoid {share} of LRU's misses",
        "working set": f"Working-set failure: {share} of LRU's misses stay under perfect foresight",
        "first uses": f"Cold start: {share} of LRU's misses are first uses, which no cache avoids",
    }
    return Verdict(name, f"{said[name]} ({rest})")


def gap_captured(hit_rate: float, lru: float, belady: float) -> float | None:
    """Return (policy - LRU) / (Belady - LRU): 0 as good as LRU, 1 as good as foresight, below 0 worse than LRU.

    None where Belady is less than half a point above LRU: there is nothing to capture, and the ratio would be noise.
    """
    return None if belady - lru < _GAP else (hit_rate - lru) / (belady - lru)


def _p(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else "< 1 %"
