"""Both forms of the report: whole, from rows alone, without torch, the same each time, safe against foreign text."""

import json
import re
import subprocess
import sys

import pytest

from stickymoe.experiments.sweep_report.report import write_sweep_report

SOME = ("vanilla", "dense", "soft-0.1", "soft-0.5", "oracle", "remoe")


@pytest.fixture(scope="module")
def made(invented, tmp_path_factory):
    from stickymoe.experiments.sweeps.rows import write_row

    place = tmp_path_factory.mktemp("sweep")
    rows = invented.invented_rows(("small", "medium"), seeds=(42, 43), variants=SOME)
    rows = [row for row in rows if row.run not in ("medium/43/oracle", "medium/43/remoe")]
    rows.append(invented.invented_row("medium", 43, "remoe", complete=False))
    for row in rows:
        write_row(row, place)
    write_sweep_report(place)
    return place


@pytest.fixture(scope="module")
def page(made):
    return (made / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def text(made):
    return (made / "report.md").read_text(encoding="utf-8")


def test_every_table_and_figure_is_there(page, text):
    for number in range(2, 10):
        assert f"Table {number}: " in page, number
        assert f"### Table {number}: " in text, number
    assert all(f"Figure {name}: " in page for name in ("1a", "2a", "1b", "2b"))
    pictures = re.findall(r"!\[[^\]]*\]\((figures/[^)]+)\)", text)
    assert len(pictures) == 4


def test_the_sweeps_caveat_stands_with_every_table_of_results(page, text):
    assert text.count("Invented numbers. ") == 4
    assert page.count("</strong> Invented numbers. ") == 4


def test_the_pictures_are_beside_the_markdown(made, text):
    for file in re.findall(r"\((figures/[^)]+)\)", text):
        assert (made / file).read_bytes().startswith(b"\x89PNG")


def test_unfinished_and_missing_runs_are_listed_and_in_no_table(page, text):
    assert "medium/43/remoe: cut short at step 40 of 100" in text
    assert "- medium/43/oracle: no row" in text
    assert "cut short at step 40 of 100" in page
    plots = json.loads(re.search(r'id="plots">(.*?)</script>', page, flags=re.DOTALL)[1])
    named = {name for plot in plots.values() for trace in plot["data"] for name in trace.get("text", [])}
    assert "medium/42/soft-0.1" in named
    assert not {"medium/43/remoe", "medium/43/oracle"} & named


def test_every_link_on_the_page_leads_somewhere(page):
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    links = set(re.findall(r'href="#([^"]+)"', page)) | set(re.findall(r'"anchor":"([^"]+)"', page))
    assert len(links) > 15
    assert links <= set(ids)


def test_every_run_has_its_recipe_and_its_command(page):
    assert "stickymoe sweep invented --only medium/42/soft-0.5 --out again" in page
    assert "consistency = 0.5" in page


def test_the_page_is_one_file_that_asks_nothing_of_the_network(page):
    outside = page[: page.index("<script>")]
    assert "http" not in re.sub(r"http-equiv", "", outside)
    assert page.count("<script>") == 3


def test_the_same_rows_give_the_same_report_without_torch(made, page, text, tmp_path):
    code = (
        "import sys; sys.modules.update(torch=None, transformers=None, accelerate=None)\n"
        "from pathlib import Path\n"
        "from stickymoe.experiments.sweep_report.report import write_sweep_report\n"
        "write_sweep_report(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(made), str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page
    assert (tmp_path / "report.md").read_text(encoding="utf-8") == text


def test_foreign_text_is_shown_and_never_run(invented, written):
    evil = "</script><img src=x onerror=alert(1)>"
    rows = [
        invented.invented_row(seed=seed, variant=name, label=f"{name} {evil}", note=evil, passage_pieces=[evil] * 12)
        for seed in (1,)
        for name in ("vanilla", "soft-0.5")
    ]
    place = written(rows)
    write_sweep_report(place)
    page = (place / "report.html").read_text(encoding="utf-8")
    assert "<img" not in page
    assert page.count("<script>") == 3


def test_rows_without_passages_and_curves_make_a_report_that_says_so(invented, written):
    bare = {key: [] for key in ("passage_pieces", "passage_expert_ids", "passage_expert_weights", "curve_step",
            "curve_cross_entropy", "curve_switch_rate", "curve_gate_entropy_bits", "curve_gate_margin")}  # fmt: skip
    place = written([invented.invented_row(**bare)])
    write_sweep_report(place)
    page = (place / "report.html").read_text(encoding="utf-8")
    assert "so there are no ribbons" in page
    assert "kept no training log" in page


def test_the_dashed_line_is_named_where_there_is_one(page, invented, written):
    place = written([invented.invented_row(variant="vanilla")])
    write_sweep_report(place)
    without = (place / "report.html").read_text(encoding="utf-8")
    assert "Dashed: the dense control." in page
    assert "Figure 1a: hit rate against perplexity" in without
    assert "Dashed" not in without


def test_a_sweep_without_a_finished_run_makes_a_report_that_says_so(invented, written):
    place = written([invented.invented_row(complete=False)])
    contents, path = write_sweep_report(place)
    assert contents.headline == "None of the 1 runs is finished."
    assert "cut short at step 40 of 100" in path.read_text(encoding="utf-8")
