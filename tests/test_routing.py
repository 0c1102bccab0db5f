"""`Routing` refuses what does not belong together and knows which neighbours count."""

import pytest
import torch

from stickymoe.core.errors import SettingError
from stickymoe.routing import Routing, valid_pairs


def fields(layers=2, batch=2, seq=4, experts=3, top_k=2, **changes):
    logits = [torch.randn(batch, seq, experts, requires_grad=True) for _ in range(layers)]
    gates = [layer.softmax(dim=-1) for layer in logits]
    best = [layer.topk(top_k, dim=-1) for layer in gates]
    return {
        "router_logits": tuple(logits),
        "gate_probs": tuple(gates),
        "expert_ids": tuple(layer.indices for layer in best),
        "expert_weights": tuple(layer.values for layer in best),
        **changes,
    }


def test_it_tells_its_sizes():
    routing = Routing(**fields(layers=2, experts=3, top_k=2))
    assert (routing.num_layers, routing.num_experts, routing.top_k) == (2, 3, 2)


def test_all_pairs_count_where_nothing_is_masked():
    assert Routing(**fields()).valid_pairs() is None


def test_a_pair_counts_where_both_tokens_are_real_and_of_one_document():
    mask = torch.tensor([[False, True, True, True], [True, True, False, True]])
    docs = torch.tensor([[7, 7, 7, 3], [1, 1, 1, 1]])
    pairs = Routing(**fields(token_mask=mask, document_ids=docs)).valid_pairs()
    assert pairs.tolist() == [[False, True, False], [True, False, False]]
    assert valid_pairs(mask, None).tolist() == [[False, True, True], [True, False, False]]
    assert valid_pairs(None, docs).tolist() == [[True, True, False], [True, True, True]]


def test_one_token_has_no_pairs():
    mask = torch.ones(2, 1, dtype=torch.bool)
    assert Routing(**fields(seq=1, token_mask=mask)).valid_pairs().shape == (2, 0)


def test_detached_routing_holds_the_same_values_and_no_graph():
    routing = Routing(**fields(token_mask=torch.ones(2, 4, dtype=torch.bool)))
    kept = routing.detach()
    for name in ("router_logits", "gate_probs", "expert_weights", "expert_ids"):
        for old, new in zip(getattr(routing, name), getattr(kept, name), strict=True):
            assert torch.equal(old, new)
            assert not new.requires_grad
    assert kept.token_mask is routing.token_mask


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gate_probs", ()),
        ("expert_ids", (torch.zeros(2, 4, 2, dtype=torch.int64),)),
        ("router_logits", (torch.randn(2, 4, 3), torch.randn(2, 5, 3))),
        ("expert_weights", (torch.rand(2, 4, 1), torch.rand(2, 4, 1))),
        ("token_mask", torch.ones(2, 3, dtype=torch.bool)),
        ("document_ids", torch.zeros(1, 4, dtype=torch.int64)),
    ],
)
def test_what_does_not_fit_the_gates_is_refused_by_name(name, value):
    routing = object.__new__(Routing)  # past the shape checks that only tests have
    for field, content in ({"token_mask": None, "document_ids": None} | fields(**{name: value})).items():
        object.__setattr__(routing, field, content)
    with pytest.raises(SettingError, match=rf"^routing\.{name}.* must be .*, got [^\n]*$"):
        routing.__post_init__()
