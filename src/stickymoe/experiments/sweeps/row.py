"""A sweep's result rows: one a run, flat enough for a data frame, whole enough to rebuild every table and figure.

No `from __future__ import annotations` here: pydantic reads the field types at run time.
"""

import json
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from stickymoe.experiments.results import RunResult
from stickymoe.experiments.ribbon import RoutedPassage

Names = Annotated[tuple[str, ...], Field(strict=False)]
Numbers = Annotated[tuple[FiniteFloat | None, ...], Field(strict=False)]
WholeNumbers = Annotated[tuple[int, ...], Field(strict=False)]


class CacheRow(BaseModel):
    """One replayed cache; see `CacheCounts` in `metrics_file.py` for what each word means."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: str
    capacity: int
    scope: str
    accesses: str
    replay: str
    reset: str
    hits: int
    misses: int
    hit_rate: FiniteFloat


class ResultRow(BaseModel):
    """What came out of one run of a sweep.

    Numbers are None where there is nothing to tell: of routing in a dense model, of quality in a run that was cut
    short. Lists over layers begin with the first layer. The curves have one entry a row of the training log.

    Attributes:
        sweep: Name of the sweep.
        run: `SIZE/SEED/VARIANT`.
        key: Hash of what decides the result; a row stands while its run's key is this.
        size: Size's name.
        seed: Seed of weights and batches.
        variant: Variant's name.
        family: The variant's family.
        label: Name of the variant for readers.
        settings: What the variant changes in the recipe, JSON of `table.key` to value.
        title: The sweep's title.
        note: The sweep's caveat.
        split: What was measured.
        corpus: Name of the text.
        corpus_fingerprint: Hash of its tokens.
        complete: Whether the run was trained to its end and measured.
        steps: Optimizer steps that the recipe asks for.
        steps_done: How many were made.
        hours: Time spent in training, over all sittings.
        tokens_per_step: Tokens of a step.
        cross_entropy: Nats a token.
        perplexity: Its exponential.
        predicted_tokens: Tokens it was measured on.
        num_experts: Experts a layer.
        top_k: Experts a token.
        num_layers: Layers.
        parameters_total: All parameters.
        parameters_active: Those that serve a token.
        switch_rate: Share of neighbouring tokens with another top-1 expert, mean over layers.
        set_switch_rate: The same for the set of k experts.
        expert_overlap: Share of experts kept from a token to the next.
        chance_overlap: What random choice would keep: k/N.
        utilisation_entropy_bits: Entropy of the load; log2 N is even.
        load_cv: Standard deviation of the experts' load over its mean.
        load_busiest_over_mean: Load of the busiest expert over the mean.
        gate_entropy_bits: Mean entropy of the gates.
        gate_margin: Mean distance of the largest gate from the second.
        paper_hit_rate: Hit rate as the paper counts: top-1 lookups in two LRU slots a layer.
        cache: All replayed caches.
        curve_step: Step of each row of the training log; the other curves go with it.
        curve_cross_entropy: Cross-entropy in training.
        curve_switch_rate: Mean switch rate of the layers.
        curve_gate_entropy_bits: Mean gate entropy of the layers.
        curve_gate_margin: Mean gate margin of the layers.
        passage_pieces: The first tokens of the split, as text.
        passage_expert_ids: Who served them, (tokens, layers, k) in a row; slot 0 is the top-1 expert.
        passage_expert_weights: With what weight, in the same order.
        hardware: JSON of what it ran on.
        versions: JSON of the packages' versions.
        commit: The code's commit.
        training_version: `TRAINING_VERSION` of the code.
        evaluation_version: `EVALUATION_VERSION` of the code.
        recipe_hash: Fingerprint of the recipe.
        recipe: The resolved recipe, JSON.
        metrics: The run's `metrics.json`, empty if it was not measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sweep: str
    run: str
    key: str
    size: str
    seed: int
    variant: str
    family: str
    label: str
    settings: str
    title: str | None = None
    note: str | None
    split: str
    corpus: str
    corpus_fingerprint: str
    complete: bool
    steps: int
    steps_done: int
    hours: FiniteFloat
    tokens_per_step: int
    cross_entropy: FiniteFloat | None = None
    perplexity: FiniteFloat | None = None
    predicted_tokens: int | None = None
    num_experts: int | None = None
    top_k: int | None = None
    num_layers: int | None = None
    parameters_total: int | None = None
    parameters_active: int | None = None
    switch_rate: FiniteFloat | None = None
    set_switch_rate: FiniteFloat | None = None
    expert_overlap: FiniteFloat | None = None
    chance_overlap: FiniteFloat | None = None
    utilisation_entropy_bits: FiniteFloat | None = None
    load_cv: FiniteFloat | None = None
    load_busiest_over_mean: FiniteFloat | None = None
    gate_entropy_bits: FiniteFloat | None = None
    gate_margin: FiniteFloat | None = None
    switch_rate_per_layer: Numbers = ()
    set_switch_rate_per_layer: Numbers = ()
    expert_overlap_per_layer: Numbers = ()
    utilisation_entropy_bits_per_layer: Numbers = ()
    load_cv_per_layer: Numbers = ()
    load_busiest_over_mean_per_layer: Numbers = ()
    gate_entropy_bits_per_layer: Numbers = ()
    gate_margin_per_layer: Numbers = ()
    paper_hit_rate: FiniteFloat | None = None
    cache: Annotated[tuple[CacheRow, ...], Field(strict=False)] = ()
    curve_step: WholeNumbers = ()
    curve_cross_entropy: Numbers = ()
    curve_switch_rate: Numbers = ()
    curve_gate_entropy_bits: Numbers = ()
    curve_gate_margin: Numbers = ()
    passage_pieces: Names = ()
    passage_expert_ids: WholeNumbers = ()
    passage_expert_weights: Numbers = ()
    hardware: str = "{}"
    versions: str = "{}"
    commit: str = ""
    training_version: int
    evaluation_version: int
    recipe_hash: str
    recipe: str
    metrics: str = ""

    def result(self) -> RunResult:
        """Return the run as tables, figures and reports read it, named after its variant; its log holds the curves.

        Raises:
            DataError: The run was not measured, or its metrics break their schema.
        """
        curves = {
            "step": self.curve_step,
            "cross_entropy": self.curve_cross_entropy,
            "switch_rate": self.curve_switch_rate,
            "gate_entropy_bits": self.curve_gate_entropy_bits,
            "gate_margin": self.curve_gate_margin,
        }
        log: list[dict[str, Any]] = []
        for values in zip(*curves.values(), strict=True):
            row = dict(zip(curves, values, strict=True))
            log.append({name: row[name] if name in ("step", "cross_entropy") else [row[name]] for name in row})
        return RunResult(self.variant, self.label, json.loads(self.metrics or "{}"), log)

    def passage(self) -> RoutedPassage | None:
        """Return how the first tokens of the split were routed, for ribbons; None if nothing was."""
        if not self.passage_pieces or self.num_layers is None or self.top_k is None or self.num_experts is None:
            return None
        shape = (len(self.passage_pieces), self.num_layers, self.top_k)
        ids = np.array(self.passage_expert_ids, np.int32).reshape(shape)
        weights = np.array(self.passage_expert_weights, np.float32).reshape(shape)
        return RoutedPassage(self.variant, list(self.passage_pieces), ids, weights, self.num_experts)
