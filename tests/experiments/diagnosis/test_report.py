"""The page as text: whole, escaped, its numbers in tables, nothing from outside, written whole or not at all."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from stickymoe.core.errors import StickyMoEError
from stickymoe.experiments.diagnosis.answers import answers
from stickymoe.experiments.diagnosis.plots import plots
from stickymoe.experiments.diagnosis.report import render_diagnosis, write_diagnosis_report

VOID = {"meta", "link", "br", "img", "input"}


class Page(HTMLParser):
    """Collects ids, text outside scripts and styles, and fails on tags that do not close one another."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.labels, self.text, self.tags = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        told = dict(attrs)
        self.tags.append(tag)
        self.ids += [told["id"]] if "id" in told else []
        self.labels += [told["aria-labelledby"]] if "aria-labelledby" in told else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.text.append(data)


@pytest.fixture(scope="module")
def html(full_diagnosis):
    return render_diagnosis(full_diagnosis, ["stickymoe diagnose 'full <x>.csv'"])


def words(html):
    return " ".join(Page(html).text).replace("\N{NO-BREAK SPACE}", " ")


def test_every_answer_and_every_policy_stands_in_the_page(html, full_diagnosis):
    text = words(html)
    for answer in answers(full_diagnosis):
        assert answer.question in text
        assert answer.answer in text
    for result in full_diagnosis.policies:
        assert result.label in text
        assert f"{100 * result.hit_rate:.1f} %" in text
    for reason in full_diagnosis.unanswered.values():
        assert reason in text


def test_names_from_the_file_are_escaped(html):
    assert "toy &lt;b&gt;MoE&lt;/b&gt;" in html
    assert "full &lt;x&gt;.csv" in html
    assert "<x>" not in html.replace("\\u003cx>", "")


def test_ids_are_unique_and_every_label_has_its_heading(html):
    page = Page(html)
    assert len(page.ids) == len(set(page.ids))
    assert set(page.labels) <= set(page.ids)
    assert page.tags.count("h1") == 1


def test_every_plot_has_its_place_and_words_for_those_who_do_not_see_it(html, full_diagnosis):
    for name in plots(full_diagnosis):
        assert re.search(rf'<div class="plot" id="{name}" role="img" aria-label="[^"]{{20,}}"', html), name


def test_only_the_pages_own_scripts_may_run(html):
    allowed = set(re.findall(r"sha256-([A-Za-z0-9+/=]+)", html[:2000]))
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert {base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts} == allowed
    assert "default-src 'none'" in html[:2000]
    assert "unsafe-eval" not in html[:2000]
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=\"(?!data:)", html)


def test_plots_are_json_with_the_numbers_of_the_curves(html, full_diagnosis):
    text = re.search(r'<script type="application/json" id="plots">(.*?)</script>', html, re.DOTALL)[1]
    found = json.loads(text)
    lru = found["curves"]["data"][0]
    assert lru["x"] == list(full_diagnosis.curve("lru").capacities)
    assert lru["y"] == pytest.approx([100 * rate for rate in full_diagnosis.curve("lru").hit_rates], abs=0.006)
    assert set(found["curves"]["choices"]) == {"all layers", "layer 1", "layer 2", "layer mtp0"}
    assert all(len(each) == len(found["curves"]["data"]) for each in found["curves"]["choices"].values())


def test_a_disk_that_refuses_leaves_the_old_page(full_diagnosis, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(*words, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(StickyMoEError, match=r"report\.html"):
        write_diagnosis_report(path, full_diagnosis)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
