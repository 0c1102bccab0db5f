"""Pages are self-contained: only their own scripts may run, foreign text is escaped, numbers stay with their sign."""

import base64
import hashlib
import html
import re
import sys

import pytest

from stickymoe.core.errors import SettingError
from stickymoe.experiments.page.html import plotly_script, render_page

DIAGNOSIS = "stickymoe.experiments.diagnosis"
PARTS = {
    "title": "a <b>title</b>", "headline": "51 % of them", "verdict_class": "fits", "tiles": [], "cautions": [],
    "answers": [], "sections": [], "unanswered": {}, "facts": [], "commands": [],
}  # fmt: skip


def page(plots):
    return render_page("diagnosis.html.j2", DIAGNOSIS, plots=plots, **PARTS)


def test_every_script_that_runs_is_named_by_its_hash():
    text = page({"curves": {"data": [], "layout": {}}})
    allowed = re.search(r"script-src ([^\"]*?); style", html.unescape(text))[1].split()
    scripts = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert allowed == [f"'sha256-{digest}'" for digest in digests]
    assert len(scripts) == 2


def test_a_page_without_plots_has_no_script():
    text = page({})
    assert "script-src 'none'" in html.unescape(text)
    assert "<script" not in text


def test_foreign_text_cannot_break_out():
    text = page({"curves": {"data": [{"name": "</script><b>"}], "layout": {}}})
    assert "<b>title" not in text
    assert "a &lt;b&gt;title" in text
    assert '"name":"\\u003c/script>\\u003cb>"' in text


def test_a_number_keeps_its_percent_sign_on_the_line():
    assert "51\N{NO-BREAK SPACE}% of them" in page({})


def test_without_plotly_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(SettingError, match="pip install plotly"):
        plotly_script()
