"""Traces that break a rule, through every command that replays or measures: one line, or a named warning."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from stickymoe.cache import simulate as replayed
from stickymoe.cli import main
from stickymoe.traces import read_trace

IDS = np.random.default_rng(0).permuted(np.tile(np.arange(8), (20, 2, 1)), axis=2)[:, :, :2].tolist()
COMMANDS = [
    ("simulate", "--capacity", "2"),
    ("diagnose", "--capacity", "2", "--no-report", "--policy", "lru"),
    ("measure", "--no-intervals"),
]
NO_WEIGHTS = "cache.policy must be one that needs no weights for this trace, got 'score-ema'"


def records(**changed):
    """JSON lines of 20 tokens and 2 layers; `changed` replaces the record of token 3, layer 1."""
    rows = [{"token": t, "layer": layer, "experts": IDS[t][layer]} for t in range(20) for layer in range(2)]
    rows[7] |= changed
    return "".join(json.dumps(row) + "\n" for row in rows)


def weighted(weight):
    rows = [json.loads(line) | {"weights": [0.75, 0.25]} for line in records().splitlines()]
    rows[7]["weights"] = [weight, 0.25]
    return "".join(json.dumps(row) + "\n" for row in rows)


def run(command, file, *more):
    return CliRunner().invoke(main, [command[0], str(file), *command[1:], *more])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be a trace in a known format, found an empty file"),
        ("layer,expert\n", "must hold at least one activation, found only the header"),
        ('{"token": 0, "layer": 0, "experts": []}\n', "must serve at least one token in some layer"),
        (records(experts=[-3, 1]), "expert ids must be from 0 to 2**31 - 1, or -1 for an empty slot, got -3"),
        (records(experts=[1, 1]), "must name an expert once a token and layer, got 1 twice at token 3, layer 1"),
        (records(experts=[1.5, 2]), "1.5"),
        (records(experts=[2**40, 2]), str(2**40)),
    ],
)
def test_what_is_no_trace_is_one_line_that_names_the_file_and_exit_code_2(command, text, said, tmp_path):
    (tmp_path / "toy.jsonl").write_text(text)
    done = run(command, tmp_path / "toy.jsonl")
    assert done.exit_code == 2
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: ")
    assert "toy.jsonl" in line
    assert said in line
    assert done.stdout == ""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("weight", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_left_out_with_a_warning(command, weight, tmp_path):
    (tmp_path / "toy.jsonl").write_text(weighted(weight))
    done = run(command, tmp_path / "toy.jsonl")
    assert done.exit_code == 0, done.output
    assert "warning: weights are left out: 1 of them are not finite" in done.stderr.splitlines()
    if command[0] == "simulate":
        refused = run(command, tmp_path / "toy.jsonl", "--policy", "score-ema")
        assert refused.stderr.splitlines()[-1] == f"error: {NO_WEIGHTS}"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_ragged_k_and_layers_that_are_missing_are_empty_slots(command, tmp_path):
    short = records(experts=IDS[3][1][:1])
    missing = "".join(line + "\n" for number, line in enumerate(records().splitlines()) if number != 7)
    for text, lookups in ((short, 79), (missing, 78)):
        (tmp_path / "toy.jsonl").write_text(text)
        done = run(command, tmp_path / "toy.jsonl")
        assert done.exit_code == 0, done.output
        if command[0] == "simulate":
            (row,) = json.loads(run(command, tmp_path / "toy.jsonl", "--json").stdout)
            assert row["lookups"] == lookups
            assert row["hits"] == replayed(read_trace(tmp_path / "toy.jsonl"), "lru", 2).hits


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--capacity", "0"), "budget must be at least one slot, got 0"),
        (("--capacity=-1",), "a capacity must be a size, got '-1'"),
        (("--budget", "0%"), "a share must be above 0% and at most 100%, got '0%'"),
        (("--budget", "4GiB", "--expert-bytes", "nan"), "a size must be in bytes"),
        (("--served", "0"), "--served"),
    ],
)
def test_a_budget_that_means_nothing_is_one_line(words, said, tmp_path):
    (tmp_path / "toy.jsonl").write_text(records())
    done = run(("diagnose",), tmp_path / "toy.jsonl", *words, "--no-report")
    assert done.exit_code == 2
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: ")
    assert said in line


@pytest.mark.parametrize("slots", [99, 10**30])
def test_a_budget_above_all_experts_is_every_expert(slots, tmp_path):
    (tmp_path / "toy.jsonl").write_text(records())
    done = run(
        ("diagnose", "--json", "--no-report", "--policy", "lru"), tmp_path / "toy.jsonl", "--capacity", str(slots)
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    lru = next(each for each in found["policies"] if each["policy"] == "lru")
    assert lru["hit_rate"] == replayed(read_trace(tmp_path / "toy.jsonl"), "lru", 8).hit_rate
