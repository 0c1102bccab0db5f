"""`stickymoe report`: verdicts on the terminal, a page and Markdown beside the rows, and every way it ends early."""

import importlib.util
from pathlib import Path

import pytest
from click.testing import CliRunner

from stickymoe.cli import main


def run(*words):
    return CliRunner().invoke(main, ["report", *map(str, words)])


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    from stickymoe.experiments.sweeps.rows import write_row

    file = Path(__file__).resolve().parents[1] / "experiments" / "sweep_report" / "invented.py"
    spec = importlib.util.spec_from_file_location("stickymoe_tests_invented", file)
    invented = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(invented)
    place = tmp_path_factory.mktemp("sweep")
    for row in invented.invented_rows(seeds=(42,), variants=("vanilla", "remoe")):
        write_row(row, place)
    return place


def test_a_report_is_written_beside_the_rows_and_the_verdicts_are_told(sweep):
    done = run(sweep)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("2 of 2 runs are finished")
    # the one claim that these two variants are about
    assert lines[1].split()[:2] == ["holds", "small"]
    assert lines[1].endswith("Tuning the router alone, afterwards, does not reduce the switch rate")
    assert lines[2:] == [f"report: {sweep / 'report.html'}"]
    assert (sweep / "report.md").exists()


def test_one_file_of_rows_can_be_reported_elsewhere(sweep, tmp_path):
    done = run(next((sweep / "rows").rglob("*.parquet")), "--out", tmp_path / "there")
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["figures", "report.html", "report.md"]


@pytest.mark.parametrize("content", [None, b"", b"PAR1 not really", b"\x00" * 100])
def test_what_is_no_sweep_ends_in_one_line(tmp_path, content):
    place = tmp_path / "rows.parquet"
    place.mkdir() if content is None else place.write_bytes(content)
    done = run(place)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_place_that_is_not_there_is_named(tmp_path):
    done = run(tmp_path / "nowhere")
    assert done.exit_code == 2
    assert "nowhere" in done.stderr
