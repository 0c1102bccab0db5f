"""Measures on the command line."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from stickymoe.cli import main
from stickymoe.metrics import measure as measured_of
from stickymoe.metrics import table
from stickymoe.traces import RoutingTrace


def run(*words):
    return CliRunner().invoke(main, ["measure", *map(str, words)])


@pytest.fixture(scope="module")
def trace():
    return RoutingTrace(np.random.default_rng(0).integers(0, 8, (80, 2, 1)), np.repeat([0, 1], 40), 8)


@pytest.fixture(scope="module")
def file(trace, tmp_path_factory):
    path = tmp_path_factory.mktemp("measure") / "toy.parquet"
    trace.save(path)
    return path


def test_the_measures_are_printed_as_a_table_or_as_json(trace, file):
    options = ["--windows", "4", "--lags", "1,2", "--segments", "4", "--capacities", "2", "--no-intervals"]
    found = measured_of(trace, windows=[4], lags=[1, 2], segments=[4], capacities=[2], intervals=False)
    assert run(file, *options).stdout.strip() == table(found).strip()
    assert json.loads(run(file, *options, "--json").stdout) == json.loads(json.dumps(found.as_dict()))


@pytest.mark.parametrize("words", [["--windows", "0"], ["--lags", "x"], ["--segments", ""], ["--capacities", "1,,2"]])
def test_numbers_that_are_none_are_one_line(file, words):
    done = run(file, *words)
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert "whole numbers >= 1" in done.stderr
