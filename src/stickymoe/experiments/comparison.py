"""The one place where runs are compared: changes against Vanilla, the MoE gain, and the share of it that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stickymoe.core.errors import DataError, SettingError
from stickymoe.experiments.metrics_file import CacheSemantics, RoutingMeasures
from stickymoe.experiments.results import RunResult

BASELINE = "vanilla"


@dataclass(frozen=True)
class CacheCell:
    """One cache of one run.

    `miss_ratio`: misses over Vanilla's; None without a baseline and where Vanilla never misses.
    """

    hit_rate: float
    misses: int
    miss_ratio: float | None


@dataclass(frozen=True)
class Row:
    """One run beside the others. What cannot be said is None: never a zero in its place.

    `routing` is None and `caches` empty for a dense control. `perplexity_change` and `switch_ratio`: against Vanilla.
    `share_kept` is None without both controls and where the MoE gain is not positive.
    """

    result: RunResult
    perplexity: float
    perplexity_change: float | None
    share_kept: float | None
    routing: RoutingMeasures | None
    switch_ratio: float | None
    caches: dict[CacheSemantics, CacheCell]

    @property
    def name(self) -> str:
        """Key of the run."""
        return self.result.name

    @property
    def label(self) -> str:
        """Name of the run for readers."""
        return self.result.label

    @property
    def is_dense(self) -> bool:
        """Whether this row is a dense control."""
        return self.result.is_dense

    @property
    def is_baseline(self) -> bool:
        """Whether the other rows are compared with this one."""
        return self.name == BASELINE

    @property
    def entropy_ceiling_bits(self) -> float:
        """Entropy of a uniform choice among the experts, log2 N."""
        return self.result.entropy_ceiling_bits


def find_baseline(results: Sequence[RunResult]) -> RunResult | None:
    """Return the run named `vanilla`, if there is one."""
    return next((result for result in results if result.name == BASELINE and not result.is_dense), None)


def find_dense(results: Sequence[RunResult]) -> RunResult | None:
    """Return the first dense control, if there is one."""
    return next((result for result in results if result.is_dense), None)


def moe_gain(vanilla: RunResult, dense: RunResult) -> float:
    """Return CE(dense) - CE(vanilla) in nats a token: what choosing among experts is worth. Negative: it costs."""
    return dense.read.cross_entropy - vanilla.read.cross_entropy


def share_kept(variant: RunResult, vanilla: RunResult, dense: RunResult) -> float | None:
    """Return how much of the MoE gain a variant keeps.

        share = (CE(dense) - CE(variant)) / (CE(dense) - CE(vanilla))

    Returns:
        1: as good as Vanilla; 0: no better than the dense control; negative: worse than it. None where the gain is not
        positive: a share of nothing says nothing.
    """
    gain = moe_gain(vanilla, dense)
    return None if gain <= 0 else (dense.read.cross_entropy - variant.read.cross_entropy) / gain


def compare(results: Sequence[RunResult]) -> list[Row]:
    """Return one row a run, in the order given.

    Raises:
        SettingError: Two runs share a name.
        DataError: The runs were not evaluated on the same tokens.
    """
    _require_one_name_each(results)
    require_same_tokens(results)
    vanilla, dense = find_baseline(results), find_dense(results)
    return [_row(result, vanilla, dense) for result in results]


def cache_columns(rows: Sequence[Row]) -> list[CacheSemantics]:
    """Return every counting rule that occurs: the paper's first, then by lookups and capacity."""
    found = {semantics for row in rows for semantics in row.caches}
    return sorted(
        found, key=lambda one: (not one.is_the_papers, one.accesses, one.capacity, one.short, one.spelled_out)
    )


def _row(result: RunResult, vanilla: RunResult | None, dense: RunResult | None) -> Row:
    read = result.read
    base = None if vanilla is None or vanilla is result else vanilla.read
    base_caches = {cache.semantics: cache for cache in base.cache} if base else {}
    caches = {}
    for cache in read.cache:
        other = base_caches.get(cache.semantics)
        ratio = (1 - cache.hit_rate) / (1 - other.hit_rate) if other and other.misses else None
        caches[cache.semantics] = CacheCell(cache.hit_rate, cache.misses, ratio)
    switch_ratio = None
    if read.routing and base and base.routing and base.routing.switch_rate.mean > 0:
        switch_ratio = read.routing.switch_rate.mean / base.routing.switch_rate.mean
    return Row(
        result=result,
        perplexity=read.perplexity,
        perplexity_change=read.perplexity / base.perplexity - 1 if base else None,
        share_kept=share_kept(result, vanilla, dense) if vanilla and dense else None,
        routing=read.routing,
        switch_ratio=switch_ratio,
        caches=caches,
    )


def _require_one_name_each(results: Sequence[RunResult]) -> None:
    names = [result.name for result in results]
    for name in names:
        if names.count(name) > 1:
            raise SettingError.broken("name of a run", "unique in a comparison", name, "rename one of the runs")


def require_same_tokens(results: Sequence[RunResult]) -> None:
    """Refuse runs that do not compare.

    Raises:
        DataError: They were not evaluated on the same tokens.
    """
    for result in results[1:]:
        first, other = results[0].read, result.read
        for key, one, two in (
            ("corpus.name", first.corpus.name, other.corpus.name),
            ("corpus.fingerprint", first.corpus.fingerprint, other.corpus.fingerprint),
            ("split", first.split, other.split),
            ("predicted_tokens", first.predicted_tokens, other.predicted_tokens),
        ):
            if one != two:
                raise DataError(
                    f"{result.source}: {key} must equal that of {results[0].name}, {one!r}, got {two!r}; "
                    "evaluate the runs on the same tokens"
                )
