"""`Diagnosis`: all answers that a trace gave, as one object."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from stickymoe.cache.settings import Semantics
from stickymoe.experiments.diagnosis.budget import Budget
from stickymoe.experiments.diagnosis.curves import Curve, NextStep, Target
from stickymoe.experiments.diagnosis.device import DeviceCheck
from stickymoe.experiments.diagnosis.facts import TraceFacts
from stickymoe.experiments.diagnosis.layers import LayerResult
from stickymoe.experiments.diagnosis.locality import SkewOrOrder
from stickymoe.experiments.diagnosis.misses import MissShares, Verdict
from stickymoe.experiments.diagnosis.phases import PhaseResult
from stickymoe.experiments.diagnosis.policies import PolicyResult
from stickymoe.experiments.diagnosis.remedies import Remedy
from stickymoe.experiments.diagnosis.stickiness import Stickiness
from stickymoe.experiments.diagnosis.timing import Timing
from stickymoe.experiments.diagnosis.warmup import WarmUp

SCHEMA = 1


@dataclass(frozen=True)
class Diagnosis:
    """What was found.

    Args:
        facts: What the trace holds.
        semantics: How every replay counted.
        counted: The same in words.
        budget: The cache size judged.
        shares: LRU's misses by cause.
        verdict: Whose failure they are.
        policies: Every policy at the budget, the best first.
        curves: LRU at every capacity, Belady at some.
        knee: Capacity of the LRU curve's knee.
        targets: Smallest budgets for given hit rates.
        next_step: What the next GiB brings; None where every expert fits.
        layers: Every layer at the budget.
        phases: Prefill and decode at the budget; empty where phases are not known.
        warm_up: Cold start against steady state; None for very short sequences.
        locality: Skew against order.
        remedies: What was tried.
        stickiness: What a router trained for locality would be worth, in a model.
        device: What the device itself counted.
        cliff: Warning that a shared pool is smaller than one token's demand.
        timing: Milliseconds a token, where a calibration was given.
        unanswered: Questions that could not be answered, with the reason.
    """

    facts: TraceFacts
    semantics: Semantics
    counted: str
    budget: Budget
    shares: MissShares
    verdict: Verdict
    policies: list[PolicyResult]
    curves: list[Curve]
    knee: int
    targets: list[Target]
    next_step: NextStep | None
    layers: list[LayerResult]
    phases: list[PhaseResult]
    warm_up: WarmUp | None
    locality: SkewOrOrder
    remedies: list[Remedy]
    stickiness: Stickiness | None
    device: DeviceCheck | None
    cliff: str | None
    timing: Timing | None
    unanswered: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        return {"schema": SCHEMA, "kind": "trace"} | asdict(self)

    def result(self, policy: str) -> PolicyResult:
        """Return one policy at the budget."""
        return next(result for result in self.policies if result.policy == policy)

    def curve(self, policy: str) -> Curve:
        """Return the curve of one policy."""
        return next(curve for curve in self.curves if curve.policy == policy)
