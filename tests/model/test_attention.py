"""Attention written out against torch's own kernel."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from stickymoe.model.attention import CausalSelfAttention, explicit_attention

CALLER = torch.nn.Identity()


def draw(queries, keys, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shape = {"generator": generator, "dtype": dtype, "requires_grad": True}
    return torch.randn(2, 3, queries, 4, **shape), *(torch.randn(2, 3, keys, 4, **shape) for _ in range(2))


def masks(queries, keys):
    causal = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    some = causal & (torch.rand(2, 1, queries, keys, generator=torch.Generator().manual_seed(1)) < 0.7)
    some[..., 0] = True
    a_head_each = some.repeat(1, 3, 1, 1)
    a_head_each[:, 1] = causal
    return {
        "none": (None, causal),
        "bool": (some, some),
        "bool a head": (a_head_each, a_head_each),
        "float": (torch.zeros(2, 1, queries, keys, dtype=torch.float64).masked_fill(~some, -torch.inf), some),
        "lowest": (torch.zeros(queries, keys, dtype=torch.float64).masked_fill(~causal, -1.7e308), causal),
    }


@pytest.mark.parametrize(("queries", "keys"), [(6, 6), (1, 6), (3, 7), (1, 1)])
@pytest.mark.parametrize("kind", ["none", "bool", "bool a head", "float", "lowest"])
def test_output_and_gradients_equal_torchs_kernel(queries, keys, kind):
    inputs = draw(queries, keys)
    given, meant = masks(queries, keys)[kind]
    ours, _ = explicit_attention(CALLER, *inputs, given)
    theirs = scaled_dot_product_attention(*inputs, attn_mask=meant).transpose(1, 2)
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-10)
    upstream = torch.randn_like(ours)
    for got, wanted in zip(
        torch.autograd.grad(ours, inputs, upstream), torch.autograd.grad(theirs, inputs, upstream), strict=True
    ):
        torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_query_that_may_look_nowhere_stays_finite(dtype):
    inputs = draw(3, 3, torch.float32)
    nowhere = torch.ones(2, 1, 3, 3, dtype=torch.bool).tril()
    nowhere[:, :, 0] = False
    output, _ = explicit_attention(CALLER, *(x.to(dtype) * 30 for x in inputs), nowhere)
    assert output.isfinite().all()
    output.sum().backward()
    assert all(x.grad.isfinite().all() for x in inputs)


def test_dropout_keeps_the_mean():
    query, key, value = draw(1, 8)
    torch.manual_seed(0)
    kept, _ = explicit_attention(CALLER, query, key, torch.ones_like(value), None, dropout=0.0)
    torch.testing.assert_close(kept, torch.ones_like(kept))
    many = torch.stack(
        [explicit_attention(CALLER, query, key, torch.ones_like(value), None, 0.5)[0] for _ in range(400)]
    )
    assert many.std() > 0.1
    torch.testing.assert_close(many.mean(), torch.ones((), dtype=torch.float64), atol=0.05, rtol=0)


def test_training_and_inference_kernels_agree_in_the_layer(tiny_config):
    torch.manual_seed(0)
    layer = CausalSelfAttention(tiny_config(attn_implementation="sdpa"), layer_idx=0)
    hidden = torch.randn(2, 7, 12)
    trained, _ = layer.train()(hidden, None, None)
    with torch.no_grad():
        inferred, _ = layer.eval()(hidden, None, None)
    assert trained.requires_grad
    torch.testing.assert_close(trained, inferred, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_the_attention_implementation_can_be_chosen(tiny_model, token_ids, implementation):
    reference, chosen = tiny_model().eval(), tiny_model(attn_implementation=implementation).eval()
    mask = torch.ones(2, 6, dtype=torch.long)
    mask[1, :3] = 0
    with torch.no_grad():
        logits = [model(token_ids(2, 6), attention_mask=mask).logits for model in (reference, chosen)]
    torch.testing.assert_close(logits[0][0], logits[1][0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(logits[0][1, 3:], logits[1][1, 3:], atol=1e-5, rtol=1e-4)
