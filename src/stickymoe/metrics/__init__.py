"""Measures of what routers chose, on a `RoutingTrace`. Runs without torch."""

from stickymoe.metrics.reuse import reuse_distances
from stickymoe.metrics.summary import summarise
from stickymoe.metrics.switching import chance_overlap, expert_overlap, set_switch_rate, switch_rate
from stickymoe.metrics.utilisation import LoadSpread, load_spread, utilisation_entropy

__all__ = [
    "LoadSpread",
    "chance_overlap",
    "expert_overlap",
    "load_spread",
    "reuse_distances",
    "set_switch_rate",
    "summarise",
    "switch_rate",
    "utilisation_entropy",
]
