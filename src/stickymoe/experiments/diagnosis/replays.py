"""The replays that most answers share: LRU at every capacity, Belady at some, every policy at the budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stickymoe.cache import POLICIES, CacheReport, hit_rate_curve, simulate
from stickymoe.cache.settings import Semantics
from stickymoe.core.errors import StickyMoEError
from stickymoe.core.settings import require_one_of
from stickymoe.experiments.diagnosis.budget import Budget
from stickymoe.experiments.diagnosis.curves import (
    Curve,
    between,
    capacities_of,
    curve_of,
    next_capacity,
    sparse_capacities,
)
from stickymoe.experiments.diagnosis.policies import PolicyResult
from stickymoe.traces import RoutingTrace

ALWAYS = ("lru", "belady")
BELADY_POINTS = 12
OTHER_POINTS = 8
MOST_CURVES = 4
AFFORDABLE = 60_000_000  # lookups replayed for the curves of other policies: some seconds


def policy_names(asked: Sequence[str]) -> list[str]:
    """Return LRU, Belady and what was asked for, all policies if nothing was.

    Raises:
        SettingError: There is no such policy; the nearest is named.
    """
    for name in asked:
        require_one_of("policy", name, POLICIES)
    return list(dict.fromkeys([*ALWAYS, *(asked or POLICIES)]))


def replay_at_budget(
    trace: RoutingTrace,
    names: Sequence[str],
    budget: Budget,
    semantics: Semantics,
    unanswered: dict[str, str],
    told: Callable[[str], None] = lambda name: None,
) -> dict[str, CacheReport]:
    """Replay policies at the budget; one that this trace cannot feed is left out with its reason.

    Args:
        trace: The routing.
        names: Of the policies, LRU and Belady among them.
        budget: The cache's size.
        semantics: How to count.
        unanswered: Gets the reasons.
        told: Told the name of each policy before its replay; the first one ever is compiled, which takes seconds.
    """
    reports = {}
    for name in names:
        told(name)
        try:
            reports[name] = simulate(trace, name, **budget.keywords(), **semantics.keywords())
        except StickyMoEError as error:
            if name in ALWAYS:
                raise
            unanswered[f"policy {name}"] = str(error)
    return reports


def replay_curves(
    trace: RoutingTrace, demand: int, budget: Budget, semantics: Semantics
) -> tuple[Curve, Curve, tuple[int, CacheReport] | None]:
    """Return LRU's curve, Belady's, and LRU's report one step above the budget.

    Args:
        trace: The routing.
        demand: Slots that one token of one cache asks for: where Belady's curve begins.
        budget: In both curves.
        semantics: How to count.
    """
    after = next_capacity(budget)
    sizes = capacities_of(budget, demand, demand - 1, *([] if after is None else [after]))
    reports = dict(zip(sizes, hit_rate_curve(trace, "lru", sizes, **semantics.keywords()), strict=True))
    if more := between(curve_of(reports, "lru"), budget.experts):
        reports |= dict(zip(more, hit_rate_curve(trace, "lru", more, **semantics.keywords()), strict=True))
    belady = replay_curve(trace, "belady", sparse_capacities(budget, demand, BELADY_POINTS), semantics)
    return curve_of(reports, "lru"), belady, None if after is None else (after, reports[after])


def replay_curve(trace: RoutingTrace, policy: str, capacities: Sequence[int], semantics: Semantics) -> Curve:
    """Return the curve of one policy at some capacities."""
    reports = hit_rate_curve(trace, policy, capacities, **semantics.keywords())
    return curve_of(dict(zip(capacities, reports, strict=True)), policy)


def other_curves(
    trace: RoutingTrace,
    asked: Sequence[str],
    results: Sequence[PolicyResult],
    demand: int,
    budget: Budget,
    semantics: Semantics,
) -> list[Curve]:
    """Return curves of the policies asked for, then of the best that can be built, as many as their time allows."""
    known = [each for each in results if each.policy not in ALWAYS]
    ranked = [each.policy for each in known if each.policy in asked or each.kind == "online"]
    names = sorted(ranked, key=lambda name: name not in asked)
    sizes = sparse_capacities(budget, demand, OTHER_POINTS)
    affordable = min(MOST_CURVES, AFFORDABLE // (trace.expert_ids.size * len(sizes)))
    return [replay_curve(trace, name, sizes, semantics) for name in names[: max(len(asked), affordable)]]
