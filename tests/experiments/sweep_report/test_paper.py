"""The paper's numbers in the package are those that were collected from its text, and no sentence of it."""

import json
from pathlib import Path

import pytest

from stickymoe.experiments.sweep_report.paper import FILE, knows, paper, paper_layer, paper_perplexity, paper_value

SHARED = Path(__file__).parents[3].parent / "shared" / "paper"
NAMES = {
    "vanilla": "vanilla", "soft_0.01": "soft-0.01", "soft_0.05": "soft-0.05", "soft_0.1": "soft-0.1",
    "soft_0.5": "soft-0.5", "hard_window_2": "hard-window-2", "remoe_simulated": "remoe",
    "soft_hard_0.1_1.0_w4": "soft-hard-0.1-1",
}  # fmt: skip
MEASURES = {
    "perplexity": ("perplexity", 1), "perplexity_derived": ("perplexity", 1), "switch_rate": ("switch_rate", 1),
    "hit_rate": ("hit_rate", 1), "miss_reduction": ("miss_reduction", 1),
    "perplexity_change_percent": ("change", 0.01), "perplexity_change_percent_about": ("change", 0.01),
}  # fmt: skip


@pytest.mark.parametrize("size", ["small", "medium"])
def test_every_number_of_the_text_is_there_and_no_other(size):
    if not SHARED.is_dir():
        pytest.skip("the paper's numbers are not at hand")
    stated = json.loads((SHARED / "numbers.json").read_text(encoding="utf-8"))[size]
    expected = {
        NAMES[variant]: {MEASURES[key][0]: value * MEASURES[key][1] for key, value in found.items() if key in MEASURES}
        for variant, found in stated.items()
        if isinstance(found, dict)
    }
    ours = {
        variant: {key: value for key, value in found.items() if key != "layers"}
        for variant, found in paper()["sizes"][size]["variants"].items()
    }
    assert ours == {variant: pytest.approx(values) for variant, values in expected.items()}
    assert paper()["sizes"][size]["parameters"] == stated["parameters_about"]


def test_no_sentence_of_the_paper_is_in_the_file():
    if not SHARED.is_dir():
        pytest.skip("the paper is not at hand")
    text = " ".join((SHARED / "sticky-routing.txt").read_text(encoding="utf-8").replace("\\", "").lower().split())
    from stickymoe.experiments.sweep_report import paper as module

    words = (Path(module.__file__).with_name(FILE)).read_text(encoding="utf-8").lower().split()
    runs = {" ".join(words[start : start + 9]) for start in range(len(words) - 8)}
    assert not [run for run in runs if run in text]


def test_values_are_found_by_size_and_variant():
    assert paper_value("small", "vanilla", "perplexity") == 245.3
    assert paper_value("small", "oracle", "perplexity") is None
    assert paper_value("demo", "vanilla", "perplexity") is None
    assert paper_perplexity("small", "soft-0.5") == pytest.approx(245.3 * 1.039)
    assert paper_layer("medium", "soft-hard-0.1-1", 1) == "0.108"
    assert (knows("medium"), knows("demo")) == (True, False)
