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
from stickymoe.traces import DECODE, PREFILL, RoutingTrace, UsageProfile


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


def test_static_chooses_by_a_profile_of_the_same_model(trace, file, tmp_path):
    other = RoutingTrace(trace.expert_ids[::-1] // 2 * 2 % 8 + [0, 1], np.zeros(60, int), 8)
    other.save(tmp_path / "other.parquet")
    words = (file, "--policy", "static", "--capacity", "3", "--profile", tmp_path / "other.parquet")
    (row,) = json.loads(run(*words, "--json").stdout)
    assert row["hits"] == replayed(trace, "static", 3, profile=other).hits
    done = run(*words, "--policy", "lru")
    assert re.search(r"^Pinned +3 ", done.stdout, re.MULTILINE)
    assert "Pinned: chosen by another trace, 6 experts loaded ahead of each of 2 cold starts" in done.stdout
    (tmp_path / "counts.csv").write_text("layer,expert,count\n0,1,9\n0,2,8\n1,3,7\n")
    (row,) = json.loads(run(*words[:-1], tmp_path / "counts.csv", "--json").stdout)
    counts = np.zeros((2, 8), dtype=np.int64)
    counts[0, 1:3], counts[1, 3] = (9, 8), 7
    assert row["hits"] == replayed(trace, "static", 3, profile=UsageProfile(counts)).hits
    assert row["profile"]["from"] == "a usage profile"
    (tmp_path / "layers.csv").write_text("layer,expert,count\n0,1,9\n1,3,7\n2,7,7\n")
    RoutingTrace(trace.expert_ids, trace.sequence_ids, 9).save(tmp_path / "experts.parquet")
    for other_model, found in (("layers.csv", "3 of 8"), ("experts.parquet", "2 of 9")):
        refused = run(*words[:-1], tmp_path / other_model)
        assert refused.exit_code == 2
        line = f"error: cache.profile must be of the trace's model, 2 layers of 8 experts, got '{found}'"
        assert refused.stderr.splitlines()[-1] == line
    unused = run(file, "--capacity", "3", "--profile", tmp_path / "other.parquet")
    assert unused.exit_code == 2
    assert "profile must be left out unless static is among the policies" in unused.stderr.splitlines()[-1]


def test_a_pool_smaller_than_one_tokens_demand_is_warned_of(file):
    done = run(file, "--capacity", "1,2,8", "--scope", "model")
    assert [line.split(";")[0] for line in done.stdout.splitlines() if line.startswith("cliff: ")] == [
        f"cliff: one token asks for 4 slots over 2 layers and the shared pool holds {slots}" for slots in (1, 2)
    ]


def test_a_number_of_slots_beyond_any_machine_is_every_expert(trace, file):
    for scope in ("layer", "model"):
        huge, enough = json.loads(run(file, "--capacity", f"{10**30},16", "--scope", scope, "--json").stdout)
        assert (huge["hits"], huge["semantics"]["capacity"]) == (enough["hits"], 10**30)
        assert "every expert fits" in huge["description"]
    assert (
        replayed(trace, "belady", scope=[10**30, 1]).hits_per_layer[0] == replayed(trace, "belady", 8).hits_per_layer[0]
    )


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
        (["--capacity=-1"], "a capacity must be a size, got '-1'"),
        (["--capacity", "nan"], "a capacity must be a size, got 'nan'"),
        (["--capacity", "0%"], "a share must be above 0% and at most 100%, got '0%'"),
        (["--capacity", "101%"], "a share must be above 0% and at most 100%"),
        (["--capacity", f"{10**9}TiB", "--expert-bytes", "1MiB"], "a whole number of bytes from 0 to 2**62 - 1"),
        (["--capacity", "1MiB", "--expert-bytes=-1"], "a size must be in bytes, such as 512MiB or 4GiB, got '-1'"),
        (["--capacity", "1MiB", "--expert-bytes", "10%"], "a size must be in bytes"),
        (["--capacity", "1MiB", "--expert-bytes", "0"], "trace.expert_bytes must be from 1"),
        (["--capacity", "2", "--prefill", "pass"], "token for a trace without phases or event_ids"),
        (["--capacity", "2", "--batch", "0"], "--batch"),
        (["--capacity", "2", "--num-experts", "4"], "num_experts must be what the file declares"),
        (["--capacity", "2", "--profile", "absent.npz", "--policy", "static"], "absent.npz"),
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
