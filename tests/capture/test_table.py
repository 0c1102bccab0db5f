"""docs/models.md says what capture does."""

from pathlib import Path

import pytest
import transformers

from stickymoe.capture.table import describe, page, table
from stickymoe.capture.tiny import families

PAGE = Path(__file__).parents[2] / "docs" / "models.md"

pytestmark = pytest.mark.hf


def test_the_page_is_up_to_date(shared):
    text = PAGE.read_text(encoding="utf-8")
    if f"transformers {transformers.__version__};" not in text:
        pytest.skip("the page is of another version of transformers")
    assert page(shared) == text, "run `python -m stickymoe.capture.table docs/models.md`"


def test_every_family_has_a_row(shared):
    text = PAGE.read_text(encoding="utf-8")
    assert [family for family in families() if f"\n| {family} |" not in text] == []


def test_a_row_says_gate_choice_and_place(shared):
    mixtral, deepseek, doge = (describe(family, shared(family)) for family in ("mixtral", "deepseek_v3", "doge"))
    assert (mixtral.gate, mixtral.choice, mixtral.router) == ("softmax", "largest gates", "layers.{i}.mlp.gate")
    assert (deepseek.gate, deepseek.choice) == ("sigmoid, shares", "by bias or group")
    assert (doge.gate, doge.injection) == ("refused", "")
    assert table([mixtral]).splitlines()[2].startswith("| mixtral | `MixtralForCausalLM` | softmax | largest gates |")
