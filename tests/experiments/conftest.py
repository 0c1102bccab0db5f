"""Results as a run would leave them, with numbers that can be set one by one. The package is imported late."""

from __future__ import annotations

import importlib.util
import math
import shutil
from pathlib import Path

import pytest


def per_layer(mean, layers, spread=0.1):
    values = [mean * (1 + spread * (2 * layer / max(layers - 1, 1) - 1)) for layer in range(layers)]
    return {"mean": sum(values) / layers, "per_layer": values}


def cache(capacity, hit_rate, *, accesses="topk", replay="atomic", lookups=10_000):
    hits = round(hit_rate * lookups)
    return {
        "policy": "lru", "capacity": capacity, "scope": "layer", "accesses": accesses, "replay": replay,
        "reset": "sequence", "hits": hits, "misses": lookups - hits, "hit_rate": hits / lookups,
    }  # fmt: skip


def metrics_of(
    perplexity,
    *,
    switch_rate=0.6,
    hit_rate=0.6,
    experts=4,
    top_k=2,
    layers=4,
    gate_margin=0.31,
    gate_entropy=0.7,
    **changes,
):
    ceiling = math.log2(experts)
    return {
        "schema": 1, "split": "test", "perplexity": perplexity, "cross_entropy": math.log(perplexity),
        "predicted_tokens": 73_412, "num_experts": experts, "top_k": top_k, "num_layers": layers, "seed": 0,
        "routing": {
            "switch_rate": per_layer(switch_rate, layers),
            "set_switch_rate": per_layer(min(1.0, 1.2 * switch_rate), layers),
            "expert_overlap": per_layer(1 - 0.6 * switch_rate, layers) | {"chance": top_k / experts},
            "utilisation_entropy_bits": per_layer(0.97 * ceiling, layers, 0.01),
            "load_cv": per_layer(0.21, layers), "load_busiest_over_mean": per_layer(1.3, layers),
            "gate_entropy_bits": per_layer(gate_entropy * ceiling, layers),
            "gate_margin": per_layer(gate_margin, layers),
        },
        "cache": [
            cache(2, hit_rate, accesses="top1", replay="sequential"),
            cache(2, hit_rate - 0.04),
            cache(3, min(0.99, hit_rate + 0.2)),
        ],
        "parameters": {"total": 1_840_000, "active": 1_310_000},
        "train": {"steps": 600, "seconds": 152.3, "tokens_per_step": 2048},
        "corpus": {"name": "sotu", "fingerprint": "9f2c"},
        "hardware": {"machine": "2 cores"}, "versions": {"torch": "2.13.0"}, "commit": "f61ff4c",
    } | changes  # fmt: skip


def log_rows(final, steps=600, layers=4):
    return [
        {"step": step, "cross_entropy": final + 3.2 * math.exp(-step / 90), "learning_rate": 1e-3,
         "switch_rate": [0.5] * layers, "gate_entropy_bits": [1.4] * layers, "gate_margin": [0.3] * layers}
        for step in range(10, steps + 1, 10)
    ]  # fmt: skip


@pytest.fixture
def make_result():
    """A function: name, perplexity and whatever else should differ -> RunResult."""
    from stickymoe.experiments.results import RunResult

    def make(name, perplexity, *, label=None, log=True, **changes):
        rows = log_rows(math.log(perplexity)) if log else []
        return RunResult(name, label or name.capitalize(), metrics_of(perplexity, **changes), rows)

    return make


@pytest.fixture
def four_runs(make_result):
    """Vanilla, two sticky variants and the dense control, with the numbers of real trials."""
    return [
        make_result("vanilla", 207.3, switch_rate=0.63, hit_rate=0.55),
        make_result("soft", 224.0, switch_rate=0.50, hit_rate=0.64, label="Soft (λ=0.5)"),
        make_result("soft-hard", 220.0, switch_rate=0.41, hit_rate=0.78, label="Soft-Hard (λ=0.1, W=4)"),
        make_result("dense", 233.9, experts=2, label="Dense control"),
    ]


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A folder with `tiny.toml`, its `text`, a `cache`, and `run`, the trained run. Not to be changed by a test."""
    from stickymoe.experiments.recipe_file import load_recipe
    from stickymoe.experiments.run import train_run

    place = tmp_path_factory.mktemp("trained")
    recipe = load_recipe(tiny_run().write_recipe(place))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STICKYMOE_CACHE", str(place / "cache"))
        train_run(recipe, place / "run")
    return place


@pytest.fixture
def tiny(trained, monkeypatch):
    """A function: overrides -> the tiny recipe with them; its text and cache are in reach."""
    from stickymoe.experiments.recipe_file import load_recipe

    monkeypatch.setenv("STICKYMOE_CACHE", str(trained / "cache"))
    return lambda *overrides: load_recipe(trained / "tiny.toml", overrides)


@pytest.fixture(scope="session")
def trained_mixtral(trained):
    """The folder of a trained tiny Mixtral. Not to be changed by a test."""
    from stickymoe.experiments.recipe_file import load_recipe
    from stickymoe.experiments.run import train_run

    recipe = load_recipe(trained / "bare.toml", tiny_run().settings(tiny_run().MIXTRAL))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STICKYMOE_CACHE", str(trained / "cache"))
        train_run(recipe, trained / "mixtral")
    return trained / "mixtral"


@pytest.fixture
def bare(trained, monkeypatch):
    """A function: overrides -> the tiny recipe with them and no model table; its text and cache are in reach."""
    from stickymoe.experiments.recipe_file import load_recipe

    monkeypatch.setenv("STICKYMOE_CACHE", str(trained / "cache"))
    return lambda *overrides: load_recipe(trained / "bare.toml", overrides)


@pytest.fixture
def mixtral(bare):
    """A function: overrides -> the recipe of the tiny Mixtral with them."""
    return lambda *overrides: bare(*tiny_run().settings(tiny_run().MIXTRAL), *overrides)


@pytest.fixture
def run_copy(trained, tmp_path):
    """A copy of the trained run, to be damaged."""
    return shutil.copytree(trained / "run", tmp_path / "run")


@pytest.fixture(scope="session")
def chromium():
    """The module that drives the browser; the test is skipped where there is none."""
    module = beside("chromium")
    if module.executable() is None:
        pytest.skip("no Chromium")
    return module


@pytest.fixture(scope="session")
def browser(chromium, tmp_path_factory):
    """One open page for all tests of a session."""
    with chromium.chromium(tmp_path_factory.mktemp("profile")) as page:
        yield page


def tiny_run():
    """What trains in seconds."""
    return beside("tiny_run")


def beside(name):
    """A module beside this file; pytest's import mode has no packages."""
    spec = importlib.util.spec_from_file_location(f"stickymoe_tests_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
