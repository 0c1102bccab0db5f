"""The demo: one small model with an ordinary router, sticky ones, and the dense control, side by side in a report."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stickymoe.core.errors import TrainingError
from stickymoe.core.files import write_json
from stickymoe.data import ProgressCallback
from stickymoe.experiments.environment import usable_cores
from stickymoe.experiments.headline import headline
from stickymoe.experiments.recipe import Recipe
from stickymoe.experiments.recipe_file import load_recipe, save_recipe
from stickymoe.experiments.report import write_report
from stickymoe.experiments.results import RunResult
from stickymoe.experiments.run import corpus_of, passage_of
from stickymoe.experiments.run_folder import RECIPE_FILE, REPORT_FILE, claimed, is_finished, stands
from stickymoe.experiments.run_model import model_config
from stickymoe.experiments.runner import Job, run_jobs
from stickymoe.experiments.variants import DENSE, VANILLA, Variant, hysteresis, soft, soft_hard

# Chosen on the validation split, from the sweep's runs, by `python benchmarks/demo_coefficients.py results/demo`; its
# rule is written there, the rows are in benchmarks/results/demo_coefficients.json.
DEMO_VARIANTS = (VANILLA, soft(0.5), soft_hard(0.1, 1.0), hysteresis(1, 1.0, recursive=True), DENSE)
TITLE = "Sticky routing on real text"
SUMMARY_FILE = "demo.json"


def run_demo(
    out: Path,
    *,
    variants: Sequence[Variant] = DEMO_VARIANTS,
    split: str = "test",
    jobs: int | None = None,
    overrides: Sequence[str] = (),
    progress: ProgressCallback | None = None,
) -> tuple[list[RunResult], Path]:
    """Train the variants on the same batches, evaluate them, and write `OUT/report.html` and `OUT/demo.json`.

    Runs that stand from an earlier call are kept if recipe and code are the same, interrupted ones go on.

    Args:
        out: Folder; gets `runs/VARIANT/`, the report and its numbers.
        variants: What to compare.
        split: Split to evaluate on.
        jobs: Runs at a time; as many as there are cores if not given.
        overrides: `table.key=value` changes to the demo's recipe, for all variants.
        progress: Told of the work.

    Returns:
        The results in the variants' order, and the report's path.

    Raises:
        SettingError: The overrides break a rule, or another process works in the same folder.
        DataError: The corpus cannot be used.
        TrainingError: A run failed; the others that had begun were finished first.
    """
    begun = time.perf_counter()
    base = load_recipe("demo", overrides)
    recipes = [variant.apply(base) for variant in variants]
    for recipe in recipes:
        model_config(recipe, vocab_size=1)  # what breaks a rule is told here, once, and not by every run
    with claimed(out):
        corpus = corpus_of(base, progress)
        _ = corpus.splits[split]  # raises, naming the file looked for
        folders = [out / "runs" / recipe.name for recipe in recipes]
        pairs = list(zip(recipes, folders, strict=True))
        todo = [_job(recipe, folder, out, split) for recipe, folder in pairs if not is_finished(folder, recipe, split)]
        _run(todo, jobs or usable_cores(), out, progress)
        results = [RunResult.load(folder) for folder in folders]
        routed = [pair for pair in zip(results, folders, strict=True) if not pair[0].is_dense]
        page = out / REPORT_FILE
        passages = [passage_of(result, folder, corpus) for result, folder in routed]
        seconds = round(time.perf_counter() - begun) if len(todo) == len(recipes) else None
        setup = _setup(out, variants, split, overrides, seconds)
        write_report(page, results, passages, title=TITLE, setup=setup)
        summary = {"seconds": seconds, "headline": headline(results), "runs": [result.metrics for result in results]}
        write_json(out / SUMMARY_FILE, summary)
    return results, page


def _run(todo: Sequence[Job], jobs: int, out: Path, progress: ProgressCallback | None) -> None:
    try:
        run_jobs(todo, min(jobs, len(todo) or 1), _JobBars(progress, todo) if progress else None)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; the same command goes on from what is saved in {out}") from None
    except TrainingError as error:
        raise TrainingError(f"{error}; finished runs are kept, mend the cause and run the same command") from None


def _job(recipe: Recipe, folder: Path, out: Path, split: str) -> Job:
    """Prepare a run to be begun or gone on with; what is there of another recipe or other code makes way."""
    if (folder / RECIPE_FILE).exists() and not stands(folder, recipe):
        with claimed(folder):  # never from under a process that is at work
            shutil.rmtree(folder)
    file = out / "recipes" / f"{recipe.name}.toml"
    save_recipe(recipe, file)
    command = ["-m", "stickymoe", "train", str(file), "--out", str(folder), "--split", split, "--resume"]
    return Job(recipe.label or recipe.name, folder, command, recipe.training.steps)


def _setup(
    out: Path, variants: Sequence[Variant], split: str, overrides: Sequence[str], seconds: int | None
) -> dict[str, Any]:
    """Return what the report says of how it came about; `seconds` is known where all runs were made in one go."""
    setup: dict[str, Any] = {
        "notes": ["All runs see the same batches in the same order and differ in nothing but what their name says."]
    }
    if tuple(variants) == DEMO_VARIANTS:
        words = [word for override in overrides for word in ("--set", override)]
        setup["commands"] = [shlex.join(["stickymoe", "demo", "--out", out.resolve().name, *words])]
        if split != "validation":
            setup["notes"].append(f"The coefficients were chosen on the validation split; this page shows {split}.")
    if seconds is not None:
        setup["seconds"] = seconds
    return setup


class _JobBars:
    """Turns the runner's news into one progress line a run, and one for all of them."""

    def __init__(self, progress: ProgressCallback, jobs: Sequence[Job]) -> None:
        self._progress = progress
        self._jobs = jobs  # all of them; one that failed is in none of the runner's lists
        self._shown: dict[str, tuple[int, str]] = {}

    def __call__(self, waiting: Sequence[Job], running: Sequence[Job], finished: Sequence[Job]) -> None:
        steps = {job.label: job.steps if job in finished else job.step() for job in self._jobs}
        total = sum(job.steps for job in self._jobs)
        self._show(f"training {len(self._jobs)} runs", sum(steps.values()), total, "")
        for job in (*running, *finished):
            step = steps[job.label]
            doing = "done" if job in finished else "evaluating" if step >= job.steps else ""
            self._show(f"training {job.label}", step, job.steps, doing)

    def _show(self, name: str, done: int, total: int, doing: str) -> None:
        if self._shown.get(name) != (done, doing):
            self._shown[name] = (done, doing)
            self._progress(f"{name} · {doing}" if doing else name, done, total)
