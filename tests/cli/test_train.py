"""`stickymoe train`."""

import os
import shlex
import signal

import pytest


def error_of(done):
    """The one error line of a command that failed as it should."""
    assert done.exit_code == 2, (done.exit_code, done.output, done.exception)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.stderr.splitlines()[-1] == line
    assert done.stdout == ""
    return line


def test_it_ends_with_a_table_that_fits_and_says_where_everything_is(trained):
    said = (trained / "said").read_text(encoding="utf-8").splitlines()
    assert any("perplexity" in line for line in said)
    assert max(len(line) for line in said[:-1]) <= 60
    assert said[-1] == f"run: {trained / 'run'}   report: {trained / 'run' / 'report.html'}"
    assert {"metrics.json", "report.html", "recipe.toml", "log.jsonl"} <= {
        path.name for path in (trained / "run").iterdir()
    }


def test_without_out_the_run_goes_to_runs_and_the_name(stickymoe, trained, tmp_path, monkeypatch):
    asked = {}
    from stickymoe.experiments import run
    from stickymoe.experiments.results import RunResult

    def train_run(recipe, folder, **settings):
        asked.update(settings, recipe=recipe, folder=folder)
        return RunResult.load(trained / "run")

    monkeypatch.setattr(run, "train_run", train_run)
    done = stickymoe("train", trained / "tiny.toml", "--set", "training.steps=3", "--set", "name=other", "--resume")
    assert done.exit_code == 0, done.output
    assert str(asked["folder"]) == "runs/other"
    assert (asked["recipe"].training.steps, asked["resume"], asked["split"]) == (3, True, "validation")


def test_a_finished_run_is_not_overwritten_but_may_be_resumed(stickymoe, trained, run_copy):
    line = error_of(stickymoe("train", trained / "tiny.toml", "--out", run_copy))
    assert line == f"error: {run_copy} already holds a run; add --resume to go on with it, or choose another --out"
    assert stickymoe("train", trained / "tiny.toml", "--out", run_copy, "--resume").exit_code == 0


def test_ctrl_c_saves_and_prints_the_command_that_goes_on(stickymoe, trained, tmp_path, monkeypatch):
    from stickymoe.cli import progress

    class Interrupting:
        def __enter__(self):
            return self.report

        def __exit__(self, *_):
            pass

        def report(self, description, done, total):
            if description.startswith("training") and done == 3:
                os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(progress, "progress_bars", Interrupting)
        words = ["train", trained / "tiny.toml", "--set", "name=two words", "--out", tmp_path / "my run"]
        done = stickymoe(*words)
    assert done.exit_code == 130
    (line,) = done.stderr.splitlines()
    assert line.startswith("stopped by SIGINT after step")
    again = shlex.split(line.partition("; the command: ")[2])
    assert again[0] == "stickymoe"
    assert stickymoe(*again[1:]).exit_code == 0
    assert (tmp_path / "my run" / "metrics.json").exists()


def test_ctrl_c_before_training_says_so(stickymoe, trained, monkeypatch):
    from stickymoe.experiments import run

    def load(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "load_corpus", load)
    done = stickymoe("train", trained / "tiny.toml")
    assert done.exit_code == 130
    assert done.stderr.splitlines()[-1].startswith("interrupted; the command: stickymoe train ")


BROKEN = [
    ("model.num_experts_per_tok=9", "model.num_experts_per_tok must be <= model.num_experts (4), got 9"),
    ("objective.window=0", "objective.window must be >= 1, got 0"),
    ("objective.consistency=-1", "objective.consistency must be >= 0, got -1"),
    ("objective.anchr=1", "did you mean 'anchor'?"),
    ("data.sequence_length=64", "data.sequence_length must be <= model.max_position_embeddings (32), got 64"),
    ("data.sequence_length=1", "data.sequence_length must be >= 2, got 1"),
    ("data.corpus=empty", "empty must hold text files (*.txt, *.md), found none"),
    ("data.corpus=empty.txt", "a corpus must not be empty"),
    ("data.corpus=short.txt", "split of short.txt must not be empty"),
    ("data.corpus=binary.txt", "binary.txt must be UTF-8 text"),
    ("data.corpus=sotuu", "did you mean 'sotu'?"),
    ("nonsense", "--set must be of the form table.key=value"),
]


@pytest.mark.parametrize(("override", "message"), BROKEN)
def test_bad_input_is_one_line_with_exit_code_2(stickymoe, trained, tmp_path, override, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.txt").touch()
    (tmp_path / "short.txt").write_text("one line\n")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe" * 50)
    assert message in error_of(stickymoe("train", trained / "tiny.toml", "--out", "run", "--set", override))


@pytest.mark.parametrize(
    ("recipe", "message"), [("nope.toml", "not found"), (".", "is a folder"), ("b.toml", "not valid")]
)
def test_a_recipe_that_cannot_be_read_is_one_line(stickymoe, tmp_path, recipe, message):
    (tmp_path / "b.toml").write_bytes(b"\x00")
    assert message in error_of(stickymoe("train", recipe))


@pytest.mark.parametrize("out", ["file", "file/below", "n" * 300])
def test_a_run_folder_that_cannot_be_is_one_line(stickymoe, trained, tmp_path, out):
    (tmp_path / "file").touch()
    assert "cannot be written" in error_of(stickymoe("train", trained / "tiny.toml", "--out", out))
