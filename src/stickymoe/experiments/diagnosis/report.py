"""One self-contained `report.html`: offline, light and dark, wide and narrow, on paper; plots beside their tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stickymoe.core.files import whole_file
from stickymoe.experiments.diagnosis.answers import answers, cautions
from stickymoe.experiments.diagnosis.budget import Budget
from stickymoe.experiments.diagnosis.plots import plots
from stickymoe.experiments.diagnosis.policies import best_online
from stickymoe.experiments.diagnosis.profile import ProfileDiagnosis
from stickymoe.experiments.diagnosis.profile_page import (
    profile_answers,
    profile_line,
    profile_plots,
    profile_sections,
)
from stickymoe.experiments.diagnosis.record import Diagnosis
from stickymoe.experiments.diagnosis.sections import sections
from stickymoe.experiments.diagnosis.summary import trace_line
from stickymoe.experiments.diagnosis.wording import asked, size
from stickymoe.experiments.formatting import fixed, percent
from stickymoe.experiments.page.html import render_page


class Tile(NamedTuple):
    """A number to be seen first."""

    label: str
    value: str
    small: str


def write_diagnosis_report(path: Path, found: Diagnosis | ProfileDiagnosis, commands: Sequence[str] = ()) -> None:
    """Write the report, whole or not at all.

    Args:
        path: The HTML file.
        found: What to report.
        commands: Command lines that make it again.

    Raises:
        SettingError: plotly is not installed.
        StorageError: The disk refuses the write.
    """
    html = render_diagnosis(found, commands) if isinstance(found, Diagnosis) else render_profile(found, commands)
    with whole_file(path) as temporary:
        temporary.write_text(html, encoding="utf-8", errors="replace")


def render_diagnosis(found: Diagnosis, commands: Sequence[str] = ()) -> str:
    """Return the report as one HTML text; see `write_diagnosis_report`."""
    return _page(
        title=f"Why the expert cache misses: {found.facts.name}",
        headline=found.verdict.sentence + ".",
        verdict_class=found.verdict.name.replace(" ", "-"),
        tiles=_tiles(found),
        cautions=cautions(found),
        answers=answers(found),
        sections=sections(found),
        unanswered=found.unanswered,
        facts=[("Trace", trace_line(found.facts)), _budget_fact(found.budget), ("Counted", found.counted)],
        commands=commands,
        plots=plots(found),
    )


def render_profile(found: ProfileDiagnosis, commands: Sequence[str] = ()) -> str:
    """Return the report of a usage profile as one HTML text."""
    return _page(
        title=f"What pinning would catch: {found.name}",
        headline=profile_answers(found)[0].answer + ".",
        verdict_class="first-uses",
        tiles=[],
        cautions=["Counts have no order: hit rates of a cache that loads on demand cannot be told from them."],
        answers=profile_answers(found),
        sections=profile_sections(found),
        unanswered=found.unanswered,
        facts=[("Profile", profile_line(found)), _budget_fact(found.budget)],
        commands=commands,
        plots=profile_plots(found),
    )


def _page(**parts: Any) -> str:
    return render_page("diagnosis.html.j2", "stickymoe.experiments.diagnosis", **parts)


def _tiles(found: Diagnosis) -> list[Tile]:
    lru, belady, best = found.result("lru"), found.result("belady"), best_online(found.policies)
    budget = found.budget
    total = "" if budget.total_bytes is None else f", {size(budget.total_bytes)}"
    per_token = "" if lru.bytes_per_token is None else size(lru.bytes_per_token)
    where = "slots a layer" if budget.scope == "layer" else "slots in one pool"
    return [
        Tile("Budget", f"{budget.slots:,}", f"{where}, {percent(budget.share)} of the experts{total}"),
        Tile("LRU hits", percent(lru.hit_rate, 1), "of all lookups"),
        Tile("Best policy hits", percent(best.hit_rate, 1), best.label),
        Tile("Belady hits", percent(belady.hit_rate, 1), "knows the future"),
        Tile("Loads a token", fixed(lru.loads_per_token, 1), f"{per_token} under LRU".strip()),
    ]


def _budget_fact(budget: Budget) -> tuple[str, str]:
    return "Budget", asked(budget)
