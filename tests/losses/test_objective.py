"""The objective weighs and adds the terms, refuses broken settings, and stays exact over micro-batches."""

import pytest
import torch

from stickymoe.core.errors import SettingError
from stickymoe.losses import (
    TERMS,
    Objective,
    anchor_loss,
    boundary_pair_weights,
    consistency_loss,
    cross_layer_loss,
    lag_loss,
    load_balancing_loss,
    reuse_loss,
    router_z_loss,
    smoothness_loss,
    trust_loss,
    working_set_loss,
)
from stickymoe.routing import Routing

ALL = {
    "consistency": 0.1, "anchor": 1, "load_balancing": 0.01, "router_z": 0.001, "cross_layer": 0.2, "reuse": 0.3,
    "smoothness": 0.05, "lag": 0.02, "working_set": 0.4, "trust": 0.6,
}  # fmt: skip
ADDITIVE = {name: weight for name, weight in ALL.items() if TERMS[name].additive}


def routing_of(batch, rows=slice(None), dtype=None):
    gates = batch.gates if dtype is None else batch.gates.to(dtype)
    return Routing(
        tuple(batch.logits[:, rows]),
        tuple(gates[:, rows]),
        tuple(batch.ids[:, rows]),
        tuple(batch.gates.detach().gather(-1, batch.ids)[:, rows]),
        None if batch.mask is None else batch.mask[rows],
        None if batch.docs is None else batch.docs[rows],
        tuple(batch.reference[:, rows]),
    )


def by_hand(batch, pairs):
    layers = range(batch.gates.shape[0])
    return {
        "consistency": sum(consistency_loss(batch.gates[i], pairs) for i in layers) / len(layers),
        "anchor": sum(anchor_loss(batch.gates[i], 3, batch.mask, batch.docs) for i in layers) / len(layers),
        "load_balancing": sum(load_balancing_loss(batch.gates[i], batch.ids[i], batch.mask) for i in layers)
        / len(layers),
        "router_z": sum(router_z_loss(batch.logits[i], batch.mask) for i in layers) / len(layers),
        "cross_layer": cross_layer_loss(tuple(batch.gates), batch.mask),
        "reuse": sum(reuse_loss(batch.gates[i], batch.ids[i], pairs) for i in layers) / len(layers),
        "smoothness": sum(smoothness_loss(batch.gates[i], pairs) for i in layers) / len(layers),
        "lag": sum(lag_loss(batch.gates[i], batch.mask, batch.docs) for i in layers) / len(layers),
        "working_set": sum(working_set_loss(batch.gates[i], 5, batch.mask, batch.docs) for i in layers) / len(layers),
        "trust": sum(trust_loss(batch.gates[i], batch.reference[i], batch.mask) for i in layers) / len(layers),
    }


@pytest.mark.parametrize("padded", [False, True])
def test_terms_are_the_layer_means_of_the_functions_and_the_total_their_weighted_sum(make_batch, padded):
    batch = make_batch(seed=11, padded=padded)
    routing = routing_of(batch)
    result = Objective(ALL, window=3, working_set_window=5, layers_per_pool=len(batch.gates))(routing)
    expected = by_hand(batch, routing.valid_pairs())
    assert list(result.terms) == list(TERMS)
    for name in ALL:
        torch.testing.assert_close(result.terms[name], expected[name])
    total = sum(ALL[name] * expected[name] for name in ALL)
    torch.testing.assert_close(result.total, total)
    found = torch.autograd.grad(result.total, (batch.gates, batch.logits))
    torch.testing.assert_close(found, torch.autograd.grad(total, (batch.gates, batch.logits)))


def test_keywords_and_a_mapping_are_the_same(make_batch):
    routing = routing_of(make_batch(seed=12))
    as_mapping = Objective({"consistency": 0.1, "anchor": 1.0}, window=2)(routing)
    as_keywords = Objective(consistency=0.1, anchor=1.0, window=2)(routing)
    assert torch.equal(as_mapping.total, as_keywords.total)


