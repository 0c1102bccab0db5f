"""What came out, in sentences with numbers: the headline, and at each size the best bargain and the worst news."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stickymoe.experiments.formatting import TIMES, fixed, percent
from stickymoe.experiments.headline import ENOUGH_KEPT
from stickymoe.experiments.sweep_report.claims import DecidedClaim, flat_remark
from stickymoe.experiments.sweep_report.conditions import Verdict, written
from stickymoe.experiments.sweep_report.record import SweepResults
from stickymoe.experiments.sweep_report.summary import SizeSummary, VariantSummary

_MOST_NAMES = 5


@dataclass(frozen=True)
class Finding:
    """A sentence under a heading; `tone` is good, bad or even."""

    heading: str
    text: str
    tone: str


def sweep_headline(sweep: SweepResults, claims: Sequence[DecidedClaim]) -> str:
    """Say how much was run and what became of the claims."""
    if not sweep.complete:
        return f"None of the {len(sweep.planned)} runs is finished."
    read = sweep.complete[0].result
    assert read is not None
    tokens = f"{read.read.predicted_tokens:,} {'training' if read.read.split == 'train' else 'held-out'} tokens"
    of = f"{len(sweep.complete)} of {len(sweep.planned)} runs are finished"
    runs = f"{of}, measured on {tokens} of {read.read.corpus.name}"
    said = []
    for where in dict.fromkeys(claim.where for claim in claims):
        verdicts = [claim.verdict for claim in claims if claim.where == where]
        counts = [_counted(verdicts.count(verdict), *words) for verdict, words in _WORDS if verdict in verdicts]
        said.append(f"at {where} {', '.join(counts)}")
    return f"{runs}. Of the paper's claims, {'; '.join(said)}." if said else f"{runs}."


def findings(size: SizeSummary) -> list[Finding]:
    """Return what is worth knowing of a size, good and bad alike."""
    found = []
    if size.gain is not None:
        gain = f"{written(size.gain, lambda value: fixed(value, 3))} nats a token over the dense control"
        clear = "" if size.gain_is_clear else ", not clear of zero: locality is free here and proves nothing"
        found.append(Finding("What experts are worth", gain + clear, "even" if size.gain_is_clear else "bad"))
    best = best_bargain(size)
    if best is not None:
        found.append(Finding("Best bargain", _bargain(best), "good"))
    flat = [each for each in size.variants.values() if each.flat_layers()]
    if flat:
        worst = min(flat, key=_kept)
        others = f"; {len(flat) - 1} more variant{'s' if len(flat) > 2 else ''} likewise" if len(flat) > 1 else ""
        kept = "" if worst.share_kept is None else f", {percent(worst.share_kept.mean)} of the gain kept"
        found.append(Finding("Flat, not sticky", flat_remark(worst) + kept + others, "bad"))
    lost = [each for each in size.variants.values() if each.share_kept is not None and _kept(each) < ENOUGH_KEPT]
    lost = [each for each in lost if not each.is_dense]
    if lost:
        names = ", ".join(f"{each.label} ({percent(_kept(each))})" for each in sorted(lost, key=_kept)[:_MOST_NAMES])
        more = f" and {len(lost) - _MOST_NAMES} more" if len(lost) > _MOST_NAMES else ""
        found.append(Finding("Less than half of the gain kept", names + more, "bad"))
    return found


def best_bargain(size: SizeSummary) -> VariantSummary | None:
    """Return, of the variants that keep at least half of the gain, the one with the fewest misses, if one does.

    Those whose gates are flat in some layer come last, however few their misses.
    """
    kept = [
        each
        for each in size.variants.values()
        if each.miss_ratio is not None and each.share_kept is not None and _kept(each) >= ENOUGH_KEPT
    ]
    sure = [each for each in kept if not each.flat_layers()]
    return min(sure or kept, key=lambda each: each.miss_ratio.mean if each.miss_ratio else 1.0, default=None)


_WORDS = (
    (Verdict.HOLDS, ("holds", "hold")),
    (Verdict.FAILS, ("does not hold", "do not hold")),
    (Verdict.OPEN, ("cannot be told", "cannot be told")),
)


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _kept(each: VariantSummary) -> float:
    return each.share_kept.mean if each.share_kept is not None else float("inf")


def _bargain(each: VariantSummary) -> str:
    assert each.miss_ratio is not None
    assert each.share_kept is not None
    misses = written(each.miss_ratio, lambda value: f"{value:.2f}{TIMES}")
    flat = "; its gates are flat" if each.flat_layers() else ""
    return f"{each.label}: {misses} Vanilla's misses, {written(each.share_kept, percent)} of the gain kept{flat}"
