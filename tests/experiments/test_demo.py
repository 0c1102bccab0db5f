"""The demo: all variants on the same batches, resumed after any end, one report. Runs are trained in this process."""

import json
import shutil

import pytest

from stickymoe.core.errors import SettingError, TrainingError
from stickymoe.experiments import demo
from stickymoe.experiments.demo import run_demo
from stickymoe.experiments.recipe_file import load_recipe
from stickymoe.experiments.run import train_run
from stickymoe.experiments.run_folder import claimed
from stickymoe.experiments.runner import Job
from stickymoe.experiments.variants import DENSE, VANILLA, soft

VARIANTS = (VANILLA, soft(0.5), DENSE)


@pytest.fixture
def overrides(trained, tiny):
    """What makes the demo's recipe the tiny one."""
    tables = tiny().model_dump(mode="json", exclude_none=True)
    wanted = {key: tables[key] for key in ("data", "model", "training")}
    return [
        f"{table}.{key}={value if isinstance(value, str) else str(value).lower()}"
        for table, entries in wanted.items()
        for key, value in entries.items()
    ]


@pytest.fixture
def begun(monkeypatch):
    """Labels of the jobs that were run, in order; `begun.dies` names one that is to die."""

    class Begun(list):
        dies = None

    labels = Begun()

    def run_jobs(jobs, parallel, progress=None):
        for job in jobs:
            labels.append(job.label)
            if job.label == labels.dies:
                raise TrainingError(f"{job.label} was killed by SIGKILL: training")
            options = dict(zip(job.command[4::2], job.command[5::2], strict=False))
            assert job.command[:3] == ["-m", "stickymoe", "train"]
            assert job.command[-1] == "--resume"
            train_run(load_recipe(job.command[3]), job.folder, split=options["--split"], resume=True)
            assert options["--out"] == str(job.folder)

    monkeypatch.setattr(demo, "run_jobs", run_jobs)
    return labels


def test_a_run_that_dies_is_named_and_the_same_command_goes_on_and_then_keeps_all(begun, overrides, tmp_path):
    begun.dies = "Dense control"
    with pytest.raises(TrainingError, match="Dense control was killed by SIGKILL: training; finished runs are kept"):
        run_demo(tmp_path, variants=VARIANTS, overrides=overrides)
    assert begun == ["Vanilla", "Soft λ=0.5", "Dense control"]
    begun.dies = None
    begun.clear()
    results, page = run_demo(tmp_path, variants=VARIANTS, overrides=overrides)
    assert begun == ["Dense control"]
    assert [result.label for result in results] == ["Vanilla", "Soft λ=0.5", "Dense control"]
    assert {result.read.split for result in results} == {"test"}
    html = page.read_text(encoding="utf-8")
    assert page == tmp_path / "report.html"
    assert "Vanilla" in html
    assert "stickymoe demo" not in html  # these are not the demo's variants
    summary = json.loads((tmp_path / "demo.json").read_text(encoding="utf-8"))
    assert [run["label"] for run in summary["runs"]] == ["Vanilla", "Soft λ=0.5", "Dense control"]
    assert summary["headline"] in html.replace("&#39;", "'")
    assert summary["seconds"] is None  # made in two goes

    begun.clear()
    assert run_demo(tmp_path, variants=VARIANTS, overrides=overrides)[0][0].read == results[0].read
    assert begun == []

    run_demo(tmp_path, variants=VARIANTS[:1], overrides=[*overrides, "training.seed=1"])
    assert begun == ["Vanilla"]  # another recipe: what was there made way
    (tmp_path / "runs" / "soft-0.5" / "metrics.json").unlink()
    begun.clear()
    run_demo(tmp_path, variants=VARIANTS[1:], overrides=overrides)
    assert begun == ["Soft λ=0.5"]
    shutil.rmtree(tmp_path / "runs")


def test_what_breaks_a_rule_is_told_before_any_run_begins(begun, overrides, tmp_path):
    with pytest.raises(SettingError, match="num_experts_per_tok must be <="):
        run_demo(tmp_path / "out", overrides=[*overrides, "model.num_experts_per_tok=9"])
    with pytest.raises(SettingError, match="corpus must be one of"):
        run_demo(tmp_path / "out", overrides=[*overrides, "data.corpus=nowhere"])
    assert begun == []


def test_two_demos_do_not_work_in_one_folder(begun, overrides, tmp_path):
    with claimed(tmp_path), pytest.raises(SettingError, match="is in use by another"):
        run_demo(tmp_path, overrides=overrides)


def test_ctrl_c_says_how_to_go_on(monkeypatch, overrides, tmp_path):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run_jobs", interrupted)
    with pytest.raises(KeyboardInterrupt, match="interrupted; the same command goes on from what is saved in"):
        run_demo(tmp_path, variants=VARIANTS, overrides=overrides)


def test_the_report_names_the_command_that_makes_it(tmp_path):
    setup = demo._setup(tmp_path / "my demo", demo.DEMO_VARIANTS, "test", ["data.corpus=a b"], 12)
    assert setup["commands"] == ["stickymoe demo --out 'my demo' --set 'data.corpus=a b'"]
    assert setup["seconds"] == 12
    assert "seconds" not in demo._setup(tmp_path, demo.DEMO_VARIANTS, "test", [], None)
    assert len(demo._setup(tmp_path, VARIANTS, "validation", [], None)["notes"]) == 1


def test_every_run_has_a_line_of_progress_that_says_when_it_is_measured(tmp_path):
    told = []
    a, b = (Job(name, tmp_path / name, [], 10) for name in "AB")
    a.folder.mkdir()
    bars = demo._JobBars(lambda *news: told.append(news), [a, b])
    bars([b], [a], [])
    assert told == [("training 2 runs", 0, 20), ("training A", 0, 10)]
    (a.folder / "log.jsonl").write_text('{"step": 4}\n')
    bars([b], [a], [])
    assert told[2:] == [("training 2 runs", 4, 20), ("training A", 4, 10)]
    bars([b], [a], [])
    assert len(told) == 4  # nothing new
    (a.folder / "log.jsonl").write_text('{"step": 10}\n')
    bars([b], [a], [])
    assert told[5] == ("training A · evaluating", 10, 10)
    bars([], [b], [a])
    assert told[6:] == [("training B", 0, 10), ("training A · done", 10, 10)]
    bars([], [], [a])  # B has failed
    assert told[8:] == []
