"""The page in headless Chromium: it draws without an error, switches work, a click opens the run, it fits."""

import pytest

from stickymoe.experiments.sweep_report.report import write_sweep_report

pytestmark = pytest.mark.browser

SOME = ("vanilla", "dense", "soft-0.05", "soft-0.1", "soft-0.5", "oracle", "remoe")
DRAWN = "document.querySelectorAll('.plot').length === document.querySelectorAll('.plot.drawn').length"
OF = "t => t.meta && t.meta.variant === 'soft-0.1' && t.visible !== false"
SHOWN = f"document.getElementById('hits-small').data.filter({OF}).length"
ROW = "document.querySelector('tr[data-variant=\"soft-0.1\"]').hidden"


@pytest.fixture(scope="module")
def opened(browser, invented, tmp_path_factory):
    from stickymoe.experiments.sweeps.rows import write_row

    place = tmp_path_factory.mktemp("page")
    for row in invented.invented_rows(seeds=(42, 43), variants=SOME):
        write_row(row, place)
    _, path = write_sweep_report(place)
    browser.look(1280)
    browser.open(path)
    browser.wait(DRAWN)
    return browser


@pytest.fixture
def page(opened):
    opened.look(1280)
    opened.run("location.hash = ''; document.querySelector('button[data-all=\"1\"]').click()")
    yield opened
    assert opened.errors == []


def test_all_plots_are_drawn_and_nothing_is_asked_of_the_network(page):
    assert page.run("document.querySelectorAll('.plot svg.main-svg').length") >= 13
    assert [address for address in page.requests if not address.startswith(("file:", "data:"))] == []


def test_a_switch_takes_a_variant_out_of_plots_and_tables_and_back(page):
    assert page.run(SHOWN) == 2
    page.run("document.querySelector('input[data-switch=\"soft-0.1\"]').click()")
    page.wait(f"{SHOWN} === 0")
    assert page.run(ROW) is True
    page.run("document.querySelector('input[data-switch=\"soft-0.1\"]').click()")
    page.wait(f"{SHOWN} === 2")
    assert page.run(ROW) is False


def test_a_family_and_all_switch_together(page):
    on = "document.querySelectorAll('input[data-switch]:checked').length"
    whole = page.run(on)
    page.run("document.querySelector('button[data-family=\"soft\"]').click()")
    assert page.run(on) == whole - 3
    page.run("document.querySelector('button[data-all=\"0\"]').click()")
    assert page.run(on) == 0
    page.run("document.querySelector('button[data-all=\"1\"]').click()")
    assert page.run(on) == whole


def test_the_papers_points_can_be_switched_on(page):
    points = "document.getElementById('hits-small').data.find(t => t.meta && t.meta.variant === 'the paper').visible"
    frame = "document.getElementById('switches-small')._fullLayout.xaxis.range.join()"
    ours = page.run(frame)
    assert page.run(points) is False
    page.run("document.querySelector('input[data-switch=\"the paper\"]').click()")
    page.wait(f"{points} === true")
    assert page.run(frame) != ours
    page.run("document.querySelector('input[data-switch=\"the paper\"]').click()")
    page.wait(f"{points} === false")
    assert page.run(frame) == ours


def test_a_click_on_a_mean_opens_the_runs_of_its_variant(page):
    page.run("document.getElementById('hits-small').scrollIntoView({block: 'center'})")
    x, y = page.run(
        "(() => { const p = document.getElementById('hits-small'); const l = p._fullLayout;"
        " const t = p.data.find(t => t.meta && t.meta.variant === 'oracle'); const b = p.getBoundingClientRect();"
        " return [b.x + l.xaxis._offset + l.xaxis.l2p(t.x[0]), b.y + l.yaxis._offset + l.yaxis.l2p(t.y[0])]; })()"
    )
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    page.wait("document.querySelectorAll('#hits-small .hoverlayer text').length > 0")
    assert "oracle" in page.run("document.querySelector('#hits-small .hoverlayer').textContent").lower()
    for kind in ("mousePressed", "mouseReleased"):
        page.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    page.wait("location.hash.startsWith('#run-small-oracle')")
    page.wait("document.getElementById('run-small-oracle').open")
    shown = page.run("document.getElementById('run-small-oracle').innerText")
    assert "stickymoe sweep invented --only small/42/oracle" in shown
    assert "[objective]" in shown


def test_a_link_to_one_seed_opens_its_variant_and_marks_it(page):
    page.run("location.hash = 'run-small-remoe-43'")
    page.wait("document.getElementById('run-small-remoe').open")
    assert page.run("document.getElementById('run-small-remoe-43').classList.contains('aimed')")


def test_any_two_variants_can_be_laid_side_by_side(page):
    heads = "[...document.querySelectorAll('#ribbon-columns h3')].map(h => h.textContent)"
    assert page.run(heads) == ["Vanilla, seed 42", "Soft λ=0.5, seed 42"]
    page.run(
        "(() => { const s = document.getElementById('ribbon-right');"
        " s.value = [...s.options].findIndex(o => o.text === 'Oracle-MoE'); s.dispatchEvent(new Event('change')); })()"
    )
    assert page.run(heads) == ["Vanilla, seed 42", "Oracle-MoE, seed 42"]
    assert page.run("document.querySelector('#ribbon-columns .passage').textContent").startswith("The union of states")
    assert page.run("document.querySelectorAll('#ribbon-columns svg.strip').length") == 8


def test_the_measure_of_the_layers_can_be_chosen(page):
    first = "Array.from(document.getElementById('by-layer-small').data[0].y)"
    before = page.run(first)
    page.run(
        "(() => { const s = document.querySelector('select[data-plot=\"by-layer-small\"]'); s.value = 'overlap';"
        " s.dispatchEvent(new Event('change')); })()"
    )
    assert page.run(first) != before


@pytest.mark.parametrize("width", [1280, 768, 420])
def test_the_page_never_scrolls_sideways(page, width):
    page.look(width)
    page.wait(f"document.getElementById('hits-small').clientWidth < {width}")
    assert page.run("document.documentElement.scrollWidth") <= width


def test_dark_and_paper_look_right(page, tmp_path):
    colour = "document.getElementById('hits-small').layout.font.color"
    light = page.run(colour)
    page.look(1280, dark=True)
    page.wait(f"{colour} !== '{light}'")
    page.look(1280)
    page.pdf(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").stat().st_size > 50_000
