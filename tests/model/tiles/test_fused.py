"""The projection on the matrix units against double precision on the same rounded inputs."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from stickymoe.model import linear_cross_entropy as module
from stickymoe.model.linear_cross_entropy import IGNORED, linear_cross_entropy
from stickymoe.model.tiles.fused import can_fuse, fused_cross_entropy
from stickymoe.model.tiles.support import has_tiles

pytestmark = pytest.mark.skipif(not has_tiles(), reason="needs a processor with AMX")


def draw(tokens=70, vocab=300, width=64, spread=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, width, generator=generator) * spread
    weight = torch.randn(vocab, width, generator=generator)
    targets = torch.randint(0, vocab, (tokens,), generator=generator)
    return hidden, weight, targets, torch.rand(tokens, generator=generator) / tokens


def exact(hidden, weight, targets, scale):
    hidden, weight = (tensor.detach().bfloat16().double().requires_grad_() for tensor in (hidden, weight))
    losses = cross_entropy(hidden @ weight.T, targets, reduction="none")
    return losses.detach(), *torch.autograd.grad(losses.dot(scale.double()), (hidden, weight))


def distance(got, wanted):
    return float((got - wanted).norm() / wanted.norm())


def assert_close_to_exact(inputs):
    got, wanted = fused_cross_entropy(*inputs), exact(*inputs)
    torch.testing.assert_close(got[0].double(), wanted[0], rtol=1e-5, atol=1e-5)
    for one, other, given in zip(got[1:], wanted[1:], inputs[:2], strict=True):
        assert one.shape == given.shape
        # a bfloat16 is at most 2**-8 wrong; the errors of many do not add up
        assert (one - other).norm() <= 2**-8 * other.norm() + 1e-6 * given.norm()


@pytest.mark.parametrize("width", [32, 96, 128])
@pytest.mark.parametrize("vocab", [1, 5, 127, 128, 129, 700])
@pytest.mark.parametrize("tokens", [1, 31, 33, 129])
def test_losses_and_gradients_are_those_of_double_precision(tokens, vocab, width):
    assert_close_to_exact(draw(tokens, vocab, width))


@pytest.mark.parametrize("spread", [1e-30, 1e-3, 10, 1e3])
def test_the_size_of_the_logits_does_not_matter(spread):
    assert_close_to_exact(draw(spread=spread))


@pytest.mark.parametrize("direction", [1, -1])
def test_logits_that_rise_or_fall_along_the_vocabulary_are_summed_as_exactly(direction):
    hidden, weight, targets, scale = draw(vocab=1000)
    hidden[:] = hidden.abs()
    weight += direction * torch.arange(1000)[:, None] / 100
    assert_close_to_exact((hidden, weight, targets, scale))


@pytest.mark.parametrize("size", [1e5, 1e15, 1e30])
def test_logits_near_the_largest_float_give_finite_losses_and_gradients(size):
    hidden = torch.zeros(2, 32)
    hidden[:, 0] = torch.tensor([1.0, -1.0])
    weight = torch.zeros(200, 32)
    weight[0, 0], weight[199, 0] = size, -size
    losses, grad_hidden, grad_weight = fused_cross_entropy(hidden, weight, torch.tensor([0, 0]), torch.ones(2))
    sure = weight.bfloat16().float()
    torch.testing.assert_close(losses, torch.tensor([0.0, 2 * float(sure[0, 0])]))
    torch.testing.assert_close(grad_hidden, torch.stack([torch.zeros(32), sure[199] - sure[0]]))
    torch.testing.assert_close(grad_weight[[0, 199], 0], torch.tensor([1.0, -1.0]))
    assert grad_weight.isfinite().all()


def test_a_loss_is_never_below_zero():
    hidden, weight, _, scale = draw(tokens=500, vocab=50, spread=20.0)
    targets = (hidden.bfloat16().float() @ weight.bfloat16().float().T).argmax(dim=1)
    assert (fused_cross_entropy(hidden, weight, targets, scale)[0] >= 0).all()


def test_a_nan_stays_with_its_token_and_reaches_every_word():
    hidden, weight, targets, scale = draw()
    hidden[3, 5] = torch.nan
    losses, grad_hidden, grad_weight = fused_cross_entropy(hidden, weight, targets, scale)
    others = torch.arange(len(hidden)) != 3
    assert losses[3].isnan()
    assert grad_hidden[3].isnan().all()
    assert grad_weight.isnan().all()
    assert losses[others].isfinite().all()
    assert grad_hidden[others].isfinite().all()


@pytest.mark.parametrize("word", [0, 131])
def test_a_nan_in_the_weight_reaches_every_token(word):
    hidden, weight, targets, scale = draw()
    weight[word, 7] = -torch.nan
    losses, grad_hidden, _ = fused_cross_entropy(hidden, weight, targets, scale)
    assert losses.isnan().all()
    assert grad_hidden.isnan().all()


def test_a_word_of_logit_minus_infinity_has_no_part_in_the_loss():
    hidden, weight, targets, scale = draw()
    hidden, weight = hidden.abs(), weight.clone()
    targets %= 200
    weight[250] = -torch.inf
    without = fused_cross_entropy(hidden, weight[:250].contiguous(), targets, scale)[0]
    whole = torch.cat([weight[:251], weight[:0]])
    torch.testing.assert_close(fused_cross_entropy(hidden, whole, targets, scale)[0], without)


def test_infinite_logits_give_nan_as_a_softmax_does():
    hidden, weight, targets, scale = draw()
    hidden = hidden.abs()
    weight[17] = torch.inf
    assert fused_cross_entropy(hidden, weight, targets, scale)[0].isnan().all()


def test_strides_and_dtypes_of_the_inputs_do_not_matter():
    hidden, weight, targets, scale = draw()
    wanted = fused_cross_entropy(hidden, weight, targets, scale[:1].expand(70).clone())
    wide = torch.stack([weight, weight], dim=1)
    assert torch.equal(fused_cross_entropy(hidden, weight, targets.int(), scale[:1].expand(70))[0], wanted[0])
    got = fused_cross_entropy(
        hidden.t().contiguous().t(), wide[:, 0], torch.stack([targets, targets], dim=1)[:, 1], scale[:1].expand(70)
    )
    rounded = fused_cross_entropy(hidden.bfloat16(), weight.bfloat16(), targets, scale[:1].expand(70))
    for one, other, third in zip(got, wanted, rounded, strict=True):
        assert torch.equal(one, other)
        torch.testing.assert_close(third, other, rtol=2**-7, atol=2**-7)


def test_memory_grows_with_tokens_plus_words_never_with_their_product(made_tensors):
    inputs = draw(tokens=2048, vocab=4096, width=32)
    with made_tensors() as made:
        fused_cross_entropy(*inputs)
    assert 4096 * 32 * 4 < sum(made.bytes) < 2048 * 4096 * 2 / 4


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_the_number_of_threads_changes_no_bit(threads):
    inputs = draw(tokens=1000)
    threads(1)
    wanted = fused_cross_entropy(*inputs)
    for number in (2, 3, 7):
        threads(number)
        for _ in range(5):
            assert all(torch.equal(*pair) for pair in zip(fused_cross_entropy(*inputs), wanted, strict=True))


def test_torchs_own_use_of_the_tiles_goes_on_undisturbed():
    left, right = torch.randn(200, 70).bfloat16(), torch.randn(70, 90).bfloat16()
    wanted = left @ right
    for _ in range(3):
        fused_cross_entropy(*draw())
        assert torch.equal(left @ right, wanted)


def run(inputs, monkeypatch, fuse):
    monkeypatch.setattr(module, "can_fuse", can_fuse if fuse else lambda *_: False)
    hidden, weight = (tensor.clone().requires_grad_() for tensor in inputs[:2])
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_cross_entropy(hidden, weight, inputs[2])
    return loss.detach(), *torch.autograd.grad(2 * loss, (hidden, weight))


def test_under_autocast_the_loss_takes_this_way_and_is_no_less_exact_than_in_chunks(monkeypatch):
    hidden, weight, targets, _ = draw(tokens=300, vocab=500)
    targets[::3] = IGNORED
    counted = (targets != IGNORED).float()
    losses, *gradients = exact(hidden, weight, targets.clamp(min=0), counted / counted.sum())
    wanted = losses.dot((counted / counted.sum()).double()), *(2 * gradient for gradient in gradients)
    fused = run((hidden, weight, targets), monkeypatch, fuse=True)
    chunked = run((hidden, weight, targets), monkeypatch, fuse=False)
    for one, other, right in zip(fused, chunked, wanted, strict=True):
        assert one.dtype == torch.float32
        assert not torch.equal(one, other)
        assert distance(one, right) <= distance(other, right)
    assert (fused[1][targets == IGNORED] == 0).all()


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_side_gets_no_gradient(frozen):
    inputs = draw()
    free = inputs[1 - frozen].requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_cross_entropy(*inputs[:3])
    loss.backward()
    assert inputs[frozen].grad is None
    assert distance(free.grad, exact(*inputs[:3], torch.full((70,), 1 / 70))[2 - frozen]) < 2**-8


def test_going_backward_twice_adds_the_same_gradient_twice():
    hidden, weight, targets, _ = draw()
    hidden.requires_grad_()
    weight.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_cross_entropy(hidden, weight, targets) + weight.sum()
    loss.backward(retain_graph=True)
    once = hidden.grad.clone(), weight.grad.clone()
    loss.backward()
    assert torch.equal(hidden.grad, 2 * once[0])
    assert torch.equal(weight.grad, 2 * once[1])


def test_what_the_kernel_cannot_take_is_left_to_torch():
    hidden, weight, _, _ = draw()
    assert can_fuse(hidden, weight, torch.bfloat16)
    assert can_fuse(hidden.bfloat16(), weight.bfloat16(), torch.bfloat16)
    assert not can_fuse(hidden, weight, torch.float32)
    assert not can_fuse(hidden.double(), weight, torch.bfloat16)
    assert not can_fuse(hidden[:0], weight, torch.bfloat16)
    assert not can_fuse(hidden[:, :40], weight[:, :40], torch.bfloat16)
    assert not can_fuse(hidden.to("meta"), weight.to("meta"), torch.bfloat16)
