"""Tables 6 to 9: results and switch rates by layer of each size, ours with intervals beside the paper's."""

from __future__ import annotations

from collections.abc import Callable

from stickymoe.experiments.formatting import TIMES, fixed, percent, signed_percent, times
from stickymoe.experiments.results import RunResult
from stickymoe.experiments.sweep_report.estimates import mean_of
from stickymoe.experiments.sweep_report.grid import Cell, Grid, Line, over_seeds
from stickymoe.experiments.sweep_report.paper import knows, paper, paper_layer, paper_value
from stickymoe.experiments.sweep_report.run_pages import anchor_of
from stickymoe.experiments.sweep_report.summary import SizeSummary, VariantSummary

RESULTS = {"small": 6, "medium": 7}
LAYERS = {"small": 9, "medium": 8}


def results_table(size: SizeSummary, note: str = "") -> Grid:
    """Return what tables 6 and 7 hold, and what locality proves nothing without; `note` leads the caption."""
    ceiling = max(variant.entropy_ceiling for variant in size.variants.values())
    bits = f"of {fixed(ceiling)} bits"
    heads = [
        ("Variant", ""), ("Perplexity", "lower is better"), ("Change", "vs Vanilla"), ("Gain kept", "of the experts'"),
        ("Switch rate", "top-1"), ("Hit rate", "top-1, 2 slots"), ("Misses", "vs Vanilla"), ("Overlap", "of sets"),
        ("Use entropy", bits), ("Gate entropy", bits), ("Margin", "top-1 over 2"), ("Load CV", "0: even"),
        ("Busiest", "over mean"), ("Seeds", ""),
    ]  # fmt: skip
    alone = any(len(each.seeds) == 1 for each in size.variants.values())
    caption = (
        "Means over seeds, ± half of the 95 % interval; changes, misses and the gain kept are paired by seed. "
        f"{'No interval: one seed. ' if alone else ''}Gain kept: of what experts are worth over the dense control; a "
        "dash where that is not clear of zero. ⚠: flat gates."
    )
    lines = [
        Line(each.label, _cells(size.size, each), each.name, anchor_of(size.size, each.name))
        for each in size.variants.values()
    ]
    title = f"{_number(RESULTS, size.size)}: results at {size.size}"
    return Grid(f"results-{size.size}", title, noted(caption, note), heads, lines)


def layers_table(size: SizeSummary, note: str = "") -> Grid:
    """Return what tables 8 and 9 hold, the switch rate of each layer; `note` leads the caption."""
    layers = max(variant.any_result.read.num_layers for variant in size.variants.values())
    heads = [("Variant", ""), *((f"L{layer}", "") for layer in range(layers)), ("Mean", "")]
    lines = [
        Line(
            each.label,
            [
                *(
                    over_seeds(
                        mean_of(each.results, at_layer(layer)), _three, paper=paper_layer(size.size, each.name, layer)
                    )
                    for layer in range(layers)
                ),
                over_seeds(each.means["switch_rate"], _three),
            ],
            each.name,
            anchor_of(size.size, each.name),
        )
        for each in size.variants.values()
        if not each.is_dense
    ]
    caption = (
        "Top-1 switch rate by layer; layer 0 is nearest to the input. Means over seeds, ± half of the 95 % interval."
    )
    title = f"{_number(LAYERS, size.size)}: switch rate by layer at {size.size}"
    return Grid(f"layers-{size.size}", title, noted(caption, note), heads, lines)


def noted(caption: str, note: str) -> str:
    """Return a caption that begins with the sweep's caveat, if it has one."""
    return f"{note[:1].upper()}{note[1:]}. {caption}" if note else caption


def at_layer(layer: int) -> Callable[[RunResult], float | None]:
    """Return the switch rate of a layer as a function of a result."""

    def value(result: RunResult) -> float | None:
        rates = () if result.read.routing is None else result.read.routing.switch_rate.per_layer
        return rates[layer] if layer < len(rates) else None

    return value


def _cells(size: str, each: VariantSummary) -> list[Cell]:
    def stated(measure: str, sign: str = "", factor: float = 1, unit: str = "") -> str:
        found = paper_value(size, each.name, measure)
        return "" if found is None else f"{factor * found:{sign}g}".replace("-", "\N{MINUS SIGN}") + unit

    means, flat = each.means, bool(each.flat_layers())
    fewer = paper_value(size, each.name, "miss_reduction")
    bound = f">{paper()['utilisation_entropy_above']:g}" if knows(size) and each.family in ("soft", "soft-hard") else ""
    return [
        over_seeds(means["perplexity"], _one, paper=stated("perplexity")),
        over_seeds(each.change, signed_percent, paper=stated("change", "+", 100, " %")),
        over_seeds(each.share_kept, percent),
        over_seeds(means["switch_rate"], _three, paper=stated("switch_rate")),
        over_seeds(means["hit_rate"], _tenths, paper=stated("hit_rate", "", 100, " %")),
        over_seeds(each.miss_ratio, times, paper="" if fewer is None else f"1/{fewer:g}{TIMES}"),
        over_seeds(means["overlap"], fixed),
        over_seeds(means["utilisation_entropy"], fixed, paper=bound),
        over_seeds(means["gate_entropy"], fixed, warns=flat),
        over_seeds(means["gate_margin"], fixed, warns=flat),
        over_seeds(means["load_cv"], fixed),
        over_seeds(means["busiest"], fixed),
        Cell(", ".join(str(seed) for seed in each.seeds)),
    ]


def _number(numbers: dict[str, int], size: str) -> str:
    """Return the paper's table that shows the same of this size; of one that it has not, the tables of its own."""
    if size in numbers:
        return f"Table {numbers[size]}"
    return "As tables " + " and ".join(str(number) for number in sorted(numbers.values()))


def _one(value: float) -> str:
    return fixed(value, 1)


def _three(value: float) -> str:
    return fixed(value, 3)


def _tenths(value: float) -> str:
    return percent(value, 1)
