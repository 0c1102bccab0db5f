"""Misses in milliseconds a token, from the measured constants of a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stickymoe.cache import CacheReport
from stickymoe.cache.calibration import Calibration
from stickymoe.cache.cost import LatencyPrediction, available_ram_bytes, predict_latency, starvation_warning
from stickymoe.experiments.diagnosis.budget import GIB, Budget
from stickymoe.experiments.diagnosis.facts import TraceFacts


@dataclass(frozen=True)
class Timed:
    """One cache in milliseconds a token: a prediction, to be compared with a measured value.

    Args:
        name: What was replayed.
        ms_per_token: Loads and computing one after the other.
        overlapped_ms_per_token: Loads behind computing as far as they fit: a bound.
        tokens_per_second: Without overlap.
        overlapped_tokens_per_second: With full overlap.
    """

    name: str
    ms_per_token: float
    overlapped_ms_per_token: float
    tokens_per_second: float
    overlapped_tokens_per_second: float


@dataclass(frozen=True)
class Timing:
    """What the budget costs in time.

    Args:
        rows: LRU, the best policy, Belady, and LRU with more cache.
        ms_saved_per_gib: Milliseconds a token that each further GiB saves; None at the end of the curve.
        counted: Where the numbers come from.
        warning: Where so large a cache starves the page cache of this machine; None where it does not.
    """

    rows: tuple[Timed, ...]
    ms_saved_per_gib: float | None
    counted: str
    warning: str | None


def timing_of(
    calibration: Calibration | None,
    link: str,
    facts: TraceFacts,
    budget: Budget,
    reports: Mapping[str, CacheReport],
    larger: tuple[int, CacheReport] | None,
    unanswered: dict[str, str],
) -> Timing | None:
    """Predict, or say in `unanswered` what is missing.

    Args:
        calibration: Of the machine.
        link: How a miss is served.
        facts: Of the trace.
        budget: The cache's size.
        reports: Replays at the budget by the name to show.
        larger: Slots and LRU's replay one step above the budget.
        unanswered: Gets the reason.
    """
    question = "times"
    if calibration is None:
        unanswered[question] = "give --cost FILE; `stickymoe calibrate` makes it"
        return None
    if facts.expert_bytes is None:
        unanswered[question] = "the experts' sizes are not known, give --expert-bytes"
        return None
    sizes = list(facts.expert_bytes)
    predicted = {
        name: predict_latency(report, calibration, tokens=facts.tokens, expert_bytes=sizes, link=link)
        for name, report in reports.items()
    }
    rows = [_timed(name, each) for name, each in predicted.items()]
    saved = None
    if larger is not None:
        slots, report = larger
        more = predict_latency(report, calibration, tokens=facts.tokens, expert_bytes=sizes, link=link)
        rows.append(_timed(f"LRU, {slots:,} slots", more))
        gib = ((budget.bytes_of(slots) or 0) - (budget.total_bytes or 0)) / GIB
        saved = (rows[0].ms_per_token - more.ms_per_token[1]) / gib if gib > 0 else None
    return Timing(tuple(rows), saved, next(iter(predicted.values())).describe(), _starved(facts, budget))


def _timed(name: str, predicted: LatencyPrediction) -> Timed:
    return Timed(
        name,
        predicted.ms_per_token[1],
        predicted.overlapped_ms_per_token[1],
        predicted.tokens_per_second,
        predicted.overlapped_tokens_per_second,
    )


def _starved(facts: TraceFacts, budget: Budget) -> str | None:
    ram = available_ram_bytes()
    if ram is None or facts.expert_bytes is None:
        return None
    model = sum(facts.expert_bytes) * facts.num_experts
    demand = round(sum(facts.expert_bytes) / facts.layers * facts.requests_per_token)
    return starvation_warning(
        min(budget.total_bytes or 0, model), ram_bytes=ram, model_bytes=model, demand_bytes=demand
    )
