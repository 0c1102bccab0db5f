"""What is measured of held-out text equals what a loop over single rows finds, whatever stands beside a row."""

import numpy as np
import pytest
import torch

from stickymoe.capture import capture_routing
from stickymoe.data.encoding import EncodedText
from stickymoe.data.rows import PaddedRows
from stickymoe.experiments.tuning.measured import Measured, measured_of, price
from stickymoe.experiments.tuning.measuring import read_held_out
from stickymoe.losses import gate_entropy_bits
from stickymoe.metrics import overlap_by_use

pytestmark = pytest.mark.hf


FEW = (9, 4, 20, 2)


def held_out(lengths=FEW, seq_len=8):
    draw = np.random.default_rng(0)
    texts = [EncodedText(draw.integers(3, 60, length).astype(np.int32)) for length in lengths]
    texts[1] = EncodedText(texts[1].tokens, np.arange(len(texts[1].tokens)) != 1)
    return texts, PaddedRows(texts, seq_len)


@pytest.mark.parametrize(
    ("family", "batch_size", "lengths"),
    [("mixtral", 3, FEW), ("stickymoe", 1, FEW), ("qwen3_moe", 2, (*FEW, *FEW))],
)
def test_a_pass_equals_a_loop_over_single_rows(small, family, batch_size, lengths):
    model = small.model(family).train()
    texts, rows = held_out(lengths)
    told = []
    found = read_held_out(
        model, rows, batch_size=batch_size, provenance={"of": "test"}, progress=lambda *seen: told.append(seen)
    )
    assert model.training
    assert told[-1] == (len(rows), len(rows))
    model.eval()
    nats, targets, ids, entropy, tokens = np.zeros(len(texts)), np.zeros(len(texts)), [], 0.0, 0
    for index, document in enumerate(rows.row_documents()):
        row = rows[index]
        with torch.no_grad(), capture_routing(model) as capture:
            logits = model(input_ids=row["input_ids"][None], use_cache=False).logits[0].double()
        for place in range(1, len(row["labels"])):
            if row["labels"][place] >= 0:
                nats[document] -= float(logits[place - 1].log_softmax(-1)[row["labels"][place]])
                targets[document] += 1
        routing = capture.routing
        ids.append(torch.stack([layer[0] for layer in routing.expert_ids], dim=1).numpy())
        length = len(row["input_ids"])
        entropy += sum(float(gate_entropy_bits(layer)) for layer in routing.gate_probs) / routing.num_layers * length
        tokens += length
    assert found.unit == ("documents" if len(texts) >= 8 else "pieces")
    assert found.nats.sum() == pytest.approx(nats.sum(), rel=1e-5)
    if found.unit == "documents":
        np.testing.assert_allclose(found.nats, nats, rtol=1e-5)
        assert found.targets.tolist() == targets.tolist()
    else:
        assert found.targets.tolist() == [7, 2, 7, 7, 3, 1]
    assert np.mean(found.gate_entropy_bits) == pytest.approx(entropy / tokens, rel=1e-5)
    assert np.array_equal(found.trace.expert_ids, np.concatenate(ids))
    assert found.trace.num_sequences == len(rows)
    assert found.trace.provenance == {"of": "test"}


def test_overlap_by_use_is_that_of_the_trace(small):
    _, rows = held_out((30, 25, 40))
    seen = read_held_out(small.model("mixtral"), rows, batch_size=2, provenance={})
    assert measured_of(seen).overlap_by_use == pytest.approx(overlap_by_use(seen.trace).mean(), rel=1e-6)


def test_what_a_pass_amounts_to_can_be_kept_and_read(small):
    _, rows = held_out((9, 5, 12, 20, 7))
    found = measured_of(read_held_out(small.model("mixtral"), rows, batch_size=2, provenance={}))
    kept = found.as_dict()
    assert Measured.from_dict(kept, "here") == found
    assert kept["perplexity"]["mean"] == pytest.approx(np.exp(sum(found.nats) / sum(found.targets)))
    assert kept["perplexity"]["low"] < kept["perplexity"]["mean"] < kept["perplexity"]["high"]
    assert [(each["share"], each["capacity"]) for each in found.hit_rates] == [(0.125, 1), (0.25, 1), (0.5, 2)]
    assert found.hit_rate(0.25) <= found.hit_rate(0.5)
    assert found.chance_overlap == 0.5
    assert 0 <= found.mean("switch_rate") <= 1


def measured(nats, targets):
    return Measured(nats, targets, "documents", {}, [], 0.5, {})


def test_the_price_is_paired_so_that_hard_documents_cancel():
    before = measured([10.0, 40.0, 90.0, 20.0], [10.0, 10.0, 10.0, 10.0])
    after = measured([11.0, 41.0, 91.0, 21.0], [10.0, 10.0, 10.0, 10.0])
    found = price(before, after)
    assert found.mean == pytest.approx(0.1)
    assert found.high - found.low < 1e-9
    assert before.cross_entropy.high - before.cross_entropy.low > 1
    assert measured([10.0], [5.0]).perplexity.low is None
