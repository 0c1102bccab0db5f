"""Several processes at once: limits, deaths, Ctrl-C. The jobs are one-liners."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from stickymoe.core.errors import TrainingError
from stickymoe.experiments import runner
from stickymoe.experiments.environment import usable_cores
from stickymoe.experiments.runner import Job, run_jobs


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(runner, "_POLL_SECONDS", 0.02)


@pytest.fixture
def job(tmp_path):
    return lambda name, code: Job(name, tmp_path / name, ["-c", code], steps=10)


def test_all_jobs_run_and_no_more_than_allowed_at_a_time(job):
    most, ended = [], []

    def watch(waiting, running, finished):
        most.append(len(running))
        ended[:] = [done.label for done in finished]
        assert len(waiting) + len(running) + len(finished) == 5

    run_jobs([job(str(n), "import time; time.sleep(0.15)") for n in range(5)], 2, watch)
    assert max(most) == 2
    assert sorted(ended) == ["0", "1", "2", "3", "4"]


def test_no_jobs_are_no_work():
    run_jobs([], 1)


@pytest.mark.parametrize("parallel", [1, 1000])
def test_each_job_gets_an_equal_share_of_the_cores_and_at_least_one_thread(job, parallel):
    asked = job("a", "import os; print(os.environ['OMP_NUM_THREADS'])")
    run_jobs([asked], parallel)
    assert (asked.folder / "output.txt").read_text().strip() == str(max(1, usable_cores() // parallel))


def test_a_failed_job_is_named_with_its_last_line_and_those_running_finish(job):
    bad = job("bad", "print('begun'); print('error: the disk is on fire'); raise SystemExit(2)")
    good = job("good", "import time; time.sleep(0.5); print('done')")
    never = job("never", "print('should not run')")
    with pytest.raises(TrainingError) as caught:
        run_jobs([bad, good, never], 2)
    said = str(caught.value)
    assert said.startswith("bad ended with code 2: the disk is on fire (all it said is in ")
    assert "good" not in said
    assert (good.folder / "output.txt").read_text().strip() == "done"
    assert not never.folder.exists()


def test_a_killed_job_is_named_with_the_signal_and_the_last_line_of_this_attempt(job):
    killed = job("killed", "import os; os.kill(os.getpid(), 9)")
    killed.folder.mkdir()
    (killed.folder / "output.txt").write_text("of an earlier attempt")
    with pytest.raises(TrainingError, match="killed was killed by SIGKILL: no output"):
        run_jobs([killed], 1)


PATIENT = """
import os, signal, sys, time
def end(number, frame):
    # Not print: the signal may come while "ready" is still in it, and it cannot be entered twice
    time.sleep(0.2); os.write(1, f"saved {number}".encode()); sys.exit(130)
