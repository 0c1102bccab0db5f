"""How long a sweep still takes, and how it looks on a terminal."""

import io
import json

import pytest
from rich.console import Console

from stickymoe.experiments.runner import Job
from stickymoe.experiments.sweeps.entry import Entry, seconds_left
from stickymoe.experiments.sweeps.plan import plan
from stickymoe.experiments.sweeps.table import duration, live_table, plan_table, summary


@pytest.fixture
def entries(grid, tmp_path):
    """Five runs of 8 steps: one at step 4 after 6 s, one failed, three waiting."""
    made = []
    for number, run in enumerate(plan(grid(variants=["soft"]))):
        folder = tmp_path / str(number)
        folder.mkdir()
        made.append(Entry(run, folder, job=Job(run.name, folder, [], run.recipe.training.steps)))
    (made[0].folder / "log.jsonl").write_text(json.dumps({"step": 4, "seconds": 6.0}) + "\n")
    made[0].job.state, made[1].job.state = "running", "failed"
    return made


def test_nothing_is_said_of_the_time_before_a_step_was_made(entries):
    (entries[0].folder / "log.jsonl").unlink()
    assert seconds_left(entries, 2) is None
    assert summary(entries, 2) == "0 of 5 runs done, 1 running, 1 failed, 3 waiting"


@pytest.mark.parametrize(("parallel", "seconds"), [(1, 42.0), (2, 21.0), (3, 14.0), (100, 12.0)])
def test_the_time_left_is_the_work_spread_evenly_or_the_longest_run(entries, parallel, seconds):
    # 1.5 s a step: 4 steps of the first and 8 of three others are 28 steps
    assert seconds_left(entries, parallel) == pytest.approx(seconds)


def test_the_table_shows_what_runs_and_what_failed_first_and_fits_its_lines(entries):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(live_table(entries, 1, lines=5))
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert lines[1].split()[:2] == [entries[0].run.name, "running"]
    assert lines[1].endswith("4/8")
    assert lines[2].split()[:2] == [entries[1].run.name, "failed"]
    assert lines[3] == "and 3 more"
    assert lines[4] == "0 of 5 runs done, 1 running, 1 failed, 3 waiting, about 42 s left"


def test_a_run_that_has_made_its_steps_is_being_evaluated(entries):
    (entries[0].folder / "log.jsonl").write_text(json.dumps({"step": 8, "seconds": 6.0}) + "\n")
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(live_table(entries, 1, lines=20))
    console.print(plan_table([Entry(entries[1].run, entries[1].folder), *entries]))
    text = console.export_text()
    assert "evaluating" in text
    assert "stands" in text
    assert "goes on from step 8" in text


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (59.4, "59 s"), (60, "1 min"), (3599, "1 h 00 min"), (12_060, "3 h 21 min")]
)
def test_a_length_of_time_is_said_in_two_units(seconds, said):
    assert duration(seconds) == said
