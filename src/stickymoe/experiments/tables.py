"""The comparison as a table on the terminal; the HTML report shows the same rows with more columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text

from stickymoe.experiments.comparison import Row, cache_columns, compare
from stickymoe.experiments.formatting import fixed, percent, signed_percent, times
from stickymoe.experiments.metrics_file import CacheSemantics, LayerMeasure, RoutingMeasures
from stickymoe.experiments.results import RunResult

_Line = tuple[str, Callable[[Row], str]]


def terminal_table(results: Sequence[RunResult]) -> Table:
    """Return one column a run and one line a measure, so that it fits a narrow terminal.

    Quality stands first, then locality, then what tells sticky gates from flat or collapsed ones.
    """
    rows = compare(results)
    table = Table(caption=_caption(rows), caption_justify="left")
    table.add_column("", no_wrap=True)
    for row in rows:
        table.add_column(Text(row.label), justify="right", overflow="fold")
    for section in _sections(rows):
        for name, cell in section:
            table.add_row(Text(name), *(Text(cell(row)) for row in rows))
        table.add_section()
    return table


def _sections(rows: Sequence[Row]) -> list[list[_Line]]:
    caches = cache_columns(rows)
    quality: list[_Line] = [
        ("perplexity", lambda row: fixed(row.perplexity, 1)),
        ("change", lambda row: signed_percent(row.perplexity_change)),
        ("gain kept", lambda row: percent(row.share_kept)),
    ]
    locality = [
        _routed("switch rate", lambda routing: routing.switch_rate),
        _routed("overlap", lambda routing: routing.expert_overlap),
        *(_hits(semantics) for semantics in caches),
        *(_misses(semantics) for semantics in caches[:1]),
    ]
    health = [
        _routed("use entropy, bits", lambda routing: routing.utilisation_entropy_bits),
        _routed("gate entropy, bits", lambda routing: routing.gate_entropy_bits),
        _routed("gate margin", lambda routing: routing.gate_margin),
        _routed("load CV", lambda routing: routing.load_cv),
    ]
    return [quality, locality, health]


def _routed(name: str, measure: Callable[[RoutingMeasures], LayerMeasure]) -> _Line:
    return name, lambda row: fixed(measure(row.routing).mean if row.routing else None)


def _hits(semantics: CacheSemantics) -> _Line:
    def cell(row: Row) -> str:
        found = row.caches.get(semantics)
        return percent(found.hit_rate if found else None, 1)

    return f"hits: {semantics.short}", cell


def _misses(semantics: CacheSemantics) -> _Line:
    def cell(row: Row) -> str:
        found = row.caches.get(semantics)
        return times(found.miss_ratio if found else None)

    return f"misses: {semantics.short}", cell


def _caption(rows: Sequence[Row]) -> str:
    chance = next((row.routing.expert_overlap.chance for row in rows if row.routing), None)
    overlap = f"overlap by chance {fixed(chance)}; " if chance is not None else ""
    return f"{overlap}misses as a multiple of Vanilla's; gain kept: of what experts gain over the dense control"
