"""How well simple predictors foretell a token's experts, before anything is built on them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_at_least
from stickymoe.metrics.intervals import Resampling
from stickymoe.metrics.markov_kernel import UNKNOWN, markov_ranks, transitions
from stickymoe.metrics.popularity import first_uses, of_others, popularity_orders, popularity_ranks, uses
from stickymoe.metrics.reuse import places
from stickymoe.metrics.rows import layer_ids, run_starts, sequence_firsts
from stickymoe.metrics.tally import Figure, Value, evaluate, ratio
from stickymoe.metrics.units import Units, units_of
from stickymoe.traces import DECODE, PREFILL, RoutingTrace

# What is learned is learned on all folds but the one it is tried on.
FOLDS = 8
# Tables of transitions grow with the square of the experts.
MOST_MARKOV_EXPERTS = 1024


@dataclass(frozen=True)
class Prediction:
    """One predictor at one budget.

    Args:
        predictor: Its name.
        budget: Experts predicted a token and layer, at most.
        recall: Share of the needed experts that were predicted.
        over_fetch: Experts predicted and not needed, for each needed one; times k experts a token it is wasted reading.
        chance: budget / num_experts, the recall of guessing.
        without: Why there is no number; empty where there is one.
    """

    predictor: str
    budget: int
    recall: Value | None
    over_fetch: Value | None
    chance: float
    without: str = ""


@dataclass(frozen=True)
class Scene:
    """What predictors are tried on.

    Args:
        trace: The routing.
        units: Its units.
        scored: Rows that count: with a neighbour before them and, where phases are known, decoded.
        before: The row before each, -1 where the run starts.
        fold_of_row: Which fold each row is in.
        folds: How many; below 2 nothing can be learned.
    """

    trace: RoutingTrace
    units: Units
    scored: np.ndarray
    before: np.ndarray
    fold_of_row: np.ndarray
    folds: int

    @property
    def rows(self) -> str:
        """The rows that count, in words."""
        return "decoded tokens" if self.trace.phases is not None else "tokens"


# Takes the scene and a layer; returns each slot's rank among the experts it predicts, UNKNOWN for none, and how many
# experts the predictor has to offer at each row.
Ranks = Callable[[Scene, int], tuple[np.ndarray, np.ndarray]]


def predictor_recall(
    trace: RoutingTrace, budgets: Iterable[int], *, resampling: Resampling | None = None
) -> list[Prediction]:
    """Score simple predictors of a token's experts at equal budget, all on the same tokens.

    `previous`: the experts used last, the previous token's first. `static`: the most used of the layer on other folds.
    `markov`: those that most often followed the previous token's experts in the layer, on other folds.
    `next-layer`: those that most often went with the same token's experts of the layer before, on other folds.
    `prompt`: the most used of the layer in the sequence's own prompt. Equal scores, and all where there is nothing to
    go by (the first layer has none before it), stand by popularity.

    Tokens that start a run are not scored, nor, where the trace knows phases, prompt tokens. Folds are 8 sets of
    sequences (of contiguous blocks, if there is one sequence).

    Args:
        trace: The routing.
        budgets: Experts predicted a token and layer, each >= 1; at least one.
        resampling: Makes intervals, over units with what was learned held fixed; none if not given.

    Returns:
        Predictors by budget. One that cannot be tried says why in `without`.

    Raises:
        SettingError: A budget is below 1.
    """
    sizes = list(budgets)
    if not sizes:
        raise SettingError.broken("budgets", "at least one number of experts", sizes)
    for budget in sizes:
        require_at_least("budget", budget, 1)
    scene = scene_of(trace)
    found: list[Prediction] = []
    for name, ranks in PREDICTORS.items():
        reason = _without(scene, name)
        values = {} if reason else _scores(scene, ranks, sizes, resampling)
        if not reason and values[f"recall {sizes[0]}"].mean is None:
            reason, values = f"no {scene.rows} with a neighbour before them", {}
        for budget in sizes:
            chance = min(1.0, budget / trace.num_experts)
            pair = values.get(f"recall {budget}"), values.get(f"over_fetch {budget}")
            found.append(Prediction(name, budget, *pair, chance, reason))
    return found


def scene_of(trace: RoutingTrace) -> Scene:
    """Decide which rows are scored and how they are cut into folds."""
    rows, starts = np.arange(trace.num_tokens), run_starts(trace)
    before = np.where(starts < rows, rows - 1, -1)
    scored = before >= 0
    if trace.phases is not None:
        scored &= trace.phases == DECODE
    units = units_of(trace)
    folds = min(FOLDS, units.count)
    # Blocks of one sequence are dealt out in order, so that folds touch at few places.
    fold_of_row = units.of_row % folds if trace.num_sequences > 1 else units.of_row * folds // units.count
    return Scene(trace, units, scored, before, fold_of_row, folds)


def _without(scene: Scene, name: str) -> str:
    if name == "prompt" and scene.trace.phases is None:
        return "the trace does not tell prompt from decoded tokens"
    if name in LEARNED and scene.folds < 2:
        return "one short sequence leaves nothing to learn from"
    if name in ("markov", "next-layer") and scene.trace.num_experts > MOST_MARKOV_EXPERTS:
        return f"transition tables of more than {MOST_MARKOV_EXPERTS} experts are not built"
    if name == "next-layer" and scene.trace.num_layers < 2:
        return "there is one layer"
    return ""


def _scores(scene: Scene, ranks: Ranks, budgets: list[int], resampling: Resampling | None) -> dict[str, Value]:
    def tally(trace: RoutingTrace, layer: int, units: Units) -> np.ndarray:
        rank, offered = ranks(scene, layer)
        ids, _ = layer_ids(trace, layer)
        needed = np.where(scene.scored, (ids >= 0).sum(axis=1), 0)
        columns = [needed]
        for budget in budgets:
            hits = ((rank >= 0) & (rank < budget)).sum(axis=1)
            columns += [np.where(needed > 0, hits, 0), np.where(needed > 0, np.minimum(offered, budget), 0)]
        return np.stack([np.bincount(units.of_row, column, minlength=units.count) for column in columns], axis=1)

    figures = []
    for place, budget in enumerate(budgets):
        hits, predicted = 1 + 2 * place, 2 + 2 * place
        figures.append(Figure(f"recall {budget}", partial(_recall, hits), scene.rows, pooled=True))
        over = partial(_over_fetch, hits, predicted)
        figures.append(Figure(f"over_fetch {budget}", over, scene.rows, high=float("inf"), pooled=True))
    return evaluate(scene.trace, tally, figures, scene.units, resampling)


def _recall(hits: int, sums: np.ndarray) -> np.ndarray:
    return ratio(sums[..., hits], sums[..., 0])


def _over_fetch(hits: int, predicted: int, sums: np.ndarray) -> np.ndarray:
    return ratio(sums[..., predicted] - sums[..., hits], sums[..., 0])


def _previous(scene: Scene, layer: int) -> tuple[np.ndarray, np.ndarray]:
    ids, table = layer_ids(scene.trace, layer)
    firsts = sequence_firsts(scene.trace)
    rank = places(ids, firsts, table, True)
    # Experts seen before each row of its sequence: first uses so far, this row's left out.
    fresh = (rank == UNKNOWN).sum(axis=1)
    seen = np.cumsum(fresh) - fresh
    return rank, seen - seen[firsts]


def _static(scene: Scene, layer: int) -> tuple[np.ndarray, np.ndarray]:
    ids, table = layer_ids(scene.trace, layer)
    counts = of_others(uses(ids, scene.fold_of_row, scene.folds, table))
    ranks = popularity_ranks(counts, first_uses(ids, table))
    return _of_groups(ids, ranks, scene.fold_of_row), (counts > 0).sum(axis=1)[scene.fold_of_row]


def _prompt(scene: Scene, layer: int) -> tuple[np.ndarray, np.ndarray]:
    ids, table = layer_ids(scene.trace, layer)
    starts = scene.trace.sequence_starts()
    sequence_of_row = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    asked = ids.copy()
    asked[~_prompt_rows(scene.trace, starts)] = UNKNOWN
    counts = uses(asked, sequence_of_row, len(starts) - 1, table)
    ranks = popularity_ranks(counts, first_uses(ids, table))
    return _of_groups(ids, ranks, sequence_of_row), (counts > 0).sum(axis=1)[sequence_of_row]


def _prompt_rows(trace: RoutingTrace, starts: np.ndarray) -> np.ndarray:
    # The prompt ends where a sequence first decodes; what is prefilled later comes too late to learn from.
    assert trace.phases is not None
    decoded = np.cumsum(trace.phases == DECODE)
    earlier = np.repeat(decoded[starts[:-1]] - (trace.phases[starts[:-1]] == DECODE), np.diff(starts))
    rows: np.ndarray = (trace.phases == PREFILL) & (decoded == earlier)
    return rows


def _of_groups(ids: np.ndarray, ranks: np.ndarray, group_of_row: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.where(ids >= 0, ranks[group_of_row[:, None], ids], UNKNOWN)
    return found


def _markov(scene: Scene, layer: int) -> tuple[np.ndarray, np.ndarray]:
    ids, _ = layer_ids(scene.trace, layer)
    served = (scene.before >= 0) & (ids[scene.before, 0] >= 0)
    return _from_source(scene, ids, ids, np.where(served, scene.before, -1))


def _next_layer(scene: Scene, layer: int) -> tuple[np.ndarray, np.ndarray]:
    ids, _ = layer_ids(scene.trace, layer)
    source = layer_ids(scene.trace, layer - 1)[0] if layer else np.full_like(ids, UNKNOWN)
    return _from_source(scene, source, ids, np.where(source[:, 0] >= 0, np.arange(len(ids)), -1))


def _from_source(
    scene: Scene, source: np.ndarray, ids: np.ndarray, before: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    experts = scene.trace.num_experts
    pairs, sources = transitions(source, ids, before, scene.fold_of_row, scene.folds, experts)
    counts = of_others(uses(ids, scene.fold_of_row, scene.folds, experts))
    orders = popularity_orders(counts, first_uses(ids, experts))
    all_pairs, all_sources = pairs.sum(axis=0), sources.sum(axis=0)
    ranks, offered = np.full(ids.shape, UNKNOWN, dtype=np.int64), np.zeros(len(ids), dtype=np.int64)
    for fold in range(scene.folds):
        seen = np.maximum(all_sources - sources[fold], 1)
        weights = ((all_pairs - pairs[fold]) / seen[:, None]).astype(np.float32)
        known = int((counts[fold] > 0).sum())
        rows = np.flatnonzero((scene.fold_of_row == fold) & scene.scored)
        ranks[rows] = markov_ranks(source, ids[rows], before[rows], weights, orders[fold, :known])
        offered[rows] = known
    return ranks, offered


PREDICTORS: dict[str, Ranks] = {
    "previous": _previous,
    "static": _static,
    "markov": _markov,
    "next-layer": _next_layer,
    "prompt": _prompt,
}
LEARNED = ("static", "markov", "next-layer")
