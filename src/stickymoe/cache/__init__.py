"""Expert caches on a trace: policies, replay, capacity curves. Runs without torch."""

from stickymoe.cache.curve import PAPER_SEMANTICS, lru_hit_rates
from stickymoe.cache.lru import LRU
from stickymoe.cache.policy import CachePolicy
from stickymoe.cache.registry import POLICIES, PolicyFactory
from stickymoe.cache.replay import ReplayStats, replay, simulate
from stickymoe.cache.report import CacheReport

__all__ = [
    "LRU",
    "PAPER_SEMANTICS",
    "POLICIES",
    "CachePolicy",
    "CacheReport",
    "PolicyFactory",
    "ReplayStats",
    "lru_hit_rates",
    "replay",
    "simulate",
]
