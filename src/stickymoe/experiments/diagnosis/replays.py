"""The replays that most answers share: LRU at every capacity, Belady at some, every policy at the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stickymoe.cache import POLICIES, CacheReport, hit_rate_curve, simulate
from stickymoe.core.errors import StickyMoEError
from stickymoe.core.settings import require_one_of
from stickymoe.experiments.diagnosis.budget import Budget
from stickymoe.experiments.diagnosis.curves import Curve, capacities_of, curve_of, next_capacity, sparse_capacities
from stickymoe.experiments.diagnosis.settings import Semantics
from stickymoe.traces import RoutingTrace

ALWAYS = ("lru", "belady")
BELADY_POINTS = 12


@dataclass(frozen=True)
class Replays:
    """What was replayed.

    Args:
        at_budget: Every policy at the budget.
        larger: Slots of the next step and LRU's report there; None where every expert fits.
        lru: LRU's curve, every capacity.
        belady: Belady's, some capacities.
    """

    at_budget: dict[str, CacheReport]
    larger: tuple[int, CacheReport] | None
    lru: Curve
    belady: Curve


def policy_names(asked: Sequence[str]) -> list[str]:
    """Return LRU, Belady and what was asked for, all policies if nothing was.

    Raises:
        SettingError: There is no such policy; the nearest is named.
    """
    for name in asked:
        require_one_of("policy", name, POLICIES)
    return list(dict.fromkeys([*ALWAYS, *(asked or POLICIES)]))


def replay_at_budget(
    trace: RoutingTrace, names: Sequence[str], budget: Budget, semantics: Semantics, unanswered: dict[str, str]
) -> dict[str, CacheReport]:
    """Replay policies at the budget; one that this trace cannot feed is left out with its reason."""
    reports = {}
    for name in names:
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
    keywords, after = semantics.keywords(), next_capacity(budget)
    sizes = capacities_of(budget, *([] if after is None else [after]))
    reports = hit_rate_curve(trace, "lru", sizes, **keywords)
    few = sparse_capacities(budget, demand, BELADY_POINTS)
    belady = curve_of(hit_rate_curve(trace, "belady", few, **keywords), "belady", few)
    larger = None if after is None else (after, reports[sizes.index(after)])
    return curve_of(reports, "lru", sizes), belady, larger
