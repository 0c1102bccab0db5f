"""The terminal table shows what the comparison says, and fits a narrow terminal."""

from __future__ import annotations

from rich.console import Console

from stickymoe.experiments.tables import terminal_table


def lines_of(results, width=80):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    with console.file:
        console.print(terminal_table(results))
        return console.export_text().splitlines()


def cells(lines, name):
    line = next(line for line in lines if name in line)
    return [cell.strip() for cell in line.strip("│ ").split("│")][1:]


def test_measures_of_all_runs_stand_side_by_side_in_80_columns(four_runs):
    lines = lines_of(four_runs)
    assert max(map(len, lines)) <= 80
    assert cells(lines, "perplexity") == ["207.3", "224.0", "220.0", "233.9"]
    assert cells(lines, "gain kept") == ["100 %", "36 %", "51 %", "0 %"]
    assert cells(lines, "switch rate") == ["0.63", "0.50", "0.41", "–"]
    assert cells(lines, "hits: top-1, 2 slots") == ["55.0 %", "64.0 %", "78.0 %", "–"]
    assert cells(lines, "misses: top-1, 2 slots") == ["–", "0.80×", "0.49×", "–"]


def test_labels_are_text_not_markup(make_result):
    assert any("[red]" in line for line in lines_of([make_result("soft", 200.0, label="[red]x")]))
