"""Tables 2 to 9: our number with its interval, the paper's beside it, and nothing where nothing is known."""

import pytest

from stickymoe.experiments.sweep_report.grid import Cell, Grid, Line, markdown
from stickymoe.experiments.sweep_report.result_tables import layers_table, results_table
from stickymoe.experiments.sweep_report.rows import sweep_of
from stickymoe.experiments.sweep_report.setup_tables import setup_tables
from stickymoe.experiments.sweep_report.summary import summarise_size


def cells(grid, variant):
    line = next(line for line in grid.lines if line.variant == variant)
    return dict(zip([head for head, _ in grid.heads[1:]], line.cells, strict=True))


def test_the_tables_carry_the_papers_numbers(summary):
    for size, results, layers in (("small", 6, 9), ("medium", 7, 8)):
        found = summary(size=size)
        assert results_table(found).title == f"Table {results}: results at {size}"
        assert layers_table(found).title == f"Table {layers}: switch rate by layer at {size}"
    assert results_table(summary(size="demo")).title == "As tables 6 and 7: results at demo"


def test_ours_stands_with_its_interval_beside_the_papers(summary):
    found = cells(results_table(summary()), "soft-0.1")
    assert (found["Switch rate"].text, found["Switch rate"].paper) == ("0.469", "0.47")
    assert found["Switch rate"].small.startswith("±0.00")
    assert found["Change"].paper == "+1 %"
    assert found["Misses"].paper == "1/1.82×"
    assert found["Gain kept"].paper == ""
    assert found["Seeds"].text == "42, 43, 44"


def test_one_seed_has_no_interval_anywhere(summary):
    grids = [results_table(summary(seeds=(42,))), layers_table(summary(seeds=(42,)))]
    assert not [cell for grid in grids for line in grid.lines for cell in line.cells if cell.small]


def test_what_cannot_be_said_is_a_dash(summary):
    found = results_table(summary({"dense": {"change": 1.0}}))
    assert {line.cells[2].text for line in found.lines} == {"–"}
    assert cells(found, "dense")["Switch rate"].text == "–"


def test_flat_gates_are_marked(summary):
    marked = [line.variant for line in results_table(summary()).lines if any(cell.warns for cell in line.cells)]
    assert marked == ["soft-0.5"]


def test_layers_are_means_over_seeds_and_carry_what_the_paper_says(summary):
    size = summary(size="medium")
    found = cells(layers_table(size), "soft-0.5")
    rates = [each.read.routing.switch_rate.per_layer[1] for each in size.variants["soft-0.5"].results.values()]
    assert found["L1"].text == f"{sum(rates) / 3:.3f}"
    assert (found["L0"].paper, found["L1"].paper, found["L2"].paper) == (">0.49", "0.177", "0.17–0.24")
    assert "dense" not in [line.variant for line in layers_table(size).lines]


def test_the_setup_comes_from_the_runs_own_recipes(both_sizes):
    tokens, models, coefficients, optimiser = setup_tables(both_sizes)
    assert [(line.label, line.cells[0].text) for line in tokens.lines] == [
        ("toy, train", "2,400,000"), ("toy, validation", "5,001"),
    ]  # fmt: skip
    assert [cell.paper for cell in models.lines[0].cells] == ["≈8.8 M", "≈22 M"]
    assert cells(coefficients, "soft-0.5")["λ"].text == "0.5"
    values = {line.label: line.cells[0] for line in optimiser.lines}
    assert (values["steps"].text, values["steps"].paper) == ("100", "10,000")
    assert values["seed"].text == "42, 43, 44"
    assert values["peak learning rate"].paper == ""


@pytest.mark.parametrize("label", ["a|b", "<script>", "`x` *y* [z](w)", "two\nlines"])
def test_foreign_labels_stay_in_their_markdown_cell(label):
    grid = Grid("id", "Title", "Caption", [("A", ""), ("B", "small")], [Line(label, [Cell("1", "±2", "3")])])
    lines = markdown(grid).splitlines()
    assert lines[4:6] == ["| A | B (small) |", "|---|---|"]
    assert len(lines) == 7
    assert lines[6].count("|") - lines[6].count("\\|") == 3
    assert "<script>" not in lines[6].replace("\\<", "")
    assert lines[6].endswith("| 1 ±2 (paper: 3) |")


def test_a_size_without_vanilla_has_tables_all_the_same(invented):
    sweep = sweep_of(invented.invented_rows(variants=("soft-0.5",), seeds=(1,)))
    found = cells(results_table(summarise_size(sweep, "small")), "soft-0.5")
    assert (found["Change"].text, found["Misses"].text) == ("–", "–")
    assert len(setup_tables(sweep)) == 4
