"""The chunked loss against the plain one on full logits: values, gradients, memory."""

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.functional import cross_entropy

from stickymoe.core.errors import SettingError
from stickymoe.model import linear_cross_entropy as module
from stickymoe.model.linear_cross_entropy import IGNORED, linear_cross_entropy, token_cross_entropy

TOKENS, HIDDEN, VOCAB = 23, 6, 40
CLOSE = {torch.float64: {"atol": 1e-12, "rtol": 1e-10}, torch.float32: {"atol": 1e-6, "rtol": 1e-5}}


def draw(tokens=TOKENS, dtype=torch.float64, ignored=0.3):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, HIDDEN, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    weight = torch.randn(VOCAB, HIDDEN, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    targets = torch.randint(0, VOCAB, (tokens,), generator=generator)
    targets[torch.rand(tokens, generator=generator) < ignored] = IGNORED
    return hidden, weight, targets


def plain(hidden, weight, targets, num_items=None):
    summed = cross_entropy(hidden @ weight.T, targets, ignore_index=IGNORED, reduction="sum")
    return summed / (max(int((targets != IGNORED).sum()), 1) if num_items is None else num_items)


@pytest.fixture
def chunks_of(monkeypatch):
    def set_size(tokens):
        monkeypatch.setattr(module, "CHUNK_TOKENS", tokens)

    return set_size


def assert_equal_with_gradients(inputs, scale=1.0, **kwargs):
    hidden, weight, _ = inputs
    ours, theirs = linear_cross_entropy(*inputs, **kwargs), plain(*inputs, **kwargs)
    torch.testing.assert_close(ours, theirs, **CLOSE[hidden.dtype])
    got = torch.autograd.grad(ours * scale, (hidden, weight))
    wanted = torch.autograd.grad(theirs * scale, (hidden, weight))
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, **CLOSE[hidden.dtype])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("chunk", [1, 7, TOKENS - 1, TOKENS, TOKENS + 1, 512])
def test_value_and_gradients_equal_full_logits_whatever_the_chunks(chunks_of, chunk, dtype):
    chunks_of(chunk)
    assert_equal_with_gradients(draw(dtype=dtype))


@pytest.mark.parametrize("num_items", [1, 50, torch.tensor(7), torch.tensor(2.5)])
def test_num_items_replaces_the_number_of_targets(num_items):
    assert_equal_with_gradients(draw(), num_items=num_items)


def test_an_upstream_gradient_scales_both_gradients():
    assert_equal_with_gradients(draw(), scale=-3.0)


def test_gradients_pass_gradcheck(chunks_of):
    chunks_of(4)
    hidden, weight, targets = draw(tokens=9)
    assert gradcheck(lambda h, w: linear_cross_entropy(h, w, targets), (hidden, weight))


def test_going_backward_twice_adds_the_same_gradient_twice():
    hidden, weight, targets = draw()
    loss = linear_cross_entropy(hidden, weight, targets)
    loss.backward(retain_graph=True)
    once = hidden.grad.clone(), weight.grad.clone()
    loss.backward()
    torch.testing.assert_close(hidden.grad, 2 * once[0])
    torch.testing.assert_close(weight.grad, 2 * once[1])


@pytest.mark.parametrize("num_items", [None, 0, torch.tensor(0), 5])
@pytest.mark.parametrize("tokens", [0, 1, TOKENS])
def test_where_nothing_counts_loss_and_gradients_are_zero(num_items, tokens):
    hidden, weight, _ = draw(tokens)
    targets = torch.full((tokens,), IGNORED)
    loss = linear_cross_entropy(hidden, weight, targets, num_items)
    loss.backward()
    assert loss == 0
    assert hidden.grad.abs().sum() == 0
    assert weight.grad.abs().sum() == 0
    with torch.no_grad():
        assert linear_cross_entropy(hidden, weight, targets, num_items) == 0


@pytest.mark.parametrize("frozen", ["hidden", "weight"])
def test_a_frozen_side_gets_no_gradient_and_the_other_the_right_one(frozen):
    hidden, weight, targets = draw()
    (hidden if frozen == "hidden" else weight).requires_grad_(False)
    free = weight if frozen == "hidden" else hidden
    got = torch.autograd.grad(linear_cross_entropy(hidden, weight, targets), free)
    torch.testing.assert_close(got, torch.autograd.grad(plain(hidden, weight, targets), free))


def test_without_gradients_the_value_is_the_same_and_has_no_graph():
    hidden, weight, targets = draw()
    with torch.no_grad():
        loss = linear_cross_entropy(hidden, weight, targets)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, plain(hidden, weight, targets).detach())
    torch.testing.assert_close(linear_cross_entropy(hidden.detach(), weight.detach(), targets), loss)


