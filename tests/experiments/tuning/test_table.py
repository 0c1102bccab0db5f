"""The table of a tuning: a column for each model, the price in the last row."""

import io

from rich.console import Console

from stickymoe.experiments.tuning.measured import Measured
from stickymoe.experiments.tuning.table import tuning_table

NAMES = ("switch_rate", "expert_overlap", "gate_entropy_bits", "gate_margin", "utilisation_entropy_bits", "load_cv",
         "load_busiest_over_mean")  # fmt: skip


def measured(nats, level):
    routing = {name: {"mean": level, "per_layer": [level]} for name in NAMES}
    hits = [{"share": share, "capacity": 8 * share, "hit_rate": share} for share in (0.125, 0.25, 0.5)]
    sizes = {"tokens": 1234, "layers": 1, "num_experts": 8, "top_k": 2}
    return Measured(nats, [10.0] * len(nats), "documents", routing, hits, 0.25, sizes)


def shown(arms):
    out = io.StringIO()
    Console(file=out, width=150).print(tuning_table(arms))
    return out.getvalue()


def test_all_three_models_stand_beside_each_other_with_the_price_of_the_last():
    text = shown({
        "baseline": measured([10.0, 30.0], 0.5),
        "control": measured([9.0, 29.0], 0.4),
        "tuned": measured([10.0, 30.0], 0.25),
    })  # fmt: skip
    head, price = (next(line for line in text.splitlines() if word in line) for word in ("baseline", "tuned costs"))
    assert head.index("baseline") < head.index("CE only") < head.index("tuned")
    assert "0.0000 (0.0000 to 0.0000)" in price
    assert "0.1000 (0.1000 to 0.1000)" in price
    assert "7.389" in text  # exp(2)
    assert "1,234 held-out tokens, intervals of 95 % over 2 documents; overlap by chance 0.250" in text.replace(
        "\n", " "
    )
    assert "caches hold 1, 2, 4 of 8 experts a layer" in " ".join(text.split())


def test_a_single_unit_has_no_interval_and_no_control_no_column():
    text = shown({"baseline": measured([20.0], 0.5), "tuned": measured([21.0], 0.5)})
    assert "CE only" not in text
    assert "0.1000" in text
    assert " to " not in text
