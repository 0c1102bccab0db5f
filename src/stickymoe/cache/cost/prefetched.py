"""Expected time per token with prefetch: loads asked for stall, loads ahead must still get over the link."""

from typing import Any

from stickymoe.cache.calibration import Calibration
from stickymoe.cache.cost.constants import compute_range, compute_told, load_range, loads_at_once, sizes_of_layers
from stickymoe.cache.cost.latency import larger, summed
from stickymoe.cache.cost.prediction import LatencyPrediction
from stickymoe.cache.prefetch.report import PrefetchReport
from stickymoe.core.settings import require_at_least


def predict_prefetched_latency(
    report: PrefetchReport,
    calibration: Calibration,
    *,
    tokens: int,
    expert_bytes: Any,
    link: str = "disk-random",
    queue_depth: int | None = None,
    other_ms: float = 0.0,
    compute_ms: float | None = None,
) -> LatencyPrediction:
    """Turn a replay with prefetch into milliseconds a token.

        tau = max(compute + (misses + late) * load, (misses + fetched) * load)

    Misses stall; so do late experts, taken as full loads, which is more than they wait. Fetches hide behind computing
    until the link is busy all the time: then every expert fetched for nothing costs its full load. In the result
    `ms_per_token` and `overlapped_ms_per_token` are both this time, and `load_ms` is what the link carries.

    Args:
        report: What a replay with prefetch counted.
        calibration: Of the machine.
        tokens: Tokens replayed.
        expert_bytes: Bytes of one expert, or of one of each layer.
        link: Over which experts come.
        queue_depth: Loads under way at once; an event's mean loads, rounded down but 1 at least, if not given.
        other_ms: See `predict_latency`.
        compute_ms: See `predict_latency`.

    Raises:
        SettingError: A setting breaks its rule.
        CalibrationError: The link or the time of an expert was not measured.
    """
    require_at_least("cost.tokens", tokens, 1)
    carried = report.misses_per_layer + report.fetched_per_layer
    stalls = report.misses_per_layer + report.late_per_layer
    sizes = sizes_of_layers(expert_bytes, len(carried))
    over = calibration.link(link, queue_depth or loads_at_once(carried, tokens))
    compute = compute_range(calibration, report.hits_per_layer + stalls, tokens, sizes, other_ms, compute_ms)
    load = load_range(over, carried, tokens, sizes)
    time = larger(summed((compute, load_range(over, stalls, tokens, sizes))), load)
    told = {"link": over.name, "queue_depth": over.queue_depth, "misses": report.misses} | report.semantics
    semantics = {
        "tiers": [told],
        "loads_per_token": round(int(carried.sum()) / tokens, 3),
        "expert_bytes": sizes.tolist(),
        "compute": compute_told(other_ms, compute_ms),
        "overlap": "of the fetches ahead",
        "calibrated": calibration.date,
    }
    return LatencyPrediction(compute, load, time, time, None, semantics)
