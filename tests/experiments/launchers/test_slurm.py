"""Runs as SLURM jobs, tested with submitit's own executor for one machine."""

import json

import pytest

from stickymoe.core.errors import SettingError
from stickymoe.experiments.launchers.slurm import JOB_FILE, SlurmLauncher
from stickymoe.experiments.runner import Job, run_jobs

submitit = pytest.importorskip("submitit")


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("STICKYMOE_MARK", "carried")
    return SlurmLauncher.open(tmp_path / "sweep", {"cluster": "local", "timeout_min": "3"})


@pytest.fixture
def job(tmp_path):
    return lambda name, code: Job(name, tmp_path / name, ["-c", code], steps=10)


def said(job):
    path = job.folder / "output.txt"
    return path.read_text() if path.exists() else ""


@pytest.mark.slow
def test_jobs_end_with_their_codes_and_outputs_and_leave_no_trace_of_the_queue(cluster, job):
    jobs = [
        job("a", "import os; print(os.environ['STICKYMOE_MARK'])"),
        job("b", "print('error: no'); raise SystemExit(3)"),
    ]
    run_jobs(jobs, 2, launcher=cluster, keep_going=True)
    assert [one.state for one in jobs] == ["finished", "failed"]
    assert said(jobs[0]) == "carried\n"
    assert jobs[1].reason.startswith("ended with code 3: no (all it said")
    assert not any((one.folder / JOB_FILE).exists() for one in jobs)


@pytest.mark.slow
def test_a_job_over_its_time_is_taken_back(cluster, job):
    code = "import os, signal; os.write(1, b'ready'); signal.signal(2, lambda *_: os._exit(130)); signal.pause()"
    slow = job("slow", code)
    slow.limit_seconds = 1
    run_jobs([slow], 1, launcher=cluster, keep_going=True)
    assert slow.state == "cut short"
    assert slow.reason.endswith("saved and ended")


class Waiting:
    """A job of SLURM's that waits, then has ended with a code."""

    ended = False

    def __init__(self, folder, job_id):
        self.job_id = job_id

    def done(self):
        return Waiting.ended

    def result(self):
        return 0


def test_a_job_handed_in_by_an_earlier_sweep_is_followed_until_it_ends(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(submitit, "SlurmJob", Waiting)
    monkeypatch.setattr(Waiting, "ended", False)
    folder = tmp_path / "run"
    folder.mkdir()
    assert not cluster.follows(folder)
    (folder / JOB_FILE).write_text(json.dumps({"job": "77"}))
    assert not cluster.follows(folder)  # submitit's local jobs are nobody's afterwards
    cluster._executor.cluster = "slurm"
    assert cluster.follows(folder)
    run = cluster.start(folder, ["-c", "raise SystemExit(9)"], 1)
    assert run.poll() is None
    assert not run.has_begun()
    monkeypatch.setattr(Waiting, "ended", True)
    assert run.poll() == 0
    assert not (folder / JOB_FILE).exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", "nonsense"])
def test_a_damaged_note_of_a_job_is_no_job(cluster, tmp_path, content):
    (tmp_path / JOB_FILE).write_text(content)
    assert not cluster.follows(tmp_path)


@pytest.mark.parametrize(
    "options",
    [{}, {"cluster": "nowhere"}, {"cluster": "local", "partition": "gpu"}, {"cluster": "local", "nodes": "x"}],
)
def test_what_submitit_refuses_is_one_line(tmp_path, options, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")  # no srun
    with pytest.raises(SettingError, match=r"SLURM cannot be used: .*; check --cluster") as caught:
        SlurmLauncher.open(tmp_path, options)
    assert "\n" not in str(caught.value)
