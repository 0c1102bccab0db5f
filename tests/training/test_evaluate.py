"""Whole-split evaluation against a token-by-token computation."""

import math

import numpy as np
import pytest
import torch

from stickymoe.cache import simulate
from stickymoe.core.errors import SettingError, TraceError
from stickymoe.experiments.metrics_file import Metrics
from stickymoe.metrics import switch_rate
from stickymoe.training import evaluate
from stickymoe.training.evaluate import default_capacities


@pytest.fixture(params=[True, False], ids=["documents", "one-stream"])
def chunks(tiny, request):
    return tiny.chunks(tokens=54, keep_tail=True, respect_documents=request.param)  # 53 targets: 6 chunks and 5 tokens


def naive(model, chunks):
    """Predict token by token, each from its own chunk (and document) alone; return what was found at every one."""
    found = []
    with torch.no_grad():
        for chunk in range(len(chunks)):
            row = chunks[chunk]
            documents = row.get("document_ids", torch.zeros_like(row["input_ids"]))
            for place in range(len(row["input_ids"])):
                begin = int((documents == documents[place]).nonzero()[0])
                out = model(row["input_ids"][None, begin : place + 1])
                log_probs = out.logits[0, -1].double().log_softmax(dim=-1)
                gates = torch.stack([layer[0, -1] for layer in out.routing.gate_probs]).double()
                top = gates.sort(dim=-1, descending=True).values
                found.append(
                    (
                        -float(log_probs[row["shift_labels"][place]]),
                        torch.stack([layer[0, -1] for layer in out.routing.expert_ids]).numpy(),
                        -(gates * gates.log2()).sum(dim=-1).numpy(),
                        (top[:, 0] - top[:, 1]).numpy(),
                        (chunk, place, int(row["input_ids"][place]), int(documents[place])),
                    )
                )
    return found


def test_everything_equals_a_token_by_token_computation(tiny, chunks):
    model = tiny.model().eval()
    losses, experts, entropies, margins, places = zip(*naive(model, chunks), strict=True)
    found = evaluate(model, chunks, batch_size=4)
    assert found.predicted_tokens == len(losses) == 53
    assert found.cross_entropy == pytest.approx(np.mean(losses), rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(np.mean(losses)), rel=1e-5)
    assert found.gate_entropy_bits == pytest.approx(np.mean(entropies, axis=0).tolist(), rel=1e-5)
    assert found.gate_margin == pytest.approx(np.mean(margins, axis=0).tolist(), rel=1e-5)
    trace = found.trace
    np.testing.assert_array_equal(trace.expert_ids, np.stack(experts))
    sequences, positions, tokens, documents = zip(*places, strict=True)
    np.testing.assert_array_equal(trace.sequence_ids, sequences)
    np.testing.assert_array_equal(trace.positions, positions)
    np.testing.assert_array_equal(trace.token_ids, tokens)
    if chunks.respect_documents:
        np.testing.assert_array_equal(trace.document_ids, documents)
    else:
        assert trace.document_ids is None


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_the_size_of_the_batches_changes_nothing(tiny, chunks, batch_size):
    one, other = (evaluate(tiny.model(), chunks, batch_size=size, keep_weights=True) for size in (2, batch_size))
    assert one.cross_entropy == pytest.approx(other.cross_entropy, rel=1e-6)
    np.testing.assert_array_equal(one.trace.expert_ids, other.trace.expert_ids)
    np.testing.assert_allclose(one.trace.expert_weights, other.trace.expert_weights, rtol=1e-4)


def test_the_metrics_are_those_of_the_trace_in_the_reports_schema(tiny, chunks):
    found = evaluate(tiny.model(), chunks, batch_size=4, split="test")
    metrics = found.metrics()
    run = {"seed": 0, "train": {"steps": 1, "seconds": 1.0, "tokens_per_step": 1}, "corpus": {"name": "tiny"}}
    Metrics.model_validate({**metrics, **run, "hardware": {}, "versions": {}, "commit": ""})
    assert metrics["split"] == "test"
    assert metrics["routing"]["switch_rate"]["per_layer"] == switch_rate(found.trace).tolist()
    assert metrics["routing"]["expert_overlap"]["chance"] == 0.5
    papers, smallest, larger = metrics["cache"]
    assert (papers["accesses"], papers["replay"], papers["capacity"]) == ("top1", "sequential", 2)
    assert papers["hits"] == simulate(found.trace, "lru", 2, accesses="top1", replay="sequential").hits
    assert [smallest["capacity"], larger["capacity"]] == [2, 3]
    assert larger["hits"] == simulate(found.trace, "lru", 3).hits


def test_the_dense_control_is_measured_too(tiny, chunks):
    found = evaluate(tiny.model(num_experts=2), chunks, batch_size=4)
    assert found.parameters["active"] == found.parameters["total"]
    assert found.metrics()["routing"]["set_switch_rate"]["mean"] == 0
    assert found.metrics()["cache"][1]["capacity"] == 2


def test_asked_for_capacities_are_replayed(tiny, chunks):
    found = evaluate(tiny.model(), chunks, batch_size=4, capacities=[1, 4])
    assert [report.semantics["capacity"] for report in found.cache] == [2, 1, 4]


@pytest.mark.parametrize(
    ("top_k", "num_experts", "sizes"),
    [(2, 4, [2, 3]), (2, 2, [2]), (1, 2, [1]), (2, 16, [2, 6, 11, 15]), (8, 64, [8, 26, 45, 63]), (2, 6, [2, 3, 4, 5])],
)
def test_default_capacities_go_from_the_needed_to_all_but_one(top_k, num_experts, sizes):
    assert default_capacities(top_k, num_experts) == sizes


def test_chunks_that_leave_tokens_out_are_refused(tiny):
    with pytest.raises(SettingError, match=r"evaluate.chunks must be of 53 tokens.*got 48; make them with keep"):
        evaluate(tiny.model(), tiny.chunks(tokens=54), batch_size=4)
    with pytest.raises(SettingError, match=r"evaluate.batch_size must be >= 1, got 0"):
        evaluate(tiny.model(), tiny.chunks(tokens=54, keep_tail=True), batch_size=0)


def test_chunks_of_one_token_have_a_perplexity_but_no_switches(tiny):
    found = evaluate(tiny.model(), tiny.chunks(tokens=5, seq_len=1, keep_tail=True), batch_size=2)
    assert found.predicted_tokens == 4
    with pytest.raises(TraceError, match="neighbouring"):
        found.metrics()


def test_the_models_mode_and_the_random_numbers_are_left_alone(tiny, chunks):
    model = tiny.model(dropout=0.5)
    model.train()
    state = torch.get_rng_state()
    first = evaluate(model, chunks, batch_size=4)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert evaluate(model.eval(), chunks, batch_size=4).cross_entropy == first.cross_entropy
    assert not model.training


def test_autocast_around_it_changes_nothing(tiny, chunks):
    outside = evaluate(tiny.model(), chunks, batch_size=4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = evaluate(tiny.model(), chunks, batch_size=4)
    assert inside.cross_entropy == outside.cross_entropy


def test_progress_counts_chunks(tiny, chunks):
    told = []
    evaluate(tiny.model(), chunks, batch_size=3, progress=lambda done, total: told.append((done, total)))
    assert told == [(3, 7), (6, 7), (7, 7)]
