"""The page of a comparison: whole as text, drawn by a browser without an error, on wide and narrow screens."""

import dataclasses

import pytest

from stickymoe.experiments.comparing.page import render_comparison, write_comparison

DRAWN = "document.querySelectorAll('.plot').length === document.querySelectorAll('.plot.drawn').length"

pytestmark = pytest.mark.hf


def test_the_page_holds_every_figure_in_a_table_and_the_command_that_makes_it_again(found):
    html = render_comparison(found, ["stickymoe compare a b"])
    body = html[html.index("<body>") :].replace("\N{NO-BREAK SPACE}", " ")
    for line in found.lines:
        assert f">{line.label}</th>" in body
    assert "stickymoe compare a b" in body


def test_names_of_files_are_no_markup(found):
    hostile = dataclasses.replace(found, second=dataclasses.replace(found.second, name="<script>alert(1)</script>"))
    assert "<script>alert" not in render_comparison(hostile)


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_all_plots_are_drawn_and_nothing_sticks_out(browser, found, tmp_path, width):
    path = tmp_path / "compare.html"
    write_comparison(path, found)
    browser.look(width)
    browser.open(path)
    browser.wait(DRAWN)
    assert browser.run("document.querySelectorAll('.plot svg.main-svg').length") >= 4
    assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")
    assert browser.errors == []
    assert [address for address in browser.requests if not address.startswith(("file:", "data:"))] == []
