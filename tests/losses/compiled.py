"""The objective under torch.compile, started by test_compile.py without the check of shapes: BACKEND:SEQ[,SEQ]..."""

import sys

import torch

from stickymoe.losses import TERMS, Objective
from stickymoe.routing import Routing

objective = Objective(
    dict.fromkeys(TERMS, 1.0), window=3, allow_unshared=True, boundary_weight=0.5, boundary_token_ids=[1, 2]
)


def total_of(logits, expert_ids, token_mask, document_ids, input_ids):
    gates = tuple(layer.softmax(dim=-1) for layer in logits)
    reference = tuple(layer.detach().flip(-1) for layer in gates)
    routing = Routing(tuple(logits), gates, expert_ids, expert_ids, token_mask, document_ids, reference)
    result = objective(routing, input_ids, scale=0.5)
    return result.total, result.terms


def compare(compiled, seq):
    logits = [torch.randn(2, seq, 4, requires_grad=True) for _ in range(2)]
    mask = torch.ones(2, seq, dtype=torch.bool)
    mask[0, -2:] = False
    documents = (torch.arange(seq) // 4).repeat(2, 1)
    batch = (tuple(layer.detach().topk(2).indices for layer in logits), mask, documents, torch.randint(0, 5, (2, seq)))
    expected, expected_terms = total_of(logits, *batch)
    total, terms = compiled(logits, *batch)
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(terms, expected_terms)
    torch.testing.assert_close(torch.autograd.grad(total, logits), torch.autograd.grad(expected, logits))


for asked in sys.argv[1:]:
    backend, lengths = asked.split(":")
    torch.compiler.reset()
    compiled = torch.compile(total_of, fullgraph=True, backend=backend)
    for seq in lengths.split(","):
        compare(compiled, int(seq))
print("equal")