signal.signal(signal.SIGINT, end)
print("ready", flush=True)
time.sleep(60)
"""


def interrupt_when_ready(jobs, number, times=1):
    def send():
        end = time.monotonic() + 30
        while time.monotonic() < end and not all("ready" in read(job) for job in jobs):
            time.sleep(0.02)
        for _ in range(times):
            os.kill(os.getpid(), number)
            time.sleep(0.1)

    threading.Thread(target=send, daemon=True).start()


def read(job):
    path = job.folder / "output.txt"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_and_its_like_reach_every_running_job_once_and_wait_for_it(job, number):
    jobs = [job("a", PATIENT), job("b", PATIENT)]
    before = signal.getsignal(number)
    interrupt_when_ready(jobs, number)
    with pytest.raises(KeyboardInterrupt):
        run_jobs([*jobs, job("never", "")], 2)
    for one in jobs:
        assert read(one).split() == ["ready", "saved", str(int(signal.SIGINT))]
        assert one.process.returncode == 130
    assert not (jobs[0].folder.parent / "never").exists()
    assert signal.getsignal(number) == before


STUBBORN = "import signal, time; signal.signal(2, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"


def test_a_second_ctrl_c_kills_what_does_not_end(job):
    stubborn = job("stubborn", STUBBORN)
    interrupt_when_ready([stubborn], signal.SIGINT, times=2)
    with pytest.raises(KeyboardInterrupt):
        run_jobs([stubborn], 1)
    assert stubborn.process.returncode == -signal.SIGKILL


def test_a_job_that_does_not_end_in_time_is_killed(job, monkeypatch):
    monkeypatch.setattr(runner, "_FAREWELL_SECONDS", 0.3)
    stubborn = job("stubborn", STUBBORN)
    interrupt_when_ready([stubborn], signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_jobs([stubborn], 1)
    assert stubborn.process.returncode == -signal.SIGKILL


def test_jobs_run_outside_the_main_thread_too(job):
    done = job("a", "print('done')")
    thread = threading.Thread(target=run_jobs, args=([done], 1))
    thread.start()
    thread.join(30)
    assert read(done).strip() == "done"


def test_a_job_has_no_terminal_to_wait_for(job):
    asks = job("asks", "import sys; print(repr(sys.stdin.read()))")
    run_jobs([asks], 1)
    assert read(asks).strip() == "''"


@pytest.mark.parametrize(
    ("log", "step"),
    [
        (None, 0),
        ("", 0),
        ('{"step": 4}', 0),  # not yet whole
        ('{"step": 4}\n{"ste', 4),
        ('{"step": 4}\n{"step": 6}\n', 6),
        ('{"step": 4}\nnonsense\n[]\n', 4),
        ('{"step": 3, "x": "' + "y" * 9000 + '"}\n', 3),
    ],
)
def test_a_jobs_step_is_that_of_the_last_whole_row(job, log, step):
    one = job("a", "")
    one.folder.mkdir()
    if log is not None:
        (one.folder / "log.jsonl").write_text(log)
    assert one.step() == step


def test_a_long_log_is_read_from_its_end(job):
    one = job("a", "")
    one.folder.mkdir()
    (one.folder / "log.jsonl").write_text("".join(json.dumps({"step": n}) + "\n" for n in range(20_000)))
    assert one.step() == 19_999


def test_the_module_is_importable_where_there_is_no_affinity():
    room = "stickymoe.experiments.environment"
    code = f"import os; del os.sched_getaffinity; from {room} import usable_cores; usable_cores()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_job_waits_for_the_one_it_needs_and_the_others_do_not_wait(job, tmp_path):
    start = job("start", "import time; time.sleep(0.4); print('done')")
    needs = job("needs", f"print(open({str(start.folder / 'output.txt')!r}).read().strip())")
    needs.after = start
    other = job("other", "print('done')")
    ended = []
    run_jobs([needs, start, other], 2, ended=lambda one: ended.append(one.label))
    assert ended == ["other", "start", "needs"]
    assert read(needs).strip() == "done"


def test_with_keep_going_a_failure_skips_what_needs_it_and_nothing_else(job):
    bad, needs, too, good = (
        job(name, "raise SystemExit(3)" if name == "bad" else "") for name in ["bad", "needs", "too", "good"]
    )
    needs.after, too.after = bad, needs
    run_jobs([bad, needs, too, good], 1, keep_going=True)
    assert [one.state for one in (bad, needs, too, good)] == ["failed", "skipped", "skipped", "finished"]
    assert bad.reason.startswith("ended with code 3: no output")
    assert needs.reason == "was not begun: it starts from bad, which has not finished"
    assert not needs.folder.exists()


@pytest.mark.parametrize(("code", "how"), [(PATIENT, "saved and ended"), (STUBBORN, "did not answer and was killed")])
def test_a_job_over_its_time_is_asked_to_save_then_killed_and_the_others_go_on(job, monkeypatch, code, how):
    monkeypatch.setattr(runner, "_FAREWELL_SECONDS", 1.5)
    slow, other = job("slow", code), job("other", "print('done')")
    slow.limit_seconds = 1.0
    slow.folder.mkdir()
    (slow.folder / "log.jsonl").write_text('{"step": 4}\n')
    begun = time.monotonic()
    run_jobs([slow, other], 1, keep_going=True)
    assert time.monotonic() - begun < 20
    assert (slow.state, other.state) == ("cut short", "finished")
    assert slow.reason == f"reached its time limit of {1 / 60:g} minutes at step 4, {how}"


def test_a_job_that_ends_in_time_is_left_alone(job):
    one = job("one", "print('done')")
    one.limit_seconds = 60
    run_jobs([one], 1)
    assert one.state == "finished"


def test_what_the_caller_makes_of_an_ended_job_counts(job):
    def disown(one):
        one.state, one.reason = "failed", "left no result"

    with pytest.raises(TrainingError, match="one left no result"):
        run_jobs([job("one", "")], 1, ended=disown)


def test_the_pace_is_that_of_the_last_whole_row(job):
    one = job("a", "")
    assert one.pace() == (0, 0.0)
    one.folder.mkdir()
    (one.folder / "log.jsonl").write_text('{"step": 4, "seconds": 2.5}\n{"step": 6, "sec')
    assert one.pace() == (4, 2.5)
