"""The colour, symbol and dashes of each variant, the same in every plot: a colour a family, a symbol a member."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stickymoe.experiments.comparison import BASELINE
from stickymoe.experiments.page.plots import DASHES, SERIES, SYMBOLS, colour_of
from stickymoe.experiments.sweep_report.record import DENSE
from stickymoe.experiments.sweep_report.summary import SizeSummary, VariantSummary


@dataclass(frozen=True)
class VariantLook:
    """How a variant is drawn. Colours are the page's variables."""

    colour: str
    symbol: str
    dash: str


def families_of(sizes: Sequence[SizeSummary]) -> dict[str, dict[str, VariantSummary]]:
    """Return all variants by family and name, in the registry's order, each as it stands at one of the sizes."""
    found: dict[str, dict[str, VariantSummary]] = {}
    for size in sizes:
        for name, variant in size.variants.items():
            found.setdefault(variant.family, {}).setdefault(name, variant)
    return found


def looks_of(sizes: Sequence[SizeSummary]) -> dict[str, VariantLook]:
    """Return every variant's look; Vanilla has the neutral first colour, the dense control is muted and dashed."""
    looks = {}
    number = 0
    for family, variants in families_of(sizes).items():
        if family not in (BASELINE, DENSE):
            number += 1
        for member, name in enumerate(variants):
            colour = colour_of(0 if family == BASELINE else 1 + (number - 1) % (SERIES - 1))
            if name == DENSE:
                looks[name] = VariantLook("var:muted", "line-ew-open", "dash")
            else:
                shift = member + 3 * (max(number - 1, 0) // (SERIES - 1))  # a second round of colours has other symbols
                looks[name] = VariantLook(colour, SYMBOLS[shift % SERIES], DASHES[member % SERIES])
    return looks
