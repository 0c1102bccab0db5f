"""A run folder is read whole, or refused in one line that names file and key."""

from __future__ import annotations

import json
import math

import pytest

from stickymoe.core.errors import DataError
from stickymoe.experiments.results import RunResult


@pytest.fixture
def run_folder(tmp_path, make_result):
    folder = tmp_path / "soft-run"
    folder.mkdir()
    result = make_result("soft", 224.0)
    (folder / "metrics.json").write_text(json.dumps(result.metrics))
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in result.log))
    return folder


def rewrite(folder, change):
    path = folder / "metrics.json"
    metrics = json.loads(path.read_text())
    change(metrics)
    path.write_text(json.dumps(metrics))


def refusal(folder):
    with pytest.raises(DataError) as caught:
        RunResult.load(folder)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_run_folder_gives_its_metrics_log_and_a_name(run_folder):
    result = RunResult.load(run_folder)
    assert (result.name, result.label) == ("soft-run", "soft-run")
    assert result.read.perplexity == 224.0
    assert result.read.routing.switch_rate.per_layer == pytest.approx([0.54, 0.58, 0.62, 0.66])
    assert result.log[0]["step"] == 10
    assert len(result.log) == 60


def test_the_metrics_own_name_and_label_count_before_the_folders_and_the_callers_before_both(run_folder):
    rewrite(run_folder, lambda metrics: metrics.update(name="soft", label="Soft λ=0.5"))
    assert RunResult.load(run_folder).label == "Soft λ=0.5"
    assert RunResult.load(run_folder, name="mine").name == "mine"


def test_a_run_without_a_log_has_no_rows(run_folder):
    (run_folder / "log.jsonl").unlink()
    assert RunResult.load(run_folder).log == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.pop("perplexity"), "perplexity is missing"),
        (lambda m: m["routing"].pop("gate_margin"), "routing.gate_margin is missing"),
        (lambda m: m.pop("routing"), "routing is missing"),
        (lambda m: m.update(cross_entropy=math.nan), "cross_entropy"),
        (
            lambda m: m["routing"]["switch_rate"]["per_layer"].__setitem__(2, math.inf),
            "routing.switch_rate.per_layer.2",
        ),
        (lambda m: m["routing"]["load_cv"]["per_layer"].pop(), "routing.load_cv.per_layer must have 4 values"),
        (lambda m: m.update(schema=0), "schema must be 1, got 0"),
        (lambda m: m.pop("schema"), "schema must be 1, got None"),
        (lambda m: m["cache"][0].update(hits=0, misses=0), "hits + misses must be >= 1"),
        (lambda m: m["cache"][1].update(replay="later"), "cache.1.replay"),
        (lambda m: m.update(perplexity=100.0), "perplexity must be exp(cross_entropy)"),
    ],
)
def test_broken_metrics_are_refused_naming_file_and_key(run_folder, change, words):
    rewrite(run_folder, change)
    message = refusal(run_folder)
    assert words in message
    assert str(run_folder / "metrics.json") in message


@pytest.mark.parametrize("content", ["", "{", "[1]", "[" * 100_000])
def test_what_is_not_one_json_object_is_refused(run_folder, content):
    (run_folder / "metrics.json").write_text(content)
    assert "metrics.json" in refusal(run_folder)


def test_a_folder_without_metrics_says_to_evaluate(tmp_path):
    assert refusal(tmp_path).endswith("(no such file or directory); evaluate the run")


def test_a_torn_log_line_is_named(run_folder):
    with (run_folder / "log.jsonl").open("a") as file:
        file.write('{"step": 610, "cross_')
    assert "log.jsonl: line 61" in refusal(run_folder)


def test_routing_of_a_dense_control_is_not_read(make_result):
    result = make_result("dense", 233.9, experts=2, routing={"switch_rate": None}, cache=[{"broken": True}])
    assert result.is_dense
    assert result.read.routing is None
    assert result.read.cache == ()