def test_terms_of_coefficient_zero_are_not_computed_unless_reported(make_batch):
    routing = routing_of(make_batch(seed=13))
    assert list(Objective(consistency=0.1, anchor=0)(routing).terms) == ["consistency"]
    result = Objective(consistency=0.1, report=("anchor", "consistency", "cross_layer"))(routing)
    assert list(result.terms) == ["consistency", "anchor", "cross_layer"]
    assert not result.terms["anchor"].requires_grad
    torch.testing.assert_close(result.terms["anchor"], Objective(anchor=1)(routing).terms["anchor"])
    torch.testing.assert_close(result.total, 0.1 * result.terms["consistency"])


def test_no_terms_give_a_zero_that_backward_accepts(make_batch):
    batch = make_batch()
    result = Objective()(routing_of(batch, dtype=torch.bfloat16))
    result.total.backward()
    assert (result.total.item(), result.terms, result.total.dtype) == (0, {}, torch.float32)
    assert not batch.gates.grad.any()


def test_warm_up_scales_locality_and_leaves_routing_health_alone(make_batch):
    routing = routing_of(make_batch(seed=14))
    objective = Objective(consistency=0.5, working_set=0.2, load_balancing=0.01, router_z=0.1, trust=3)
    full, half = objective(routing), objective(routing, scale=0.5)
    assert full.terms == half.terms
    expected = 0.25 * full.terms["consistency"] + 0.1 * full.terms["working_set"]
    torch.testing.assert_close(full.total - half.total, expected)


def test_boundary_weights_act_on_pairwise_terms(make_batch):
    batch = make_batch(seed=15)
    routing, input_ids = routing_of(batch), torch.randint(0, 4, (3, 9))
    objective = Objective(
        consistency=1, anchor=1, reuse=1, smoothness=1, window=3, boundary_weight=0.25, boundary_token_ids=[1, 3]
    )
    weights = boundary_pair_weights(input_ids, [1, 3], 0.25) * routing.valid_pairs()
    expected = by_hand(batch, weights)
    for name, value in objective(routing, input_ids).terms.items():
        torch.testing.assert_close(value, expected[name])
    with pytest.raises(SettingError, match=r"^objective.boundary_weight must be used with input_ids"):
        objective(routing)
    Objective(anchor=1, boundary_weight=0.25, boundary_token_ids=[1])(routing)  # no pairwise term, no need of tokens


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"consistancy": 0.1}, r"objective has no term 'consistancy'; did you mean 'consistency'\?"),
        ({"zzz": 0.1}, r"objective has no term 'zzz'; known terms are consistency, .*"),
        ({"anchor": -1}, r"objective.anchor must be a finite number >= 0, got -1; .*"),
        ({"anchor": float("nan")}, r"objective.anchor must be a finite number >= 0, got nan; .*"),
        ({"reuse": float("inf")}, r"objective.reuse must be a finite number >= 0, got inf; .*"),
        ({"coefficients": {"anchor": 1}, "anchor": 1}, r"objective.anchor must be given once, .*"),
        ({"window": 0}, r"objective.window must be a whole number >= 1, got 0; .*"),
        ({"working_set_window": 0}, r"objective.working_set_window must be a whole number >= 1, got 0; .*"),
        ({"lags": []}, r"objective.lags must be different whole numbers >= 1, got \[\]; .*"),
        ({"lags": [1, 0]}, r"objective.lags must be different whole numbers >= 1, got \[1, 0\]; .*"),
        ({"lags": [2, 2]}, r"objective.lags must be different whole numbers >= 1, got \[2, 2\]; .*"),
        ({"lags": [True]}, r"objective.lags must be different whole numbers >= 1, got \[True\]; .*"),
        ({"window": True}, r"objective.window must be a whole number >= 1, got True; .*"),
        ({"report": ["ancor"]}, r"objective.report has no term 'ancor'; did you mean 'anchor'\?"),
        ({"cross_layer": 0.1}, r"objective.cross_layer must be 0 where adjacent layers do not share .* 0.1; .*"),
        ({"layers_per_pool": 0}, r"objective.layers_per_pool must be >= 1, got 0; .*"),
        ({"boundary_weight": 1.5}, r"objective.boundary_weight must be in \[0, 1\], got 1.5; .*"),
        ({"boundary_weight": float("nan")}, r"objective.boundary_weight must be in \[0, 1\], got nan; .*"),
        ({"boundary_weight": 0.5}, r"objective.boundary_token_ids must be given where .*"),
    ],
)
def test_broken_settings_are_refused_in_one_line(settings, message):
    with pytest.raises(SettingError, match=f"^{message}$"):
        Objective(**settings)


