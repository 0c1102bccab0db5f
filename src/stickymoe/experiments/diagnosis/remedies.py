"""What would help at the budget: each remedy replayed beside LRU on the same tokens, with what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stickymoe.cache.allocation import allocate
from stickymoe.cache.prefetch import simulate_prefetch
from stickymoe.cache.reroute import simulate_rerouting
from stickymoe.cache.settings import Semantics
from stickymoe.core.errors import StickyMoEError
from stickymoe.experiments.diagnosis.budget import Budget
from stickymoe.experiments.diagnosis.candidates import require_candidates
from stickymoe.experiments.diagnosis.locality import SkewOrOrder
from stickymoe.experiments.diagnosis.parts import first_part
from stickymoe.experiments.diagnosis.policies import PolicyResult, best_online
from stickymoe.experiments.formatting import percent, times
from stickymoe.traces import RoutingTrace

PAYS = 0.02
PREDICTORS = ("previous-token", "next-layer", "markov", "oracle")
DROPPED_BELOW = (0.1, 0.25)
_SAMPLE = 1_000_000


@dataclass(frozen=True)
class Remedy:
    """Something to try at the same budget.

    Args:
        kind: `policy`, `split`, `pool`, `pinning`, `prefetching`, `dropping` or `rerouting`.
        name: What it is.
        hit_rate: With it; for rules that drop experts, lookups spared count as hits.
        baseline: LRU on the same tokens.
        loads: Experts loaded, ahead or on demand, over those of the baseline; None where it is the same as misses.
        cost: What it costs or where it was judged, in words; empty if nothing.
        bound: Whether it is out of reach: it knows the future, or this trace.
    """

    kind: str
    name: str
    hit_rate: float
    baseline: float
    cost: str = ""
    bound: bool = False
    loads: float | None = None

    @property
    def gain(self) -> float:
        """Hit rate above the baseline."""
        return self.hit_rate - self.baseline

    @property
    def pays(self) -> bool:
        """Whether the gain is at least two points."""
        return self.gain >= PAYS


Try = Callable[[], Iterator[Remedy]]


def remedies_of(
    trace: RoutingTrace,
    budget: Budget,
    semantics: Semantics,
    results: list[PolicyResult],
    seen: SkewOrOrder,
    unanswered: dict[str, str],
    candidates: RoutingTrace | None = None,
) -> list[Remedy]:
    """Try what can be tried; the reason why something cannot goes into `unanswered`.

    Args:
        trace: The routing.
        budget: The cache's size.
        semantics: How to count.
        results: Of all policies at the budget.
        seen: What LRU lives on.
        unanswered: Gets the reasons.
        candidates: The same routing with more experts of each token than served it; None where they are not known.
    """
    tries: dict[str, Try] = {
        "would another policy pay": lambda: _policy(results),
        "would a pool or a split pay": lambda: _splits(trace, budget, semantics),
        "would pinning pay": lambda: _pinning(seen),
        "would prefetching pay": lambda: _prefetch(trace, budget, semantics),
        "would dropping pay": lambda: _dropping(trace, budget, semantics),
        "would rerouting pay": lambda: _rerouting(trace, candidates, budget, semantics),
    }
    found: list[Remedy] = []
    for question, attempt in tries.items():
        try:
            found += attempt()
        except StickyMoEError as error:
            unanswered[question] = str(error)
    return found


def _policy(results: list[PolicyResult]) -> Iterator[Remedy]:
    lru = next(each.hit_rate for each in results if each.policy == "lru")
    best = best_online(results)
    if best.policy != "lru":
        yield Remedy("policy", f"{best.label} instead of LRU", best.hit_rate, lru)


def _splits(trace: RoutingTrace, budget: Budget, semantics: Semantics) -> Iterator[Remedy]:
    if semantics.scope != "layer" or trace.num_layers < 2:
        return
    slots = budget.slots * trace.num_layers
    report = allocate(trace, slots, **semantics.without("scope"))
    where = f"fitted on {report.semantics['fitted_on']}, judged on {report.semantics['judged_on']}"
    equal = report.hit_rate("equal")
    yield Remedy("split", "slots split by layer", report.hit_rate("split"), equal, where)
    judged = f"judged on {report.semantics['judged_on']}"
    yield Remedy("pool", "one pool for all layers", report.hit_rate("pool"), equal, judged)


def _pinning(seen: SkewOrOrder) -> Iterator[Remedy]:
    if seen.pinned_held_out is None:
        raise StickyMoEError("one short sequence leaves nothing to learn on and to judge on")
    yield Remedy("pinning", "hot experts pinned", seen.pinned_held_out, seen.lru, "learned on the other sequences")


def _prefetch(trace: RoutingTrace, budget: Budget, semantics: Semantics) -> Iterator[Remedy]:
    _require_plain(semantics)
    part, told = first_part(trace, _SAMPLE)
    for predictor in PREDICTORS:
        report = simulate_prefetch(
            part, predictor, budget.slots, budget=part.top_k, scope=semantics.scope, reset=semantics.reset
        )
        loads = (report.fetched + report.misses) / max(1, report.plain_misses)
        cost = f"{times(loads)} the loads, {percent(report.accuracy)} of the fetches used{told}"
        if report.fetched == 0:
            cost = f"nothing is fetched, what it predicts is resident{told}"
        name = f"prefetch, {predictor.replace('-', ' ')}"
        plain = 1 - report.plain_misses / report.lookups
        yield Remedy("prefetching", name, report.hit_rate, plain, cost, predictor == "oracle", loads)


def _dropping(trace: RoutingTrace, budget: Budget, semantics: Semantics) -> Iterator[Remedy]:
    _require_plain(semantics)
    part, told = first_part(trace, _SAMPLE)
    for threshold in DROPPED_BELOW:
        report = simulate_rerouting(
            part, "drop-missing", threshold, budget.slots, scope=semantics.scope, reset=semantics.reset
        )
        yield Remedy(
            "dropping",
            f"misses below {percent(threshold)} dropped",
            1 - report.misses / report.choices,
            report.plain_hit_rate,
            f"{percent(report.dropped_share, 1)} of choices and {percent(report.mass_lost, 1)} of gate mass, weights "
            f"below {percent(threshold)} of the token's largest{told}",
        )


def _rerouting(
    trace: RoutingTrace, candidates: RoutingTrace | None, budget: Budget, semantics: Semantics
) -> Iterator[Remedy]:
    _require_plain(semantics)
    wide, served = require_candidates(trace, candidates), trace.top_k
    part, told = first_part(wide, _SAMPLE)
    for ranks in sorted({min(served + served // 2 + served % 2, wide.top_k), min(2 * served, wide.top_k)}):
        report = simulate_rerouting(
            part, "max-rank", ranks, budget.slots, served=served, scope=semantics.scope, reset=semantics.reset
        )
        yield Remedy(
            "rerouting",
            f"resident experts of the first {ranks} ranks instead of misses",
            report.hit_rate,
            report.plain_hit_rate,
            f"{percent(report.changed_share, 1)} of choices changed, {percent(report.mass_lost, 1)} of gate mass lost; "
            f"how the text changes a replay cannot tell{told}",
        )


def _require_plain(semantics: Semantics) -> None:
    told = (semantics.accesses, semantics.replay, semantics.admission, semantics.batch)
    if told != ("topk", "atomic", "always", 1):
        raise StickyMoEError("replayed for top-k accesses, atomic replay, plain admission and single sequences only")
