"""The page of formats is the registry's, and the registry says what the importers do."""

import re
import runpy
from pathlib import Path

import pytest

from stickymoe.traces import RoutingTrace, UsageProfile, read_trace
from stickymoe.traces.exporters.registry import EXPORTERS
from stickymoe.traces.formats_page import formats_page
from stickymoe.traces.importers.importer import ReadOptions
from stickymoe.traces.importers.registry import IMPORTERS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "formats.md"
SEEDS = runpy.run_path(str(ROOT / "tests" / "fuzz" / "fuzz_importers.py"))["seeds"]()
KINDS = {"trace": RoutingTrace, "profile": UsageProfile, "trace or profile": (RoutingTrace, UsageProfile)}


def test_the_page_is_up_to_date():
    command = "run python -m stickymoe.traces.formats_page docs/formats.md"
    assert PAGE.read_text(encoding="utf-8") == formats_page(), command


def test_every_format_and_every_option_is_there():
    page = formats_page()
    for name in IMPORTERS:
        assert f"\n| `{name}` | {IMPORTERS[name].gives} | {'yes' if name in EXPORTERS else ''} |" in page
    for name in ReadOptions.__dataclass_fields__:
        assert f"`{name}`" in page
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7, 3}


@pytest.mark.parametrize("name", IMPORTERS)
def test_what_is_to_be_told_are_options_and_what_is_lost_is_said(name):
    told = set(re.findall(r"`(\w+)`", IMPORTERS[name].needs)) - {"meta"}
    assert told <= set(ReadOptions.__dataclass_fields__)
    assert IMPORTERS[name].loses


@pytest.mark.parametrize("name", IMPORTERS)
def test_a_file_becomes_what_its_format_is_said_to_hold(name, tmp_path):
    seeds = [seed for seed in SEEDS if seed.format == name]
    if name == "sglang-recorder" and not seeds:
        pytest.skip("needs torch")
    assert seeds, "tests/fuzz/fuzz_importers.py must have a valid file of every format"
    for seed in seeds:
        (tmp_path / "trace").write_bytes(seed.wrap(seed.data))
        assert isinstance(read_trace(tmp_path / "trace", name, **seed.options), KINDS[IMPORTERS[name].gives])
        # What had to be told is told of
        assert set(seed.options) <= set(re.findall(r"`(\w+)`", IMPORTERS[name].needs))
