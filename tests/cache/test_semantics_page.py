"""docs/cache-semantics.md says what the committed result says, and the commands it shows still count that."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stickymoe.cli import main
from stickymoe.core.files import sha256_of

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
TRACES = SHARED / "data" / "traces"
PAGE = (ROOT / "docs" / "cache-semantics.md").read_text(encoding="utf-8")
RESULT = json.loads((ROOT / "benchmarks" / "results" / "cache_semantics.json").read_text(encoding="utf-8"))
COMMANDS = re.findall(r"^stickymoe simulate .*$", PAGE, flags=re.MULTILINE)
PLACES = {name: facts["place"] for name, facts in RESULT["traces"].items()}
here = pytest.mark.skipif(not TRACES.exists(), reason="the public traces are not here")


@cache
def published() -> dict[str, Any]:
    return json.loads((SHARED / "golden" / "public_traces.json").read_text())


def run_of(part: str, *options: str) -> dict[str, Any]:
    (found,) = (
        run for command, run in RESULT["runs"].items() if command.endswith(part) and all(o in command for o in options)
    )
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The page's files, made as the page says."""
    path = tmp_path_factory.mktemp("page")
    for name, place in PLACES.items():
        (path / name).symlink_to(TRACES / place)
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    subprocess.run([sys.executable, "-c", snippet], cwd=path, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return path


def test_the_pages_numbers_are_those_of_the_result():
    script = ROOT / "benchmarks" / "cache_semantics.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_hit_rate_stands_outside_the_generated_blocks():
    prose = re.sub(r"<!-- (\w+):begin -->.*?<!-- \1:end -->", "", PAGE, flags=re.DOTALL)
    assert not re.findall(r"\d+(?:\.\d+)? ?%|\d+\.\d{2,}", prose)


def test_every_command_shown_was_run_and_its_number_is_shown():
    assert len(COMMANDS) >= 12
    for command in COMMANDS:
        for found in RESULT["runs"][command].values():
            misses = f"{found['misses'] / 499712:.4f}"  # the small models' tables tell misses a token
            assert f"{100 * found['hit_rate']:.2f} %" in PAGE or misses in PAGE, command


def test_the_result_tells_what_it_was_made_with():
    assert re.fullmatch(r"[0-9a-f]{10}", RESULT["commit"])  # a clean checkout
    assert {"stickymoe", "python", "numpy", "numba"} <= set(RESULT["versions"])
    assert all(facts["licence"] and facts["from"] for facts in RESULT["traces"].values())


def test_every_run_adds_up():
    for command, policies in RESULT["runs"].items():
        for found in policies.values():
            assert found["hits"] + found["misses"] == found["lookups"] > 0, command
            assert found["hit_rate"] == found["hits"] / found["lookups"]
            assert found["compulsory"] <= found["misses"]


def test_links_of_the_page_lead_somewhere():
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", PAGE)
    assert links
    assert not [link for link in links if "://" not in link and not (ROOT / "docs" / link).exists()]


@here
def test_the_result_was_made_from_these_files():
    assert {name: sha256_of(TRACES / place) for name, place in PLACES.items()} == {
        name: facts["sha256"] for name, facts in RESULT["traces"].items()
    }


@here
def test_the_results_numbers_are_the_published_ones():
    told = published()["qwen3-30b-a3b first 2000 tokens"]["data"]["qwen3-30b-a3b/code[first 2000 tokens]"]
    sequential = run_of(
        "code-2000.parquet --policy lru --policy belady --capacity 32 --replay sequential --reset never"
    )
    assert sequential["lru"]["hits"] == told["per_layer_32"]["sequential_hits"]["LRU"]
    assert sequential["belady"]["hits"] == told["per_layer_32"]["sequential_hits"]["Belady"]
    warm = run_of("code-2000.parquet --policy lru --policy belady --capacity 32 --reset never")
    assert warm["lru"]["hits"] == told["per_layer_32"]["event_atomic_hits"]["LRU"]
    device = published()["bigmoeonedge"]["qwen"]["device_measured_cumulative_hit_pct"]
    assert RESULT["published"]["device_percent"] == device
    engine = run_of("--admission whole", "qwen.route.csv", "--prefill pass", "--count unique")["lru"]
    assert round(100 * engine["hit_rate"], 1) == device
    assert engine["phases"]["decode"] == RESULT["device_decode"]


@here
def test_the_published_belady_is_the_rule_that_forgets_the_running_token():
    told = published()["cacheable-by-design"]
    for model in ("a-main-s1", "b-main-s1"):
        rule = RESULT["blind_belady"][model]
        run = run_of("--capacity 4 --replay sequential --reset never", f" {model}.npz")
        assert round(rule["misses"] / rule["tokens"], 4) == told["published"][model]["prose"]["miss"]["0.25"]["belady"]
        assert round(run["belady"]["misses"] / rule["tokens"], 4) == told["true_belady"][model]["prose"]["4"]


@here
@pytest.mark.parametrize("command", [each for each in COMMANDS if "main-s1" not in each])
def test_a_command_of_the_page_still_counts_what_the_page_says(command, folder, monkeypatch):
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(main, [*command.split()[1:], "--json"])
    assert done.exit_code == 0, done.output
    for found in json.loads(done.stdout):
        told = RESULT["runs"][command][found["semantics"]["policy"]]
        assert {key: found[key] for key in told} == told
