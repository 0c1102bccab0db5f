"""Trajectories and hash layers: experts by token ids alone, and a switch rate that is exactly the hash's."""

import pytest
import torch

from stickymoe.core.errors import SettingError
from stickymoe.model import StickyMoEConfig
from stickymoe.model.hashing import hash_to_experts


def experts_of(model, ids, **kwargs):
    return torch.stack(model.eval()(ids, use_cache=False, **kwargs).routing.expert_ids)


def sets_of(expert_ids):
    return expert_ids.sort(dim=-1).values


@pytest.mark.parametrize("span", [1, 3, 4, 0])
def test_the_set_switch_rate_is_exactly_that_of_the_hashes_of_the_spans_first_tokens(tiny_model, token_ids, span):
    ids = token_ids(6, 23)
    found = sets_of(experts_of(tiny_model(router_type="trajectory", router_span=span), ids))
    firsts = ids[:, :1].expand_as(ids) if span == 0 else ids[:, torch.arange(23) // span * span]
    expected = sets_of(hash_to_experts(firsts, 0, 5, 2))
    switched = (expected[:, 1:] != expected[:, :-1]).any(-1)
    for layer in found:
        assert torch.equal(layer, expected), "every layer goes the same way"
        assert torch.equal((layer[:, 1:] != layer[:, :-1]).any(-1), switched)
    inside = torch.arange(1, 23) % span != 0 if span else torch.ones(22, dtype=torch.bool)
    assert not switched[:, inside].any()
    assert switched.any() == (span != 0)


def test_hash_layers_send_a_token_the_same_way_wherever_it_stands_but_each_layer_another(tiny_model, token_ids):
    ids = token_ids(6, 23)
    found = experts_of(tiny_model(router_type="hash"), ids)
    for layer in range(2):
        assert torch.equal(found[layer], hash_to_experts(ids, layer + 1, 5, 2))
    assert not torch.equal(found[0], found[1])


def test_a_document_has_the_path_of_its_own_first_token(tiny_model, token_ids):
    ids, documents = token_ids(1, 10), torch.tensor([[4] * 3 + [9] * 7])
    found = experts_of(tiny_model(router_type="trajectory"), ids, document_ids=documents)[0, 0]
    expected = hash_to_experts(ids[:, [0, 3]], 0, 5, 2)[0]
    assert torch.equal(found, expected[[0] * 3 + [1] * 7])


def test_spans_are_counted_from_the_documents_first_real_token(tiny_model, token_ids):
    model = tiny_model(router_type="trajectory", router_span=3)
    ids = token_ids(1, 8)
    alone = experts_of(model, ids)
    padded = torch.cat([torch.zeros(1, 4, dtype=torch.long), ids, torch.zeros(1, 2, dtype=torch.long)], dim=1)
    mask = torch.tensor([[0] * 4 + [1] * 8 + [0] * 2])
    assert torch.equal(experts_of(model, padded, attention_mask=mask)[:, :, 4:12], alone)


@pytest.mark.parametrize("kind", ["trajectory", "hash"])
def test_gates_and_weights_say_what_happened_and_nothing_can_be_learned(tiny_model, token_ids, kind):
    model = tiny_model(router_type=kind)
    out = model(token_ids(2, 7))
    for layer, expert_ids in enumerate(out.routing.expert_ids):
        gates = torch.zeros(2, 7, 5).scatter(-1, expert_ids, 0.5)
        assert torch.equal(out.routing.gate_probs[layer], gates)
        assert torch.equal(out.routing.router_logits[layer].softmax(-1), gates)
        assert torch.equal(out.routing.expert_weights[layer], torch.full((2, 7, 2), 0.5))
        assert not out.routing.gate_probs[layer].requires_grad
    assert not [name for name, _ in model.named_parameters() if "router" in name]


def test_without_token_ids_there_is_nothing_to_hash(tiny_model):
    with pytest.raises(SettingError) as caught:
        tiny_model(router_type="hash")(inputs_embeds=torch.zeros(1, 3, 12))
    assert str(caught.value) == (
        "input_ids must be given to a model that chooses experts by token, not inputs_embeds, got None; "
        "its router is 'hash'"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"router_span": -1}, "model.router_span must be >= 0, got -1; 0 is the whole document"),
        (
            {"router_type": "hash", "router_span": 4},
            "model.router_span must be left out with model.router_type 'hash', got 4; it is for trajectory",
        ),
        (
            {"router_input": "attended"},
            "model.router_input must be 'hidden' with model.router_type 'trajectory', which reads token ids alone, "
            "got 'attended'",
        ),
    ],
)
def test_a_broken_setting_is_one_line(settings, message):
    with pytest.raises(SettingError) as caught:
        StickyMoEConfig(**{"router_type": "trajectory", **settings})
    assert str(caught.value) == message
