"""`UsageProfile`: how often each expert was used, without any order."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Int

from stickymoe.core.errors import TraceError
from stickymoe.traces import checks
from stickymoe.traces.trace import RoutingTrace


@dataclass(frozen=True, eq=False)
class UsageProfile:
    """How often each expert was used. Enough for skew and for pinning; a cache with any history needs a `RoutingTrace`.

    Args:
        counts: Uses, whole numbers >= 0, (layers, experts); some layer has some.
        layer_names: One a layer, unique; "0", "1", ... if not given.
        provenance: Where the counts come from; JSON.

    Raises:
        TraceError: A rule above is broken.
    """

    # __post_init__ checks more than the annotations say, in words for users: runtime type checkers stay out.
    __no_type_check__ = True

    counts: Int[np.ndarray, "layers experts"]
    layer_names: tuple[str, ...] | None = None
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check every rule and freeze the counts."""
        counts = checks.as_integers("profile.counts", self.counts)
        if counts.ndim != 2 or 0 in counts.shape:
            rule = "profile.counts must be shaped (layers, experts) with at least one of each"
            raise TraceError(f"{rule}, got shape {counts.shape}")
        if counts.min() < 0 or int(counts.max()) >= 2**63:
            outside = int(counts.min()) if counts.min() < 0 else int(counts.max())
            raise TraceError(f"profile.counts must be from 0 to 2**63 - 1, got {outside}")
        if not counts.any():
            raise TraceError("profile.counts must count at least one use, got only zeros")
        counts = counts.astype(np.int64).view()
        counts.flags.writeable = False
        object.__setattr__(self, "counts", counts)
        if self.layer_names is not None:
            names = checks.checked_layer_names("profile.layer_names", self.layer_names, len(counts))
            object.__setattr__(self, "layer_names", names)
        object.__setattr__(self, "provenance", checks.checked_provenance(self.provenance))

    @property
    def num_layers(self) -> int:
        """MoE layers."""
        return int(self.counts.shape[0])

    @property
    def num_experts(self) -> int:
        """Experts a layer."""
        return int(self.counts.shape[1])

    @property
    def names(self) -> tuple[str, ...]:
        """The layers' names, "0", "1", ... where none were given."""
        return self.layer_names or tuple(map(str, range(self.num_layers)))

    def __eq__(self, other: object) -> bool:
        """Equal in counts, names and provenance."""
        if not isinstance(other, UsageProfile):
            return NotImplemented
        return np.array_equal(self.counts, other.counts) and (self.layer_names, self.provenance) == (
            other.layer_names,
            other.provenance,
        )


def require_ordered(found: RoutingTrace | UsageProfile, what_for: str) -> RoutingTrace:
    """Return the trace; counts end in the reason why they cannot do.

    Args:
        found: What a file held.
        what_for: What needs the order, to be read before "needs", such as "a replay".

    Raises:
        TraceError: It is a profile.
    """
    if isinstance(found, RoutingTrace):
        return found
    source = found.provenance.get("format")
    raise TraceError(
        f"{what_for} needs to know which expert came after which, and {source or 'a usage profile'} holds only counts: "
        "they tell skew and what to pin (stickymoe diagnose shows it); record a routing trace for more"
    )
