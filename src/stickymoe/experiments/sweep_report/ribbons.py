"""The routing of one passage by every variant, as data for the page's script: any two can be laid side by side."""

from __future__ import annotations

from typing import Any

from stickymoe.experiments.ribbon import expert_colour
from stickymoe.experiments.sweep_report.record import SweepResults


def ribbon_data(sweep: SweepResults) -> dict[str, Any]:
    """Return by size: the passage's pieces, its experts' colours, and each variant's expert ids (tokens, layers, k).

    Of each variant the first seed that kept its passage is shown; one of other tokens than the first is left out.
    """
    found: dict[str, Any] = {}
    for size in sweep.sizes:
        variants: list[dict[str, Any]] = []
        pieces: list[str] = []
        for variant in sweep.variants(size):
            runs = [run for run in sweep.complete if (run.size, run.variant) == (size, variant) and run.passage]
            first = min(runs, key=lambda run: run.seed, default=None)
            if first is None or first.passage is None:
                continue
            pieces = pieces or first.passage.pieces
            if first.passage.pieces == pieces:
                ids = first.passage.expert_ids
                variants.append({
                    "variant": variant, "label": first.label, "seed": first.seed, "ids": ids.tolist(),
                    "experts": first.passage.num_experts,
                    "colours": _colours(first.passage.num_experts),
                })  # fmt: skip
        if variants:
            found[size] = {"pieces": pieces, "variants": variants}
    return found


def _colours(experts: int) -> list[tuple[str, int]]:
    return [expert_colour(expert, experts) for expert in range(experts)]
