"""What each claim asks; the words are in docs/claims.md, the numbers in `thresholds.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from stickymoe.experiments.comparison import BASELINE
from stickymoe.experiments.formatting import fixed, percent, signed_percent
from stickymoe.experiments.sweep_report import claim_values as values
from stickymoe.experiments.sweep_report.claim_values import (
    CHANGE,
    ENTROPY,
    RATE,
    REDUCTION,
    absent,
    beside,
    paper_reduction,
    present,
)
from stickymoe.experiments.sweep_report.conditions import Condition, Verdict, at_least, at_most, open_unless
from stickymoe.experiments.sweep_report.paper import paper_value
from stickymoe.experiments.sweep_report.summary import SizeSummary, VariantSummary
from stickymoe.experiments.sweep_report.thresholds import THRESHOLDS
from stickymoe.experiments.variants import FAMILIES, ORACLE, REMOE, hard_window, soft, soft_hard

LOW = (soft(0.01).name, soft(0.05).name)
MIDDLE, STRONGEST = soft(0.1).name, soft(0.5).name
NARROW, WIDE, ANCHORED = hard_window(2).name, hard_window(8).name, soft_hard(0.1, 1.0).name
SOFTS, STICKY = (
    [variant.name for family in families for variant in FAMILIES[family]]
    for families in (["soft"], ["soft", "soft-hard"])
)
PAPERS = [BASELINE, *STICKY, *(variant.name for variant in FAMILIES["hard-window"]), REMOE.name, ORACLE.name]
"""The methods that the paper compares."""

Decided = tuple[list[Condition], list[VariantSummary]]
"""The conditions, and the variants whose flat gates have to be told beside them."""


def low_coefficients_are_harmless(size: SizeSummary) -> Decided:
    """A low coefficient improves or preserves perplexity."""
    limit = THRESHOLDS.harmless_change
    asked = [_quality_kept(size, f"change of {name} at most {signed_percent(limit)}", name, limit) for name in LOW]
    return asked, present(size, LOW)


def switch_rate_falls(size: SizeSummary) -> Decided:
    """The switch rate falls monotonically with the coefficient, by much at the largest."""
    text = f"reduction at {STRONGEST} at least {percent(THRESHOLDS.strong_reduction)}"
    fall = at_least(
        text, values.reduction(size, STRONGEST), THRESHOLDS.strong_reduction, REDUCTION, absent(size, STRONGEST)
    )
    asked = [beside(fall, paper_reduction(size.size, STRONGEST), REDUCTION)]
    ladder = [each.name for each in present(size, [BASELINE, *SOFTS])]
    if BASELINE in ladder and STRONGEST in ladder and len(ladder) > 2:
        for below, above in pairwise(ladder):
            text = f"switch rate from {below} to {above} rises by at most {fixed(THRESHOLDS.monotone_slack)}"
            rise = values.switch_difference(size, below, above)
            asked.append(at_most(text, rise, THRESHOLDS.monotone_slack, RATE, absent(size, below, above)))
    else:
        needs = f"needs {BASELINE}, {STRONGEST} and a coefficient between"
        asked.append(Condition("switch rate falls from coefficient to coefficient", "", Verdict.OPEN, needs))
    return asked, present(size, [STRONGEST])


def post_hoc_does_nothing(size: SizeSummary) -> Decided:
    """Tuning the gates alone does not reduce the switch rate."""
    name, limit = REMOE.name, THRESHOLDS.negligible_reduction
    text = f"reduction of {name} at most {percent(limit)}"
    fall = at_most(text, values.reduction(size, name), limit, REDUCTION, absent(size, name))
    return [beside(fall, paper_reduction(size.size, name), REDUCTION)], []


def hard_window_is_dear(size: SizeSummary) -> Decided:
    """The hard window reaches locality at excessive cost only, and a wider one does not help."""
    local = f"reduction of {NARROW} at least {percent(THRESHOLDS.window_reduction)}"
    dear = f"change of {NARROW} at least {signed_percent(THRESHOLDS.excessive_cost)}"
    dearer = f"perplexity of {NARROW} above that of {MIDDLE}"
    wider = f"switch rate of {WIDE} not below {NARROW} by more than {fixed(THRESHOLDS.window_slack)}"
    excessive, above = THRESHOLDS.excessive_cost, values.perplexity_difference(size, MIDDLE, NARROW)
    cost = at_least(dear, values.change(size, NARROW), excessive, CHANGE, absent(size, NARROW))
    costs = [
        beside(cost, paper_value(size.size, NARROW, "change"), CHANGE),
        at_least(dearer, above, 0.0, CHANGE, absent(size, NARROW, MIDDLE)),
    ]
    widening = values.switch_difference(size, NARROW, WIDE)
    reason = "the gain of experts is not clear of zero: there may have been no quality to lose"
    fall = at_least(local, values.reduction(size, NARROW), THRESHOLDS.window_reduction, REDUCTION, absent(size, NARROW))
    return [
        beside(fall, paper_reduction(size.size, NARROW), REDUCTION),
        *(open_unless(size.gain_is_clear, each, Verdict.FAILS, reason) for each in costs),
        at_least(wider, widening, -THRESHOLDS.window_slack, RATE, absent(size, NARROW, WIDE)),
    ], present(size, [NARROW, WIDE])


def soft_hard_is_lowest(size: SizeSummary) -> Decided:
    """Soft-Hard switches least of the paper's methods, at moderate cost."""
    limit = THRESHOLDS.moderate_cost
    asked = [_quality_kept(size, f"change of {ANCHORED} at most {signed_percent(limit)}", ANCHORED, limit)]
    for rival in [STRONGEST, *(name for name in PAPERS if name != STRONGEST)]:
        if rival != ANCHORED and (rival in size.variants or rival == STRONGEST):
            lead = values.switch_difference(size, rival, ANCHORED)
            text = f"switch rate of {ANCHORED} below that of {rival}"
            asked.append(at_most(text, lead, 0.0, RATE, absent(size, ANCHORED, rival)))
    return asked, present(size, [ANCHORED])


