"""What a reader must know before believing the page: gains that prove nothing, flat gates, what was not run."""

from __future__ import annotations

from collections.abc import Sequence

from stickymoe.experiments.cautions import THIN_GAIN_NATS, is_collapsed
from stickymoe.experiments.comparison import BASELINE
from stickymoe.experiments.formatting import fixed, percent
from stickymoe.experiments.sweep_report.conditions import written
from stickymoe.experiments.sweep_report.record import SweepResults
from stickymoe.experiments.sweep_report.summary import SizeSummary, VariantSummary

_MOST_NAMES = 6
_LEARN_NOTHING = ("hash", "trajectory")  # families


def sweep_cautions(sweep: SweepResults, sizes: Sequence[SizeSummary]) -> list[str]:
    """Return the warnings, the gravest first."""
    found = [sweep.note[:1].upper() + sweep.note[1:] + "."] if sweep.note else []
    judged = [(size, judge(size)) for size in sizes for judge in (_gain, ahead_of_learning, _flat, _collapse)]
    return (
        found + _told_once(judged) + _told_once([(size, _seeds(size)) for size in sizes]) + _gaps(sweep) + _mixed(sweep)
    )


def _told_once(judged: Sequence[tuple[SizeSummary, str]]) -> list[str]:
    """Say what holds of several sizes once, with all their names; an empty text says nothing."""
    sizes: dict[str, list[str]] = {}
    for size, text in judged:
        sizes.setdefault(text, []).append(size.size)
    sizes.pop("", None)
    return [f"At {_and(names)} {text}" for text, names in sizes.items()]


def _gain(size: SizeSummary) -> str:
    if BASELINE not in size.variants:
        return "no Vanilla run is finished: nothing can be compared with it."
    if size.gain is None:
        return "no dense control is finished: how much of what the experts are worth a variant keeps is unknown."
    gain = f"{written(size.gain, lambda value: fixed(value, 3))} nats a token"
    if not size.gain_is_clear:
        return (
            f"the gain of the experts over the dense control is not clear of zero ({gain}): locality is "
            "free here and proves nothing."
        )
    if size.gain.mean < THIN_GAIN_NATS:
        return f"the experts gain only {gain} over the dense control: shares of so thin a gain move much."
    return ""


def ahead_of_learning(size: SizeSummary) -> str:
    """Say, after "At this size", which routers that learn nothing beat Vanilla's perplexity; empty if none does."""
    found = [
        f"{each.label} ({fixed(perplexity.mean, 1)})"
        for each in size.variants.values()
        if each.family in _LEARN_NOTHING
        and (perplexity := each.means["perplexity"])
        and each.change
        and each.change.mean < 0
    ]
    if not found:
        return ""
    return (
        f"routers that learn nothing end below Vanilla's perplexity: {'; '.join(found)}. After so short "
        "a training a learned router has not caught up with a lookup of the token: read every share of the gain kept "
        "with that."
    )


def _flat(size: SizeSummary) -> str:
    flat = [each for each in size.variants.values() if each.flat_layers()]
    if not flat:
        return ""
    return (
        f"gates are flat rather than sticky in {len(flat)} of {_routed(size)} variants: "
        + "; ".join(_told(each) for each in flat[:_MOST_NAMES])
        + _more(len(flat))
        + ". Such a router hardly prefers any expert; its locality and even load come cheap."
    )


def _told(each: VariantSummary) -> str:
    entropy, margin = each.means["gate_entropy"], each.means["gate_margin"]
    assert entropy is not None
    assert margin is not None
    kept = "" if each.share_kept is None else f", {percent(each.share_kept.mean)} of the gain kept"
    of = f"{fixed(entropy.mean)} of {fixed(each.entropy_ceiling)} bits"
    return f"{each.label} (entropy {of}, margin {fixed(margin.mean, 3)}{kept})"


def _collapse(size: SizeSummary) -> str:
    given_up = []
    for each in size.variants.values():
        read = each.any_result.read
        found = [result.read.routing for result in each.results.values() if result.read.routing is not None]
        layers = zip(*(routing.utilisation_entropy_bits.per_layer for routing in found), strict=True)
        in_use = [2 ** (sum(values) / len(values)) for values in layers]
        if in_use and is_collapsed(min(in_use), read.num_experts, read.top_k):
            given_up.append(f"{each.label} (as if {fixed(min(in_use), 1)} of {read.num_experts})")
    if not given_up:
        return ""
    return (
        f"a layer uses few experts in {'; '.join(given_up[:_MOST_NAMES])}{_more(len(given_up))}: "
        "locality won by giving experts up is no gain."
    )


def _seeds(size: SizeSummary) -> str:
    if len(size.seeds) == 1:
        return f"there is one seed ({size.seeds[0]}): no value has an interval, another seed would move them."
    fewer = [each.label for each in size.variants.values() if len(each.seeds) < len(size.seeds)]
    if not fewer:
        return ""
    names = ", ".join(fewer[:_MOST_NAMES]) + _more(len(fewer))
    return (
        f"not all of the seeds {_list(size.seeds)} are finished for {names}: "
        "compare these by the columns that are paired by seed, their means are over other runs."
    )


def _gaps(sweep: SweepResults) -> list[str]:
    found = []
    if sweep.unfinished:
        found.append(f"{_runs(len(sweep.unfinished))} begun and not finished: listed below, and in no number above it.")
    if sweep.missing:
        found.append(f"{_runs(len(sweep.missing))} missing from the grid: listed below.")
    return found


def _mixed(sweep: SweepResults) -> list[str]:
    found = []
    commits = {run.result.read.commit for run in sweep.complete if run.result is not None}
    if len(commits) > 1:
        found.append(f"The runs come from {len(commits)} different commits of the code.")
    processors = {run.facts.get("Accelerator") or run.facts.get("Processor", "") for run in sweep.complete}
    if len(processors) > 1:
        found.append(
            f"The runs were made on different machines ({'; '.join(sorted(processors))}): hours do not compare."
        )
    return found


def _routed(size: SizeSummary) -> int:
    return sum(not each.is_dense for each in size.variants.values())


def _more(count: int) -> str:
    return f" and {count - _MOST_NAMES} more" if count > _MOST_NAMES else ""


def _runs(count: int) -> str:
    return f"{count} run{' is' if count == 1 else 's are'}"


def _and(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _list(values: Sequence[int]) -> str:
    return ", ".join(str(value) for value in values)
