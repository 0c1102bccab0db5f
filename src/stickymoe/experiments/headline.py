"""The result in one sentence with its numbers; it must be right also where a method loses or proves nothing."""

from __future__ import annotations

from collections.abc import Sequence

from stickymoe.core.errors import SettingError
from stickymoe.experiments.cautions import flat_layers
from stickymoe.experiments.comparison import Row, cache_columns, compare, find_baseline, find_dense, moe_gain
from stickymoe.experiments.formatting import TIMES, fixed, percent, signed_percent
from stickymoe.experiments.metrics_file import CacheSemantics
from stickymoe.experiments.results import RunResult

ENOUGH_KEPT = 0.5
_SAME = 0.005


def headline(results: Sequence[RunResult], *, highlight: str | None = None) -> str:
    """Say in one sentence what came out.

    Args:
        results: All runs; with one named `vanilla` the sentence is a comparison, without it a description.
        highlight: Name of the variant to speak of; see `choose_highlight` for the rule where it is not given.

    Raises:
        SettingError: There are no results, or `highlight` names none of them.
    """
    if not results:
        raise SettingError.broken("results", "at least one run", list(results), "train a variant first")
    rows = compare(results)
    row = choose_highlight(rows) if highlight is None else _named(rows, highlight)
    baseline = find_baseline(results)
    if row.routing is None:
        said = f"{row.label} has perplexity {fixed(row.perplexity, 1)}; it uses all experts at every token"
    elif baseline is None or row.is_baseline:
        said = _description(row, only=len(rows) == 1)
    else:
        said = _comparison(row, baseline, cache_columns([row])) + _worth(row, baseline, find_dense(results))
    return f"On {_tokens(row)}, {said}."


def choose_highlight(rows: Sequence[Row]) -> Row:
    """Return the row that the headline speaks of.

    Among the routed variants that keep at least half of the MoE gain, the one with the fewest misses; where none keeps
    that much, the one that keeps most; where no share is known, the one with the fewest misses. Gates that are flat in
    some layer come by their locality cheaply: such a variant speaks only where there is no other.
    """
    variants = [row for row in rows if row.routing is not None and not row.is_baseline]
    if not variants:
        return next((row for row in rows if row.routing is not None), rows[0])
    known = [row for row in variants if row.share_kept is not None]
    kept = [row for row in known if _share(row) >= ENOUGH_KEPT]
    if known and not kept:
        return max(known, key=_share)
    candidates = kept or variants
    sure = [row for row in candidates if not flat_layers(row)]
    return min(sure or candidates, key=_misses)


def _share(row: Row) -> float:
    return row.share_kept if row.share_kept is not None else float("-inf")


def _misses(row: Row) -> float:
    columns = cache_columns([row])
    assert row.routing is not None
    return 1 - row.caches[columns[0]].hit_rate if columns else row.routing.switch_rate.mean


def _named(rows: Sequence[Row], name: str) -> Row:
    for row in rows:
        if row.name == name:
            return row
    raise SettingError.broken("highlight", "one of " + ", ".join(row.name for row in rows), name)


def _tokens(row: Row) -> str:
    read = row.result.read
    kind = "training" if read.split == "train" else "held-out"
    return f"{read.predicted_tokens:,} {kind} tokens of {read.corpus.name}"


def _cache(semantics: CacheSemantics) -> str:
    lookups = "top-1" if semantics.accesses == "top1" else "all k experts"
    where = "per layer" if semantics.scope == "layer" else "whole model"
    return f"a {semantics.capacity}-slot {semantics.policy.upper()} cache ({lookups}, {where})"


def _description(row: Row, *, only: bool) -> str:
    assert row.routing is not None
    columns = cache_columns([row])
    hits = (
        f" and hits {_cache(columns[0])} at {percent(row.caches[columns[0]].hit_rate, 1)} of lookups" if columns else ""
    )
    rate = percent(row.routing.switch_rate.mean, 1)
    alone = "; one run alone, nothing to compare it with" if only else "; no variant to compare it with"
    if not only and not row.is_baseline:
        alone = "; no Vanilla run to compare it with"
    return (
        f"{row.label} has perplexity {fixed(row.perplexity, 1)}, switches experts at {rate} of token pairs{hits}{alone}"
    )


def _comparison(row: Row, baseline: RunResult, columns: list[CacheSemantics]) -> str:
    assert row.routing is not None
    assert baseline.read.routing is not None
    if row.switch_ratio is None:
        said = f"{row.label} switches experts at {percent(row.routing.switch_rate.mean, 1)} of token pairs where "
        said += f"{baseline.label} never does"
    else:
        said = f"{row.label} switches experts {_how_often(row.switch_ratio, baseline.label)}"
    ratio = row.caches[columns[0]].miss_ratio if columns else None
    if ratio is not None:
        said += f" and misses {_cache(columns[0])} {_how_often(ratio)}"
    change = row.perplexity_change or 0.0
    return said + (", at the same perplexity" if abs(change) < 5e-4 else f", at {signed_percent(change)} perplexity")


def _how_often(ratio: float, than: str = "") -> str:
    """Say a ratio of counts in words: `35 % less often than Vanilla`, `2.1× less often`, `12 % more often`."""
    if abs(ratio - 1) < _SAME:
        return f"as often as {than}" if than else "as often"
    ending = f" than {than}" if than else ""
    if ratio > 1:
        return f"{percent(ratio - 1)} more often{ending}"
    if 0 < ratio <= 1 / 1.5 and not than:
        return f"{1 / ratio:.1f}{TIMES} less often"
    return f"{percent(1 - ratio)} less often{ending}"


def _worth(row: Row, baseline: RunResult, dense: RunResult | None) -> str:
    """Say what the locality cost of what the experts are worth."""
    if dense is None:
        return "; without a dense control it is unknown what the experts are worth"
    gain = moe_gain(baseline, dense)
    share = row.share_kept
    if share is None:
        nothing = f"the experts gain nothing over the dense control ({fixed(gain, 3)} nats)"
        return f"; but {nothing}: locality is free here and proves nothing"
    worth = f"what the experts gain over the dense control ({fixed(gain, 3)} nats)"
    if share <= 0:
        return f", keeping nothing of {worth}"
    if share >= 1.005:
        return f", keeping all of {worth} and {percent(share - 1)} on top"
    return f", keeping {percent(share)} of {worth}"
