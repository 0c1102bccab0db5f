"""The report's table: grouped columns of text cells, quality always before locality, no cell singled out as best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stickymoe.experiments.comparison import Row, cache_columns
from stickymoe.experiments.formatting import DASH, duration, fixed, millions, percent, signed_percent, times
from stickymoe.experiments.metrics_file import CacheSemantics, RoutingMeasures

_GAIN_NOTE = (
    "Gain kept",
    "(CE of the dense control \N{MINUS SIGN} CE of the variant) / "
    "(CE of the dense control \N{MINUS SIGN} CE of Vanilla). "
    "The dense control is the same model with no more experts than a token uses. "
    "100 %: as good as Vanilla; 0 %: the experts are wasted.",
)


@dataclass(frozen=True)
class Cell:
    """A value and, in small print below it, what it is to be read against."""

    text: str
    small: str = ""


@dataclass(frozen=True)
class Column:
    """A heading, its small print, and the value of a row."""

    heading: str
    small: str
    cell: Callable[[Row], Cell]


@dataclass(frozen=True)
class Group:
    """Neighbouring columns under one heading."""

    title: str
    columns: list[Column] = field(default_factory=list)


@dataclass(frozen=True)
class ReportTable:
    """Groups of columns; lines of (label, is the dense control, cells); notes that spell the columns out."""

    groups: list[Group]
    lines: list[tuple[str, bool, list[Cell]]]
    notes: list[tuple[str, str]]


def report_table(rows: Sequence[Row]) -> ReportTable:
    """Lay the rows out for the report."""
    caches = cache_columns(rows)
    groups = [
        Group("Quality", _quality(alone=len(rows) == 1)),
        Group("Locality", _locality(rows)),
        Group(
            "Cache hits" if len(rows) == 1 else "Cache hits; below, misses over Vanilla's",
            [_hits(semantics) for semantics in caches],
        ),
        Group("Router health", _health(rows)),
        Group("Cost", _cost()),
    ]
    groups = [group for group in groups if group.columns]
    columns = [column for group in groups for column in group.columns]
    lines = [(row.label, row.is_dense, [column.cell(row) for column in columns]) for row in rows]
    return ReportTable(groups, lines, _notes(caches, alone=len(rows) == 1))


def _quality(*, alone: bool) -> list[Column]:
    perplexity = Column("Perplexity", "lower is better", lambda row: Cell(fixed(row.perplexity, 1)))
    if alone:
        return [perplexity]
    return [
        perplexity,
        Column("Change", "vs Vanilla", lambda row: Cell(signed_percent(row.perplexity_change))),
        Column("Gain kept", "of the experts'", lambda row: Cell(percent(row.share_kept))),
    ]


def _routed(heading: str, small: str, text: Callable[[RoutingMeasures], str]) -> Column:
    return Column(heading, small, lambda row: Cell(text(row.routing) if row.routing else DASH))


def _locality(rows: Sequence[Row]) -> list[Column]:
    chance = next((row.routing.expert_overlap.chance for row in rows if row.routing), None)
    return [
        _routed("Switch rate", "top-1", lambda routing: fixed(routing.switch_rate.mean)),
        _routed("Overlap", f"chance {fixed(chance)}", lambda routing: fixed(routing.expert_overlap.mean)),
    ]


def _hits(semantics: CacheSemantics) -> Column:
    def cell(row: Row) -> Cell:
        found = row.caches.get(semantics)
        if found is None:
            return Cell(DASH)
        small = "" if found.miss_ratio is None else times(found.miss_ratio)
        return Cell(percent(found.hit_rate, 1), small)

    lookups, _, slots = semantics.short.rpartition(", ")
    return Column(lookups[0].upper() + lookups[1:], slots, cell)


def _health(rows: Sequence[Row]) -> list[Column]:
    ceiling = f"of {fixed(max(row.entropy_ceiling_bits for row in rows))} bits"
    return [
        _routed("Use entropy", ceiling, lambda routing: fixed(routing.utilisation_entropy_bits.mean)),
        _routed("Gate entropy", ceiling, lambda routing: fixed(routing.gate_entropy_bits.mean)),
        _routed("Margin", "top-1 over top-2", lambda routing: fixed(routing.gate_margin.mean)),
        _routed("Load CV", "0: even", lambda routing: fixed(routing.load_cv.mean)),
        _routed("Busiest", "over mean", lambda routing: fixed(routing.load_busiest_over_mean.mean)),
    ]


def _cost() -> list[Column]:
    return [
        Column(
            "Parameters",
            "active for a token",
            lambda row: Cell(
                millions(row.result.read.parameters.total), f"{millions(row.result.read.parameters.active)} active"
            ),
        ),
        Column("Training", "time", lambda row: Cell(duration(row.result.read.train.seconds))),
    ]


def _notes(caches: Sequence[CacheSemantics], *, alone: bool) -> list[tuple[str, str]]:
    """Say what each column means; hit rates carry their whole counting rule."""
    hits = [
        (
            f"Hits: {one.short}" + (" (as in the Sticky Routing paper)" if one.is_the_papers else ""),
            f"{one.spelled_out}.",
        )
        for one in caches
    ]
    return [
        ("Perplexity", "exp of the mean cross-entropy over every predicted token of the split; no added loss term."),
        *([] if alone else [_GAIN_NOTE]),
        ("Switch rate", "share of neighbouring tokens whose top-1 expert differs; mean over layers."),
        ("Overlap", "share of a token's experts that its predecessor used as well, beside what chance would give."),
        *(
            []
            if alone or not caches
            else [("Below hits", "misses as a multiple of Vanilla's, counted in the same way.")]
        ),
        *hits,
        ("Use entropy", "how evenly the experts are used over the split. Low: experts were given up."),
        (
            "Gate entropy, margin",
            "how decided the router is. High entropy and a small margin: flat gates, not sticky ones.",
        ),
        (
            "Load CV, busiest",
            "spread of tokens over experts; the busiest one's share over the mean.",
        ),
    ]
