"""The objective keeps no more for its backward pass than a few times the gates."""

import pytest
import torch

from stickymoe.losses import TERMS, Objective
from stickymoe.routing import Routing


@pytest.mark.parametrize("names", [[name] for name in TERMS] + [list(TERMS)], ids=lambda names: "+".join(names))
@pytest.mark.parametrize("window", [4, 1024])
def test_saved_and_largest_tensors_are_small_multiples_of_the_gates(names, window):
    layers, seq, experts = 2, 4096, 8
    logits = [torch.randn(1, seq, experts, requires_grad=True) for _ in range(layers)]
    gates = tuple(layer.detach().softmax(dim=-1).requires_grad_() for layer in logits)
    best = [layer.detach().topk(2) for layer in gates]
    ids, weights = tuple(layer.indices for layer in best), tuple(layer.values for layer in best)
    docs = (torch.arange(seq) // 1000)[None]
    routing = Routing(tuple(logits), gates, ids, weights, torch.ones(1, seq, dtype=torch.bool), docs, gates)
    saved = {}

    def remember(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    objective = Objective(dict.fromkeys(names, 1.0), window=window, allow_unshared=True)
    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        total = objective(routing).total
    total.backward()
    gates_bytes = layers * seq * experts * 4
    assert saved
    assert sum(saved.values()) <= 3 * len(names) * gates_bytes
    assert max(saved.values()) <= gates_bytes
