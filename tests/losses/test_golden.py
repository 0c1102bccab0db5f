"""The objective's terms equal the golden values, to 1e-5 in float32."""

import json
from pathlib import Path

import pytest
import torch

from stickymoe.losses import Objective, cross_layer_loss
from stickymoe.routing import Routing

GOLDEN = Path(__file__).resolve().parents[2].parent / "shared" / "golden" / "objectives.json"
CASES = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else []


@pytest.mark.skipif(not CASES, reason="golden values are not on this machine")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_every_term_equals_its_golden_value(case):
    logits = torch.tensor(case["router_logits"])
    gates, ids = logits.softmax(dim=-1), torch.tensor(case["expert_ids"])
    routing = Routing(
        tuple(logits),
        tuple(gates),
        tuple(ids),
        tuple(gates.gather(-1, ids)),
        None if case["token_mask"] is None else torch.tensor(case["token_mask"]),
        None if case["document_ids"] is None else torch.tensor(case["document_ids"]),
    )
    objective = Objective(dict.fromkeys(case["expected"], 1), window=case["window"], allow_unshared=True)
    result = objective(routing)
    assert set(result.terms) == set(case["expected"])
    for name, expected in case["expected"].items():
        assert result.terms[name].dtype == torch.float32
        assert result.terms[name].item() == pytest.approx(expected, abs=1e-5), name
    assert result.total.item() == pytest.approx(sum(case["expected"].values()), abs=6e-5)
    assert cross_layer_loss(gates, routing.token_mask).item() == pytest.approx(
        case["expected"]["cross_layer"], abs=1e-5
    )
