"""Tables 2 to 5: the text, the models, the coefficients and the optimiser, as the runs' own recipes have them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stickymoe.experiments.formatting import DASH, millions
from stickymoe.experiments.sweep_report.grid import Cell, Grid, Line
from stickymoe.experiments.sweep_report.paper import paper
from stickymoe.experiments.sweep_report.record import RunRecord, SweepResults, ordered

_NOT_GIVEN = "the paper's text does not give it"
_COEFFICIENTS = {
    "objective.consistency": "λ", "objective.anchor": "α", "objective.window": "W (anchor)",
    "objective.load_balancing": "μ",
    "objective.cross_layer": "γ", "objective.reuse": "reuse", "objective.router_z": "router z",
    "objective.boundary_weight": "boundary weight", "objective.reset_at_documents": "reset at documents",
    "model.router_type": "router", "model.router_window": "W (router)", "model.router_bonus": "β",
    "model.router_recursive": "recursive", "model.router_span": "span", "model.router_input": "router input",
    "model.experts_shared": "experts shared", "model.num_experts": "experts", "training.steps": "steps",
    "training.peak_learning_rate": "peak rate", "training.train_only": "trains", "training.start_from": "starts from",
}  # fmt: skip
_WINDOWED = "objective.window"


def setup_tables(sweep: SweepResults) -> list[Grid]:
    """Return tables 2 to 5."""
    return [tokens_table(sweep), models_table(sweep), coefficients_table(sweep), optimiser_table(sweep)]


def tokens_table(sweep: SweepResults) -> Grid:
    """Return the tokens of each split."""
    counts: dict[tuple[str, str], Any] = {}
    for run in sweep.complete:
        assert run.result is not None
        corpus = run.result.read.corpus
        extra = corpus.model_extra or {}
        for split, found in (extra.get("counts") or {}).items():
            counts[corpus.name, str(split)] = found.get("tokens") if isinstance(found, dict) else found
    lines = [
        Line(f"{corpus}, {split}", [Cell(f"{tokens:,}" if isinstance(tokens, int) else DASH, paper="")])
        for (corpus, split), tokens in sorted(counts.items())
    ]
    caption = (
        f"The paper: {paper()['setting']['corpus']}, GPT-2 tokens (vocabulary 50,257); its counts are not in the text."
    )
    return Grid("tokens", "Table 2: tokens", caption, [("Split", ""), ("Tokens", "")], lines)


def models_table(sweep: SweepResults) -> Grid:
    """Return the shape of each size's Vanilla model, or of another where it was not run."""
    sizes = sweep.sizes
    runs = [
        sweep.run(size, "vanilla" if "vanilla" in sweep.variants(size) else sweep.variants(size)[0]) for size in sizes
    ]
    rows: list[tuple[str, list[Cell]]] = [
        ("parameters", [_parameters(run) for run in runs]),
        ("active for a token", [Cell(millions(run.result.read.parameters.active)) for run in runs if run.result]),
        ("layers", [Cell(str(run.result.read.num_layers)) for run in runs if run.result]),
        ("experts a layer", [_stated(run.result.read.num_experts, "num_experts") for run in runs if run.result]),
        ("experts a token", [_stated(run.result.read.top_k, "top_k") for run in runs if run.result]),
    ]
    shown = {"num_experts", "num_experts_per_tok", "num_hidden_layers"}
    for key in _keys(run.recipe.get("model", {}) for run in runs):
        if key not in shown and not key.startswith("router"):
            rows.append((key.replace("_", " "), [Cell(_value(run.recipe.get("model", {}).get(key))) for run in runs]))
    lines = [Line(label, cells) for label, cells in rows]
    return Grid("models", "Table 3: models", "Sizes of the sweep.", [("", ""), *((size, "") for size in sizes)], lines)


def coefficients_table(sweep: SweepResults) -> Grid:
    """Return what distinguishes the variants: every setting in which two of them differ."""
    runs = _one_of_each(sweep)
    flat = {name: _flat(run.recipe) for name, run in runs.items()}
    differing = [
        key for key in _COEFFICIENTS
        if len({str(settings.get(key)) for settings in flat.values()}) > 1
        or (key == _WINDOWED and any(settings.get("objective.anchor") for settings in flat.values()))
    ]  # fmt: skip
    lines = [
        Line(runs[name].label, [Cell(_setting(settings, key)) for key in differing], name)
        for name, settings in flat.items()
    ]
    size = next(iter(runs.values())).size if runs else ""
    caption = (
        f"Settings in which variants differ, from the recipes of size {size}. "
        f"The paper's μ is {paper()['setting']['load_balancing']:g} throughout."
    )
    heads = [("Variant", ""), *((_COEFFICIENTS[key], "") for key in differing)]
    return Grid("coefficients", "Table 4: coefficients", caption, heads, lines)


def optimiser_table(sweep: SweepResults) -> Grid:
    """Return the training settings, several values where runs differ, beside those of the paper's text."""
    setting = paper()["setting"]
    stated = {"steps": "steps", "batch_size": "batch_size", "seed": "seed"}
    tables = [(run.recipe.get("training", {}), run.recipe.get("data", {})) for run in sweep.complete]
    lines = [
        Line("optimiser", [Cell("AdamW", paper="AdamW")]),
        Line("schedule", [Cell("linear warm-up, cosine to 10 %", paper="linear warm-up, cosine to 10 %")]),
        Line(
            "sequence length",
            [Cell(_values(data.get("sequence_length") for _, data in tables), paper=str(setting["sequence_length"]))],
        ),
    ]
    for key in _keys(training for training, _ in tables):
        if key in ("log_every", "evaluate_every", "checkpoint_every", "keep_checkpoints", "report_to", "start_from"):
            continue
        text = _values(training.get(key) for training, _ in tables)
        given = f"{setting[stated[key]]:,}" if key in stated else ""
        lines.append(Line(key.replace("_", " "), [Cell(text, paper=given)]))
    caption = (
        f"Shared by all variants, but for what table 4 names. Where no value of the paper stands, {_NOT_GIVEN}: ours."
    )
    return Grid("optimiser", "Table 5: training", caption, [("", ""), ("Value", "")], lines)


def _parameters(run: RunRecord) -> Cell:
    assert run.result is not None
    stated = paper()["sizes"].get(run.size, {}).get("parameters")
    return Cell(millions(run.result.read.parameters.total), paper="" if stated is None else f"≈{stated / 1e6:g} M")


def _stated(value: int, key: str) -> Cell:
    return Cell(str(value), paper=str(paper()["setting"][key]))


def _one_of_each(sweep: SweepResults) -> dict[str, RunRecord]:
    found: dict[str, RunRecord] = {}
    for size in sweep.sizes:
        for name in sweep.variants(size):
            found.setdefault(name, sweep.run(size, name))
    return {name: found[name] for name in ordered(found)}


def _flat(recipe: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{table}.{key}": value
        for table, entries in recipe.items()
        if isinstance(entries, dict)
        for key, value in entries.items()
    }


def _setting(settings: dict[str, Any], key: str) -> str:
    if key == _WINDOWED and not settings.get("objective.anchor"):
        return DASH
    return _value(settings.get(key))


def _keys(tables: Iterable[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for table in tables for key in table))


def _values(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(_value(value) for value in values)) or DASH


def _value(value: Any) -> str:
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)
