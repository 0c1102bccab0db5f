"""Laws that every term obeys, through the public functions alone."""

import math
from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from stickymoe.losses import (
    TERMS,
    anchor_loss,
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
from stickymoe.routing import valid_pairs

LOSSES = {
    "consistency": lambda b: consistency_loss(b.gates[0], valid_pairs(b.mask, b.docs)),
    "anchor": lambda b: anchor_loss(b.gates[0], b.window, b.mask, b.docs),
    "free anchor": lambda b: anchor_loss(b.gates[0], b.window, b.mask, b.docs, detach_anchor=False),
    "load_balancing": lambda b: load_balancing_loss(b.gates[0], b.ids[0], b.mask),
    "router_z": lambda b: router_z_loss(b.logits[0], b.mask),
    "cross_layer": lambda b: cross_layer_loss(b.gates, b.mask),
    "reuse": lambda b: reuse_loss(b.gates[0], b.ids[0], valid_pairs(b.mask, b.docs)),
    "smoothness": lambda b: smoothness_loss(b.gates[0], valid_pairs(b.mask, b.docs)),
    "lag": lambda b: lag_loss(b.gates[0], b.mask, b.docs, LAGS),
    "working_set": lambda b: working_set_loss(b.gates[0], b.window, b.mask, b.docs),
    "trust": lambda b: trust_loss(b.gates[0], b.reference[0], b.mask),
}
LAGS = (1, 2, 4)
shapes = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10_000),
        "batch": st.integers(1, 3),
        "seq": st.integers(1, 12),
        "experts": st.integers(2, 6),
        "top_k": st.integers(1, 2),
        "window": st.integers(1, 5),
        "padded": st.booleans(),
        "packed": st.booleans(),
    }
)
PAIRWISE = ("consistency", "reuse", "smoothness", "lag")
every_loss = pytest.mark.parametrize("name", LOSSES)
few = settings(max_examples=20, deadline=None)


def test_every_registered_term_is_under_the_laws():
    assert set(TERMS) <= set(LOSSES)


def value_and_gradient(name, batch):
    batch.logits.grad = batch.gates.grad = None
    loss = LOSSES[name](batch)
    loss.backward()
    source = batch.logits if name == "router_z" else batch.gates
    return loss.detach(), source.grad


@every_loss
@few
@given(shape=shapes)
def test_values_stay_in_their_range_and_gradients_are_finite(make_batch, name, shape):
    batch = make_batch(**shape)
    loss, gradient = value_and_gradient(name, batch)
    largest = {
        "load_balancing": shape["experts"],
        "router_z": math.inf,
        "reuse": -math.log(1e-8),
        "smoothness": math.inf,
        "lag": math.inf,
        "working_set": math.log(shape["experts"]) + 1e-6,
        "trust": math.inf,
    }.get(name, 2)
    assert loss.dtype == torch.float32
    assert -1e-6 <= loss.item() <= largest
    assert gradient.isfinite().all()


@every_loss
@few
@given(shape=shapes)
def test_naming_the_experts_otherwise_changes_nothing(make_batch, name, shape):
    batch = make_batch(**shape)
    order = torch.randperm(shape["experts"])
    renamed = SimpleNamespace(**vars(batch))
    renamed.gates, renamed.logits = batch.gates[..., order], batch.logits[..., order]
    renamed.ids = order.argsort()[batch.ids]
    renamed.reference = batch.reference[..., order]
    torch.testing.assert_close(LOSSES[name](renamed), LOSSES[name](batch), rtol=1e-5, atol=1e-6)


