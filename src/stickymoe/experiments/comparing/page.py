"""One self-contained page: what was found in a sentence, the key numbers, then each group with its plot and table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from stickymoe.core.files import whole_file
from stickymoe.experiments.comparing.plots import plots
from stickymoe.experiments.comparing.record import Comparison
from stickymoe.experiments.comparing.wording import GROUPS, change, interval, price, spread, value, verdict
from stickymoe.experiments.diagnosis.answers import Answer
from stickymoe.experiments.diagnosis.page_tables import Table
from stickymoe.experiments.diagnosis.report import Tile
from stickymoe.experiments.diagnosis.sections import Section
from stickymoe.experiments.formatting import fixed, signed_percent
from stickymoe.experiments.page.html import render_page

TILES = {
    "perplexity": "Perplexity",
    "expert_overlap": "Experts kept",
    "lru_hit_rate_0.25": "LRU hits, a quarter resident",
    "belady_hit_rate_0.25": "Belady hits, a quarter resident",
    "pass_busiest": "Busiest expert of a pass",
}


def write_comparison(path: Path, found: Comparison, commands: Sequence[str] = ()) -> None:
    """Write the page, whole or not at all.

    Raises:
        SettingError: plotly is not installed.
        StorageError: The disk refuses the write.
    """
    html = render_comparison(found, commands)
    with whole_file(path) as temporary:
        temporary.write_text(html, encoding="utf-8", errors="replace")


def render_comparison(found: Comparison, commands: Sequence[str] = ()) -> str:
    """Return the page as one HTML text."""
    return render_page(
        "diagnosis.html.j2",
        "stickymoe.experiments.diagnosis",
        kicker="StickyMoE comparison",
        title=f"{Path(found.second.name).name or found.second.name} against {Path(found.first.name).name}",
        headline=verdict(found),
        verdict_class="mixed",
        tiles=_tiles(found),
        cautions=list(found.notes),
        answers=list(_answers(found)),
        sections=list(_sections(found)),
        unanswered={},
        facts=[
            ("A", found.first.line),
            ("B", found.second.line),
            ("Text", found.text),
            ("Caches", found.counted),
            ("Intervals", f"95 %, bootstrap over {found.units}, the same ones drawn for both"),
        ],
        commands=commands,
        plots=plots(found),
    )


def _tiles(found: Comparison) -> list[Tile]:
    tiles = []
    for name, label in TILES.items():
        if found.has(name):
            line = found.find(name)
            small = f"B; A {value(line.unit, line.first.value)}, {change(line.unit, line.difference.value)}"
            tiles.append(Tile(label, value(line.unit, line.second.value), small))
    return tiles


def _answers(found: Comparison) -> Iterator[Answer]:
    if found.has("perplexity"):
        quality = found.find("perplexity")
        words = f"{change('perplexity', quality.difference.value)} perplexity"
        inside = interval("perplexity", quality.difference)
        yield Answer("quality", "What does B cost in quality?", f"{words} ({inside})" if inside else words)
    overlap = found.find("expert_overlap")
    yield Answer(
        "locality",
        "Does B route more locally?",
        f"A token shares {value('share', overlap.second.value)} of its experts with the one before it, "
        f"{value('share', overlap.first.value)} under A",
    )
    hits = found.find("lru_hit_rate_0.25")
    yield Answer(
        "cache",
        "What does a cache make of it?",
        f"With a quarter of the experts resident LRU finds {value('share', hits.second.value)} of them, "
        f"{value('share', hits.first.value)} under A",
    )
    yield Answer("load", "What does it cost beside?", price(found))


def _sections(found: Comparison) -> Iterator[Section]:
    if found.has("perplexity"):
        yield Section(
            "quality",
            "Quality",
            "Both predict the same tokens, all but each sequence's first; differences are drawn over the same units.",
            plot="documents" if len(found.documents) > 1 else "",
            alt="Change of perplexity under B against the perplexity under A, one point a document.",
            caption="One point a document. Above the line B predicts it worse.",
            table=_table(found, "quality"),
            folded=_documents(found) if len(found.documents) > 1 else None,
        )
    yield Section(
        "locality",
        "Locality",
        "How much neighbouring tokens share, and how decided the gates are.",
        plot="overlap",
        alt="Expert overlap of neighbouring tokens, layer by layer, of A and of B.",
        caption="Share of a token's experts that served the token before it, by layer.",
        table=_table(found, "locality"),
    )
    yield Section(
        "cache",
        "Hit rate against cache size",
        f"Counted: {found.counted}.",
        plot="curves",
        alt="Hit rates of LRU and Belady against the share of experts resident, of A and of B.",
        caption="Every capacity of LRU is exact. Belady knows the future: no policy that loads what it runs beats it.",
        table=_table(found, "cache"),
        folded=_curve_table(found),
    )
    yield Section(
        "price",
        "The price of locality",
        "A router that stays where it is may send many tokens to few experts at once. Expert parallelism waits for the "
        "busiest one; a prefetcher lives on being able to foretell the next.",
        plot="busiest" if found.has("pass_busiest") else "",
        alt="Load of the busiest expert of a forward pass over the mean, layer by layer, of A and of B.",
        caption="Load of the busiest expert of a forward pass over the mean, summed over passes, by layer.",
        table=_table(found, "price"),
    )


def _table(found: Comparison, group: str) -> Table:
    rows = [
        (
            line.label,
            value(line.unit, line.first.value),
            spread(line.unit, line.first),
            value(line.unit, line.second.value),
            spread(line.unit, line.second),
            change(line.unit, line.difference.value),
            interval(line.unit, line.difference),
        )
        for line in found.lines
        if line.group == group
    ]
    heads = ("", "A", "95 % interval", "B", "95 % interval", "B − A", "95 % interval")
    return Table(GROUPS[group], heads, rows, words=(2, 4, 6))


def _curve_table(found: Comparison) -> Table:
    one, other = ({curve.policy: curve for curve in curves} for curves in found.curves)
    rows = []
    for number, (side, curves) in enumerate(zip((found.first, found.second), (one, other), strict=True)):
        for slots in curves["belady"].capacities:
            if slots in curves["lru"].capacities:
                rates = [value("share", curves[policy].at(slots)) for policy in ("lru", "belady")]
                rows.append((f"{'AB'[number]}, {slots:,} slots", value("share", slots / side.num_experts), *rates))
    return Table("Hit rates over all layers", ("cache", "resident", "LRU", "Belady"), rows)


def _documents(found: Comparison) -> Table:
    rows = [
        (each.name, f"{each.tokens:,}", fixed(each.first), fixed(each.second), signed_percent(each.change))
        for each in sorted(found.documents, key=lambda each: -each.change)
    ]
    return Table("Documents, those that B predicts worst first", ("document", "tokens", "A", "B", "change"), rows)
