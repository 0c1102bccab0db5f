"""A sweep: what stands is kept, what fails is set apart, what was begun goes on. Runs are trained in this process."""

import json
import shutil

import pytest

from stickymoe.core.errors import DataError, SettingError, StorageError
from stickymoe.experiments.results import METRICS_FILE
from stickymoe.experiments.run_folder import MODEL_FOLDER, WEIGHTS_FILE, claimed
from stickymoe.experiments.sweeps import folders, plan, sweep
from stickymoe.experiments.sweeps.rows import read_row, read_rows, row_file
from stickymoe.experiments.sweeps.sweep import run_sweep, survey
from stickymoe.training.checkpoints import checkpoints_in


def states(entries):
    return {entry.run.variant.name: entry.state for entry in entries}


def bare(row):
    """A row without what two equal runs may differ in."""
    return row.model_dump(exclude={"hours", "metrics", "commit"})


def test_every_run_leaves_a_row_and_a_second_call_keeps_them_all(grid, here, tmp_path):
    told = []
    entries = run_sweep(grid(), tmp_path, launcher=here, progress=lambda all_: told.append(states(all_)))
    assert here.trained == ["vanilla", "soft-0.1", "remoe"]
    assert set(states(entries).values()) == {"finished"}
    assert told[-1] == states(entries)
    assert here.closed == 1
    rows = {row.variant: row for row in read_rows(tmp_path)}
    assert rows.keys() == {"vanilla", "soft-0.1", "remoe"}
    vanilla = rows["vanilla"]
    metrics = json.loads((tmp_path / "runs/tiny/1/vanilla" / METRICS_FILE).read_text())
    assert vanilla.perplexity == metrics["perplexity"]
    assert vanilla.switch_rate_per_layer == tuple(metrics["routing"]["switch_rate"]["per_layer"])
    assert (vanilla.complete, vanilla.steps, vanilla.steps_done, vanilla.split) == (True, 8, 8, "test")
    assert vanilla.curve_step == (2, 4, 6, 8)
    assert vanilla.paper_hit_rate == metrics["cache"][0]["hit_rate"]
    assert [cache.model_dump() for cache in vanilla.cache] == metrics["cache"]
    assert rows["soft-0.1"].settings == '{"objective.consistency": 0.1}'
    assert rows["remoe"].steps == 1
    assert not list(tmp_path.rglob("checkpoint-*"))

    again = run_sweep(grid(), tmp_path, launcher=here)
    assert set(states(again).values()) == {"stands"}
    assert len(here.trained) == 3


def test_a_row_rebuilds_the_result_and_the_passage_without_the_run_folder(grid, here, tmp_path):
    run_sweep(grid(variants=["vanilla", "dense"]), tmp_path, launcher=here)
    shutil.rmtree(tmp_path / "runs")
    rows = {row.variant: row for row in read_rows(tmp_path)}
    result = rows["vanilla"].result()
    assert result.label == "Vanilla"
    assert result.read.perplexity == rows["vanilla"].perplexity
    assert [row["step"] for row in result.log] == [2, 4, 6, 8]
    assert result.log[0]["switch_rate"] == [rows["vanilla"].curve_switch_rate[0]]
    passage = rows["vanilla"].passage()
    assert passage.expert_ids.shape == (len(passage.pieces), 2, 2)
    assert passage.expert_weights.min() >= 0
    assert rows["dense"].passage() is None
    assert rows["dense"].switch_rate is None
    assert rows["dense"].result().is_dense


def test_a_failed_run_is_set_apart_the_rest_goes_on_and_what_needs_it_is_skipped(grid, here, tmp_path):
    here.dies = {"vanilla"}
    entries = run_sweep(grid(), tmp_path, launcher=here)
    assert states(entries) == {"vanilla": "failed", "soft-0.1": "finished", "remoe": "skipped"}
    reasons = {entry.run.variant.name: entry.job.reason for entry in entries}
    assert reasons["vanilla"].startswith("ended with code 2: the disk is on fire (all it said is in ")
    assert reasons["remoe"] == "was not begun: it starts from tiny/1/vanilla, which has not finished"
    apart = tmp_path / "failed/tiny/1/vanilla.txt"
    assert "the disk is on fire" in apart.read_text()
    assert [row.variant for row in read_rows(tmp_path)] == ["soft-0.1"]

    here.dies, here.trained = set(), []
    assert states(run_sweep(grid(), tmp_path, launcher=here)) == {
        "vanilla": "finished", "soft-0.1": "stands", "remoe": "finished",
    }  # fmt: skip
    assert here.trained == ["vanilla", "remoe"]
    assert not apart.exists()


