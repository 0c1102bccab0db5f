"""The log file tells every step once, kills and resumptions notwithstanding."""

import json

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments

from stickymoe.training.callbacks import LogFile, read_log


@pytest.fixture
def begin(tmp_path):
    def begin(step):
        log = LogFile()
        args = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[])
        log.on_train_begin(args, TrainerState(global_step=step, is_world_process_zero=True), TrainerControl())
        return log

    return begin


def write(folder, *steps, tail=""):
    lines = [json.dumps({"step": step, "cross_entropy": 1.0, "seconds": 10.0 * step}) + "\n" for step in steps]
    (folder / "log.jsonl").write_text("".join(lines) + tail)


def test_a_resumed_run_drops_the_rows_it_writes_again_and_counts_time_on(tmp_path, begin):
    write(tmp_path, 2, 4, 6)
    begin(4).write(tmp_path, {"step": 6, "cross_entropy": 2.0})
    rows = read_log(tmp_path / "log.jsonl")
    assert [row["step"] for row in rows] == [2, 4, 6]
    assert rows[-1]["cross_entropy"] == 2.0
    assert 40.0 <= rows[-1]["seconds"] < 50.0


def test_a_run_that_starts_anew_drops_every_row(tmp_path, begin):
    write(tmp_path, 2, 4)
    begin(0)
    assert read_log(tmp_path / "log.jsonl") == []


def test_a_line_cut_short_by_a_kill_is_left_out(tmp_path, begin):
    write(tmp_path, 2, 4, tail='{"step": 6, "cross_en')
    assert [row["step"] for row in read_log(tmp_path / "log.jsonl")] == [2, 4]
    begin(6).write(tmp_path, {"step": 8, "cross_entropy": 1.0})
    assert [row["step"] for row in read_log(tmp_path / "log.jsonl")] == [2, 4, 8]


def test_evaluations_are_rows_of_their_own(tmp_path, begin):
    log = begin(0)
    args = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[])
    state = TrainerState(global_step=3, epoch=0.5, is_world_process_zero=True)
    log.on_evaluate(args, state, TrainerControl(), metrics={"eval_loss": 1.5, "eval_runtime": 3.0})
    (row,) = read_log(tmp_path / "log.jsonl")
    assert (row["step"], row["epoch"], row["eval_loss"]) == (3, 0.5, 1.5)
    assert "eval_runtime" not in row
    assert log.last_row is None
