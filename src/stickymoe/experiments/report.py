"""One self-contained `report.html` from finished runs: no network, no script, light and dark, any screen, printable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from stickymoe.core.errors import SettingError
from stickymoe.core.files import whole_file
from stickymoe.experiments.cautions import cautions
from stickymoe.experiments.comparison import compare
from stickymoe.experiments.figures import draw_figures
from stickymoe.experiments.headline import headline
from stickymoe.experiments.report_setup import setup_facts
from stickymoe.experiments.report_table import report_table
from stickymoe.experiments.results import RunResult
from stickymoe.experiments.ribbon import EXPERT_COLOURS, TOKEN_INK, RibbonColumn, RoutedPassage, ribbon_column
from stickymoe.experiments.svg import inline_svg


def write_report(
    path: Path,
    results: Sequence[RunResult],
    passages: Sequence[RoutedPassage] = (),
    *,
    title: str,
    setup: Mapping[str, Any],
) -> None:
    """Write the report, whole or not at all.

    Args:
        path: The HTML file.
        results: The runs, in the order to show them; one alone is fine.
        passages: The same held-out passage as routed by each run of the ribbon, in the order to show them.
        title: Heading of the page.
        setup: `commands` (list of command lines that reproduce the runs), `notes` (list of sentences), `seconds` (of
            the whole, with data and evaluation); any other key is shown as a fact, nested tables included.

    Raises:
        SettingError: There are no results, or a passage names none of them.
        DataError: The runs were not evaluated on the same tokens.
        StorageError: The disk refuses the write.
    """
    html = render_report(results, passages, title=title, setup=setup)
    with whole_file(path) as temporary:
        temporary.write_text(html, encoding="utf-8", errors="replace")


def render_report(
    results: Sequence[RunResult],
    passages: Sequence[RoutedPassage] = (),
    *,
    title: str,
    setup: Mapping[str, Any],
) -> str:
    """Return the report as one HTML text; see `write_report`."""
    said = headline(results)
    rows = compare(results)
    figures = [
        {"title": drawn.title, "caption": drawn.caption, "svg": inline_svg(drawn.figure, drawn.name)}
        for drawn in draw_figures(results)
    ]
    columns = _ribbon(results, passages)
    return _templates().get_template("report.html.j2").render(
        title=title,
        headline=said,
        cautions=cautions(rows),
        table=report_table(rows),
        figures=figures,
        ribbon=columns,
        ribbon_layers=range(max((len(column.layers) for column in columns), default=0)),
        has_log=any(result.log for result in results),
        facts=setup_facts(results, setup),
        commands=list(setup.get("commands", ())),
        notes=list(setup.get("notes", ())),
        expert_colours=EXPERT_COLOURS,
        token_ink=TOKEN_INK,
    )  # fmt: skip


def _ribbon(results: Sequence[RunResult], passages: Sequence[RoutedPassage]) -> list[RibbonColumn]:
    by_name = {result.name: result for result in results}
    columns = []
    for passage in passages:
        result = by_name.get(passage.run_name)
        if result is None:
            raise SettingError.broken("passage.run_name", "one of " + ", ".join(by_name), passage.run_name)
        if not result.is_dense:
            columns.append(ribbon_column(passage, result.label))
    return columns


def _templates() -> jinja2.Environment:
    """Everything is escaped: text of a corpus, labels, paths and commands are foreign to the page."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("stickymoe.experiments", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
