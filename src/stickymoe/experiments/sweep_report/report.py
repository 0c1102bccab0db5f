"""`stickymoe report`: from a sweep's rows to the Markdown and the HTML, in seconds and without torch."""

from __future__ import annotations

import shlex
from pathlib import Path

from stickymoe.core.files import whole_file
from stickymoe.experiments.sweep_report.contents import Contents, contents_of
from stickymoe.experiments.sweep_report.markdown_report import sweep_markdown
from stickymoe.experiments.sweep_report.page import sweep_page
from stickymoe.experiments.sweep_report.pictures import save_pictures
from stickymoe.experiments.sweep_report.rows import read_sweep

PAGE, MARKDOWN, PICTURES = "report.html", "report.md", "figures"


def write_sweep_report(place: Path, out: Path | None = None) -> tuple[Contents, Path]:
    """Write `report.html`, `report.md` and the Markdown's figures, each whole or not at all.

    Args:
        place: A sweep's folder, its folder of rows, or one Parquet file of rows.
        out: Where to write; `place`, or the folder it is in, if not given.

    Returns:
        What the report says, and the page's path.

    Raises:
        DataError: The rows cannot be used.
        SettingError: plotly is not installed.
        StorageError: The disk refuses the write.
    """
    out = out or (place.parent if place.is_file() else place)
    contents = contents_of(read_sweep(place), shlex.join(["stickymoe", "report", str(place)]))
    page = out / PAGE
    _write(page, sweep_page(contents))
    pictures = save_pictures(out / PICTURES, contents.sizes, contents.sweep.note)
    _write(
        out / MARKDOWN, sweep_markdown(contents, [(title, f"{PICTURES}/{path.name}") for title, path in pictures], PAGE)
    )
    return contents, page


def _write(path: Path, text: str) -> None:
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")
