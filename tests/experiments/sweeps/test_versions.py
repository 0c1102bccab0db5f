"""The versions that let results stand: raised when numbers move, and only then."""

import json

import pytest

from stickymoe.experiments.results import METRICS_FILE
from stickymoe.experiments.sweeps.versions import EVALUATION_VERSION, TRAINING_VERSION

# The tiny run of `tiny_run.py` under these versions. If one of these numbers moves, results have changed: raise
# TRAINING_VERSION (other weights) or EVALUATION_VERSION (same weights, measured otherwise), then renew the numbers.
VERSIONS = (1, 1)
EXPECTED = {
    "perplexity": 148.9,
    "expert_overlap": 0.67586,
    "gate_entropy_bits": 1.9996,
    "gate_margin": 0.0058737,
    "load_busiest_over_mean": 1.6903,
    "load_cv": 0.54312,
    "set_switch_rate": 0.6,
    "switch_rate": 0.37241,
    "utilisation_entropy_bits": 1.7646,
    "cache 0": 0.72581,
    "cache 1": 0.63226,
    "cache 2": 0.77419,
    "last cross_entropy": 5.0969,
    "last consistency": 0.00014243,
    "last load_balancing": 1.0111,
    "last grad_norm": 0.99378,
}


def measured(trained):
    metrics = json.loads((trained / "run" / METRICS_FILE).read_text(encoding="utf-8"))
    routing = metrics["routing"]
    found = {name: routing[name]["mean"] for name in sorted(routing)}
    found |= {f"cache {place}": cache["hit_rate"] for place, cache in enumerate(metrics["cache"])}
    last = json.loads((trained / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    trained_to = {name: last[name] for name in ("cross_entropy", "consistency", "load_balancing", "grad_norm")}
    return {"perplexity": metrics["perplexity"]} | found | {f"last {name}": value for name, value in trained_to.items()}


def test_the_numbers_of_a_small_run_are_those_of_these_versions(trained):
    assert (TRAINING_VERSION, EVALUATION_VERSION) == VERSIONS, "renew EXPECTED for the new versions"
    assert measured(trained) == pytest.approx(EXPECTED, rel=2e-3)