def test_a_run_that_was_measured_but_has_no_row_is_not_run_again(grid, here, tmp_path):
    run_sweep(grid(variants=["soft-0.1"]), tmp_path, launcher=here)
    row = read_row(tmp_path, "tiny/1/soft-0.1")
    row_file(tmp_path, "tiny/1/soft-0.1").unlink()
    assert states(run_sweep(grid(variants=["soft-0.1"]), tmp_path, launcher=here)) == {"soft-0.1": "finished"}
    assert here.trained == ["soft-0.1"]
    assert read_row(tmp_path, "tiny/1/soft-0.1") == row


def test_rows_from_another_machine_stand_but_a_start_is_trained_where_its_model_is_missing(grid, here, tmp_path):
    run_sweep(grid(), tmp_path / "there", launcher=here)
    rows = {row.variant: bare(row) for row in read_rows(tmp_path / "there")}
    shutil.copytree(tmp_path / "there/rows", tmp_path / "here/rows")
    here.trained = []
    assert set(states(run_sweep(grid(), tmp_path / "here", launcher=here)).values()) == {"stands"}
    row_file(tmp_path / "here", "tiny/1/remoe").unlink()
    entries = run_sweep(grid(), tmp_path / "here", launcher=here, only=["remoe"])
    assert here.trained == ["vanilla", "remoe"]
    assert states(entries) == {"vanilla": "finished", "remoe": "finished"}
    assert {row.variant: bare(row) for row in read_rows(tmp_path / "here")} == rows


def test_another_recipe_makes_way_for_itself_and_only_for_itself(grid, here, tmp_path):
    run_sweep(grid(variants=["vanilla", "soft-0.1"]), tmp_path, launcher=here)
    old = read_row(tmp_path, "tiny/1/soft-0.1")
    changed = grid(variants=["vanilla", "soft-0.1"], overrides=["training.peak_learning_rate=0.02"])
    here.trained = []
    run_sweep(changed, tmp_path, launcher=here, only=["soft*"])
    assert here.trained == ["soft-0.1"]
    assert read_row(tmp_path, "tiny/1/soft-0.1").key != old.key
    assert states(survey(changed, tmp_path)) == {"vanilla": "waiting", "soft-0.1": "stands"}


def test_a_new_way_to_measure_measures_again_and_a_new_way_to_train_trains_again(grid, here, tmp_path, monkeypatch):
    here.afresh = True
    one = grid(variants=["vanilla"])
    run_sweep(one, tmp_path, launcher=here)
    weights = tmp_path / "runs/tiny/1/vanilla" / MODEL_FOLDER / WEIGHTS_FILE
    before, row = weights.stat().st_mtime_ns, read_row(tmp_path, "tiny/1/vanilla")
    monkeypatch.setattr(plan, "EVALUATION_VERSION", 99)
    assert states(run_sweep(one, tmp_path, launcher=here)) == {"vanilla": "finished"}
    assert weights.stat().st_mtime_ns == before
    assert read_row(tmp_path, "tiny/1/vanilla").key != row.key
    monkeypatch.setattr(plan, "TRAINING_VERSION", 99)
    assert states(run_sweep(one, tmp_path, launcher=here)) == {"vanilla": "finished"}
    assert weights.stat().st_mtime_ns != before
    assert here.trained == ["vanilla"] * 3


def test_another_text_under_the_same_name_does_not_stand(grid, here, tmp_path, trained, monkeypatch):
    monkeypatch.setenv("STICKYMOE_CACHE", str(trained / "cache"))
    here.afresh = True
    text = shutil.copytree(trained / "text", tmp_path / "text")
    one = grid(variants=["vanilla"], overrides=[f"data.corpus={text}"])
    run_sweep(one, tmp_path / "out", launcher=here)
    for file in text.glob("*.txt"):
        file.write_text(file.read_text() * 2)
    assert states(run_sweep(one, tmp_path / "out", launcher=here)) == {"vanilla": "finished"}
    assert len(here.trained) == 2


class Slow:
    """Makes a launcher's runs stop as if their time were over, after half of their steps."""

    def __init__(self, launcher):
        from stickymoe.experiments.launchers.launcher import Started

        class Hangs(Started):
            code = None

            def has_begun(self):
                return True

            def poll(self):
                return self.code

            def interrupt(self):
                self.code = 130

            def kill(self):
                pass

        self._start, self._hangs = launcher.start, Hangs

    def __call__(self, folder, command, parallel):
        self._start(folder, command, parallel)
        log = folder / "log.jsonl"
        log.write_text("".join(log.read_text().splitlines(keepends=True)[:2]))
        shutil.rmtree(folder / MODEL_FOLDER)
        (folder / METRICS_FILE).unlink()
        return self._hangs()


