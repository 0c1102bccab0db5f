"""Cache-aware rerouting and weight-threshold dropping replayed: misses saved against gate mass lost."""

from stickymoe.cache.reroute.replay import simulate_rerouting
from stickymoe.cache.reroute.report import RerouteReport
from stickymoe.cache.reroute.rules import RULES

__all__ = ["RULES", "RerouteReport", "simulate_rerouting"]
