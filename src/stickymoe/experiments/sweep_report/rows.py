"""From result rows to what the report shows; the only place that knows how rows look on disk."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stickymoe.core.errors import DataError, SettingError
from stickymoe.experiments.ribbon import RoutedPassage
from stickymoe.experiments.sweep_report.record import RunRecord, SweepResults, ordered
from stickymoe.experiments.sweeps.row import ResultRow
from stickymoe.experiments.sweeps.rows import read_rows
from stickymoe.experiments.sweeps.sweep_file import Sweep, load_sweep, shipped_sweeps
from stickymoe.experiments.variants import choose_variants

SWEEP_FILE = "sweep.toml"


def read_sweep(place: Path) -> SweepResults:
    """Read a sweep's folder, its folder of rows, or one Parquet file of rows.

    Raises:
        DataError: There are no rows, a file cannot be used, rows are of several sweeps, a run has two, or the runs of a
            size were measured on other tokens.
        SettingError: The sweep's own file breaks a rule.
    """
    return sweep_of(read_rows(place), place)


def sweep_of(rows: Sequence[ResultRow], place: Path = Path()) -> SweepResults:
    """Put rows together to one sweep; see `read_sweep`. `place` is named in errors."""
    for what in ("sweep", "split"):
        found = sorted({str(getattr(row, what)) for row in rows})
        if len(found) != 1:
            raise DataError(
                f"{place}: rows must be of one {what}, got {', '.join(found)}; report each in a folder of its own"
            )
    names = [row.run for row in rows]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{place}: a run must have one row, got several of {twice[0]}; keep the one that stands")
    name = rows[0].sweep
    file = _sweep_file(name, place)
    known = None if file is None else load_sweep(file)
    title = (known and known.title) or f"Sweep {name}"
    sweep = SweepResults(
        name=name,
        title=title,
        note="; ".join(sorted({row.note for row in rows if row.note})),
        runs=tuple(_record(row, place) for row in rows),
        planned=_grid(rows, known),
        command=shlex.join(["stickymoe", "sweep", str(file) if file and file.parent == place else name]),
    )
    sweep.check()
    return sweep


def _sweep_file(name: str, place: Path) -> Path | None:
    """Return the sweep's own file beside its rows, or the shipped one of its name, to know what else belongs to it."""
    own = place / SWEEP_FILE
    return own if own.is_file() else shipped_sweeps().get(name)


def _grid(rows: Sequence[ResultRow], known: Sweep | None) -> tuple[str, ...]:
    """Return the names of all runs: those of the sweep's file, and of the grid that the rows span."""
    sizes = list(dict.fromkeys([*(known.sizes if known else ()), *(row.size for row in rows)]))
    seeds = sorted({*(known.seeds if known else ()), *(row.seed for row in rows)})
    variants = {row.variant for row in rows}
    if known:
        variants |= {variant.name for variant in choose_variants(known.variants)}
    return tuple(f"{size}/{seed}/{variant}" for size in sizes for seed in seeds for variant in ordered(variants))


def _record(row: ResultRow, place: Path) -> RunRecord:
    try:
        recipe, hardware, versions = (_object(text) for text in (row.recipe, row.hardware, row.versions))
        passage = _passage(row)
        result = row.result() if row.complete else None
    except (ValueError, RecursionError, DataError, SettingError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{place}: the row of {row.run} cannot be used: {reason}; run the sweep again") from None
    return RunRecord(
        size=row.size,
        seed=row.seed,
        variant=row.variant,
        family=row.family,
        label=row.label,
        steps=row.steps,
        steps_done=row.steps_done,
        hours=row.hours,
        result=result,
        recipe=recipe,
        passage=passage,
        problem="" if row.complete else f"cut short at step {row.steps_done:,} of {row.steps:,}",
        facts={
            "Recipe": row.recipe_hash,
            "Commit": row.commit or "unknown",
            "Code": f"training version {row.training_version}, evaluation version {row.evaluation_version}",
            **{_words(key): str(value) for key, value in hardware.items()},
            **{key: str(value) for key, value in versions.items()},
        },
    )


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text or "{}")
    if not isinstance(found, dict):
        raise ValueError(f"a JSON object was expected, got {text:.40}")
    return found


def _passage(row: ResultRow) -> RoutedPassage | None:
    if (
        not row.passage_pieces
        or not row.passage_expert_ids
        or not row.num_layers
        or not row.top_k
        or not row.num_experts
    ):
        return None
    shape = (len(row.passage_pieces), row.num_layers, row.top_k)
    ids = np.array(row.passage_expert_ids, dtype=np.int64).reshape(shape)
    weights = np.array(row.passage_expert_weights, dtype=np.float64).reshape(shape)
    return RoutedPassage(row.variant, list(row.passage_pieces), ids, weights, row.num_experts)


def _words(key: str) -> str:
    words = key.replace("_gib", ", GiB").replace("_", " ")
    return words[:1].upper() + words[1:]
