"""One run over two processes: the losses and weights of one process, one checkpoint, resumed on another number."""

import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stickymoe.core.errors import SettingError
from stickymoe.experiments.ranks import Ranks
from stickymoe.experiments.run import train_run
from stickymoe.experiments.run_folder import MODEL_FOLDER, WEIGHTS_FILE
from stickymoe.training.callbacks import read_log
from stickymoe.training.checkpoints import MANIFEST, checkpoints_in, verify


def rank(words, environment, said):
    """What a process that `torchrun` starts does: the command line, told who it is by the environment."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Path(said).open("w") as sys.stdout:
        sys.stderr = sys.stdout
        from stickymoe.cli import main

        main([str(word) for word in words])


@pytest.fixture(scope="module")
def forkserver():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["stickymoe.experiments.run", "accelerate"])
    return context


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture
def two(forkserver, trained, tmp_path):
    """A function: words of a command -> both exit codes and what both said."""

    def run(*words):
        port = free_port()
        processes = []
        for number in (0, 1):
            environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
            environment |= {"RANK": str(number), "LOCAL_RANK": str(number), "OMP_NUM_THREADS": "1"}
            environment |= {"STICKYMOE_CACHE": str(trained / "cache")}
            said = tmp_path / f"said-{number}"
            processes.append(forkserver.Process(target=rank, args=(words, environment, str(said))))
            processes[-1].start()
        for process in processes:
            process.join(120)
            process.kill()
            process.join()
        said = [(tmp_path / f"said-{number}").read_text() for number in (0, 1)]
        return [process.exitcode for process in processes], said

    return run


def losses(run):
    return [row["cross_entropy"] for row in read_log(run / "log.jsonl")]


def assert_same(run, expected):
    assert losses(run) == pytest.approx(losses(expected), rel=1e-5)
    weights = [load_file(folder / MODEL_FOLDER / WEIGHTS_FILE) for folder in (run, expected)]
    for name, weight in weights[1].items():
        torch.testing.assert_close(weights[0][name], weight, rtol=1e-4, atol=1e-5, msg=lambda text, n=name: n + text)


def cut_back(run, place):
    """A copy of a run as if it had been killed after its first checkpoint."""
    shutil.copytree(run, place, ignore=shutil.ignore_patterns(MODEL_FOLDER, "metrics.json", "train.json", "*.parquet"))
    first, last = checkpoints_in(place)
    shutil.rmtree(last)
    assert first.name == "checkpoint-4"
    return place


@pytest.fixture(scope="module")
def one(trained):
    return trained / "run"


@pytest.mark.slow
def test_two_processes_train_as_one_and_either_goes_on_where_the_other_stopped(two, one, trained, tiny, tmp_path):
    codes, said = two("train", trained / "tiny.toml", "--out", tmp_path / "two")
    assert codes == [0, 0], said
    assert_same(tmp_path / "two", one)
    assert "report: " in said[0]
    assert "report: " not in said[1]
    metrics = [json.loads((run / "metrics.json").read_text()) for run in (tmp_path / "two", one)]
    assert metrics[0]["perplexity"] == pytest.approx(metrics[1]["perplexity"], rel=1e-4)
    assert metrics[0]["train"]["tokens_per_step"] == metrics[1]["train"]["tokens_per_step"]
    for checkpoint in checkpoints_in(tmp_path / "two"):
        verify(checkpoint)
        assert len(list(checkpoint.rglob("*.safetensors"))) == 1
        assert (checkpoint / MANIFEST).exists()

    resumed = cut_back(tmp_path / "two", tmp_path / "two-then-one")
    train_run(tiny(), resumed, resume=True)
    assert_same(resumed, one)

    resumed = cut_back(one, tmp_path / "one-then-two")
    codes, said = two("train", trained / "tiny.toml", "--out", resumed, "--resume")
    assert codes == [0, 0], said
    assert_same(resumed, one)


@pytest.mark.slow
def test_a_batch_that_cannot_be_shared_out_is_one_line_from_each_process(two, trained, tmp_path):
    codes, said = two("train", trained / "tiny.toml", "--out", tmp_path / "two", "--set", "training.batch_size=3")
    assert codes == [2, 2]
    line = "error: training.batch_size must be a multiple of 2, the number of processes, got 3\n"
    assert said == [line, line]


@pytest.mark.slow
def test_torchrun_starts_the_command_as_it_stands(one, trained, tmp_path, monkeypatch):
    monkeypatch.setenv("STICKYMOE_CACHE", str(trained / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port()]
    command = ["-m", "stickymoe", "train", str(trained / "tiny.toml"), "--out", str(tmp_path / "two")]
    done = subprocess.run([*launch, *command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert_same(tmp_path / "two", one)


def test_sharded_weights_are_refused_in_one_line(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(SettingError, match="launch it without --use_fsdp"):
        Ranks()


def test_one_process_waits_for_nobody():
    with Ranks() as ranks, ranks.first_alone():
        assert (ranks.count, ranks.is_first, ranks.share(7)) == (1, True, 7)


def test_a_share_is_of_all_processes(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "2")
    ranks = Ranks()
    assert (ranks.share(12), ranks.is_first) == (3, False)
    with pytest.raises(SettingError, match="must be a multiple of 4, the number of processes, got 6"):
        ranks.share(6)