def test_the_cross_layer_term_wants_shared_experts_or_insistence():
    assert Objective(cross_layer=0).coefficients == {}
    assert Objective(cross_layer=1, layers_per_pool=2).coefficients == {"cross_layer": 1}
    assert Objective(cross_layer=1, allow_unshared=True).coefficients == {"cross_layer": 1}


def test_only_pairs_of_layers_that_share_their_experts_count_unless_insisted(make_batch):
    batch = make_batch(seed=14, layers=4)
    routing = routing_of(batch)
    blocks = cross_layer_loss(batch.gates[:2], batch.mask) + cross_layer_loss(batch.gates[2:], batch.mask)
    pairs = Objective(cross_layer=1, layers_per_pool=2)(routing).terms["cross_layer"]
    torch.testing.assert_close(pairs, blocks)
    torch.testing.assert_close(cross_layer_loss(batch.gates, batch.mask, layers_per_pool=2), blocks)
    everything = cross_layer_loss(batch.gates, batch.mask)
    for settings in ({"layers_per_pool": 4}, {"allow_unshared": True}):
        torch.testing.assert_close(Objective(cross_layer=1, **settings)(routing).total, everything)
    assert everything > blocks


@pytest.mark.parametrize("boundary_weight", [1.0, 0.5])
def test_micro_batches_with_normalisers_add_up_to_the_whole_batch(make_batch, boundary_weight):
    batch = make_batch(seed=16, batch=5)
    input_ids = torch.randint(0, 4, (5, 9))
    objective = Objective(
        ADDITIVE, window=3, allow_unshared=True, boundary_weight=boundary_weight, boundary_token_ids=[2]
    )
    whole = objective(routing_of(batch), input_ids)
    expected = torch.autograd.grad(whole.total, (batch.gates, batch.logits))
    step = objective.weights(input_ids, batch.mask, batch.docs)
    slices = [slice(0, 1), slice(1, 3), slice(3, 5)]
    by_slice = [objective.weights(input_ids[s], batch.mask[s], batch.docs[s]) for s in slices]
    for name in ADDITIVE:
        torch.testing.assert_close(sum(weights[name] for weights in by_slice), step[name])
    results = [objective(routing_of(batch, s), input_ids[s], normalisers=step) for s in slices]
    for name in ADDITIVE:
        torch.testing.assert_close(sum(result.terms[name] for result in results), whole.terms[name])
    sum(result.total for result in results).backward()
    torch.testing.assert_close((batch.gates.grad, batch.logits.grad), expected)


def test_weights_without_masks_count_every_token_and_pair():
    weights = Objective(consistency=1, anchor=1, load_balancing=1).weights(torch.zeros(3, 5, dtype=torch.int64))
    assert {name: weight.item() for name, weight in weights.items()} == {"consistency": 12, "anchor": 15}


def test_terms_that_are_no_plain_means_are_shared_out_over_micro_batches(make_batch):
    routing = routing_of(make_batch(seed=17))
    objective = Objective(load_balancing=1, reuse=1, consistency=1)
    full, third = objective(routing), objective(routing, share=1 / 3)
    for name in ("load_balancing", "reuse"):
        torch.testing.assert_close(third.terms[name], full.terms[name] / 3)
    assert torch.equal(third.terms["consistency"], full.terms["consistency"])
    with pytest.raises(SettingError, match="must be of terms that are plain means, got 'reuse'"):
        objective(routing, normalisers={"reuse": 3.0})


def test_layers_with_different_numbers_of_experts_are_refused_by_name():
    logits = (torch.rand(1, 2, 3), torch.rand(1, 2, 4))
    ids = tuple(layer.topk(1).indices for layer in logits)
    with pytest.raises(SettingError, match=r"^routing.gate_probs must be of one shape in every layer, got .*"):
        Objective(consistency=1)(_unlike_layers(logits, ids))


def _unlike_layers(logits, ids):
    # built past the shape checks that only tests have: they bind `experts` over all layers
    routing = object.__new__(Routing)
    for name, value in (
        ("router_logits", logits),
        ("gate_probs", logits),
        ("expert_ids", ids),
        ("expert_weights", ids),
    ):
        object.__setattr__(routing, name, value)
    return routing
