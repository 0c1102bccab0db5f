"""What the README shows runs, and its numbers are those of the committed results."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_a_snippet_of_the_readme_runs_as_it_stands(number, tmp_path):
    done = subprocess.run([sys.executable, "-c", SNIPPETS[number]], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_readme_has_snippets():
    assert len(SNIPPETS) >= 2


def test_the_numbers_of_readme_and_docs_are_those_of_the_results(monkeypatch):
    script = ROOT / "benchmarks" / "readme_numbers.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--check"])
    monkeypatch.syspath_prepend(script.parent)
    runpy.run_path(str(script), run_name="__main__")  # ends in SystemExit where they differ


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
)
def test_links_within_the_repository_lead_somewhere(page):
    path = ROOT / page
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert not missing
