"""The report as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stickymoe.experiments.page.html import render_page
from stickymoe.experiments.ribbon import EXPERT_COLOURS, TOKEN_INK
from stickymoe.experiments.sweep_report.claims import DecidedClaim
from stickymoe.experiments.sweep_report.contents import Contents
from stickymoe.experiments.sweep_report.curve_plots import (
    CURVES,
    has_curves,
    ladders,
    sensitivity_plot,
    training_plot,
)
from stickymoe.experiments.sweep_report.findings import findings
from stickymoe.experiments.sweep_report.looks import families_of, looks_of
from stickymoe.experiments.sweep_report.paper import knows, paper
from stickymoe.experiments.sweep_report.plots import PAPER, Looks, Plot, layers_plot, load_plot, pareto_plot
from stickymoe.experiments.sweep_report.record import DENSE
from stickymoe.experiments.sweep_report.result_tables import layers_table, noted, results_table
from stickymoe.experiments.sweep_report.ribbons import ribbon_data
from stickymoe.experiments.sweep_report.run_pages import run_pages
from stickymoe.experiments.sweep_report.setup_tables import setup_tables
from stickymoe.experiments.sweep_report.summary import SizeSummary

GLYPHS = {
    "circle": "●", "square": "■", "diamond": "◆", "triangle-up": "▲", "x": "✖", "cross": "✚", "triangle-down": "▼",
    "star": "★", "line-ew-open": "╌",
}  # fmt: skip
FIGURES = {"small": "a", "medium": "b"}


def sweep_page(contents: Contents) -> str:
    """Return the page."""
    sweep, sizes, looks = contents.sweep, contents.sizes, looks_of(contents.sizes)
    return render_page(
        "sweep.html.j2",
        "stickymoe.experiments.sweep_report",
        plots=_plots(sizes, looks),
        scripts=["sweep.js"],
        data={"ribbons": ribbon_data(sweep), "paper": PAPER},
        title=sweep.title,
        headline=contents.headline,
        cautions=contents.cautions,
        families=_switches(sizes, looks),
        paper_switch=PAPER if any(knows(size.size) for size in sizes) else "",
        claims=_grouped(contents.claims),
        verdict_class=_verdict_class,
        blocks=[_block(size, sweep.note) for size in sizes],
        ladder=ladders(sizes),
        setup=setup_tables(sweep),
        pages=run_pages(sweep),
        unfinished=sweep.unfinished,
        missing=sweep.missing,
        has_ribbons=bool(ribbon_data(sweep)),
        source=paper()["source"],
        facts=contents.facts,
        command=contents.command,
        expert_colours=EXPERT_COLOURS,
        token_ink=TOKEN_INK,
    )  # fmt: skip


def _plots(sizes: Sequence[SizeSummary], looks: Looks) -> dict[str, Plot]:
    drawn = {}
    for size in sizes:
        name = size.size
        drawn[f"hits-{name}"] = pareto_plot(size, "hit_rate", looks)
        drawn[f"switches-{name}"] = pareto_plot(size, "switch_rate", looks)
        drawn[f"by-layer-{name}"] = layers_plot(size, looks)
        drawn[f"load-{name}"] = load_plot(size, "load_cv", "CV of the load", looks)
        drawn[f"busiest-{name}"] = load_plot(size, "busiest", "busiest over mean", looks)
        if has_curves(size):
            drawn |= {f"curve-{curve}-{name}": training_plot(size, curve, looks) for curve in CURVES}
    return drawn | {f"ladder-{measure}": sensitivity_plot(sizes, measure) for measure in ladders(sizes)}


def _switches(sizes: Sequence[SizeSummary], looks: Looks) -> list[dict[str, Any]]:
    return [
        {
            "family": family,
            "variants": [
                {
                    "name": name,
                    "label": variant.label,
                    "colour": looks[name].colour.removeprefix("var:"),
                    "glyph": GLYPHS[looks[name].symbol],
                }
                for name, variant in variants.items()
            ],
        }
        for family, variants in families_of(sizes).items()
    ]


def _block(size: SizeSummary, note: str) -> dict[str, Any]:
    letter = FIGURES.get(size.size)
    return {
        "size": size.size,
        "note": noted("", note).strip(),
        "findings": findings(size),
        "results": results_table(size, note),
        "layers": layers_table(size, note),
        "dense": DENSE in size.variants,
        "curves": list(CURVES) if has_curves(size) else [],
        "figures": [f"Figure {number}{letter or ''}" if letter else f"As figure {number}" for number in (1, 2)],
    }


def _grouped(claims: Sequence[DecidedClaim]) -> list[tuple[str, list[DecidedClaim]]]:
    found: dict[str, list[DecidedClaim]] = {}
    for claim in claims:
        found.setdefault(claim.claim, []).append(claim)
    return list(found.items())


def _verdict_class(claim: DecidedClaim) -> str:
    return claim.verdict.name.lower()
