"""Prefetch replayed: which experts to fetch ahead, and what that saves and wastes."""

from stickymoe.cache.prefetch.predictors import PREDICTORS, predict
from stickymoe.cache.prefetch.replay import simulate_prefetch
from stickymoe.cache.prefetch.report import PrefetchReport

__all__ = ["PREDICTORS", "PrefetchReport", "predict", "simulate_prefetch"]
