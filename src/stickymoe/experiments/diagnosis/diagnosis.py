"""`diagnose`: replay a trace and answer what a cache of the budget would do, why, and what would help."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stickymoe.cache import CacheReport
from stickymoe.cache.calibration import Calibration
from stickymoe.cache.settings import Semantics
from stickymoe.experiments.diagnosis.budget import Budget
from stickymoe.experiments.diagnosis.curves import knee_of, next_step, targets_of
from stickymoe.experiments.diagnosis.device import device_check
from stickymoe.experiments.diagnosis.facts import TraceFacts
from stickymoe.experiments.diagnosis.layers import layer_results
from stickymoe.experiments.diagnosis.locality import skew_or_order
from stickymoe.experiments.diagnosis.misses import miss_shares, verdict_of
from stickymoe.experiments.diagnosis.phases import phase_results
from stickymoe.experiments.diagnosis.policies import PolicyResult, best_online, policy_results
from stickymoe.experiments.diagnosis.record import Diagnosis
from stickymoe.experiments.diagnosis.remedies import remedies_of
from stickymoe.experiments.diagnosis.replays import other_curves, policy_names, replay_at_budget, replay_curves
from stickymoe.experiments.diagnosis.stickiness import stickiness_of
from stickymoe.experiments.diagnosis.timing import Timing, timing_of
from stickymoe.experiments.diagnosis.warmup import warm_up
from stickymoe.traces import RoutingTrace

Progress = Callable[[str, int, "int | None"], None]
STEPS = ("hit rates at every capacity", "policies", "cold start", "skew and locality", "remedies", "a sticky router")


def diagnose(
    trace: RoutingTrace,
    facts: TraceFacts,
    budget: Budget,
    semantics: Semantics,
    *,
    policies: Sequence[str] = (),
    calibration: Calibration | None = None,
    link: str = "disk-random",
    candidates: RoutingTrace | None = None,
    progress: Progress = lambda description, done, total: None,
) -> Diagnosis:
    """Replay a trace and answer everything that it can answer.

    Args:
        trace: The routing.
        facts: Of the trace.
        budget: See `budget_for`.
        semantics: How every replay counts.
        policies: Which to compare beside LRU and Belady; all if none are named.
        calibration: Of the machine, for times.
        link: How a miss is served there.
        candidates: The same routing with more experts of each token than served it, for rerouting.
        progress: Told `(description, done, total)`.

    Raises:
        SettingError: A setting breaks its rule.
    """
    names = policy_names(policies)
    unanswered: dict[str, str] = {}

    def step(number: int, detail: str = "") -> None:
        progress(f"diagnosing · {STEPS[number]}{detail}", number, len(STEPS))

    step(0)
    demand = facts.demand(semantics)
    lru_curve, belady_curve, larger = replay_curves(trace, demand, budget, semantics)
    reports = replay_at_budget(trace, names, budget, semantics, unanswered, lambda name: step(1, f": {name}"))
    results = policy_results(reports, facts)
    others = other_curves(trace, policies, results, demand, budget, semantics)
    step(2)
    warmth = warm_up(trace, budget, semantics, unanswered)
    step(3)
    order = skew_or_order(trace, budget, semantics)
    step(4)
    remedies = remedies_of(trace, budget, semantics, results, order, unanswered, candidates)
    step(5)
    sticky = stickiness_of(trace, order, semantics, unanswered)
    lru, belady = reports["lru"], reports["belady"]
    shares = miss_shares(lru, belady)
    return Diagnosis(
        facts=facts,
        semantics=semantics,
        counted=lru.describe(),
        budget=budget,
        shares=shares,
        verdict=verdict_of(shares, budget.slots, "a layer" if budget.scope == "layer" else "in one pool"),
        policies=results,
        curves=[lru_curve, belady_curve, *others],
        knee=knee_of(lru_curve, budget.experts),
        targets=targets_of(lru_curve, belady_curve, budget),
        next_step=next_step(lru_curve, budget, facts.requests_per_token),
        layers=layer_results(lru, belady, facts.layer_names),
        phases=phase_results(lru, belady, facts, unanswered),
        warm_up=warmth,
        locality=order,
        remedies=remedies,
        stickiness=sticky,
        device=device_check(trace, budget, semantics, unanswered),
        cliff=lru.cliff,
        timing=_timing(reports, larger, results, facts, budget, calibration, link, unanswered),
        unanswered=unanswered,
    )


def _timing(
    reports: Mapping[str, CacheReport],
    larger: tuple[int, CacheReport] | None,
    results: list[PolicyResult],
    facts: TraceFacts,
    budget: Budget,
    calibration: Calibration | None,
    link: str,
    unanswered: dict[str, str],
) -> Timing | None:
    best = best_online(results)
    shown = {"LRU": "lru", best.label: best.policy, "Belady (bound)": "belady"}
    chosen = {label: reports[policy] for label, policy in shown.items()}
    return timing_of(calibration, link, facts, budget, chosen, larger, unanswered)