def test_a_run_over_its_time_limit_leaves_an_unfinished_row_and_goes_on_next_time(grid, here, tmp_path):
    limited = grid(variants=["vanilla", "remoe"], time_limit_minutes=0.001)
    here.start = Slow(here)
    entries = run_sweep(limited, tmp_path, launcher=here)
    assert states(entries) == {"vanilla": "cut short", "remoe": "skipped"}
    assert entries[0].job.reason == "reached its time limit of 0.001 minutes at step 4, saved and ended"
    (row,) = read_rows(tmp_path)
    assert (row.complete, row.steps, row.steps_done, row.perplexity, row.curve_step) == (False, 8, 4, None, (2, 4))
    with pytest.raises(DataError, match="schema must be"):
        row.result()
    del here.start
    here.afresh = True
    assert states(run_sweep(limited, tmp_path, launcher=here)) == {"vanilla": "finished", "remoe": "finished"}
    assert all(row.complete for row in read_rows(tmp_path))


def test_two_sweeps_do_not_work_in_one_folder(grid, here, tmp_path):
    with claimed(tmp_path), pytest.raises(SettingError, match="is in use by another"):
        run_sweep(grid(), tmp_path, launcher=here)
    assert here.closed == 1


def test_a_run_still_saving_itself_is_waited_for_and_one_that_does_not_end_is_named(grid, here, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "STRAGGLER_SECONDS", 0.1)
    with claimed(tmp_path / "runs/tiny/1/vanilla"), pytest.raises(SettingError, match="vanilla is in use by another"):
        run_sweep(grid(variants=["vanilla"]), tmp_path, launcher=here)


def test_a_full_disk_is_one_error_and_the_rows_that_stand_stay(grid, here, tmp_path, monkeypatch):
    import resource

    run_sweep(grid(variants=["vanilla"]), tmp_path, launcher=here)
    before = row_file(tmp_path, "tiny/1/vanilla").read_bytes()
    monkeypatch.setattr(plan, "EVALUATION_VERSION", 99)
    write = sweep.write_row

    def on_a_full_disk(row, out):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            return write(row, out)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    monkeypatch.setattr(sweep, "write_row", on_a_full_disk)
    with pytest.raises(StorageError, match=r"could not write .*vanilla\.parquet"):
        run_sweep(grid(variants=["vanilla"]), tmp_path, launcher=here)
    assert row_file(tmp_path, "tiny/1/vanilla").read_bytes() == before
    assert [path.name for path in (tmp_path / "rows/tiny/1").iterdir()] == ["vanilla.parquet"]


def test_ctrl_c_says_how_to_go_on(grid, here, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "run_jobs", interrupted)
    with pytest.raises(KeyboardInterrupt, match="interrupted; the same command goes on from what is saved in"):
        run_sweep(grid(), tmp_path, launcher=here)


def test_a_survey_changes_nothing(grid, here, tmp_path):
    entries = survey(grid(), tmp_path / "nowhere", only=["remoe"])
    assert states(entries) == {"vanilla": "waiting", "remoe": "waiting"}
    assert entries[1].job.after is entries[0].job
    assert not (tmp_path / "nowhere").exists()


def test_the_first_corpus_with_both_splits_is_taken(grid, here, tmp_path, trained):
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "wiki.valid.tokens").write_text(" \n = A = \n \n words \n")
    either = grid(variants=["vanilla"], corpora=[str(empty), str(trained / "text")])
    (entry,) = run_sweep(either.model_copy(update={"note": "short"}), tmp_path / "out", launcher=here)
    assert entry.run.recipe.data.corpus == str(trained / "text")
    assert entry.row.note == f"short; on text, since {empty} was not at hand"
    with pytest.raises(DataError, match=f"none of the sweep's corpora is at hand; {empty}: "):
        survey(grid(corpora=[str(empty)]), tmp_path / "out")
    with pytest.raises(DataError, match="must be one of train, validation, test, got 'tset'"):
        survey(grid(split="tset"), tmp_path / "out")


def test_a_result_that_cannot_be_read_is_a_failure_of_its_run_alone(grid, here, tmp_path, monkeypatch):
    real = sweep.finished_row

    def broken(sweep_, run, folder, corpus):
        if run.variant.name == "vanilla":
            raise DataError("metrics.json is not JSON")
        return real(sweep_, run, folder, corpus)

    monkeypatch.setattr(sweep, "finished_row", broken)
    entries = run_sweep(grid(variants=["vanilla", "soft-0.1"]), tmp_path, launcher=here)
    assert states(entries) == {"vanilla": "failed", "soft-0.1": "finished"}
    assert entries[0].job.reason == "left no result: metrics.json is not JSON"
    assert checkpoints_in(tmp_path / "runs/tiny/1/vanilla")