def test_under_bfloat16_autocast_it_is_as_exact_as_full_logits_and_sums_in_float32():
    hidden, weight, targets = draw(dtype=torch.float32)
    exact = torch.autograd.grad(plain(hidden.double(), weight.double(), targets), (hidden, weight))
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = linear_cross_entropy(hidden, weight, targets), plain(hidden, weight, targets)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, theirs, atol=2e-2, rtol=1e-2)
    for got, other, right in zip(
        torch.autograd.grad(ours, (hidden, weight)), torch.autograd.grad(theirs, (hidden, weight)), exact, strict=True
    ):
        assert got.dtype == torch.float32
        assert (got - right).norm() <= max(1.5 * (other - right).norm(), 0.01 * right.norm())


def test_float16_autocast_computes_in_float32():
    hidden, weight, targets = draw(dtype=torch.float32)
    with torch.autocast("cpu", torch.float16):
        loss = linear_cross_entropy(hidden, weight, targets)
    torch.testing.assert_close(loss, plain(hidden, weight, targets))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_loss_too_large_for_its_probability_is_still_exact(dtype):
    hidden = torch.tensor([[300.0], [1.0], [-500.0]], requires_grad=True)
    weight = torch.tensor([[1.0], [0.0], [-1.0]], requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        loss = linear_cross_entropy(hidden, weight, torch.tensor([2, IGNORED, 0]))
    assert loss.item() == pytest.approx((600 + 1000) / 2, rel=1e-2 if dtype == torch.bfloat16 else 1e-6)
    loss.backward()
    assert hidden.grad[1].abs().sum() == 0
    # rows 0 and 2 are sure of the wrong end: d loss / d hidden = (weight of what is sure - weight of the target) / 2
    torch.testing.assert_close(hidden.grad[[0, 2]], torch.tensor([[(1 - -1) / 2], [(-1 - 1) / 2]]))


def test_a_nan_is_passed_on():
    hidden, weight, targets = draw(ignored=0.0)
    with torch.no_grad():
        hidden[3] = torch.nan
    assert linear_cross_entropy(hidden, weight, targets).isnan()


@pytest.mark.parametrize("chunk", [5, 512])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_loss_of_each_token_equals_full_logits(chunks_of, chunk, dtype):
    chunks_of(chunk)
    hidden, weight, targets = draw(dtype=dtype)
    losses = token_cross_entropy(hidden, weight, targets)
    expected = cross_entropy(hidden @ weight.T, targets, ignore_index=IGNORED, reduction="none")
    assert not losses.requires_grad
    assert (losses[targets == IGNORED] == 0).all()
    torch.testing.assert_close(losses, expected.detach(), **CLOSE[dtype])


def test_the_loss_of_each_token_is_float32_under_autocast_and_empty_without_tokens():
    hidden, weight, targets = draw(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        losses = token_cross_entropy(hidden, weight, targets)
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, token_cross_entropy(hidden, weight, targets), atol=0.1, rtol=0.02)
    assert len(token_cross_entropy(hidden[:0], weight, targets[:0])) == 0


def test_without_tokens_the_loss_and_its_gradient_are_zero():
    hidden, weight, targets = draw()
    loss = linear_cross_entropy(hidden[:0], weight, targets[:0])
    (gradient,) = torch.autograd.grad(loss, weight)
    assert loss == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize("wrong", [-1, VOCAB, -101])
def test_a_target_outside_the_vocabulary_is_refused_in_one_line(wrong):
    hidden, weight, targets = draw()
    targets[4] = wrong
    for function in (linear_cross_entropy, token_cross_entropy):
        with pytest.raises(SettingError, match=rf"labels must be in \[0, {VOCAB}\) or -100, got {wrong};"):
            function(hidden, weight, targets)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("autocast", [True, False])
def test_no_tensor_is_larger_than_a_chunk_of_logits(chunks_of, made_tensors, training, autocast):
    chunks_of(8)
    hidden, weight, targets = draw(tokens=200, dtype=torch.float32)
    with (
        torch.set_grad_enabled(training),
        made_tensors() as made,
        torch.autocast("cpu", torch.bfloat16, enabled=autocast),
    ):
        loss = linear_cross_entropy(hidden, weight, targets)
        if training:
            loss.backward()
    assert 8 * VOCAB <= max(made.elements) <= max(8 * VOCAB, 200 * HIDDEN)
    with made_tensors() as made:
        plain(hidden, weight, targets)
    assert max(made.elements) == 200 * VOCAB, "the plain loss, by the same measure, holds all logits"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_value_and_gradients_equal_full_logits():
    hidden, weight, targets = (x.detach().cuda() for x in draw(dtype=torch.float32))
    assert_equal_with_gradients((hidden.requires_grad_(), weight.requires_grad_(), targets))
