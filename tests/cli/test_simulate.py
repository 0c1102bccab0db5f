"""Replays on the command line: the numbers of `simulate`, every spelling of a capacity, times with a calibration."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from stickymoe.cache import simulate as replayed
from stickymoe.cache.calibration import Calibration, Link, Spread, save_calibration
from stickymoe.cli import main
from stickymoe.traces import DECODE, PREFILL, RoutingTrace


def run(*words):
    return CliRunner().invoke(main, ["simulate", *map(str, words)])


@pytest.fixture(scope="module")
def trace():
    ids = np.random.default_rng(0).permuted(np.tile(np.arange(8), (60, 2, 1)), axis=2)[:, :, :2]
    return RoutingTrace(ids, np.repeat([0, 1], 30), 8)


@pytest.fixture(scope="module")
def file(trace, tmp_path_factory):
    path = tmp_path_factory.mktemp("simulate") / "toy.parquet"
    trace.save(path)
    return path


def calibration(folder):
    spread = Spread(0.001, 0.002, 0.003, 5)
    small = Spread(0.0001, 0.0002, 0.0003, 5)
    links = (Link("disk-random", 1, 2**20, 4096, spread, small),)
    save_calibration(Calibration(2**20, links, spread, {}, "2026-01-01T00:00:00+00:00"), folder / "machine.json")
    return folder / "machine.json"


def test_every_policy_at_every_capacity_is_a_replay(trace, file):
    done = run(file, "--policy", "lru", "--policy", "belady", "--capacity", "2:6:2", "--json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    expected = [replayed(trace, policy, capacity) for policy in ("lru", "belady") for capacity in (2, 4, 6)]
    assert [(row["hits"], row["misses"]) for row in rows] == [(each.hits, each.misses) for each in expected]
    assert [row["asked"] for row in rows] == ["2", "4", "6"] * 2


def test_the_table_says_how_it_was_counted(trace, file):
    done = run(file, "--capacity", "50%", "--scope", "model", "--accesses", "top1")
    report = replayed(trace, "lru", 0.5, scope="model", accesses="top1")
    assert f"{100 * report.hit_rate:.2f} %" in done.stdout
    assert done.stdout.splitlines()[-1] == f"counted: {report.describe()}"


def test_the_table_tells_prefill_from_decode_where_the_trace_does(trace, file, tmp_path):
    assert "decode" not in run(file, "--capacity", "2").stdout
    phases = np.tile(np.repeat([PREFILL, DECODE], 15), 2)
    told = dataclasses.replace(trace, phases=phases)
    told.save(tmp_path / "phases.parquet")
    done = run(tmp_path / "phases.parquet", "--capacity", "4")
    report = replayed(told, "lru", 4)
    rates = [report.hit_rate, *(hits / (hits + misses) for hits, misses in map(report.phase, ("prefill", "decode")))]
    assert re.findall(r"prefill +decode", done.stdout)
    assert re.findall(r"[0-9.]+ %", done.stdout) == [f"{100 * rate:.2f} %" for rate in rates]
    prompts = told.select(phase=PREFILL)
    prompts.save(tmp_path / "prompts.parquet")
    assert "–" in run(tmp_path / "prompts.parquet", "--capacity", "4").stdout


def test_no_number_is_cut_however_narrow_the_terminal(trace, file, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    cost = calibration(tmp_path)
    done = run(file, "--capacity", "2,50%", "--policy", "moe-infinity", "--expert-bytes", "1MiB", "--cost", cost)
    assert "\N{HORIZONTAL ELLIPSIS}" not in done.stdout
    assert sum(line.startswith("MoE-Infinity ") for line in done.stdout.splitlines()) == 2


def test_bytes_need_the_size_of_an_expert(trace, file):
    done = run(file, "--capacity", "4MiB")
    assert done.exit_code == 2
    assert "bytes" in done.stderr.splitlines()[-1]
    done = run(file, "--capacity", "4MiB", "--expert-bytes", "1MiB", "--json")
    row = json.loads(done.stdout)[0]
    assert row["hits"] == replayed(trace, "lru", 2).hits
    assert row["bytes_per_token"] == pytest.approx(row["loads"] / 60 * 2**20)


def test_a_calibration_adds_times(file, tmp_path):
    cost = calibration(tmp_path)
    done = run(file, "--capacity", "2,6", "--expert-bytes", "1MiB", "--cost", cost, "--json")
    small, large = json.loads(done.stdout)
    assert small["predicted"]["ms_per_token"]["p50"] > large["predicted"]["ms_per_token"]["p50"]
    table = run(file, "--capacity", "2", "--expert-bytes", "1MiB", "--cost", cost)
    assert "time: predicted from" in table.stdout
    refused = run(file, "--capacity", "2", "--cost", cost)
    assert refused.exit_code == 2
    assert "--expert-bytes" in refused.stderr.splitlines()[-1]


def test_no_slots_and_more_slots_than_experts_say_what_they_mean(file):
    none, all_of_them = json.loads(run(file, "--capacity", "0,99", "--json").stdout)
    assert none["hits"] == 0
    assert "nothing is kept" in none["description"]
    assert all_of_them["misses"] == all_of_them["compulsory"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--capacity", "2", "--policy", "beladi"], "did you mean 'belady'?"),
        (["--capacity", "x"], "a capacity must be a size"),
        (["--capacity", "2", "--format", "vlm"], "did you mean 'vllm'? stickymoe trace info --formats lists them"),
        ([], "--capacity"),
        (["--capacity", "2", "--scope", "layers"], "layers"),
        (["--capacity", "2", "--cost", "absent.json"], "absent.json"),
        (["--capacity", "2", "--policy", "score-ema"], "weights"),
    ],
)
def test_what_cannot_be_replayed_is_one_line_and_exit_code_2(file, words, said):
    done = run(file, *words)
    assert done.exit_code == 2
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: ")
    assert said in line


def test_neither_replay_nor_diagnosis_nor_measures_load_torch(file, tmp_path):
    shutil.copy(file, tmp_path / "toy.parquet")
    code = (
        "import sys\n"
        "from stickymoe.cli import main\n"
        "for words in (['simulate', 'toy.parquet', '--capacity', '2'], ['measure', 'toy.parquet', '--no-intervals'],\n"
        "              ['trace', 'info', 'toy.parquet'],\n"
        "              ['diagnose', 'toy.parquet', '--capacity', '2', '--policy', 'fifo', '--expert-bytes', '1MiB']):\n"
        "    try:\n"
        "        main(words)\n"
        "    except SystemExit as end:\n"
        "        assert not end.code, words\n"
        "loaded = {'torch', 'transformers', 'accelerate', 'matplotlib'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").stat().st_size > 10**6
