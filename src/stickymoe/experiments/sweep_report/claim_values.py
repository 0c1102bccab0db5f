"""The values that decide claims: changes, reductions, their differences between variants, layers and sizes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stickymoe.experiments.comparison import BASELINE
from stickymoe.experiments.formatting import fixed, percent, signed_percent
from stickymoe.experiments.results import RunResult
from stickymoe.experiments.sweep_report.conditions import Condition, Scale
from stickymoe.experiments.sweep_report.estimates import RESAMPLING, Results, mean_of, paired
from stickymoe.experiments.sweep_report.paper import paper_value
from stickymoe.experiments.sweep_report.summary import MEASURES, SizeSummary, VariantSummary, perplexity_change
from stickymoe.experiments.sweep_report.thresholds import THRESHOLDS
from stickymoe.metrics.intervals import Interval, mean_interval

CHANGE = Scale(lambda value: signed_percent(value, 1), THRESHOLDS.one_seed_change)
RATE = Scale(lambda value: fixed(value, 3), THRESHOLDS.one_seed_rate)
REDUCTION = Scale(lambda value: percent(value, 1), THRESHOLDS.one_seed_reduction)
ENTROPY = Scale(lambda value: percent(value, 1), THRESHOLDS.one_seed_entropy)


def results_of(size: SizeSummary, name: str) -> Results:
    """Return a variant's results by seed; none if it was not run."""
    return size.variants[name].results if name in size.variants else {}


def present(size: SizeSummary, names: Iterable[str]) -> list[VariantSummary]:
    """Return those of the variants that were run."""
    return [size.variants[name] for name in names if name in size.variants]


def absent(size: SizeSummary, *names: str) -> str:
    """Say why there is no value: which of the runs are missing, or that they have no seed in common."""
    missing = [name for name in names if name not in size.variants]
    return f"no finished run of {' and '.join(missing)} at {size.size}" if missing else "no seed in common"


def change(size: SizeSummary, name: str) -> Interval | None:
    """Return a variant's change of perplexity against Vanilla."""
    return size.variants[name].change if name in size.variants else None


def reduction(size: SizeSummary, name: str) -> Interval | None:
    """Return a variant's reduction of the switch rate against Vanilla."""
    return size.variants[name].reduction if name in size.variants else None


def beside(condition: Condition, stated: float | None, scale: Scale) -> Condition:
    """Return the condition with the paper's value beside it."""
    return condition if stated is None else replace(condition, paper=scale.write(stated))


def paper_reduction(size: str, name: str) -> float | None:
    """Return the reduction that the paper's switch rates give."""
    rate, vanilla = (paper_value(size, variant, "switch_rate") for variant in (name, BASELINE))
    return None if rate is None or vanilla is None else 1 - rate / vanilla


def switch_difference(size: SizeSummary, before: str, after: str) -> Interval | None:
    """Return switch rate of `after` - switch rate of `before`, paired."""

    def difference(one: RunResult, two: RunResult) -> float | None:
        rates = MEASURES["switch_rate"](one), MEASURES["switch_rate"](two)
        return None if rates[0] is None or rates[1] is None else rates[1] - rates[0]

    return paired(results_of(size, before), results_of(size, after), difference)


def perplexity_difference(size: SizeSummary, before: str, after: str) -> Interval | None:
    """Return the perplexity of `after` over that of `before`, minus 1, paired."""
    return paired(results_of(size, before), results_of(size, after), perplexity_change)


def utilisation_share(size: SizeSummary, name: str) -> Interval | None:
    """Return a variant's utilisation entropy as a share of its ceiling."""

    def share(result: RunResult) -> float | None:
        found = MEASURES["utilisation_entropy"](result)
        return None if found is None else found / result.entropy_ceiling_bits

    return mean_of(results_of(size, name), share)


def layer_gap(size: SizeSummary, name: str, layer: int) -> Interval | None:
    """Return a variant's reduction at `layer` - its reduction at layer 0, paired."""

    def gap(vanilla: RunResult, variant: RunResult) -> float | None:
        before, after = vanilla.read.routing, variant.read.routing
        if (
            before is None
            or after is None
            or not (before.switch_rate.per_layer[0] and before.switch_rate.per_layer[layer])
        ):
            return None
        kept = [after.switch_rate.per_layer[at] / before.switch_rate.per_layer[at] for at in (0, layer)]
        return kept[0] - kept[1]

    return paired(results_of(size, BASELINE), results_of(size, name), gap)


def change_gap(small: SizeSummary, large: SizeSummary, name: str) -> Interval | None:
    """Return a variant's change at the larger size - its change at the smaller, over the seeds that both have."""
    changes = [_changes(size, name) for size in (small, large)]
    seeds = sorted(changes[0].keys() & changes[1].keys())
    return mean_interval([changes[1][seed] - changes[0][seed] for seed in seeds], RESAMPLING) if seeds else None


def _changes(size: SizeSummary, name: str) -> dict[int, float]:
    vanilla, variant = results_of(size, BASELINE), results_of(size, name)
    return {seed: perplexity_change(vanilla[seed], variant[seed]) for seed in vanilla.keys() & variant.keys()}
