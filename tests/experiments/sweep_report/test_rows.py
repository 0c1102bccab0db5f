"""Rows become a sweep: what is finished, what is not, what is missing, and what is refused."""

import pyarrow.parquet as pq
import pytest

from stickymoe.core.errors import DataError
from stickymoe.experiments.sweep_report.rows import read_sweep, sweep_of


def test_a_folder_its_rows_and_one_file_of_all_rows_give_the_same_sweep(invented, written, tmp_path):
    rows = invented.invented_rows(seeds=(1, 2), variants=("vanilla", "soft-0.1"))
    place = written(rows)
    whole = tmp_path / "rows.parquet"
    tables = [pq.ParquetFile(path).read() for path in sorted((place / "rows").rglob("*.parquet"))]
    import pyarrow as pa

    pq.write_table(pa.concat_tables(tables), whole)
    found = [read_sweep(path) for path in (place, place / "rows", whole)]
    assert {tuple(sorted(run.name for run in sweep.complete)) for sweep in found} == {
        ("small/1/soft-0.1", "small/1/vanilla", "small/2/soft-0.1", "small/2/vanilla")
    }
    assert [sweep.of("small", "soft-0.1")[2].read.perplexity for sweep in found] == [
        sweep_of(rows).of("small", "soft-0.1")[2].read.perplexity
    ] * 3


def test_a_run_that_was_cut_short_is_not_among_the_finished(invented):
    rows = invented.invented_rows(seeds=(1,), variants=("vanilla", "dense"))
    sweep = sweep_of([*rows, invented.invented_row("small", 1, "soft-0.5", complete=False)])
    assert [run.name for run in sweep.unfinished] == ["small/1/soft-0.5"]
    assert sweep.unfinished[0].problem == "cut short at step 40 of 100"
    assert "soft-0.5" not in sweep.variants("small")
    assert sweep.of("small", "soft-0.5") == {}


def test_a_row_that_calls_itself_complete_with_too_few_steps_is_not(invented):
    row = invented.invented_row("small", 1, "soft-0.5", steps_done=99)
    assert not sweep_of([row]).complete


def test_missing_runs_are_those_of_the_grid_that_the_rows_span(invented):
    rows = invented.invented_rows(("small", "medium"), seeds=(1, 2), variants=("vanilla", "soft-0.1"))
    sweep = sweep_of([row for row in rows if row.run != "medium/2/soft-0.1"])
    assert sweep.missing == ["medium/2/soft-0.1"]


def test_the_sweeps_own_file_tells_what_was_never_run(invented, written):
    place = written(invented.invented_rows(seeds=(1,), variants=("vanilla",)))
    (place / "sweep.toml").write_text(
        'title = "Mine"\nvariants = ["vanilla", "oracle"]\nseeds = [1, 2]\n[sizes.small]\nrecipe = "paper-small"\n'
    )
    sweep = read_sweep(place)
    assert sweep.title == "Mine"
    assert sweep.missing == ["small/1/oracle", "small/2/vanilla", "small/2/oracle"]


def test_sizes_stand_by_the_number_of_parameters(both_sizes, invented):
    assert both_sizes.sizes == ["small", "medium"]
    assert sweep_of(invented.invented_rows(("medium", "small"), variants=("vanilla",))).sizes == ["small", "medium"]


def test_rows_of_two_sweeps_are_refused(invented):
    rows = [invented.invented_row(), invented.invented_row(seed=43, sweep="other")]
    with pytest.raises(DataError, match=r"rows must be of one sweep, got invented, other; report each"):
        sweep_of(rows)


def test_two_rows_of_one_run_are_refused(invented):
    with pytest.raises(DataError, match=r"one row, got several of small/42/vanilla"):
        sweep_of([invented.invented_row(), invented.invented_row()])


def test_runs_measured_on_other_tokens_are_refused(invented):
    metrics = invented.measured("small", 43, "vanilla", change=1.0, rate=0.7, entropy=1.3, margin=0.4)
    rows = [invented.invented_row(), invented.invented_row(seed=43, metrics=metrics | {"predicted_tokens": 4999})]
    with pytest.raises(DataError, match=r"predicted_tokens must equal that of vanilla, 5000, got 4999"):
        sweep_of(rows)


@pytest.mark.parametrize(
    "changes",
    [{"recipe": "{"}, {"recipe": "[]"}, {"hardware": "[" * 10_000}, {"passage_expert_ids": [0, 1]},
     {"passage_expert_ids": [9] * 96}],
)  # fmt: skip
def test_a_damaged_row_is_named_in_one_line(invented, changes):
    with pytest.raises(
        DataError, match=r"the row of small/42/vanilla cannot be used: .*; run the sweep again$"
    ) as error:
        sweep_of([invented.invented_row(**changes)])
    assert "\n" not in str(error.value)


def test_metrics_that_break_their_schema_are_named(invented):
    metrics = invented.measured("small", 42, "vanilla", change=1.0, rate=0.7, entropy=1.3, margin=0.4)
    with pytest.raises(DataError, match=r"the row of small/42/vanilla cannot be used: .*perplexity"):
        sweep_of([invented.invented_row(metrics=metrics | {"perplexity": -1.0})])


def test_a_folder_without_rows_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no result rows"):
        read_sweep(tmp_path)
