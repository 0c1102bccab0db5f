"""What a tuning found as a table on the terminal: one column a model, quality first, then locality, then its price."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.table import Table
from rich.text import Text

from stickymoe.experiments.formatting import DASH, fixed, percent
from stickymoe.experiments.tuning.measured import SHARES, Measured, price
from stickymoe.experiments.tuning.run import BASELINE, CONTROL_ARM, TUNED
from stickymoe.metrics.intervals import Interval

LABELS = {BASELINE: "baseline", CONTROL_ARM: "CE only", TUNED: "tuned"}
_Line = tuple[str, Callable[[Measured], str]]


def tuning_table(arms: Mapping[str, Measured]) -> Table:
    """Return one line a measure; `CE only` is the control, which had the same steps on the same batches."""
    tuned = arms[TUNED]
    table = Table(caption=_caption(arms), caption_justify="left")
    table.add_column("", no_wrap=True)
    for name in arms:
        table.add_column(LABELS[name], justify="right", overflow="fold")
    for section in _sections():
        for label, cell in section:
            table.add_row(Text(label), *(Text(cell(found)) for found in arms.values()))
        table.add_section()
    cells = [DASH if name == TUNED else _spread(price(found, tuned), 4) for name, found in arms.items()]
    table.add_row(Text("tuned costs, nats"), *map(Text, cells))
    return table


def _sections() -> list[list[_Line]]:
    quality: list[_Line] = [("perplexity", lambda found: _spread(found.perplexity, 3))]
    locality: list[_Line] = [
        ("switch rate", lambda found: fixed(found.mean("switch_rate"), 3)),
        ("overlap", lambda found: fixed(found.mean("expert_overlap"), 3)),
        ("overlap by use alone", lambda found: fixed(found.overlap_by_use, 3)),
        *(_hits(share) for share in SHARES),
    ]
    health: list[_Line] = [
        ("gate entropy, bits", lambda found: fixed(found.mean("gate_entropy_bits"), 3)),
        ("gate margin", lambda found: fixed(found.mean("gate_margin"), 3)),
        ("use entropy, bits", lambda found: fixed(found.mean("utilisation_entropy_bits"), 3)),
        ("load CV", lambda found: fixed(found.mean("load_cv"), 3)),
        ("busiest over mean", lambda found: fixed(found.mean("load_busiest_over_mean"), 2)),
    ]
    return [quality, locality, health]


def _hits(share: float) -> _Line:
    return f"LRU hits, {100 * share:g} % held", lambda found: percent(found.hit_rate(share), 1)


def _spread(found: Interval, digits: int) -> str:
    value = fixed(found.mean, digits)
    return value if found.low is None else f"{value} ({fixed(found.low, digits)} to {fixed(found.high, digits)})"


def _caption(arms: Mapping[str, Measured]) -> str:
    first = next(iter(arms.values()))
    held = ", ".join(f"{found['capacity']:g}" for found in first.hit_rates)
    return (
        f"{first.sizes['tokens']:,} held-out tokens, intervals of 95 % over {len(first.nats)} {first.unit}; "
        f"overlap by chance {fixed(first.chance_overlap, 3)}; "
        f"caches hold {held} of {first.sizes['num_experts']} experts a layer"
    )
