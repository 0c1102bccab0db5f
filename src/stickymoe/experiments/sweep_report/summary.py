"""Every variant of a size in numbers: means over seeds, and what they are against Vanilla and the dense control."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stickymoe.experiments.cautions import are_flat
from stickymoe.experiments.comparison import BASELINE
from stickymoe.experiments.metrics_file import RoutingMeasures
from stickymoe.experiments.results import RunResult
from stickymoe.experiments.sweep_report.estimates import Results, Value, less, mean_of, paired, paired_ratio, ratio
from stickymoe.experiments.sweep_report.record import DENSE, RunRecord, SweepResults
from stickymoe.experiments.sweep_report.thresholds import THRESHOLDS
from stickymoe.metrics.intervals import Interval


def routed(measure: Callable[[RoutingMeasures], float]) -> Value:
    """Return a measure of routing as a function of a result; None for a dense model."""
    return lambda result: None if result.read.routing is None else measure(result.read.routing)


def hit_rate(result: RunResult) -> float | None:
    """Return the paper's cache hit rate: top-1 lookups in two LRU slots a layer, cold at each sequence."""
    return next((cache.hit_rate for cache in result.read.cache if cache.semantics.is_the_papers), None)


def miss_rate(result: RunResult) -> float | None:
    """Return 1 - the paper's hit rate."""
    hits = hit_rate(result)
    return None if hits is None else 1 - hits


def perplexity_change(before: RunResult, after: RunResult) -> float:
    """Return the perplexity over Vanilla's, minus 1."""
    return after.read.perplexity / before.read.perplexity - 1


MEASURES: dict[str, Value] = {
    "perplexity": lambda result: result.read.perplexity,
    "cross_entropy": lambda result: result.read.cross_entropy,
    "switch_rate": routed(lambda found: found.switch_rate.mean),
    "set_switch_rate": routed(lambda found: found.set_switch_rate.mean),
    "overlap": routed(lambda found: found.expert_overlap.mean),
    "hit_rate": hit_rate,
    "utilisation_entropy": routed(lambda found: found.utilisation_entropy_bits.mean),
    "gate_entropy": routed(lambda found: found.gate_entropy_bits.mean),
    "gate_margin": routed(lambda found: found.gate_margin.mean),
    "load_cv": routed(lambda found: found.load_cv.mean),
    "busiest": routed(lambda found: found.load_busiest_over_mean.mean),
}


@dataclass(frozen=True)
class VariantSummary:
    """One variant at one size. What cannot be said is None.

    Attributes:
        name: The variant.
        family: Its family.
        label: Its name for readers.
        results: Its finished runs by seed.
        means: Means over seeds, by the names of `MEASURES`.
        change: Of the perplexity against Vanilla, paired.
        reduction: Of the switch rate against Vanilla, paired.
        miss_ratio: Misses of the paper's cache over Vanilla's, paired.
        share_kept: Of the MoE gain; None where that is not clear of zero.
    """

    name: str
    family: str
    label: str
    results: Results
    means: dict[str, Interval | None]
    change: Interval | None
    reduction: Interval | None
    miss_ratio: Interval | None
    share_kept: Interval | None

    @property
    def is_dense(self) -> bool:
        """Whether this is the dense control."""
        return self.name == DENSE

    @property
    def seeds(self) -> list[int]:
        """Its seeds."""
        return list(self.results)

    @property
    def any_result(self) -> RunResult:
        """One of its results, for what is the same in all."""
        return next(iter(self.results.values()))

    def flat_layers(self) -> list[int]:
        """Return the layers whose gates are flat, by the means over seeds."""
        layers = [result.read.routing for result in self.results.values() if result.read.routing is not None]
        if not layers:
            return []
        ceiling, n = self.entropy_ceiling, len(layers)
        entropy = [sum(each) / n for each in zip(*(found.gate_entropy_bits.per_layer for found in layers), strict=True)]
        margin = [sum(each) / n for each in zip(*(found.gate_margin.per_layer for found in layers), strict=True)]
        return are_flat(entropy, margin, ceiling)

    @property
    def entropy_ceiling(self) -> float:
        """Entropy of a uniform choice among the experts, in bits."""
        return self.any_result.entropy_ceiling_bits


@dataclass(frozen=True)
class SizeSummary:
    """All variants of a size.

    Attributes:
        size: Its name.
        variants: By name, in the registry's order.
        gain: CE(dense) - CE(vanilla), nats a token, paired; None without both.
    """

    size: str
    variants: dict[str, VariantSummary]
    gain: Interval | None

    @property
    def gain_is_clear(self) -> bool:
        """Whether experts are worth something here beyond doubt, so that a share of it means something."""
        return self.gain is not None and is_clear(self.gain)

    @property
    def seeds(self) -> list[int]:
        """All seeds that have a finished run."""
        return sorted({seed for variant in self.variants.values() for seed in variant.results})


def is_clear(gain: Interval) -> bool:
    """Tell whether a gain lies above zero: its whole interval, or with one seed by more than the allowance."""
    return gain.low > 0 if gain.low is not None else gain.mean > THRESHOLDS.one_seed_change


def summarise_size(sweep: SweepResults, size: str) -> SizeSummary:
    """Return the summary of one size of a sweep."""
    vanilla, dense = sweep.of(size, BASELINE), sweep.of(size, DENSE)
    gain = paired(vanilla, dense, lambda one, two: two.read.cross_entropy - one.read.cross_entropy)
    clear = gain is not None and is_clear(gain)
    summaries = {
        name: _summary(sweep.run(size, name), sweep.of(size, name), vanilla, dense if clear else {})
        for name in sweep.variants(size)
    }
    return SizeSummary(size, summaries, gain)


def _summary(run: RunRecord, results: Results, vanilla: Results, dense: Results) -> VariantSummary:
    others = {} if run.variant == BASELINE else vanilla
    return VariantSummary(
        name=run.variant,
        family=run.family,
        label=run.label,
        results=results,
        means={measure: mean_of(results, value) for measure, value in MEASURES.items()},
        change=paired(others, results, perplexity_change),
        reduction=less(1, paired_ratio(results, others, MEASURES["switch_rate"])),
        miss_ratio=paired_ratio(results, others, miss_rate),
        share_kept=_share(results, vanilla, dense),
    )


def _share(results: Results, vanilla: Results, dense: Results) -> Interval | None:
    seeds = sorted(results.keys() & vanilla.keys() & dense.keys())
    kept = [dense[seed].read.cross_entropy - results[seed].read.cross_entropy for seed in seeds]
    gains = [dense[seed].read.cross_entropy - vanilla[seed].read.cross_entropy for seed in seeds]
    return ratio(kept, gains)