@every_loss
@few
@given(shape=shapes, left=st.integers(0, 3), right=st.integers(0, 3), junk=st.sampled_from([math.nan, math.inf, 1e30]))
def test_padding_changes_neither_value_nor_gradient_whatever_it_holds(make_batch, name, shape, left, right, junk):
    batch = make_batch(**shape)
    real = torch.ones(shape["batch"], shape["seq"], dtype=torch.bool) if batch.mask is None else batch.mask

    def pad(tensor, dim, value):
        size = list(tensor.shape)
        size[dim] = left
        before = torch.full(size, value, dtype=tensor.dtype)
        size[dim] = right
        return torch.cat([before, tensor.detach(), torch.full(size, value, dtype=tensor.dtype)], dim=dim)

    padded = SimpleNamespace(
        gates=torch.where(pad(real, 1, False)[..., None], pad(batch.gates, 2, junk), junk).requires_grad_(),
        logits=torch.where(pad(real, 1, False)[..., None], pad(batch.logits, 2, junk), junk).requires_grad_(),
        reference=torch.where(pad(real, 1, False)[..., None], pad(batch.reference, 2, junk), junk),
        ids=torch.where(pad(real, 1, False)[..., None], pad(batch.ids, 2, 0), -7),
        mask=pad(real, 1, False),
        docs=None if batch.docs is None else pad(batch.docs, 1, int(batch.docs[0, 0])),
        window=batch.window,
    )
    loss, gradient = value_and_gradient(name, batch)
    padded_loss, padded_gradient = value_and_gradient(name, padded)
    torch.testing.assert_close(padded_loss, loss, rtol=1e-5, atol=1e-6)
    inner = padded_gradient[:, :, left : left + shape["seq"]]
    torch.testing.assert_close(inner, gradient, rtol=1e-5, atol=1e-6)
    assert not padded_gradient[:, ~padded.mask].any()


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "load_balancing"])
@few
@given(seed=st.integers(0, 10_000), first=st.integers(1, 7), second=st.integers(1, 7), window=st.integers(1, 5))
def test_two_packed_documents_equal_the_weighted_mean_of_each_alone(make_batch, name, seed, first, second, window):
    one = make_batch(seed=seed, batch=1, seq=first, window=window, padded=False, packed=False)
    two = make_batch(seed=seed + 1, batch=1, seq=second, window=window, padded=False, packed=False)
    weights = [weight_of(name, length) for length in (first, second)]
    values = [LOSSES[name](alone).item() for alone in (one, two)]
    if name == "reuse":  # the mean stands inside its logarithm
        values = [math.exp(-value) for value in values]
    expected = sum(w * v for w, v in zip(weights, values, strict=True)) / max(sum(weights), 1)
    if name == "reuse":
        expected = -math.log(expected) if sum(weights) else 0.0
    for parts in ((one, two), (two, one)):
        packed = SimpleNamespace(
            **{
                key: torch.cat([getattr(p, key) for p in parts], dim=2)
                for key in ("gates", "logits", "ids", "reference")
            },
            docs=torch.cat([torch.full((1, p.gates.shape[2]), n) for n, p in enumerate(parts)], dim=1),
            mask=None,
            window=window,
        )
        assert LOSSES[name](packed).item() == pytest.approx(expected, rel=1e-4, abs=1e-6)


def weight_of(name, length):
    """How many tokens, pairs or lagged pairs a document of so many tokens has."""
    if name == "lag":
        return sum(max(length - lag, 0) for lag in LAGS)
    return length - 1 if name in PAIRWISE else length


@every_loss
def test_nothing_valid_gives_zero_and_no_gradient(make_batch, name):
    batch = make_batch(padded=True)
    batch.mask = torch.zeros_like(batch.mask)
    loss, gradient = value_and_gradient(name, batch)
    assert loss.item() == 0
    assert not gradient.any()
    assert not gradient.isnan().any()


@pytest.mark.parametrize("name", PAIRWISE)
def test_one_token_rows_have_no_pairs_and_give_zero(make_batch, name):
    loss, gradient = value_and_gradient(name, make_batch(seq=1, padded=False, packed=False))
    assert loss.item() == 0
    assert not gradient.any()


@every_loss
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_results_are_float32_and_computed_so_from_any_precision(make_batch, name, dtype):
    batch = make_batch(seed=9)
    low = SimpleNamespace(**vars(batch))
    low.gates = batch.gates.detach().to(dtype).requires_grad_()
    low.logits = batch.logits.detach().to(dtype).requires_grad_()
    exact = SimpleNamespace(**vars(low))
    exact.gates, exact.logits = low.gates.detach().float(), low.logits.detach().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, gradient = value_and_gradient(name, low)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, LOSSES[name](exact), rtol=1e-6, atol=1e-7)
    assert gradient.dtype == dtype
