"""`stickymoe evaluate`."""

import pytest


def test_it_prints_the_table_and_writes_the_splits_trace(stickymoe, run_copy):
    done = stickymoe("evaluate", run_copy, "--split", "validation")
    assert done.exit_code == 0, done.output
    assert "switch rate" in done.stdout
    assert done.stdout.splitlines()[-1] == f"metrics: {run_copy / 'metrics.json'}   report: {run_copy / 'report.html'}"
    assert (run_copy / "trace-validation.parquet").exists()
    assert (run_copy / "trace-test.parquet").exists()  # of the training command


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nope"], "run folder nope does not exist; train one with stickymoe train"),
        (["."], "holds no trained model"),
        (["run", "--split", "tset"], "split of text must be one of train, validation, test, got 'tset'"),
        (["run", "--batch-size", "0"], "evaluate.batch_size must be >= 1, got 0"),
        (["run", "--batch-size", "x"], "'x' is not a valid integer; see stickymoe evaluate --help"),
        ([], "Missing argument 'RUN'; see stickymoe evaluate --help"),
    ],
)
def test_bad_input_is_one_line_with_exit_code_2(stickymoe, run_copy, words, message):
    done = stickymoe("evaluate", *words)
    assert done.exit_code == 2
    assert message in done.stderr.splitlines()[-1]
    assert sum(line.startswith("error: ") for line in done.stderr.splitlines()) == 1
