"""From a recipe to a finished run folder, from a run folder to measurements."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from stickymoe.core.errors import CheckpointError, SettingError
from stickymoe.core.files import write_json
from stickymoe.data import Corpus, ProgressCallback, TokenChunks, collate_chunks, load_corpus
from stickymoe.experiments.arguments import trainer_arguments
from stickymoe.experiments.environment import code_version, commit, hardware, versions
from stickymoe.experiments.evaluating import evaluate_captured
from stickymoe.experiments.ranks import Ranks
from stickymoe.experiments.recipe import Recipe
from stickymoe.experiments.recipe_file import save_recipe
from stickymoe.experiments.report import write_report
from stickymoe.experiments.results import LOG_FILE, METRICS_FILE, RunResult
from stickymoe.experiments.ribbon import RoutedPassage, decode_pieces
from stickymoe.experiments.run_folder import (
    MODEL_FOLDER,
    RECIPE_FILE,
    REPORT_FILE,
    TRAIN_FACTS_FILE,
    WEIGHTS_FILE,
    claimed,
    read_facts,
    recipe_of,
    require_own_recipe,
    trace_file,
)
from stickymoe.experiments.run_model import (
    build_model,
    layers_per_pool,
    load_model,
    model_config,
    pretrained_tokenizer,
    save_model,
)
from stickymoe.experiments.start import OnlyRouters, begin_with, pretrained_facts, start_of
from stickymoe.model import StickyMoEForCausalLM
from stickymoe.model.quiet import without_progress_bars
from stickymoe.traces import RoutingTrace
from stickymoe.training import Evaluation, StickyTrainer, evaluate, read_log

PASSAGE_TOKENS = 96


def train_run(
    recipe: Recipe,
    folder: Path,
    *,
    resume: bool = False,
    split: str = "validation",
    progress: ProgressCallback | None = None,
) -> RunResult | None:
    """Train a recipe into a run folder and evaluate it; a folder holds one run.

    Started by `torchrun` or `accelerate launch`, all processes call this alike. They share out each batch; the first
    writes and evaluates.

    Args:
        recipe: What to train.
        folder: Where everything goes; created.
        resume: Go on from the newest good checkpoint; a finished run is only evaluated again.
        split: Split of the evaluation at the end.
        progress: Told of the work, as `progress(description, done, total)`.

    Returns:
        The result; None in all processes but the first.

    Raises:
        SettingError: The folder holds a run and `resume` is off, or a run of another recipe, or one still in progress;
            or the batch cannot be shared out evenly.
        DataError: The corpus cannot be used.
        CheckpointError: No checkpoint of the folder can be used, or they are of another architecture; or the run to
            start from is missing or does not fit.
        TrainingError: The loss was not finite.
        Interrupted: A signal came; the state was saved.
        StorageError: The disk refused a write.
    """
    model_config(recipe, vocab_size=1)  # a shape that breaks a rule need not wait for the corpus
    ranks = Ranks()
    ranks.share(recipe.training.batch_size)
    with claimed(folder) if ranks.is_first else nullcontext():
        with ranks:
            with ranks.first_alone():
                if ranks.is_first:
                    require_own_recipe(folder, recipe, resume)
                start = start_of(recipe, folder)
                corpus = corpus_of(recipe, progress)
                measured = _whole_split(recipe, corpus, split)
                is_trained = (folder / MODEL_FOLDER / WEIGHTS_FILE).exists()
            if not is_trained:
                _train(recipe, folder, corpus, start, ranks, progress)
        if not ranks.is_first:
            return None
        return _evaluate(recipe, folder, corpus, measured, split, batch_size=8, progress=progress)


def evaluate_run(
    folder: Path, split: str = "test", *, batch_size: int = 8, progress: ProgressCallback | None = None
) -> RunResult:
    """Measure a trained run on a whole split; writes metrics.json, trace-SPLIT.parquet and report.html.

    Raises:
        SettingError: `batch_size` below 1.
        CheckpointError: The folder holds no trained model.
        DataError: The corpus lacks the split.
    """
    recipe = recipe_of(folder)
    corpus = corpus_of(recipe, progress)
    measured = _whole_split(recipe, corpus, split)
    return _evaluate(recipe, folder, corpus, measured, split, batch_size=batch_size, progress=progress)


def corpus_of(recipe: Recipe, progress: ProgressCallback | None = None) -> Corpus:
    """Return a recipe's corpus; `~` in its paths is the home folder. A pretrained model brings its own tokenizer."""
    own = pretrained_tokenizer(recipe)
    tokenizer = _at_home(recipe.data.tokenizer) if own is None else own
    return load_corpus(_at_home(recipe.data.corpus), tokenizer=tokenizer, progress=progress)


