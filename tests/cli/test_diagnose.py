"""`stickymoe diagnose`: summary, page and JSON, and every way it ends early."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

from stickymoe.cli import main
from stickymoe.traces import RoutingTrace

FEW = ("--policy", "fifo")


def run(*words):
    return CliRunner().invoke(main, ["diagnose", *map(str, words)])


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    random = np.random.default_rng(0)
    ids = np.sort(random.permuted(np.tile(np.arange(8), (80, 2, 1)), axis=2)[:, :, :2], axis=2)
    path = tmp_path_factory.mktemp("diagnose") / "toy.parquet"
    RoutingTrace(ids, np.repeat([0, 1], 40), 8).save(path)
    return path


def test_a_summary_of_at_most_25_lines_and_a_page(file, tmp_path):
    done = run(file, "--capacity", 3, "--out", tmp_path / "page.html", *FEW)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert len(lines) <= 25
    assert lines[-1].split() == ["report", str(tmp_path / "page.html")]
    assert any(line.startswith("verdict") for line in lines)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "toy.parquet" in page


def test_json_alone_is_one_object_and_no_page(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(file, "--budget", "50%", "--json", "--no-report", *FEW)
    found = json.loads(done.stdout)
    assert (found["schema"], found["budget"]["slots"]) == (1, 4)
    assert list(tmp_path.iterdir()) == []


def test_more_ranks_than_serve_are_candidates_for_rerouting(tmp_path):
    random = np.random.default_rng(0)
    ids = random.permuted(np.tile(np.arange(8), (80, 2, 1)), axis=2)[:, :, :4]
    weights = -np.sort(-random.dirichlet(np.ones(4), (80, 2)), axis=-1)
    RoutingTrace(ids, np.repeat([0, 1], 40), 8, expert_weights=weights).save(tmp_path / "wide.parquet")
    words = (tmp_path / "wide.parquet", "--capacity", 3, "--json", "--no-report", *FEW)
    found = json.loads(run(*words, "--served", 2).stdout)
    assert {each["name"] for each in found["remedies"] if each["kind"] == "rerouting"} == {
        f"resident experts of the first {ranks} ranks instead of misses" for ranks in (3, 4)
    }
    assert found["facts"]["top_k"] == 2
    assert (
        "the 4 experts of a token that served it" in json.loads(run(*words).stdout)["unanswered"]["would rerouting pay"]
    )
    refused = run(*words, "--served", 5)
    assert refused.exit_code == 2
    assert refused.stderr.splitlines()[-1] == "error: served must be from 1 to the 4 slots recorded, got 5"


def test_bytes_are_a_budget_where_the_size_of_an_expert_is_known(file, tmp_path):
    refused = run(file, "--budget", "4GiB", "--no-report")
    assert refused.exit_code == 2
    assert "add --expert-bytes" in refused.stderr.splitlines()[-1]
    done = run(file, "--budget", "8MiB", "--expert-bytes", "1MiB", "--no-report", "--json", *FEW)
    assert json.loads(done.stdout)["budget"]["slots"] == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "4", "--capacity", "4"], "give one of them"),
        (["--budget", "4,8"], "one size"),
        (["--capacity", "0"], "at least one slot"),
        (["--policy", "sive"], "did you mean 'sieve'?"),
        (["--out", "/dev/null/x.html", *FEW], "/dev/null"),
        (["--cost", "absent.json"], "absent.json"),
    ],
)
def test_what_cannot_be_diagnosed_is_one_line_and_exit_code_2(file, words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(file, *words)
    assert done.exit_code == 2, done.output
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: ")
    assert said in line
    assert list(tmp_path.iterdir()) == []


def test_counts_get_the_answers_they_allow(tmp_path):
    (tmp_path / "x.coli_usage").write_text("0 0 50\n0 1 20\n1 1 30\n1 3 1\n")
    done = run(tmp_path / "x.coli_usage", "--num-experts", 4, "--capacity", 1, "--out", tmp_path / "r.html")
    assert done.exit_code == 0, done.output
    assert "79.2 % of all uses" in done.stdout
    assert "counts have no order" in done.stdout
    assert (tmp_path / "r.html").exists()


def test_without_plotly_the_way_out_is_named(file, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    done = run(file, "--capacity", 3, "--out", tmp_path / "page.html", *FEW)
    assert done.exit_code == 2
    assert "--no-report" in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="sends a signal")
def test_ctrl_c_ends_with_130_and_leaves_the_old_page_as_it_was(file, tmp_path):
    page = tmp_path / "report.html"
    page.write_text("old")
    code = (
        "import sys, time\n"
        "from stickymoe.experiments.diagnosis import diagnosis\n"
        "def slow(*words, **more):\n"
        "    print('here', flush=True)\n"
        "    time.sleep(60)\n"
        "diagnosis.replay_at_budget = slow\n"
        "from stickymoe.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    words = [sys.executable, "-c", code, "diagnose", str(file), "--capacity", "2", "--out", str(page)]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stdout.readline() == "here\n"
        time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=60)[1]
    finally:
        running.kill()
    assert running.returncode == 130
    assert "Traceback" not in said
    assert page.read_text() == "old"
    assert list(tmp_path.iterdir()) == [page]
