"""The texts of a sweep: which of several is at hand, each loaded once."""

from __future__ import annotations

from stickymoe.core.errors import DataError
from stickymoe.data import Corpus, ProgressCallback
from stickymoe.experiments.recipe import Recipe
from stickymoe.experiments.recipe_file import load_recipe
from stickymoe.experiments.run import corpus_of
from stickymoe.experiments.sweeps.plan import PlannedRun
from stickymoe.experiments.sweeps.sweep_file import Sweep


class Corpora:
    """The corpora of a sweep's runs.

    Attributes:
        sweep: Whose.
        choice: Which of `sweep.corpora` was chosen: the first with a train split and the split to measure; None if the
            recipes name their own.
    """

    def __init__(self, sweep: Sweep, loading: ProgressCallback | None = None) -> None:
        """Choose.

        Raises:
            DataError: None is at hand; what was looked for stands in the message.
        """
        self.sweep = sweep
        self._loading = loading
        self._loaded: dict[tuple[str, str], Corpus] = {}
        self.choice: str | None = None
        reasons: list[str] = []
        for name in sweep.corpora:
            try:
                self._load(self._first_recipe(name))
            except DataError as error:
                reasons.append(f"{name}: {error}")
            else:
                self.choice = name
                return
        if reasons:
            raise DataError(f"none of the sweep's corpora is at hand; {'; '.join(reasons)}")

    def of(self, run: PlannedRun) -> Corpus:
        """Return the corpus of a run.

        Raises:
            DataError: It lacks the train split, or the one to measure.
        """
        return self._load(run.recipe)

    def _first_recipe(self, corpus: str) -> Recipe:
        first = next(iter(self.sweep.sizes.values()))
        recipe = load_recipe(first.recipe, [*self.sweep.overrides, *first.overrides])
        return recipe.model_copy(update={"data": recipe.data.model_copy(update={"corpus": corpus})})

    def _load(self, recipe: Recipe) -> Corpus:
        key = (recipe.data.corpus, recipe.model.pretrained or recipe.data.tokenizer)
        if key not in self._loaded:
            corpus = corpus_of(recipe, self._loading)
            for split in ("train", self.sweep.split):
                _ = corpus.splits[split]
            self._loaded[key] = corpus
        return self._loaded[key]