def passages_of(result: RunResult, folder: Path, corpus: Corpus) -> list[RoutedPassage]:
    """Return the passage of a run's report; none where every token uses all experts, or some a null one."""
    if result.is_dense or bool((RoutingTrace.load(trace_file(folder, result.read.split)).expert_ids < 0).any()):
        return []
    return [passage_of(result, folder, corpus)]


def passage_of(result: RunResult, folder: Path, corpus: Corpus) -> RoutedPassage:
    """Return how the run routed the first tokens of the split it was evaluated on, from its trace."""
    path = trace_file(folder, result.read.split)
    if not path.exists():
        raise CheckpointError(f"{path} is missing; evaluate the run again")
    trace = RoutingTrace.load(path)
    first = trace.sequence_ids == trace.sequence_ids[0]
    if trace.document_ids is not None:
        first &= trace.document_ids == trace.document_ids[0]
    rows = np.flatnonzero(first)[:PASSAGE_TOKENS]
    if trace.token_ids is None or trace.expert_weights is None:
        raise CheckpointError(f"{path} holds no tokens or weights; evaluate the run again")
    return RoutedPassage(
        result.name,
        decode_pieces(trace.token_ids[rows].tolist(), lambda ids: str(corpus.tokenizer.decode(ids))),
        trace.expert_ids[rows],
        trace.expert_weights[rows],
        trace.num_experts,
    )


def _at_home(name: str) -> str:
    return str(Path(name).expanduser()) if name.startswith("~") else name


def _whole_split(recipe: Recipe, corpus: Corpus, split: str) -> TokenChunks:
    data = recipe.data
    return TokenChunks(
        corpus.splits[split], data.sequence_length, respect_documents=data.respect_documents, keep_tail=True
    )


def _evaluate(
    recipe: Recipe,
    folder: Path,
    corpus: Corpus,
    chunks: TokenChunks,
    split: str,
    *,
    batch_size: int,
    progress: ProgressCallback | None,
) -> RunResult:
    found = _measured(recipe, load_model(folder), corpus, chunks, split, batch_size, progress)
    found.trace.save(trace_file(folder, split))
    metrics = {
        **found.metrics(),
        "name": recipe.name,
        "label": recipe.label or recipe.name,
        "recipe": recipe.fingerprint(),
        "seed": recipe.training.seed,
        "train": read_facts(folder),
        "corpus": _corpus_facts(corpus),
        "hardware": hardware(),
        "versions": versions(),
        "commit": commit(),
    }
    write_json(folder / METRICS_FILE, metrics)
    result = RunResult.load(folder)
    name = folder.resolve().name
    commands = [
        ["stickymoe", "train", f"{name}/{RECIPE_FILE}", "--out", f"{name}-again"],
        ["stickymoe", "evaluate", name, "--split", split],
    ]
    write_report(
        folder / REPORT_FILE,
        [result],
        passages_of(result, folder, corpus),
        title=f"{result.label} on {corpus.name}",
        setup={"commands": [shlex.join(command) for command in commands]},
    )
    return result


