"""Runs as Ray tasks, on a cluster of two workers on this machine."""

import os
import signal
import time

import pytest

from stickymoe.core.errors import SettingError
from stickymoe.experiments import runner
from stickymoe.experiments.launchers.ray import RayLauncher
from stickymoe.experiments.runner import Job, run_jobs

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    # Ray's own: sockets and files that its shutdown leaves to the collector
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STICKYMOE_MARK", "carried")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        launcher = RayLauncher.open(tmp_path_factory.mktemp("ray"), {"num_cpus": "2"})
        yield launcher
        launcher.close()


@pytest.fixture
def job(tmp_path):
    return lambda name, code: Job(name, tmp_path / name, ["-c", code], steps=10)


def said(job):
    path = job.folder / "output.txt"
    return path.read_text() if path.exists() else ""


def test_two_runs_go_on_at_a_time_and_each_keeps_its_own_output_and_code(cluster, job):
    assert cluster.slots() == 2
    show = "import os, time; time.sleep(0.3); print(os.environ['OMP_NUM_THREADS'], os.environ['STICKYMOE_MARK'])"
    jobs = [job("a", show), job("b", show), job("c", "print('error: no'); raise SystemExit(3)")]
    most = []
    run_jobs(jobs, 2, lambda waiting, running, done: most.append(len(running)), launcher=cluster, keep_going=True)
    assert [one.state for one in jobs] == ["finished", "finished", "failed"]
    assert max(most) == 2
    assert said(jobs[0]) == said(jobs[1]) == "1 carried\n"
    assert jobs[2].reason.startswith("ended with code 3: no (all it said")


PATIENT = """
import os, signal, sys, time
def end(number, frame):
    time.sleep(0.2); os.write(1, b"saved"); sys.exit(130)
signal.signal(signal.SIGINT, end)
print("ready", os.getpid(), os.getppid(), flush=True)
time.sleep(60)
"""


def test_a_run_over_its_time_is_asked_to_save(cluster, job):
    slow = job("slow", PATIENT)
    slow.limit_seconds = 3
    run_jobs([slow], 2, launcher=cluster, keep_going=True)
    assert (slow.state, said(slow).split()[-1]) == ("cut short", "saved")


def test_a_worker_that_dies_is_told_and_its_run_does_not_go_on(cluster, job, monkeypatch):
    monkeypatch.setattr(runner, "_POLL_SECONDS", 0.05)
    lost = job("lost", PATIENT.replace("time.sleep(60)", "os.kill(os.getppid(), 9); time.sleep(60)"))
    other = job("other", "print('done')")
    run_jobs([lost, other], 1, launcher=cluster, keep_going=True)
    assert (lost.state, other.state) == ("failed", "finished")
    assert lost.reason.startswith("was killed by SIGKILL")
    pid = int(said(lost).split()[1])
    end = time.monotonic() + 20
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            break
        assert time.monotonic() < end
        time.sleep(0.05)


def test_ctrl_c_reaches_the_runs(cluster, job):
    import threading

    one = job("one", PATIENT)

    def interrupt():
        while "ready" not in said(one):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run_jobs([one], 1, launcher=cluster)
    assert said(one).endswith("saved")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"cpus": "2"},
            "--cluster must be one of address, num_cpus, num_gpus, namespace with --launcher ray, got 'cpus'",
        ),
        ({"num_cpus": "two"}, "--cluster num_cpus must be a whole number, got 'two'"),
    ],
)
def test_an_option_that_ray_has_not_is_refused(tmp_path, options, message):
    with pytest.raises(SettingError) as caught:
        RayLauncher.open(tmp_path, options)
    assert message in str(caught.value)
