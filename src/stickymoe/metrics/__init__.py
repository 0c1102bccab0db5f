"""Measures of what routers chose, on a `RoutingTrace`. Runs without torch."""

from stickymoe.metrics.drifting import Drift, drift, usage_similarity
from stickymoe.metrics.intervals import Interval, Resampling, mean_interval, paired_interval
from stickymoe.metrics.measures import Measures, Row
from stickymoe.metrics.measures_table import table
from stickymoe.metrics.measuring import measure
from stickymoe.metrics.paired import paired_difference
from stickymoe.metrics.predictors import Prediction, predictor_recall
from stickymoe.metrics.reuse import reuse_distances
from stickymoe.metrics.segments import (
    SegmentCache,
    SegmentRouting,
    segment_cache_best_hit_rate,
    segment_routing_best_performance,
)
from stickymoe.metrics.skew import Locality, locality
from stickymoe.metrics.summary import summarise
from stickymoe.metrics.switching import chance_overlap, expert_overlap, set_switch_rate, switch_rate
from stickymoe.metrics.tally import Value
from stickymoe.metrics.utilisation import LoadSpread, load_spread, overlap_by_use, static_coverage, utilisation_entropy
from stickymoe.metrics.windows import WorkingSet, chance_working_set, working_set

__all__ = [
    "Drift",
    "Interval",
    "LoadSpread",
    "Locality",
    "Measures",
    "Prediction",
    "Resampling",
    "Row",
    "SegmentCache",
    "SegmentRouting",
    "Value",
    "WorkingSet",
    "chance_overlap",
    "chance_working_set",
    "drift",
    "expert_overlap",
    "load_spread",
    "locality",
    "mean_interval",
    "measure",
    "overlap_by_use",
    "paired_difference",
    "paired_interval",
    "predictor_recall",
    "reuse_distances",
    "segment_cache_best_hit_rate",
    "segment_routing_best_performance",
    "set_switch_rate",
    "static_coverage",
    "summarise",
    "switch_rate",
    "table",
    "usage_similarity",
    "utilisation_entropy",
    "working_set",
]
