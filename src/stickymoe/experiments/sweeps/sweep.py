"""Runs a sweep: what stands is kept, what was begun goes on, what fails is set apart, the rest goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from stickymoe.core.errors import StickyMoEError, StorageError
from stickymoe.core.files import storage_errors
from stickymoe.data import ProgressCallback
from stickymoe.experiments.launchers.launcher import OUTPUT_FILE, Launcher
from stickymoe.experiments.launchers.local import LocalLauncher
from stickymoe.experiments.recipe_file import save_recipe
from stickymoe.experiments.run_folder import claimed
from stickymoe.experiments.runner import Job, run_jobs
from stickymoe.experiments.sweeps import folders
from stickymoe.experiments.sweeps.collect import fingerprint_of, finished_row, unfinished_row
from stickymoe.experiments.sweeps.corpora import Corpora
from stickymoe.experiments.sweeps.entry import Entry
from stickymoe.experiments.sweeps.plan import PlannedRun, chosen, plan
from stickymoe.experiments.sweeps.rows import read_row, write_row
from stickymoe.experiments.sweeps.sweep_file import Sweep

FAILED_FOLDER = "failed"


SweepProgress = Callable[[Sequence[Entry]], None]
"""Called every moment with all runs of the sweep."""


def run_sweep(
    sweep: Sweep,
    out: Path,
    *,
    launcher: Launcher | None = None,
    parallel: int | None = None,
    only: Sequence[str] = (),
    progress: SweepProgress | None = None,
    loading: ProgressCallback | None = None,
) -> list[Entry]:
    """Run what is missing of a sweep and write a row for each run as it ends.

    `OUT/rows/` gets the rows, `OUT/runs/` the run folders, `OUT/failed/` the output of runs that failed. Interrupted or
    killed at any moment, the same call goes on.

    Args:
        sweep: The grid.
        out: Its folder.
        launcher: Where runs are started; on this machine if not given.
        parallel: Runs at a time; as the launcher thinks best if not given.
        only: Patterns that choose among the runs.
        progress: Told of the runs.
        loading: Told of the corpora's loading.

    Returns:
        The chosen runs, each with what became of it.

    Raises:
        SettingError: A setting breaks a rule, or another process works on the same sweep.
        DataError: No corpus can be used, or a row that is there is of another version.
        StorageError: The disk refused a row; running runs were asked to save and end.
        KeyboardInterrupt: Ctrl-C; running runs have saved and ended.
    """
    launcher = launcher or LocalLauncher()
    try:
        with claimed(out):
            corpora = Corpora(sweep, loading)
            entries = _entries(plan(sweep, corpora.choice), out, only, corpora, launcher)
            jobs = [entry.job for entry in entries if entry.job]
            by_job = {id(entry.job): entry for entry in entries if entry.job}
            run_jobs(
                jobs,
                parallel or launcher.slots(),
                (lambda *_: progress(entries)) if progress else None,
                launcher=launcher,
                keep_going=True,
                ended=lambda job: _settle(sweep, by_job[id(job)], out, corpora),
            )
            return entries
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; the same command goes on from what is saved in {out}") from None
    finally:
        launcher.close()


def survey(
    sweep: Sweep, out: Path, *, only: Sequence[str] = (), loading: ProgressCallback | None = None
) -> list[Entry]:
    """Return what `run_sweep` would find, and change nothing: runs that stand, and runs with a job still to do.

    Raises:
        SettingError: See `run_sweep`.
        DataError: See `run_sweep`.
    """
    corpora = Corpora(sweep, loading)
    return _survey(plan(sweep, corpora.choice), out, only, corpora)


def _survey(runs: Sequence[PlannedRun], out: Path, only: Sequence[str], corpora: Corpora) -> list[Entry]:
    """Return the chosen runs and those whose models they need, with a job for each that does not stand."""
    picked = [run.name for run in chosen(runs, only)]
    for run in runs:
        corpora.of(run)  # a text that lacks a split is told here, once, and not by every run
    found: dict[str, Entry] = {}
    for run in runs:
        found[run.name] = Entry(run, run.folder(out), read_row(out, run.name))
    todo = [name for name in picked if not _stands(found[name], corpora)]
    for name in list(todo):
        start = found[name].run.start
        if start and start.name not in todo and not folders.has_model(start, start.folder(out), corpora.of(start)):
            todo.append(start.name)
    entries = [entry for name, entry in found.items() if name in picked or name in todo]
    for entry in entries:
        if entry.run.name in todo:
            steps = entry.run.recipe.training.steps
            entry.job = Job(entry.run.name, entry.folder, _command(entry, out), steps)
    for entry in entries:
        start = entry.run.start
        if entry.job and start and found[start.name].job:
            entry.job.after = found[start.name].job
    return entries


def _stands(entry: Entry, corpora: Corpora) -> bool:
    row, run = entry.row, entry.run
    if row is None or not row.complete or row.key != run.key:
        return False
    return row.corpus_fingerprint == fingerprint_of(corpora.of(run))


def _entries(
    runs: Sequence[PlannedRun], out: Path, only: Sequence[str], corpora: Corpora, launcher: Launcher
) -> list[Entry]:
    """Survey the sweep and prepare the folders of the runs that have something to do."""
    entries = _survey(runs, out, only, corpora)
    limit = corpora.sweep.time_limit_minutes
    for entry in entries:
        if entry.job is None:
            continue
        if launcher.follows(entry.folder):
            folders.require_own(entry.run, entry.folder, corpora.of(entry.run))
        else:
            folders.prepare(entry.run, entry.folder, corpora.of(entry.run))
        save_recipe(entry.run.recipe, _recipe_file(entry, out))
        entry.job.limit_seconds = limit * 60 if limit else None
        if folders.is_measured(entry.run, entry.folder, corpora.of(entry.run)):
            entry.job.state = "finished"
            _settle(corpora.sweep, entry, out, corpora)
    return entries


def _settle(sweep: Sweep, entry: Entry, out: Path, corpora: Corpora) -> None:
    """Turn a run that has ended into its row, or set its output apart."""
    job, run = entry.job, entry.run
    if job is None:
        return
    apart = out / FAILED_FOLDER / f"{run.name}.txt"
    if job.state == "finished":
        try:
            entry.row = finished_row(sweep, run, entry.folder, corpora.of(run))
            write_row(entry.row, out)
        except StorageError:
            raise
        except StickyMoEError as error:
            job.state, job.reason = "failed", f"left no result: {error}"
        else:
            apart.unlink(missing_ok=True)
            folders.tidy(entry.folder)
            return
    elif job.state == "cut short":
        write_row(unfinished_row(sweep, run, entry.folder, corpora.of(run)), out)
    if (entry.folder / OUTPUT_FILE).exists():
        with storage_errors(apart):
            apart.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(entry.folder / OUTPUT_FILE, apart)


def _command(entry: Entry, out: Path) -> list[str]:
    words = ["-m", "stickymoe", "train", str(_recipe_file(entry, out)), "--out", str(entry.folder)]
    return [*words, "--split", entry.run.split, "--resume"]


def _recipe_file(entry: Entry, out: Path) -> Path:
    return out / "recipes" / f"{entry.run.name}.toml"
