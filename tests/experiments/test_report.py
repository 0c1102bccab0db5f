"""The report: one file, nothing from outside, everything foreign escaped, and the text of the passage as it was."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from stickymoe.core.errors import DataError, SettingError
from stickymoe.experiments.headline import headline
from stickymoe.experiments.report import render_report, write_report
from stickymoe.experiments.ribbon import RoutedPassage

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"
SETUP = {"commands": ["stickymoe demo --out runs/demo"], "notes": ["A note."], "seconds": 441}
VOID = {"meta", "link", "input", "br", "img"}


class Page(HTMLParser):
    """Collects what a test asks about, and fails on tags that do not close one another."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], [], []
        self.passages, self.ids = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("class", "")))
        if ("class", "passage") in attrs:
            self.passages.append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        self.text.append(data)
        if any(name == "passage" for _, name in self.open):
            self.passages[-1] += data


def passage(name, pieces, layers=2, experts=4, seed=0):
    rng = np.random.default_rng(seed)
    first = rng.integers(0, experts, (len(pieces), layers, 1))
    ids = np.concatenate([first, (first + 1) % experts], axis=2)
    return RoutedPassage(name, pieces, ids, np.full(ids.shape, 0.5, dtype=np.float32), experts)


def test_the_report_holds_headline_table_figures_ribbon_and_setup(four_runs):
    pieces = ["We", " the", " people", ",\n\n", "\n", "in", " order"]
    text = render_report(four_runs, [passage("vanilla", pieces), passage("soft-hard", pieces)], title="T", setup=SETUP)
    page = Page(text)
    words = " ".join(page.text)
    assert headline(four_runs) in words
    assert page.tags.count("tr") == 2 + len(four_runs)
    assert page.tags.count("figure") == 4
    assert page.passages == ["".join(pieces)] * 4
    for expected in ("stickymoe demo --out runs/demo", "7 min 21 s", "One seed (0)", "73,412 tokens of the test split"):
        assert expected in words
    assert len(page.ids) == len(set(page.ids))


def test_switch_counts_of_each_block_are_those_of_the_routing(four_runs):
    routed = passage("vanilla", ["a"] * 9)
    text = render_report(four_runs[:1], [routed], title="T", setup={})
    for layer in range(2):
        first = routed.expert_ids[:, layer, 0]
        count = int((first[1:] != first[:-1]).sum())
        assert re.search(rf"layer {layer} <span class=\"count\">{count} switch(es)? in 8 pairs<", text)
    assert text.count(" sw") >= int((routed.expert_ids[1:, :, 0] != routed.expert_ids[:-1, :, 0]).sum())


def test_nothing_comes_from_outside_and_nothing_runs(four_runs):
    text = render_report(four_runs, [passage("vanilla", ["a", "b"])], title="T", setup=SETUP)
    page = Page(text)
    assert not {"script", "iframe", "img", "object", "embed", "base"} & set(page.tags)
    addresses = [value for name, value in page.attributes if name in ("src", "href", "xlink:href", "action", "srcset")]
    assert all(value.startswith(("#", "data:")) for value in addresses)
    assert re.findall(r"https?://|@import|url\((?!#)", text) == []
    assert "default-src 'none'" in text


def test_hostile_text_is_inert_wherever_it_enters(make_result):
    corpus = {"name": HOSTILE, "fingerprint": HOSTILE, "files": [HOSTILE]}
    more = {"corpus": corpus, "commit": HOSTILE, "hardware": {HOSTILE: HOSTILE}, "versions": {HOSTILE: HOSTILE}}
    runs = [
        make_result("vanilla", 207.3, label=HOSTILE, **more),
        make_result("soft", 220.0, label="$" + HOSTILE, **more),
    ]
    pieces = [HOSTILE, "</style>", "\x00", "</div>", "{{ 7 * 7 }}"]
    setup = {"commands": [HOSTILE], "notes": [HOSTILE], HOSTILE: {HOSTILE: HOSTILE}}
    text = render_report(runs, [passage("vanilla", pieces)], title=HOSTILE, setup=setup)
    page = Page(text)
    assert not {"script", "img"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.passages == ["".join(pieces)] * 2


def test_a_single_run_has_a_report_without_comparison_columns(make_result):
    text = render_report([make_result("soft", 224.0)], title="Soft", setup={})
    assert "one run alone, nothing to compare it with" in text
    assert "Gain kept" not in text
    assert "pareto" not in text
    assert "The routing itself" not in text


def test_a_dense_control_shows_dashes_and_no_ribbon(four_runs):
    dense = passage("dense", ["a", "b"], experts=2)
    text = render_report(four_runs, [dense], title="T", setup={})
    row = re.search(r"<tr class=\"dense\">(.*?)</tr>", text, re.DOTALL)[1]
    cells = re.findall(r"<td[^>]*>([^<]*)", row)
    assert cells[:3] == ["233.9", "+12.8 %", "0 %"]
    assert cells[3:13] == ["\N{EN DASH}"] * 10
    assert "The routing itself" not in text


def test_models_with_many_experts_show_numbers_beside_hues(make_result):
    run = make_result("vanilla", 200.0, experts=16)
    text = render_report([run], [passage("vanilla", ["a", "b"], experts=16)], title="T", setup={})
    assert re.search(r"class=\"tok xh[^\"]*\" style=\"--h:\d+\" data-e=\"\d+\"", text)


def test_the_same_input_gives_the_same_file_and_a_refused_one_leaves_the_old(tmp_path, four_runs):
    path, runs = tmp_path / "out" / "report.html", four_runs[:1]
    write_report(path, runs, title="T", setup=SETUP)
    first = path.read_bytes()
    write_report(path, runs, title="T", setup=SETUP)
    assert path.read_bytes() == first
    with pytest.raises(SettingError, match=r"passage.run_name must be one of vanilla, got"):
        write_report(path, runs, [passage("nobody", ["a"])], title="T", setup={})
    assert path.read_bytes() == first
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]


def test_runs_on_other_tokens_get_no_report(tmp_path, four_runs, make_result):
    with pytest.raises(DataError, match="predicted_tokens"):
        write_report(
            tmp_path / "r.html", [*four_runs, make_result("x", 200.0, predicted_tokens=5)], title="T", setup={}
        )
    assert list(tmp_path.iterdir()) == []


def test_long_facts_are_folded_and_differing_ones_listed(make_result):
    corpus = {"name": "sotu", "fingerprint": "9f2c", "files": [f"speech-{i}.txt" for i in range(40)]}
    runs = [make_result("a", 200.0, corpus=corpus, seed=1), make_result("b", 201.0, corpus=corpus, seed=2)]
    text = render_report(runs, title="T", setup={"recipe": {"lambda": 0.5}})
    assert "<details><summary>speech-0.txt; " in text
    assert "<dt>Seed</dt><dd>1; 2</dd>" in text
    assert "<dt>Recipe: lambda</dt><dd>0.5</dd>" in text
