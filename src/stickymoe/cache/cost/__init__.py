"""What misses cost on a measured machine: milliseconds a token, and what more cache is worth."""

from stickymoe.cache.cost.latency import Counted, Tier, predict_latency
from stickymoe.cache.cost.marginal import GiBValue, break_even_hit_rate, value_of_cache
from stickymoe.cache.cost.prediction import LatencyPrediction
from stickymoe.cache.cost.prefetched import predict_prefetched_latency
from stickymoe.cache.cost.ram import available_ram_bytes, page_cache_share, starvation_warning

__all__ = [
    "Counted",
    "GiBValue",
    "LatencyPrediction",
    "Tier",
    "available_ram_bytes",
    "break_even_hit_rate",
    "page_cache_share",
    "predict_latency",
    "predict_prefetched_latency",
    "starvation_warning",
    "value_of_cache",
]
