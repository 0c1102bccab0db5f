"""`LatencyPrediction`: milliseconds a token, with the range of the constants behind it."""

from dataclasses import dataclass
from typing import Any

from stickymoe.cache.calibration.record import PERCENTILES

MS = 1000.0

# At the fast (p20), the middle (p50) and the slow (p80) end of the measured constants.
Range = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class LatencyPrediction:
    """Milliseconds a token, expected from misses and a calibration: a prediction, to be shown beside a measured value.

    Each triple is the range of the measured constants: fast (p20), middle (p50), slow (p80).

    Args:
        compute_ms: Time of the experts' matrix products, and what was given for the rest of the model.
        load_ms: Time of all loads.
        ms_per_token: Without overlap: compute + load.
        overlapped_ms_per_token: Loads hidden behind computing as far as they fit: max(compute, load). A bound; it takes
            a prefetch that is always right and in time.
        percentiles_ms: 50th and 95th percentile over tokens without overlap; None where misses a token are not known.
        semantics: Links, queue depths and sizes behind the numbers.
    """

    compute_ms: Range
    load_ms: Range
    ms_per_token: Range
    overlapped_ms_per_token: Range
    percentiles_ms: dict[str, float] | None
    semantics: dict[str, Any]

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second without overlap, at the middle of the measured constants."""
        return MS / self.ms_per_token[1]

    @property
    def overlapped_tokens_per_second(self) -> float:
        """Tokens a second with full overlap, at the middle of the measured constants."""
        return MS / self.overlapped_ms_per_token[1]

    def describe(self) -> str:
        """Say in one line where the numbers come from."""
        told = self.semantics
        links = " + ".join(f"{tier['link']} at depth {tier['queue_depth']}" for tier in told["tiers"])
        return f"predicted from {told['loads_per_token']} loads a token over {links}, compute {told['compute']}"

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        names = ("compute_ms", "load_ms", "ms_per_token", "overlapped_ms_per_token")
        spreads = {name: dict(zip(PERCENTILES, getattr(self, name), strict=True)) for name in names}
        return spreads | {
            "tokens_per_second": self.tokens_per_second,
            "overlapped_tokens_per_second": self.overlapped_tokens_per_second,
            "percentiles_ms": self.percentiles_ms,
            "semantics": dict(self.semantics),
            "description": self.describe(),
        }
