"""From a sweep to its runs: who they are, what recipe each has, and the keys by which their results stand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import nearest
from stickymoe.experiments.recipe import Recipe
from stickymoe.experiments.recipe_file import load_recipe
from stickymoe.experiments.run_model import model_config
from stickymoe.experiments.sweeps.sweep_file import SizeTable, Sweep
from stickymoe.experiments.sweeps.versions import EVALUATION_VERSION, TRAINING_VERSION
from stickymoe.experiments.variants import FAMILIES, Variant, choose_variants


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep.

    Attributes:
        size: Its size's name.
        seed: Its seed.
        variant: Its variant.
        recipe: Everything that determines it.
        split: What it is measured on.
        start: The run whose model it begins with.
    """

    size: str
    seed: int
    variant: Variant
    recipe: Recipe
    split: str
    start: PlannedRun | None = None

    @property
    def name(self) -> str:
        """Return `SIZE/SEED/VARIANT`: its place in the sweep's folder, and what `--only` matches."""
        return f"{self.size}/{self.seed}/{self.variant.name}"

    @property
    def family(self) -> str:
        """Return the family of its variant."""
        return next(family for family, grid in FAMILIES.items() if self.variant in grid)

    @property
    def training_key(self) -> str:
        """Return a hash of what decides the trained weights."""
        return _hash([TRAINING_VERSION, self.recipe.fingerprint(), self.start.training_key if self.start else None])

    @property
    def key(self) -> str:
        """Return a hash of what decides the result: a row with this key stands."""
        return _hash([self.training_key, EVALUATION_VERSION, self.split])

    def folder(self, out: Path) -> Path:
        """Return its run folder below the sweep's."""
        return out / "runs" / self.name


def plan(sweep: Sweep, corpus: str | None = None) -> list[PlannedRun]:
    """Return all runs of a sweep, the first seed's first, checked as far as can be without their text.

    Args:
        sweep: The sweep.
        corpus: The corpus chosen of `sweep.corpora`.

    Raises:
        SettingError: An unknown variant, settings that contradict each other, or a variant that begins with another's
            model which the sweep lacks.
    """
    variants = choose_variants(sweep.variants)
    runs: list[PlannedRun] = []
    for seed in sweep.seeds:
        for size, table in sweep.sizes.items():
            base = _base(sweep, table, seed, corpus)
            block = {variant.name: _run(sweep, size, seed, variant, base) for variant in variants}
            runs += [_with_start(run, block) for run in block.values()]
    return runs


def chosen(runs: Sequence[PlannedRun], only: Iterable[str]) -> list[PlannedRun]:
    """Return the runs that match one of the patterns, by variant or by `SIZE/SEED/VARIANT`; all if there is none.

    Raises:
        SettingError: A pattern matches none.
    """
    patterns = list(only)
    names = {run.name: (run.name, run.variant.name) for run in runs}
    for pattern in patterns:
        if not any(fnmatchcase(word, pattern) for words in names.values() for word in words):
            hint = nearest(pattern, [word for words in names.values() for word in words])
            raise SettingError.broken("--only", f"a pattern that matches a run, as {runs[0].name}", pattern, hint)
    return [
        run for run in runs if not patterns or any(fnmatchcase(word, p) for p in patterns for word in names[run.name])
    ]


def _base(sweep: Sweep, table: SizeTable, seed: int, corpus: str | None) -> Recipe:
    text = [f"data.corpus={json.dumps(corpus)}"] if corpus else []
    return load_recipe(table.recipe, [*sweep.overrides, *table.overrides, *text, f"training.seed={seed}"])


def _run(sweep: Sweep, size: str, seed: int, variant: Variant, base: Recipe) -> PlannedRun:
    try:
        recipe = variant.apply(base)
        model_config(recipe, vocab_size=1)  # what breaks a rule is told here, once, and not by every run
    except SettingError as error:
        raise SettingError(f"variant {variant.name} at size {size}: {error}") from None
    return PlannedRun(size, seed, variant, recipe, sweep.split)


def _with_start(run: PlannedRun, block: dict[str, PlannedRun]) -> PlannedRun:
    name = run.variant.starts_from
    if name is None:
        return run
    if name not in block:
        raise SettingError(f"variant {run.variant.name} begins with the model of {name}; add {name!r} to variants")
    return replace(run, start=block[name])


def _hash(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
