"""What both forms of the report say: summaries, verdicts, headline, cautions."""

from __future__ import annotations

from dataclasses import dataclass

from stickymoe.experiments.formatting import duration
from stickymoe.experiments.sweep_report.claims import DecidedClaim, decide
from stickymoe.experiments.sweep_report.findings import sweep_headline
from stickymoe.experiments.sweep_report.record import SweepResults
from stickymoe.experiments.sweep_report.summary import SizeSummary, summarise_size
from stickymoe.experiments.sweep_report.sweep_cautions import sweep_cautions


@dataclass(frozen=True)
class Contents:
    """What was made of a sweep.

    Attributes:
        sweep: Its runs.
        sizes: Summaries, the smallest model first.
        claims: The verdicts.
        headline: The result in two sentences.
        cautions: What a reader must know first.
        facts: What the runs were made with.
        command: Makes the report again.
    """

    sweep: SweepResults
    sizes: list[SizeSummary]
    claims: list[DecidedClaim]
    headline: str
    cautions: list[str]
    facts: list[tuple[str, str]]
    command: str


def contents_of(sweep: SweepResults, command: str) -> Contents:
    """Work out everything that the report says."""
    sizes = [summarise_size(sweep, size) for size in sweep.sizes]
    claims = decide(sizes, sweep.planned_variants) if sizes else []
    return Contents(
        sweep, sizes, claims, sweep_headline(sweep, claims), sweep_cautions(sweep, sizes), _facts(sweep), command
    )


def _facts(sweep: SweepResults) -> list[tuple[str, str]]:
    hours = sum(run.hours or 0.0 for run in sweep.runs)
    facts = [
        ("Runs", f"{len(sweep.complete)} finished, {len(sweep.unfinished)} not, {len(sweep.missing)} missing"),
        ("Seeds", ", ".join(str(seed) for seed in sorted({run.seed for run in sweep.complete}))),
        ("Training", f"{duration(3600 * hours)} in all"),
    ]
    for label in dict.fromkeys(label for run in sweep.complete for label in run.facts if label != "Recipe"):
        values = sorted({run.facts[label] for run in sweep.complete if label in run.facts})
        facts.append((label, "; ".join(values)))
    return facts
