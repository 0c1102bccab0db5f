"""One variant of each kind: it trains, it is measured, it saves, and it writes with a cache what it scores without."""

import pytest
import torch

from stickymoe.experiments.run import train_run
from stickymoe.experiments.run_model import load_model
from stickymoe.experiments.variants import resolve
from stickymoe.traces import RoutingTrace

KINDS = [
    "hard-window-4", "hard-window-recursive-2", "hysteresis-w2-b0.4", "soft-0.05-hysteresis-w1-b1", "reuse-0.05",
    "oracle", "shared-all-soft-0.1-cross-0.1", "trajectory-span-4", "hash", "boundary-0.1", "document-reset-0.1",
]  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_it_trains_is_measured_and_generates_with_a_cache_what_it_scores_without(tiny, tmp_path, name):
    recipe = resolve(tiny("training.steps=2", "training.log_every=1", "data.respect_documents=false"), name)
    result = train_run(recipe, tmp_path / name)
    assert [row["step"] for row in result.log] == [1, 2]
    assert result.metrics["perplexity"] > 1
    model = load_model(tmp_path / name)
    prompt, mask = torch.tensor([[0, 0, 0, 70, 71], [72, 73, 74, 75, 76]]), torch.tensor([[0] * 3 + [1] * 2, [1] * 5])
    written = model.generate(
        prompt, attention_mask=mask, max_new_tokens=9, do_sample=False, pad_token_id=0, repetition_penalty=2.0,
        return_dict_in_generate=True, output_logits=True,
    )  # fmt: skip
    whole = torch.cat([mask, torch.ones(2, 9, dtype=torch.long)], dim=1)
    with torch.no_grad():
        scored = model(written.sequences, attention_mask=whole).logits[:, 4:-1]
    torch.testing.assert_close(torch.stack(written.logits, dim=1), scored, atol=1e-4, rtol=1e-4)


def test_a_trajectorys_measured_switch_rate_is_exactly_its_hashes(tiny, tmp_path):
    train_run(resolve(tiny("training.steps=1", "data.respect_documents=false"), "trajectory-span-4"), tmp_path / "run")
    trace = RoutingTrace.load(tmp_path / "run" / "trace-validation.parquet")
    inside = trace.positions[1:] % 4 != 0
    same = (trace.expert_ids[1:] == trace.expert_ids[:-1]).all(axis=(1, 2))
    neighbours = trace.sequence_ids[1:] == trace.sequence_ids[:-1]
    assert same[inside & neighbours].all()
    assert not same[~inside & neighbours].all()
    assert (trace.expert_ids == trace.expert_ids[:, :1]).all(), "one path through all layers"
