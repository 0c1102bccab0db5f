"""From a run's folder to its result row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stickymoe.data import Corpus
from stickymoe.experiments.metrics_file import Metrics
from stickymoe.experiments.results import LOG_FILE, RunResult
from stickymoe.experiments.run import passage_of
from stickymoe.experiments.sweeps.plan import PlannedRun
from stickymoe.experiments.sweeps.row import ResultRow
from stickymoe.experiments.sweeps.sweep_file import Sweep
from stickymoe.experiments.sweeps.versions import EVALUATION_VERSION, TRAINING_VERSION
from stickymoe.training import read_log

MEASURES = (
    "switch_rate",
    "set_switch_rate",
    "expert_overlap",
    "utilisation_entropy_bits",
    "load_cv",
    "load_busiest_over_mean",
    "gate_entropy_bits",
    "gate_margin",
)
_CURVES = ("switch_rate", "gate_entropy_bits", "gate_margin")


def finished_row(sweep: Sweep, run: PlannedRun, folder: Path, corpus: Corpus) -> ResultRow:
    """Return the row of a run that was trained and measured.

    Raises:
        DataError: Its result cannot be read.
        CheckpointError: Its trace is missing.
    """
    result = RunResult.load(folder)
    found = result.read
    content = {
        **_identity(sweep, run, corpus),
        **_curves(result.log),
        **_measures(found),
        "complete": True,
        "steps_done": found.train.steps,
        "hours": found.train.seconds / 3600,
        "hardware": json.dumps(found.hardware),
        "versions": json.dumps(found.versions),
        "commit": found.commit,
        "metrics": json.dumps(result.metrics),
    }
    if not found.is_dense:
        passage = passage_of(result, folder, corpus)
        content["passage_pieces"] = passage.pieces
        content["passage_expert_ids"] = passage.expert_ids.ravel().tolist()
        content["passage_expert_weights"] = passage.expert_weights.ravel().tolist()
    return ResultRow.model_validate(content)


def unfinished_row(sweep: Sweep, run: PlannedRun, folder: Path, corpus: Corpus) -> ResultRow:
    """Return the row of a run that was cut short: how far it came, its curves, and no measures."""
    log = read_log(folder / LOG_FILE) if (folder / LOG_FILE).exists() else []
    done = {"complete": False, "steps_done": log[-1]["step"] if log else 0}
    hours = log[-1]["seconds"] / 3600 if log else 0.0
    return ResultRow.model_validate({**_identity(sweep, run, corpus), **_curves(log), **done, "hours": hours})


def _identity(sweep: Sweep, run: PlannedRun, corpus: Corpus) -> dict[str, Any]:
    training = run.recipe.training
    step = training.batch_size * training.gradient_accumulation * run.recipe.data.sequence_length
    changes = {**run.variant.overrides, **{key: f"x {factor:g}" for key, factor in run.variant.scaled.items()}}
    return {
        "sweep": sweep.name,
        "run": run.name,
        "key": run.key,
        "size": run.size,
        "seed": run.seed,
        "variant": run.variant.name,
        "family": run.family,
        "label": run.variant.label,
        "settings": json.dumps(changes),
        "title": sweep.title,
        "note": _note(sweep, run, corpus),
        "split": run.split,
        "corpus": corpus.name,
        "corpus_fingerprint": fingerprint_of(corpus),
        "steps": training.steps,
        "tokens_per_step": step,
        "training_version": TRAINING_VERSION,
        "evaluation_version": EVALUATION_VERSION,
        "recipe_hash": run.recipe.fingerprint(),
        "recipe": run.recipe.model_dump_json(exclude_none=True),
    }


def _note(sweep: Sweep, run: PlannedRun, corpus: Corpus) -> str | None:
    """Return the sweep's caveat, and that another text than the one it asks for first had to do."""
    first = sweep.corpora[0] if sweep.corpora else run.recipe.data.corpus
    other = [f"on {corpus.name}, since {first} was not at hand"] if run.recipe.data.corpus != first else []
    return "; ".join([*([sweep.note] if sweep.note else []), *other]) or None


def fingerprint_of(corpus: Corpus) -> str:
    """Return the hash of a corpus' tokens as rows keep it."""
    return corpus.fingerprint[:16]


def _measures(found: Metrics) -> dict[str, Any]:
    content: dict[str, Any] = {
        "cross_entropy": found.cross_entropy,
        "perplexity": found.perplexity,
        "predicted_tokens": found.predicted_tokens,
        "num_experts": found.num_experts,
        "top_k": found.top_k,
        "num_layers": found.num_layers,
        "parameters_total": found.parameters.total,
        "parameters_active": found.parameters.active,
    }
    if found.routing is not None:
        for name in MEASURES:
            measure = getattr(found.routing, name)
            content |= {name: measure.mean, f"{name}_per_layer": measure.per_layer}
        content["chance_overlap"] = found.routing.expert_overlap.chance
    content["cache"] = [
        {**cache.semantics.model_dump(), "hits": cache.hits, "misses": cache.misses, "hit_rate": cache.hit_rate}
        for cache in found.cache
    ]
    content["paper_hit_rate"] = next((cache.hit_rate for cache in found.cache if cache.semantics.is_the_papers), None)
    return content


def _curves(log: list[dict[str, Any]]) -> dict[str, Any]:
    rows = [row for row in log if row.get("cross_entropy") is not None]
    curves: dict[str, Any] = {"curve_step": [row["step"] for row in rows]}
    curves["curve_cross_entropy"] = [row["cross_entropy"] for row in rows]
    return curves | {f"curve_{name}": [_mean(row.get(name)) for row in rows] for name in _CURVES}


def _mean(values: list[float | None] | None) -> float | None:
    known = [value for value in values or [] if value is not None]
    return sum(known) / len(known) if known else None