def utilisation_is_preserved(size: SizeSummary) -> Decided:
    """No sticky variant gives experts up."""
    asked, limit = [], THRESHOLDS.utilisation_share
    for name in STICKY:
        if name in size.variants or name == STRONGEST:
            text = f"utilisation entropy of {name} at least {percent(limit)} of its ceiling"
            asked.append(at_least(text, values.utilisation_share(size, name), limit, ENTROPY, absent(size, name)))
    return asked, present(size, STICKY)


def layer_0_resists(size: SizeSummary) -> Decided:
    """Layer 0 keeps more of its switching than any other layer."""
    strongest = present(size, [STRONGEST])
    layers = strongest[0].any_result.read.num_layers if strongest else 0
    if layers < 2:
        reason = "the model has one layer" if strongest else absent(size, STRONGEST)
        return [Condition(f"reduction at layer 0 smallest at {STRONGEST}", "", Verdict.OPEN, reason)], []
    asked, limit = [], THRESHOLDS.first_layer_gap
    for layer in range(1, layers):
        text = f"reduction at layer {layer} above that at layer 0 by at least {percent(limit, 1)}"
        gap = values.layer_gap(size, STRONGEST, layer)
        asked.append(at_least(text, gap, limit, REDUCTION, absent(size, BASELINE)))
    return asked, strongest


def larger_tolerates_more(sizes: Sequence[SizeSummary]) -> list[Condition]:
    """The strongest coefficient costs the larger model less."""
    text = (
        f"change of {STRONGEST} lower at the larger size by at least {fixed(100 * THRESHOLDS.tolerance_gap, 1)} points"
    )
    if len(sizes) < 2:
        return [Condition(text, "", Verdict.OPEN, "needs two sizes")]
    small, large = sizes[0], sizes[-1]
    lacking = [absent(size, BASELINE, STRONGEST) for size in (small, large)]
    reason = "; ".join(dict.fromkeys(lacking))
    found = at_most(text, values.change_gap(small, large, STRONGEST), -THRESHOLDS.tolerance_gap, CHANGE, reason)
    clear = small.gain_is_clear and large.gain_is_clear
    unclear = "the gain of experts is not clear of zero at both sizes: there may be nothing to tolerate"
    return [open_unless(clear, found, Verdict.HOLDS, unclear)]


def _quality_kept(size: SizeSummary, text: str, name: str, limit: float) -> Condition:
    """Ask that quality is kept, which means something only where there is some that could be lost."""
    found = at_most(text, values.change(size, name), limit, CHANGE, absent(size, name))
    found = beside(found, paper_value(size.size, name, "change"), CHANGE)
    reason = "the gain of experts over the dense control is not clear of zero: that quality was kept proves nothing"
    if size.gain is None:
        reason = "without a dense control it is unknown whether there was quality to lose"
    return open_unless(size.gain_is_clear, found, Verdict.HOLDS, reason)


NEEDS: dict[str, list[set[str]]] = {
    "low-coefficient": [{name} for name in LOW],
    "monotone": [{STRONGEST}],
    "post-hoc": [{REMOE.name}],
    "hard-window": [{NARROW}],
    "soft-hard": [{ANCHORED, STRONGEST}],
    "utilisation": [{STRONGEST}],
    "first-layer": [{STRONGEST}],
    "scale": [{STRONGEST}],
}
"""Of each claim, sets of variants of which a sweep has to plan one to be asked about it at all."""

RULES: dict[str, Callable[[SizeSummary], Decided]] = {
    "low-coefficient": low_coefficients_are_harmless,
    "monotone": switch_rate_falls,
    "post-hoc": post_hoc_does_nothing,
    "hard-window": hard_window_is_dear,
    "soft-hard": soft_hard_is_lowest,
    "utilisation": utilisation_is_preserved,
    "first-layer": layer_0_resists,
}
