"""What counts without order can tell: skew, and what pinning the most used experts would catch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from stickymoe.experiments.diagnosis.budget import Budget
from stickymoe.experiments.diagnosis.curves import TARGETS, capacities_of
from stickymoe.traces import UsageProfile

NEEDS_ORDER = "the file holds counts alone, and this needs to know which expert came after which"
REFUSED = (
    "hit rates of LRU and other policies",
    "policy failure or working-set failure",
    "cold start against steady state",
    "skew against locality",
    "prefetching and rerouting",
    "what a sticky router would be worth",
)


@dataclass(frozen=True)
class LayerSkew:
    """How unevenly one layer uses its experts.

    Args:
        name: Layer.
        uses: Uses counted.
        unused: Experts never used.
        entropy: Bits; log2(experts) at an even load.
        pinned: Share of its uses that the budget's most used experts serve.
    """

    name: str
    uses: int
    unused: int
    entropy: float
    pinned: float


@dataclass(frozen=True)
class ProfileDiagnosis:
    """The answers of a usage profile.

    Args:
        name: File name.
        model: As the file names it, or an empty string.
        experts: Experts a layer.
        budget: Slots judged.
        pinned: Share of all uses that pinning at the budget serves: equal slots a layer, or the best of the pool.
        capacities: Slots of the coverage curve.
        coverage: Share of uses served, one a capacity.
        per_layer: One row a capacity, one number a layer.
        targets: Smallest slots for each target share; None where no number of slots reaches it.
        layers: Skew of each layer.
        unanswered: What only a trace can tell, with the reason.
    """

    name: str
    model: str
    experts: int
    budget: Budget
    pinned: float
    capacities: tuple[int, ...]
    coverage: tuple[float, ...]
    per_layer: tuple[tuple[float, ...], ...]
    targets: dict[float, int | None]
    layers: list[LayerSkew]
    unanswered: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        return (
            {"schema": 1, "kind": "profile"}
            | asdict(self)
            | {"targets": {f"{rate:g}": slots for rate, slots in self.targets.items()}}
        )


def diagnose_profile(profile: UsageProfile, budget: Budget, name: str) -> ProfileDiagnosis:
    """Answer what counts can tell; the pinned experts are learned from the same counts, so the shares are upper bounds.

    Args:
        profile: The counts.
        budget: See `budget_for`.
        name: File name.
    """
    counts = profile.counts.astype(np.float64)
    served = np.cumsum(-np.sort(-counts, axis=1), axis=1)
    totals = np.maximum(counts.sum(axis=1), 1)
    sizes = [size for size in capacities_of(budget) if size <= budget.experts]
    shares: list[np.ndarray]
    if budget.scope == "layer":
        shares = [served[:, size - 1] for size in sizes]
        coverage = [float(each.sum() / counts.sum()) for each in shares]
    else:
        order = np.argsort(-counts, axis=None, kind="stable")
        flat, layer_of = counts.ravel()[order], order // profile.num_experts
        shares = [np.bincount(layer_of[:size], flat[:size], profile.num_layers) for size in sizes]
        coverage = [float(flat[:size].sum() / counts.sum()) for size in sizes]
    per_layer = [(each / totals).tolist() for each in shares]
    at = sizes.index(min(budget.slots, sizes[-1]))
    layers = [
        LayerSkew(label, int(row.sum()), int(np.count_nonzero(row == 0)), _bits(row), per_layer[at][layer])
        for layer, (label, row) in enumerate(zip(profile.names, counts, strict=True))
    ]
    return ProfileDiagnosis(
        name, str(profile.provenance.get("model") or ""), profile.num_experts, budget, coverage[at], tuple(sizes),
        tuple(coverage), tuple(map(tuple, per_layer)),
        {rate: next((s for s, c in zip(sizes, coverage, strict=True) if c >= rate), None) for rate in TARGETS},
        layers, dict.fromkeys(REFUSED, NEEDS_ORDER),
    )  # fmt: skip


def _bits(row: np.ndarray) -> float:
    share = row[row > 0] / max(1.0, row.sum())
    return float(max(0.0, -(share * np.log2(share)).sum()))
