"""The tables that stand beside the plots: the same numbers, in words, for readers, printers and screen readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stickymoe.experiments.diagnosis.policies import label_of
from stickymoe.experiments.diagnosis.record import Diagnosis
from stickymoe.experiments.diagnosis.wording import points, size
from stickymoe.experiments.formatting import DASH, fixed, percent

_ROWS = 12


class Table(NamedTuple):
    """A table: every row starts with its heading; `words` are the columns of text, all others are of numbers."""

    caption: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    words: tuple[int, ...] = ()


def target_table(found: Diagnosis) -> Table:
    """Return the smallest budgets; Belady's are exact only up to the capacities it was replayed at."""
    rows = []
    for target in found.targets:
        lru = "never" if target.slots is None else f"{target.slots:,}"
        belady = "never" if target.belady_slots is None else f"≤ {target.belady_slots:,}"
        rows.append((percent(target.hit_rate), lru, size(target.total_bytes), belady))
    return Table("Smallest cache for a hit rate", ("hit rate", "LRU, slots", "size", "Belady, slots"), rows)


def curve_table(found: Diagnosis) -> Table:
    """Return the curves at the capacities that all of them share."""
    shared = sorted(set.intersection(*(set(curve.capacities) for curve in found.curves)))
    rows = [
        (f"{slots:,}", size(found.budget.bytes_of(slots)), *(percent(curve.at(slots), 1) for curve in found.curves))
        for slots in shared
    ]
    return Table(
        "Hit rates over all layers", ("slots", "size", *(label_of(curve.policy) for curve in found.curves)), rows
    )


def policy_table(found: Diagnosis) -> Table:
    """Return every policy at the budget."""
    rows = [
        (
            each.label,
            percent(each.hit_rate, 1),
            percent(each.gap_captured),
            fixed(each.loads_per_token, 1),
            size(each.bytes_per_token),
            each.kind,
        )
        for each in found.policies
    ]
    heads = ("policy", "hit rate", "gap captured", "loads a token", "bytes a token", "kind")
    caption = "Policies at the budget; hindsight knows this trace's counts, a bound knows the future"
    return Table(caption, heads, rows, words=(5,))


def layer_table(found: Diagnosis) -> Table:
    """Return every layer, in order."""
    rows = [
        (each.name, percent(each.lru, 1), percent(each.belady, 1), percent(each.miss_share, 1)) for each in found.layers
    ]
    return Table("Layers at the budget", ("layer", "LRU", "Belady", "share of all misses"), rows)


def phase_table(found: Diagnosis) -> Table:
    """Return prefill and decode."""
    rows = [
        (each.phase, f"{each.tokens:,}", percent(each.lru, 1), percent(each.belady, 1), fixed(each.misses_per_token, 1))
        for each in found.phases
    ]
    return Table("Phases at the budget", ("phase", "tokens", "LRU", "Belady", "LRU misses a token"), rows)


def start_table(found: Diagnosis) -> Table:
    """Return the windows after a cold start."""
    assert found.warm_up is not None
    rows = [
        (
            str(each.start) if each.stop == each.start + 1 else f"{each.start} to {each.stop - 1}",
            percent(each.hit_rate, 1),
        )
        for each in found.warm_up.windows
    ]
    return Table("Hit rate of a sequence's tokens", ("tokens", "LRU"), rows)


def locality_table(found: Diagnosis) -> Table:
    """Return the replays that tell skew from locality."""
    seen = found.locality
    rows = [
        ("Random experts cached", percent(seen.chance, 1), "slots over experts"),
        ("LRU, tokens shuffled", percent(seen.shuffled, 1), "popular experts alone"),
        ("LRU, tokens in order", percent(seen.lru, 1), "popularity and order"),
        ("Most used pinned, learned on other sequences", percent(seen.pinned_held_out, 1), "popularity that lasts"),
        ("Most used pinned, learned here", percent(seen.pinned, 1), "the best that popularity can give, in hindsight"),
    ]
    if seen.order_interval is not None:
        low, high = seen.order_interval
        rows.append(("Owed to order", points(seen.from_order), f"95 % interval {points(low)} to {points(high)}"))
    caption = f"One cache of {seen.capacity:,} slots a layer, cold at each sequence, token by token"
    return Table(caption, ("replay", "hit rate", "lives on"), rows, words=(2,))


def remedy_table(found: Diagnosis) -> Table:
    """Return what would help."""
    rows = [
        (
            each.name,
            percent(each.hit_rate, 1),
            points(each.gain),
            "out of reach" if each.bound else "yes" if each.pays else "no",
            each.cost or DASH,
        )
        for each in found.remedies
    ]
    heads = ("what", "hit rate", "over LRU", "pays", "costs")
    return Table("At the budget, against LRU on the same tokens; two points pay", heads, rows, words=(3, 4))


def time_table(found: Diagnosis) -> Table:
    """Return predicted times."""
    assert found.timing is not None
    rows = [
        (
            each.name,
            fixed(each.ms_per_token, 1),
            fixed(each.tokens_per_second, 1),
            fixed(each.overlapped_ms_per_token, 1),
            fixed(each.overlapped_tokens_per_second, 1),
        )
        for each in found.timing.rows
    ]
    heads = ("cache", "ms a token", "tokens a second", "ms, loads overlapped", "tokens a second, overlapped")
    return Table(found.timing.counted, heads, rows)


def sticky_table(found: Diagnosis) -> Table:
    """Return the model's points."""
    model = found.stickiness
    assert model is not None
    rows = [
        (fixed(overlap), *(percent(curve.hit_rates[number], 1) for curve in model.curves))
        for number, overlap in enumerate(model.overlaps)
    ]
    heads = ("overlap", *(f"{curve.slots} slots" for curve in model.curves))
    return Table("Hit rate of LRU in the model, slots a layer", heads, rows)
