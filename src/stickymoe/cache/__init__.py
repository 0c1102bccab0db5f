"""Expert caches on a trace: policies, replay, capacity curves. Runs without torch."""

from stickymoe.cache.curve import PAPER_SEMANTICS, hit_rate_curve
from stickymoe.cache.objects import ReplayStats, replay
from stickymoe.cache.policy import CachePolicy, CompiledPolicy
from stickymoe.cache.registry import POLICIES, PolicyFactory, PolicyKind, make_policy
from stickymoe.cache.report import CacheReport
from stickymoe.cache.simulating import simulate

__all__ = [
    "PAPER_SEMANTICS",
    "POLICIES",
    "CachePolicy",
    "CacheReport",
    "CompiledPolicy",
    "PolicyFactory",
    "PolicyKind",
    "ReplayStats",
    "hit_rate_curve",
    "make_policy",
    "replay",
    "simulate",
]
