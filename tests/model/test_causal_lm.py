"""The whole model against its loop-by-loop double, and what padding, packing and precision may change: nothing."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from stickymoe.losses import Objective
from stickymoe.model import StickyMoEForCausalLM
from stickymoe.model.linear_cross_entropy import IGNORED

EXACT = {"atol": 1e-10, "rtol": 1e-8}


@pytest.mark.parametrize(("num_experts", "top_k"), [(5, 2), (4, 4), (1, 1), (3, 1)])
@pytest.mark.parametrize("norm_topk_prob", [True, False])
def test_loss_routing_and_every_gradient_equal_the_naive_model(
    tiny_model, token_ids, naive_logits, num_experts, top_k, norm_topk_prob
):
    model = tiny_model(
        torch.float64, num_experts=num_experts, num_experts_per_tok=top_k, norm_topk_prob=norm_topk_prob
    ).train()
    ids = token_ids(2, 6)
    out = model(ids, labels=ids)
    slow = [naive_logits(model, row) for row in ids]
    loss = cross_entropy(torch.cat([logits[:-1] for logits, _ in slow]), ids[:, 1:].flatten())
    torch.testing.assert_close(out.loss, loss, **EXACT)
    for row, (_, chosen) in enumerate(slow):
        for layer, expert_ids in enumerate(chosen):
            assert torch.equal(out.routing.expert_ids[layer][row], expert_ids)
    parameters = dict(model.named_parameters())
    got = torch.autograd.grad(out.loss, list(parameters.values()))
    wanted = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    for name, one, other in zip(parameters, got, wanted, strict=True):
        assert other is not None, f"the naive model does not use {name}"
        torch.testing.assert_close(one, other, **EXACT, msg=lambda m, name=name: f"{name}: {m}")


def test_logits_equal_the_naive_models_in_float32_without_gradients(tiny_model, token_ids, naive_logits):
    model = tiny_model().eval()
    ids = token_ids(1, 8)
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits[0], naive_logits(model, ids[0])[0], atol=1e-5, rtol=1e-4)


def test_routing_has_one_entry_a_layer_shaped_like_the_batch(tiny_model, token_ids):
    routing = tiny_model()(token_ids(2, 7)).routing
    assert (routing.num_layers, routing.num_experts, routing.top_k) == (2, 5, 2)
    assert {tuple(gates.shape) for gates in routing.gate_probs} == {(2, 7, 5)}
    assert routing.token_mask is None
    assert routing.document_ids is None


# What a loss is


def test_labels_are_shifted_and_shift_labels_are_not(tiny_model, token_ids):
    model, ids = tiny_model().eval(), token_ids(2, 6)
    logits = model(ids).logits
    by_hand = cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    torch.testing.assert_close(model(ids, labels=ids).loss, by_hand)
    aligned = token_ids(2, 6, seed=1)
    by_hand = cross_entropy(logits.flatten(0, 1), aligned.flatten())
    torch.testing.assert_close(model(ids, shift_labels=aligned).loss, by_hand)


def test_logits_come_with_a_loss_only_if_asked_for(tiny_model, token_ids):
    model, ids = tiny_model().eval(), token_ids(1, 5)
    assert model(ids, labels=ids).logits is None
    assert torch.equal(model(ids, labels=ids, return_logits=True).logits, model(ids).logits)
    assert model(ids, return_logits=False).logits is None
    assert torch.equal(model(ids, logits_to_keep=2).logits, model(ids).logits[:, -2:])


def test_num_items_in_batch_divides_the_sum(tiny_model, token_ids):
    model, ids = tiny_model().eval(), token_ids(2, 6)
    mean = model(ids, labels=ids).loss
    torch.testing.assert_close(model(ids, labels=ids, num_items_in_batch=40).loss, mean * 10 / 40)


def test_what_padding_would_predict_is_not_in_the_loss(tiny_model, token_ids):
    model, ids = tiny_model().eval(), token_ids(1, 5)
    alone = model(ids, labels=ids).loss
    padded = torch.cat([token_ids(1, 3, seed=9), ids, token_ids(1, 2, seed=8)], dim=1)
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 0, 0]])
    torch.testing.assert_close(model(padded, attention_mask=mask, labels=padded).loss, alone)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("documents", [True, False])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_an_all_padding_batch_has_loss_zero_and_finite_gradients(
    tiny_model, token_ids, training, documents, implementation
):
    model = tiny_model(attn_implementation=implementation).train(training)
    ids = token_ids(2, 5)
    kwargs = {"document_ids": torch.tensor([[0, 0, 1, 1, 1]] * 2)} if documents else {}
    out = model(ids, attention_mask=torch.zeros(2, 5), labels=ids, return_logits=True, **kwargs)
    assert out.loss == 0
    assert out.logits.isfinite().all()
    (out.loss + Objective(consistency=1.0, anchor=1.0, load_balancing=1.0)(out.routing).total).backward()
    assert all(p.grad is None or p.grad.abs().max() == 0 for p in model.parameters())


def test_a_one_token_sequence(tiny_model, token_ids):
    model, ids = tiny_model(), token_ids(1, 1)
    out = model(ids, labels=ids)
    assert out.loss == 0, "one token predicts nothing"
    out.loss.backward()
    target = token_ids(1, 1, seed=3)
    scored = model(ids, shift_labels=target, return_logits=True)
    torch.testing.assert_close(scored.loss, cross_entropy(scored.logits[0], target[0]))


# Padding and packing


def assert_same_tokens(whole, part, row, places):
    """Compare logits and routing of `places` in `row` of one output with row 0 of another."""
    torch.testing.assert_close(whole.logits[row, places], part.logits[0], **EXACT)
    for layer in range(2):
        torch.testing.assert_close(
            whole.routing.gate_probs[layer][row, places], part.routing.gate_probs[layer][0], **EXACT
        )
        assert torch.equal(whole.routing.expert_ids[layer][row, places], part.routing.expert_ids[layer][0])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_padding_changes_nothing_for_real_tokens(tiny_model, token_ids, side, training):
    model = tiny_model(torch.float64).train(training)
    ids = token_ids(1, 6)
    left, right = {"left": (4, 0), "right": (0, 4), "both": (2, 3)}[side]
    padded = torch.cat([token_ids(1, left, seed=5), ids, token_ids(1, right, seed=6)], dim=1)
    mask = torch.tensor([[0] * left + [1] * 6 + [0] * right])
    other = token_ids(1, padded.shape[1], seed=7)
    batch = model(torch.cat([padded, other]), attention_mask=torch.cat([mask, torch.ones_like(mask)]))
    assert_same_tokens(batch, model(ids), 0, slice(left, left + 6))
    assert_same_tokens(batch, model(other), 1, slice(None))
    assert torch.equal(batch.routing.token_mask[0], mask[0].bool())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("padding", ["none", "left", "right"])
def test_packed_documents_are_as_each_alone(tiny_model, token_ids, training, implementation, padding):
    model = tiny_model(torch.float64, attn_implementation=implementation).train(training)
    first, second = token_ids(1, 4), token_ids(1, 5, seed=1)
    pad = token_ids(1, 3, seed=2)
    parts = {"none": [first, second], "left": [pad, first, second], "right": [first, second, pad]}[padding]
    start = 3 if padding == "left" else 0
    packed = torch.cat(parts, dim=1)
    mask, ids = torch.zeros_like(packed), torch.full_like(packed, 11)
    mask[:, start : start + 9] = 1
    ids[:, start : start + 4] = 11  # as padding: ids at padding mean nothing
    ids[:, start + 4 : start + 9] = 3
    out = model(packed, attention_mask=None if padding == "none" else mask, document_ids=ids)
    assert_same_tokens(out, model(first), 0, slice(start, start + 4))
    assert_same_tokens(out, model(second), 0, slice(start + 4, start + 9))


def test_gradients_of_packed_documents_are_those_of_each_alone(tiny_model, token_ids):
    model = tiny_model(torch.float64).train()
    first, second = token_ids(1, 4), token_ids(1, 4, seed=1)
    labels = torch.cat([first, second], dim=1)
    labels[:, 4] = IGNORED  # the first document does not predict the second
    ids = torch.tensor([[0] * 4 + [1] * 4])
    packed = model(torch.cat([first, second], dim=1), document_ids=ids, labels=labels).loss
    alone = (model(first, labels=first).loss + model(second, labels=second).loss) / 2
    torch.testing.assert_close(packed, alone, **EXACT)
    for got, wanted in zip(
        torch.autograd.grad(packed, list(model.parameters())),
        torch.autograd.grad(alone, list(model.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted, **EXACT)


@pytest.mark.parametrize("training", [True, False])
def test_restarting_positions_alone_keep_documents_apart(tiny_model, token_ids, training):
    model = tiny_model(torch.float64).train(training)
    first, second = token_ids(1, 4), token_ids(1, 5, seed=1)
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    out = model(torch.cat([first, second], dim=1), position_ids=positions)
    assert_same_tokens(out, model(first), 0, slice(0, 4))
    assert_same_tokens(out, model(second), 0, slice(4, 9))
    assert out.routing.document_ids.tolist() == [[0] * 4 + [1] * 5]


def test_the_total_length_may_exceed_the_positions_where_no_document_does(tiny_model, token_ids):
    model = tiny_model().eval()
    out = model(token_ids(1, 40), document_ids=torch.arange(40)[None] // 20)
    assert out.logits.shape[1] == 40


# Precision


def test_bfloat16_autocast_runs_forward_and_backward_near_float32(tiny_model, token_ids):
    model, ids = tiny_model(initializer_range=0.05).train(), token_ids(2, 12)
    exact = model(ids, labels=ids)
    with torch.autocast("cpu", torch.bfloat16):
        out = model(ids, labels=ids)
    assert out.loss.dtype == torch.float32
    assert {gates.dtype for gates in out.routing.gate_probs} == {torch.float32}
    torch.testing.assert_close(out.loss, exact.loss, atol=0.02, rtol=0)
    (out.loss + Objective(consistency=0.1)(out.routing).total).backward()
    assert all(
        p.grad is not None and p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in model.parameters()
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_held_in_low_precision_trains(tiny_model, token_ids, dtype):
    model, ids = tiny_model(dtype).train(), token_ids(2, 12)
    out = model(ids, labels=ids)
    assert {gates.dtype for gates in out.routing.gate_probs} == {torch.float32}
    out.loss.backward()
    assert all(p.grad.dtype == dtype and p.grad.isfinite().all() for p in model.parameters())


def test_dropout_acts_in_training_only(tiny_model, token_ids):
    model, ids = tiny_model(dropout=0.5), token_ids(1, 6)
    assert torch.equal(model.eval()(ids).logits, model(ids).logits)
    assert not torch.equal(model.train()(ids).logits, model(ids).logits)
    assert torch.equal(model.eval()(ids).logits, tiny_model().eval()(ids).logits)


# What users of transformers expect


def test_outputs_can_be_read_by_name_place_and_as_a_tuple(tiny_model, token_ids):
    model, ids = tiny_model().eval(), token_ids(1, 5)
    out = model(input_ids=ids)
    assert out[0] is out.logits
    assert out["logits"] is out.logits
    scored = model(ids, labels=ids, return_logits=True)
    assert scored[:2] == (scored.loss, scored.logits)
    as_tuple = model(ids, labels=ids, return_dict=False)
    assert isinstance(as_tuple, tuple)
    assert torch.equal(as_tuple[0], scored.loss)


def test_hidden_states_of_every_layer_on_request(tiny_model, token_ids):
    model, ids = tiny_model().eval(), token_ids(1, 5)
    out = model(ids, output_hidden_states=True)
    assert len(out.hidden_states) == 3
    assert torch.equal(out.hidden_states[-1], out.last_hidden_state)
    assert torch.equal(
        out.hidden_states[0], model.model.token_embedding(ids) + model.model.position_embedding.weight[:5]
    )
    assert model(ids).hidden_states is None
    torch.testing.assert_close(out.last_hidden_state @ model.model.token_embedding.weight.T, out.logits)


def test_embeddings_may_stand_for_ids(tiny_model, token_ids):
    model, ids = tiny_model().eval(), token_ids(2, 5)
    assert torch.equal(model(inputs_embeds=model.get_input_embeddings()(ids)).logits, model(ids).logits)


def test_embeddings_are_tied_and_can_be_resized(tiny_model, token_ids):
    model = tiny_model().eval()
    assert model.lm_head.weight is model.model.token_embedding.weight
    before = model(token_ids(1, 5)).logits
    model.resize_token_embeddings(41, mean_resizing=False)
    assert model.lm_head.weight is model.model.token_embedding.weight
    after = model(torch.cat([token_ids(1, 5), torch.tensor([[40]])], dim=1)).logits
    torch.testing.assert_close(after[:, :5, :37], before)


def test_the_trainer_may_pass_its_own_loss_arguments():
    assert StickyMoEForCausalLM.accepts_loss_kwargs


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("implementation", ["eager", "grouped_mm"])
def test_loss_and_gradients_on_a_gpu_equal_those_on_the_cpu(tiny_model, token_ids, implementation):
    model, ids = tiny_model(hidden_size=48, expert_intermediate_size=32).train(), token_ids(2, 12)
    loss = model(ids, labels=ids).loss
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    model.cuda().set_experts_implementation(implementation)
    on_gpu = model(ids.cuda(), labels=ids.cuda()).loss
    torch.testing.assert_close(on_gpu.cpu(), loss, atol=1e-4, rtol=1e-4)
    for got, wanted in zip(torch.autograd.grad(on_gpu, list(model.parameters())), gradients, strict=True):
        torch.testing.assert_close(got.cpu(), wanted, atol=1e-3, rtol=1e-3)
