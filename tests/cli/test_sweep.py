"""`stickymoe sweep`: what it prints, with which code it ends, and every bad input in one line."""

import pytest

GRID = """
variants = ["vanilla", "soft-0.1", "remoe"]
seeds = [7]
[sizes.tiny]
recipe = "{recipe}"
overrides = ["objective.consistency=0.0"]
"""


@pytest.fixture
def grid(trained, tmp_path):
    """A function: changes to the text of `grid.toml` -> its path."""

    def write(*changes):
        text = GRID.format(recipe=trained / "tiny.toml")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "grid.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def ends(monkeypatch):
    """The running of a sweep replaced: a dict of variant -> state that its runs end in."""
    from stickymoe.experiments.sweeps import sweep

    states = {}

    def run_sweep(grid, out, *, launcher, parallel, only, progress):
        entries = sweep.survey(grid, out, only=only)
        for entry in entries:
            entry.job.state = "running"
            progress(entries)
            entry.job.state = states.get(entry.run.variant.name, "finished")
            entry.job.reason = "ended with code 2: the disk is on fire"
            progress(entries)
        return entries

    monkeypatch.setattr(sweep, "run_sweep", run_sweep)
    return states


def test_a_dry_run_tells_the_plan_and_makes_nothing(stickymoe, grid, tmp_path):
    done = stickymoe("sweep", grid(), "--dry-run", "--out", "out")
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [words[0] for words in lines[1:4]] == ["tiny/7/vanilla", "tiny/7/soft-0.1", "tiny/7/remoe"]
    assert done.stdout.splitlines()[-1] == "0 of 3 runs done, 3 waiting"
    assert "after vanilla" in done.stdout
    assert not (tmp_path / "out").exists()


def test_without_a_terminal_each_run_is_told_as_it_begins_and_ends(stickymoe, grid, ends):
    done = stickymoe("sweep", grid(), "--only", "s*", "--jobs", "1")
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines()[-2:] == ["tiny/7/soft-0.1 running", "tiny/7/soft-0.1 finished"]
    assert done.stdout.splitlines()[-1] == "1 of 1 runs done; rows in results/grid/rows"


def test_what_failed_is_told_at_the_end_with_exit_code_2(stickymoe, grid, ends):
    ends["vanilla"] = "failed"
    done = stickymoe("sweep", grid())
    assert done.exit_code == 2
    lines = done.stderr.splitlines()
    assert "tiny/7/vanilla ended with code 2: the disk is on fire" in lines
    assert lines[-1] == (
        "error: 1 of 3 runs have no result; mend the cause and run the same command, which keeps the others"
    )


@pytest.mark.parametrize(
    ("changes", "words", "said"),
    [
        ([("remoe", "remeo")], [], "variant 'remeo' is unknown; did you mean 'remoe'?"),
        ([("seeds", "seds")], [], "sweep key seds is unknown; did you mean 'seeds'?"),
        ([], ["--launcher", "slrum"], "--launcher must be one of local, ray, slurm, got 'slrum'"),
        ([], ["--only", "vanila"], "--only must be a pattern that matches a run"),
        ([], ["--set", "data.corpus=nowhere"], "corpus must be one of"),
        ([], ["--set", "objective.cross_layer=0.1"], "variant vanilla at size tiny: objective.cross_layer"),
        (
            [("remoe", "hard-window-8")],
            ["--set", "data.sequence_length=4"],
            "must be <= data.sequence_length (4), got 8",
        ),
        ([("remoe", "trajectory-token+")], [], "variant 'trajectory-token+' is unknown; did you mean"),
        ([], ["--cluster", "a=b"], "--cluster must be left out with --launcher local"),
        ([], ["--jobs", "0"], "0 is not in the range x>=1"),
        ([], ["--out", "file"], "run folder file cannot be written: file exists"),
    ],
)
def test_bad_input_is_one_line_with_exit_code_2(stickymoe, grid, tmp_path, changes, words, said):
    (tmp_path / "file").touch()
    done = stickymoe("sweep", grid(*changes), *words)
    assert done.exit_code == 2, done.output
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert said in lines[0]
    assert "Traceback" not in done.stderr


def test_a_sweep_that_is_none_is_named_with_the_nearest(stickymoe):
    done = stickymoe("sweep", "paper-shrt")
    assert done.stderr.strip() == "error: sweep paper-shrt not found; did you mean 'paper-short'?"
