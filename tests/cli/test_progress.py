"""Progress: bars with the time left in a terminal, one line for each piece of work elsewhere."""

import io
import re

import pytest
from rich.console import Console

from stickymoe.cli.progress import console, progress_bars


def drawn(width, *news):
    out = io.StringIO()
    with progress_bars(Console(file=out, force_terminal=True, width=width, color_system=None)) as report:
        for one in news:
            report(*one)
    return out.getvalue()


def test_a_terminal_sees_name_count_and_time_left():
    said = drawn(100, ("training [red]", 0, 10), ("training [red]", 4, 10))
    assert "training [red]" in said  # a name is no markup
    assert "4/10" in said
    assert "left" in said


def test_what_follows_the_dot_changes_and_the_bar_stays():
    said = drawn(100, ("training A · CE 5.1", 2, 10), ("training A · CE 4.2", 10, 10), ("reading", 0, None))
    *_, training, reading = [line for line in said.splitlines() if "A ·" in line or "reading" in line]
    assert "training A · CE 4.2" in training
    assert "10/10" in training
    assert "reading" in reading


@pytest.mark.parametrize("width", [40, 60])
def test_a_narrow_terminal_is_not_overrun(width):
    said = drawn(width, ("training Soft-Hard λ=0.1 with a long name", 300, 600))
    lines = [re.sub(r"\x1b\[[?\w]*?[a-zA-Z]", "", line).strip("\r") for line in said.splitlines()]
    assert any(line.startswith("train") for line in lines)
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if "a long name" in line]  # cut short, not wrapped
    assert width < 60 or "300/600" in said


def test_without_a_terminal_each_piece_of_work_is_one_plain_line(capsys):
    with progress_bars() as report:
        for done in range(3):
            report(f"training [b]A[/b] · CE {done}", done, 3)
        report("evaluating on test", 0, 9)
    said = capsys.readouterr()
    assert said.err.splitlines() == ["training [b]A[/b]", "evaluating on test"]
    assert said.out == ""


def test_results_go_to_standard_output(capsys):
    console().print("x")
    assert capsys.readouterr().out == "x\n"
