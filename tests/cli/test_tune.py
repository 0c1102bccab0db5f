"""Tuning from the command line: what comes out, what is refused, and how to go on after Ctrl-C."""

import json
import signal

import pytest

from stickymoe.experiments.tuning import run as run_module
from stickymoe.experiments.tuning.objectives import OBJECTIVES

QUICK = ("--tokens", 200, "--seq-len", 16, "--accumulation", 2, "--eval-tokens", 200, "--lr", "1e-2")


@pytest.fixture
def text(tmp_path):
    rows = [f"Some experts stay, {n} experts go, and the text goes on for row {n}." for n in range(40)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    return tmp_path / "rows.jsonl"


def test_a_run_is_tuned_beside_its_control_and_the_model_can_be_recorded(stickymoe, trained, text, tmp_path):
    done = stickymoe("tune", trained / "run", "--router-only", "--data", text, "--out", "tuned", *QUICK)
    assert done.exit_code == 0, done.output
    assert all(word in done.stdout for word in ("perplexity", "CE only", "LRU hits, 12.5 % held", "tuned costs, nats"))
    assert "unchanged: all else, SHA-256 " in done.stdout
    content = json.loads((tmp_path / "tuned" / "tuning.json").read_text())
    assert content["proof"]["before"] == content["proof"]["after"]
    assert content["proof"]["moved"] == content["on_disk"]["changed"]
    recorded = stickymoe("trace", "record", "tuned", "--data", text, "--max-tokens", 40, "--out", "t.parquet")
    assert recorded.exit_code == 0, recorded.output


def test_ctrl_c_keeps_what_was_done_and_tells_the_command_that_goes_on(stickymoe, trained, text, monkeypatch):
    original = run_module.TuneRun._arguments

    def interrupted(self, arm, coefficients):
        report = self.progress
        self.progress = lambda what, done, total: (report(what, done, total), done == 2 and signal.raise_signal(2))
        return original(self, arm, coefficients)

    words = ["tune", trained / "run", "--data", text, "--out", "tuned", "--no-control", "--no-model", *QUICK]
    with monkeypatch.context() as patch:
        patch.setattr(run_module.TuneRun, "_arguments", interrupted)
        stopped = stickymoe(*words)
    assert stopped.exit_code == 128 + signal.SIGINT
    assert all(word in stopped.stderr for word in (" --no-control", " --no-model", "--seq-len 16", "checkpoint-"))
    command = stopped.stderr.strip().rpartition("the command: ")[2]
    assert command.split()[:2] == ["stickymoe", "tune"]
    again = stickymoe(*command.split()[1:])
    assert again.exit_code == 0, again.output
    assert "CE only" not in again.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--objective", "remo"), r"objective must be one of remoe, .*, got 'remo'; did you mean 'remoe'?"),
        (("--term", "reus=1"), "term must be one of "),
        (("--term", "consistency=-1"), "objective.consistency must be a finite number >= 0, got -1.0"),
        (("--tokens", "many"), "must be a number of tokens >= 1, such as 20000, 500k or 1.5M, got 'many'"),
        (("--tokens", "0"), "must be a number of tokens >= 1"),
        (("--lags", "1,x"), "--lags must be whole numbers with commas, such as 1,2,4, got '1,x'"),
        (("--warmup", "2"), "tune.warmup_share must be in [0, 1], got 2.0"),
        (("--router-only", "--lora", "4"), "--lora must be 0 with --router-only, got 4"),
        (("--seq-len", "9999"), "tune.sequence_length must be <= "),
        (("--data", "none.jsonl"), "data must be an existing file, got 'none.jsonl'"),
        (("--data", "EMPTY"), "must not be empty, it holds no row"),
        (("--data", "BROKEN"), "line 2 must be one JSON object, got expecting value at column 10"),
        (("--data", "UNTOLD"), "line 2 must have a text that is not empty"),
        (("--data", "SHORT"), "must have >= 2 rows, one of them to measure on, got 1"),
        (("--data", "ROWS", "--loss-on", "assistant"), "must have a token to predict, got labels that are all masked"),
        (("--resume",), "out must be a tuning to resume"),
        (("--device", "abacus"), "device must be one that this machine has"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_nothing_is_written(stickymoe, trained, text, tmp_path, words, told):
    for name, content in {
        "EMPTY": "",
        "BROKEN": '{"text": "one"}\n{"text": \n',
        "UNTOLD": '{"text": "one"}\n{"title": "two"}\n',
        "SHORT": '{"text": "one"}\n',
    }.items():
        (tmp_path / f"{name}.jsonl").write_text(content)
    files = {"ROWS": "rows.jsonl"} | {name: f"{name}.jsonl" for name in ("EMPTY", "BROKEN", "UNTOLD", "SHORT")}
    words = [files.get(word, word) for word in words]
    data = () if "--data" in words else ("--data", text)
    done = stickymoe("tune", trained / "run", "--out", "tuned", *data, *words)
    assert done.exit_code == 2, done.output
    assert len(done.stderr.strip().splitlines()[-1:]) == 1
    error = done.stderr.strip().splitlines()[-1]
    assert error.startswith("error: ")
    assert told.partition(".*")[0] in error
    assert not (tmp_path / "tuned").exists()


def test_a_folder_that_holds_something_is_left_as_it_is(stickymoe, trained, text, tmp_path):
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / "thesis.txt").write_text("precious")
    done = stickymoe("tune", trained / "run", "--data", text, "--out", "tuned")
    assert done.exit_code == 2
    assert "out must be a new or empty folder" in done.stderr
    assert [path.name for path in (tmp_path / "tuned").iterdir()] == ["thesis.txt"]


def test_help_names_every_objective(stickymoe):
    told = " ".join(stickymoe("tune", "--help").stdout.split())
    assert ", ".join(name for name in OBJECTIVES if name != "ce") in told.replace(" or ce", "")
