"""Two processes with unequal shares of a batch find the value and gradient of one process with all of it."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from stickymoe.losses import TERMS, Objective, sum_across_ranks
from stickymoe.routing import Routing

COEFFICIENTS = dict.fromkeys(TERMS, 1.0)


def test_without_a_process_group_sums_are_left_alone():
    values = torch.rand(3)
    assert sum_across_ranks(values) is values


def test_two_ranks_equal_one_process_on_the_whole_batch(make_batch, tmp_path):
    batch = make_batch(seed=22, batch=5, experts=4)
    inputs, weight = torch.randn(2, 5, 9, 6), torch.randn(6, 4, requires_grad=True)
    logits = inputs @ weight
    ids = logits.detach().topk(2).indices
    gates, reference = tuple(logits.softmax(dim=-1)), tuple(batch.reference)
    routing = Routing(tuple(logits), gates, tuple(ids), tuple(ids.float()), batch.mask, batch.docs, reference)
    whole = Objective(COEFFICIENTS, window=3, allow_unshared=True)(routing)
    whole.total.backward()
    content = {"inputs": inputs, "weight": weight.detach(), "ids": ids, "mask": batch.mask, "docs": batch.docs}
    content |= {"reference": batch.reference, "coefficients": COEFFICIENTS}
    torch.save(content, tmp_path / "batch.pt")
    results = [tmp_path / f"rank{rank}.pt" for rank in range(2)]
    ranks = [
        subprocess.Popen(
            [
                sys.executable,
                Path(__file__).with_name("two_ranks.py"),
                str(rank),
                tmp_path / "meet",
                tmp_path / "batch.pt",
                path,
            ],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, path in enumerate(results)
    ]
    for process in ranks:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    for path in results:
        found = torch.load(path)
        torch.testing.assert_close(found["total"], whole.total.detach())
        torch.testing.assert_close(found["gradient"], weight.grad, rtol=1e-5, atol=1e-6)
