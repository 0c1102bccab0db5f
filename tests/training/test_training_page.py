"""What docs/training.md says is tested, is."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_names_exists():
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", page)
    assert len(named) > 20
    assert [name for name in named if f"def {name}(" not in tests] == []
