"""The report in headless Chromium: it draws offline without an error, its controls work, it fits, it prints."""

import pytest

from stickymoe.experiments.diagnosis.inputs import diagnose_input
from stickymoe.experiments.diagnosis.report import write_diagnosis_report

pytestmark = pytest.mark.browser

DRAWN = "document.querySelectorAll('.plot').length === document.querySelectorAll('.plot.drawn').length"
FIRST_LINE = "document.getElementById('curves').data[0]"
PATHS = "document.querySelectorAll('#curves .scatterlayer path.js-line').length"


@pytest.fixture(scope="module")
def opened(browser, full_diagnosis, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_diagnosis_report(path, full_diagnosis, ["stickymoe diagnose full.csv"])
    browser.look(1280)
    browser.open(path)
    browser.wait(DRAWN)
    return browser


@pytest.fixture
def page(opened):
    opened.look(1280)
    yield opened
    assert opened.errors == []


def test_all_plots_are_drawn_and_nothing_is_asked_of_the_network(page):
    assert page.run("document.querySelectorAll('.plot svg.main-svg').length") >= 5
    assert [address for address in page.requests if not address.startswith(("file:", "data:"))] == []
    assert len(page.requests) <= 2


def test_the_layer_selector_changes_the_curves_and_back(page, full_diagnosis):
    values = page.run("[...document.querySelector('select[data-plot=curves]').options].map(o => o.value)")
    assert values == ["all layers", "layer 1", "layer 2", "layer mtp0"]
    choose = (
        "(() => {{ const s = document.querySelector('select[data-plot=curves]'); s.value = '{}';"
        " s.dispatchEvent(new Event('change')); return 1; }})()"
    )
    page.run(choose.format("layer mtp0"))
    lru = full_diagnosis.curve("lru")
    expected = [round(100 * row[2], 2) for row in lru.per_layer]
    assert page.run(f"Array.from({FIRST_LINE}.y)") == pytest.approx(expected)
    page.run(choose.format("all layers"))
    assert page.run(f"Array.from({FIRST_LINE}.y)") == pytest.approx([round(100 * rate, 2) for rate in lru.hit_rates])


def test_a_click_on_the_legend_hides_a_policy_and_another_shows_it(page):
    before = page.run(PATHS)
    page.click("#curves .legendtoggle")
    page.wait(f"{FIRST_LINE}.visible === 'legendonly'")
    page.wait(f"{PATHS} === {before - 1}")
    page.click("#curves .legendtoggle")
    page.wait(f"{FIRST_LINE}.visible === true")


def test_hovering_a_curve_shows_its_numbers(page):
    page.run("document.getElementById('curves').scrollIntoView({block: 'center'})")
    box = page.run(
        "(() => { const p = document.querySelector('#curves .scatterlayer .points path') ||"
        " document.querySelector('#curves .scatterlayer path.js-line'); const b = p.getBoundingClientRect();"
        " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    page.wait("document.querySelectorAll('#curves .hoverlayer text').length > 0")
    assert "%" in page.run("document.querySelector('#curves .hoverlayer').textContent")


@pytest.mark.parametrize("width", [1280, 768, 420])
def test_the_page_never_scrolls_sideways(page, width):
    page.look(width)
    page.wait(f"document.getElementById('curves').clientWidth < {width}")
    assert page.run("document.documentElement.scrollWidth") <= width
    wide = page.run(
        "[...document.querySelectorAll('.plot svg.main-svg')].filter(s => s.getBoundingClientRect().right > innerWidth)"
        ".length"
    )
    assert wide == 0


def test_the_dark_theme_changes_page_and_plots(page):
    page_colour = "getComputedStyle(document.documentElement).backgroundColor"
    colours = f"[{page_colour}, document.getElementById('curves').layout.font.color]"
    light = page.run(colours)
    page.look(1280, dark=True)
    page.wait(f"document.getElementById('curves').layout.font.color !== '{light[1]}'")
    assert page.run(colours)[0] != light[0]


def test_it_prints_to_paper_with_its_plots(page, tmp_path):
    page.run("window.sizes = []; addEventListener('beforeprint', () => sizes.push(1)); 1")
    page.pdf(tmp_path / "report.pdf")
    data = (tmp_path / "report.pdf").read_bytes()
    assert data.startswith(b"%PDF")
    assert len(data) > 30_000
    page.wait("document.getElementById('curves').layout.width === document.getElementById('curves').clientWidth")


def test_counts_alone_make_a_page_as_well(browser, tmp_path):
    import numpy as np

    from stickymoe.traces import UsageProfile

    found = diagnose_input(UsageProfile(np.random.default_rng(0).integers(0, 100, (4, 16))), "counts.gguf")
    write_diagnosis_report(tmp_path / "report.html", found)
    browser.look(1280)
    browser.open(tmp_path / "report.html")
    browser.wait(DRAWN)
    assert browser.run("document.querySelectorAll('.plot.drawn').length") == 1
    assert browser.errors == []
