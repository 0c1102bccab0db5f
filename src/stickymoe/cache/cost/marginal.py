"""What more cache is worth: the hit rate that suffices, and milliseconds a GiB."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stickymoe.cache.calibration import Calibration
from stickymoe.cache.cost.constants import expert_ms
from stickymoe.cache.cost.prediction import MS, LatencyPrediction
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_at_least

GIB = 2**30


class GiBValue(NamedTuple):
    """One step up a curve of cache sizes.

    Args:
        from_bytes: The smaller cache.
        to_bytes: The larger cache.
        ms_saved_per_gib: Milliseconds a token that each GiB of the step saves; negative where it costs.
        overlapped_ms_saved_per_gib: The same with loads hidden behind computing: 0 once they are.
    """

    from_bytes: int
    to_bytes: int
    ms_saved_per_gib: float
    overlapped_ms_saved_per_gib: float


def break_even_hit_rate(
    calibration: Calibration,
    *,
    lookups_per_token: float,
    expert_bytes: int,
    link: str = "disk-random",
    queue_depth: int | None = None,
    target_ms: float | None = None,
    compute_ms: float | None = None,
) -> float:
    """Return the least hit rate at which loads keep within a time a token.

        rate = 1 - room / (lookups * load),   room = target - compute, or compute where no target is given

    Without a target: the rate from which on loads can be hidden behind computing. With one: the rate that reaches it
    with loads and computing one after the other.

    Args:
        calibration: Of the machine.
        lookups_per_token: Experts a token asks for, over all layers.
        expert_bytes: Bytes of one expert.
        link: How a miss is served.
        queue_depth: Loads under way at once; 1 if not given.
        target_ms: Milliseconds a token to reach.
        compute_ms: Milliseconds a token of all computing; the experts' measured products alone if not given.

    Returns:
        In [0, 1]; 0 means no hits are needed.

    Raises:
        SettingError: The target leaves no time for computing.
    """
    for name, value, least in (
        ("lookups_per_token", lookups_per_token, 0.0),
        ("expert_bytes", expert_bytes, 1),
        ("compute_ms", compute_ms or 0.0, 0.0),
    ):
        require_at_least(f"cost.{name}", value, least)
    busy = expert_ms(calibration, lookups_per_token * expert_bytes) if compute_ms is None else compute_ms
    if target_ms is not None and not target_ms >= busy:
        raise SettingError.broken("cost.target_ms", f">= the {busy:.4g} ms a token takes to compute", target_ms)
    room = busy if target_ms is None else target_ms - busy
    load = lookups_per_token * MS * calibration.link(link, queue_depth).seconds(expert_bytes)
    return max(0.0, 1 - room / load) if load > 0 else 0.0


def value_of_cache(sizes_bytes: Sequence[int], predictions: Sequence[LatencyPrediction]) -> list[GiBValue]:
    """Return what each step from one cache size to the next saves a token, for each GiB of it.

    Args:
        sizes_bytes: Of the caches, rising.
        predictions: Of the same caches, in the same order.

    Raises:
        SettingError: The sizes do not rise, or are not as many as the predictions.
    """
    sizes: Any = np.asarray(sizes_bytes, dtype=np.float64)
    if len(sizes_bytes) != len(predictions) or (np.diff(sizes) <= 0).any():
        found = f"{list(sizes_bytes)[:10]} for {len(predictions)} predictions"
        raise SettingError.broken("cost.sizes_bytes", "rising, one a prediction", found)
    plain = np.array([each.ms_per_token[1] for each in predictions])
    hidden = np.array([each.overlapped_ms_per_token[1] for each in predictions])
    gib = np.diff(sizes) / GIB
    rows = zip(
        sizes_bytes[:-1],
        sizes_bytes[1:],
        (-np.diff(plain) / gib).tolist(),
        (-np.diff(hidden) / gib).tolist(),
        strict=True,
    )
    return [GiBValue(int(low), int(high), *saved) for low, high, *saved in rows]
