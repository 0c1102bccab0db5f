"""A sweep that is killed again and again ends with the rows of one that was left in peace."""

import multiprocessing
import os
import random
import runpy
import signal
import time
from pathlib import Path

import pytest
from filelock import FileLock

from stickymoe.experiments.run_folder import LOCK_FILE
from stickymoe.experiments.sweeps.rows import read_rows

SCRIPT = Path(__file__).with_name("forked.py")
KILLS = 10
STEPS = ["training.steps=60", "training.checkpoint_every=10", "training.log_every=1"]


@pytest.fixture(scope="module")
def forkserver():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["stickymoe.experiments.sweeps.sweep"])
    return context


@pytest.fixture
def start(forkserver, grid, trained):
    environment = {"STICKYMOE_CACHE": str(trained / "cache"), "OMP_NUM_THREADS": "1"}
    content = grid(variants=["vanilla", "soft-0.1", "remoe"], overrides=STEPS).model_dump_json()
    started = []

    def start(out):
        script = {"CHILD": (str(out), content, environment)}
        process = forkserver.Process(target=runpy.run_path, args=(str(SCRIPT), script, "sweep_child"))
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()


def rows_of(out):
    return {row.run: row.model_dump(exclude={"hours", "metrics", "commit"}) for row in read_rows(out)}


def steps_made(out):
    """Steps that the runs of a sweep have logged, and more for each row."""
    logs = [path.read_text(encoding="utf-8").count("\n") for path in out.glob("runs/*/*/*/log.jsonl")]
    return sum(logs) + 5 * len(list(out.glob("rows/*/*/*.parquet")))


@pytest.mark.slow
def test_a_sweep_killed_ten_times_at_random_ends_with_the_same_rows(start, tmp_path):
    process = start(tmp_path / "undisturbed" / "out")
    process.join(120)
    assert process.exitcode == 0
    expected = rows_of(tmp_path / "undisturbed" / "out")
    assert len(expected) == 3

    out, draw = tmp_path / "killed" / "out", random.Random(3)
    codes = []
    for _ in range(KILLS):
        process = start(out)
        enough = steps_made(out) + draw.randint(0, 12)
        while process.is_alive() and steps_made(out) < enough:
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.05))
        if process.is_alive():
            os.kill(process.pid, draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        process.join(60)
        codes.append(process.exitcode)
        for lock in out.rglob(LOCK_FILE):  # no run goes on for long after its sweep is gone
            with FileLock(lock, timeout=30):
                pass
    assert sum(code != 0 for code in codes) >= KILLS / 2, codes
    process = start(out)
    process.join(120)
    assert process.exitcode == 0
    assert rows_of(out) == expected
    assert not list(out.rglob("*.partial"))
