"""`stickymoe demo`: what it prints; the work itself is tested with the experiments."""

import pytest


@pytest.fixture
def results(trained, monkeypatch):
    """The demo's work replaced by the trained run; returns what it was asked."""
    from stickymoe.experiments import demo
    from stickymoe.experiments.results import RunResult

    asked = {}

    def run_demo(out, **settings):
        asked.update(settings, out=out)
        return [RunResult.load(trained / "run", name="vanilla", label="Vanilla")], out / "report.html"

    monkeypatch.setattr(demo, "run_demo", run_demo)
    return asked


def test_it_ends_with_the_table_one_sentence_and_the_reports_path(stickymoe, results):
    done = stickymoe("demo", "--out", "here", "--jobs", "2", "--set", "a.b=1", "--set", "c.d=2")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert any("perplexity" in line for line in lines)
    assert lines[-2].startswith("On ")
    assert lines[-2].endswith(".")
    assert lines[-1] == "report: here/report.html"
    assert (str(results["out"]), results["jobs"], results["overrides"]) == ("here", 2, ("a.b=1", "c.d=2"))


def test_it_needs_no_option(stickymoe, results):
    assert stickymoe("demo").exit_code == 0
    assert (str(results["out"]), results["jobs"]) == ("demo", None)


def test_bad_input_is_one_line_with_exit_code_2(stickymoe, tmp_path):
    (tmp_path / "file").touch()
    for words, message in (
        (["--jobs", "0"], "0 is not in the range x>=1"),
        (["--out", "file"], "run folder file cannot be written: file exists; choose another --out"),
        (["--set", "model.num_experts_per_tok=9"], "model.num_experts_per_tok must be <= model.num_experts (8), got 9"),
        (["--set", "modl.x=9"], "recipe key modl is unknown; did you mean 'model'?"),
    ):
        done = stickymoe("demo", *words)
        assert done.exit_code == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: ")
        assert message in line