def _measured(
    recipe: Recipe,
    model: PreTrainedModel,
    corpus: Corpus,
    chunks: TokenChunks,
    split: str,
    batch_size: int,
    progress: ProgressCallback | None,
) -> Evaluation:
    provenance = {
        "model": recipe.label or recipe.name,
        "recipe": recipe.fingerprint(),
        "corpus": corpus.name,
        "layers_per_pool": layers_per_pool(model.config),
    }

    def told(done: int, total: int) -> None:
        if progress is not None:
            progress(f"evaluating on {split}", done, total)

    if isinstance(model, StickyMoEForCausalLM):
        return evaluate(
            model,
            chunks,
            split=split,
            batch_size=batch_size,
            device=model.device,
            keep_weights=True,
            provenance=provenance,
            progress=told,
        )
    return evaluate_captured(model, chunks, split=split, batch_size=batch_size, provenance=provenance, progress=told)


def _train(
    recipe: Recipe,
    folder: Path,
    corpus: Corpus,
    start: Path | None,
    ranks: Ranks,
    progress: ProgressCallback | None,
) -> None:
    settings, data = recipe.training, recipe.data
    chunks = TokenChunks(
        corpus.splits["train"],
        data.sequence_length,
        respect_documents=data.respect_documents,
        pair_borders=recipe.objective.reset_at_documents,
    )
    step = settings.batch_size * settings.gradient_accumulation
    if step > len(chunks):
        name = "training.batch_size * training.gradient_accumulation"
        rule = f"<= {len(chunks)}, the chunks of the train split of {corpus.name}"
        raise SettingError.broken(name, rule, step, "lower it, shorten data.sequence_length or give more text")
    model = build_model(recipe, corpus.vocab_size, corpus.tokenizer.eos_token_id)
    begun = pretrained_facts(recipe.model.pretrained) if recipe.model.pretrained is not None else None
    if start is not None:
        begun = begin_with(model, start, corpus)
    only = OnlyRouters(model) if settings.train_only == "routers" else None
    with without_progress_bars():
        trainer = _trainer(recipe, folder, corpus, model, chunks, ranks, progress)
        if ranks.is_first:
            save_recipe(recipe, folder / RECIPE_FILE)  # from here on the folder holds a run
        trainer.train(resume_from_checkpoint=True)
    if not ranks.is_first:
        return
    rows = read_log(folder / LOG_FILE)
    facts: dict[str, Any] = {
        "steps": settings.steps,
        "seconds": round(rows[-1]["seconds"], 1) if rows else 0.0,
        "tokens_per_step": step * data.sequence_length,
        "made_by": code_version(),
    }
    if begun is not None:
        facts["start"] = begun
    if only is not None:
        facts["frozen"] = only.proven()
    write_json(folder / TRAIN_FACTS_FILE, facts)
    save_model(model, corpus.tokenizer, folder / MODEL_FOLDER)


def _trainer(
    recipe: Recipe,
    folder: Path,
    corpus: Corpus,
    model: PreTrainedModel,
    chunks: TokenChunks,
    ranks: Ranks,
    progress: ProgressCallback | None,
) -> StickyTrainer:
    arguments = trainer_arguments(recipe, folder, corpus, ranks)
    try:
        return StickyTrainer(
            model,
            arguments,
            train_dataset=chunks,
            eval_dataset=_whole_split(recipe, corpus, "validation") if recipe.training.evaluate_every else None,
            data_collator=collate_chunks,
            progress=lambda step, total, row: progress(_describe(row), step, total) if progress else None,
        )
    except (ImportError, RuntimeError, ValueError) as error:
        if isinstance(error, SettingError) or not recipe.training.report_to:
            raise
        reason = " ".join(str(error).split())  # an unknown tracker, or one that is not installed
        raise SettingError(f"training.report_to {list(recipe.training.report_to)} cannot be used: {reason}") from error


def _corpus_facts(corpus: Corpus) -> dict[str, Any]:
    facts = {name: corpus.provenance[name] for name in ("split_rule", "tokenizer", "counts")}
    return {"name": corpus.name, "fingerprint": corpus.fingerprint[:16], **facts}


def _describe(row: dict[str, Any] | None) -> str:
    said = "training"
    if row and "cross_entropy" in row:
        said += f" · CE {row['cross_entropy']:.3f}"
    rates = [rate for rate in (row or {}).get("switch_rate", []) if rate is not None]
    if rates:
        said += f" · switch rate {np.mean(rates):.3f}"
    return said
