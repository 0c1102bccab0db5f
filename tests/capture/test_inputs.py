"""Which tokens are real and where documents begin, from every kind of argument that tells."""

import pytest
import torch
from transformers import DynamicCache

from stickymoe.capture import capture_routing
from stickymoe.capture.inputs import PassInputs
from stickymoe.losses import Objective


def inputs(batch=1, seq=6, past=0, **given):
    return PassInputs({"input_ids": torch.zeros(batch, seq, dtype=torch.long), **given}, past)


def borders(found):
    """The places at which a document begins, row by row."""
    return [[t for t in range(1, len(row)) if row[t] != row[t - 1]] for row in found.document_ids.tolist()]


def test_without_arguments_all_tokens_are_real_and_each_row_is_one_document():
    found = inputs(batch=2, seq=3)
    assert found.token_mask is None
    assert found.document_ids is None
    assert found.positions.tolist() == [[0, 1, 2], [0, 1, 2]]


def test_position_ids_that_start_anew_begin_a_document():
    found = inputs(position_ids=torch.tensor([[0, 1, 2, 0, 1, 0]]))
    assert borders(found) == [[3, 5]]
    assert found.positions.tolist() == [[0, 1, 2, 0, 1, 0]]


def test_one_row_of_positions_counts_for_the_whole_batch():
    found = inputs(batch=2, position_ids=torch.tensor([[0, 1, 2, 0, 1, 2]]))
    assert borders(found) == [[3], [3]]


def test_cumulative_lengths_begin_documents_also_in_rows_of_one_flat_count():
    assert borders(inputs(cu_seq_lens_q=torch.tensor([0, 2, 3, 6], dtype=torch.int32))) == [[2, 3]]
    assert borders(inputs(batch=2, seq=3, cu_seq_lens_q=torch.tensor([0, 2, 3, 6]))) == [[2], []]


def test_sequence_numbers_and_document_ids_begin_documents():
    numbers = torch.tensor([[0, 0, 1, 1, 1, 2]])
    assert borders(inputs(seq_idx=numbers)) == borders(inputs(document_ids=numbers + 5)) == [[2, 5]]


def test_a_mask_numbered_by_document_begins_them_and_its_zeros_are_padding():
    found = inputs(attention_mask=torch.tensor([[1, 1, 2, 2, 0, 0]]))
    assert found.token_mask.tolist() == [[True] * 4 + [False] * 2]
    assert borders(found) == [[2]]


@pytest.mark.parametrize("additive", [False, True])
def test_a_block_diagonal_mask_begins_documents(additive):
    documents = torch.tensor([0, 0, 0, 1, 1, 1])
    mask = ((documents[:, None] == documents[None]) & torch.ones(6, 6).tril().bool())[None, None]
    if additive:
        mask = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    found = inputs(attention_mask=mask)
    assert borders(found) == [[3]]
    assert found.token_mask.all()


def test_a_mask_for_each_kind_of_layer_is_read_where_it_sees_everything():
    full = torch.ones(1, 1, 6, 6).tril().bool()
    found = inputs(attention_mask={"sliding_attention": full & False, "full_attention": full})
    assert found.token_mask.all()
    assert borders(found) == [[]]


def test_any_argument_that_tells_of_a_border_is_believed():
    found = inputs(position_ids=torch.tensor([[0, 1, 0, 1, 2, 3]]), cu_seq_lens_q=torch.tensor([0, 4, 6]))
    assert borders(found) == [[2, 4]]


def test_multimodal_positions_begin_a_document_where_time_falls():
    time = torch.tensor([[0, 1, 1, 1, 2, 0]])  # an image holds time still
    assert borders(inputs(position_ids=torch.stack([time, time, time]))) == [[5]]
    plain = torch.tensor([[0, 1, 2, 0, 1, 2]])
    assert borders(inputs(position_ids=torch.stack([plain, time, time, time]))) == [[3]]


def test_behind_a_cache_the_mask_covers_both_and_this_pass_takes_its_columns():
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    found = inputs(batch=2, seq=2, past=3, attention_mask=mask)
    assert found.token_mask.tolist() == [[True, True], [True, True]]
    assert found.positions.tolist() == [[1, 2], [3, 4]]
    found = inputs(batch=2, seq=2, past=1, attention_mask=mask)
    assert found.token_mask.tolist() == [[False, True], [True, True]]


def test_embeddings_give_the_shape_where_there_are_no_tokens():
    found = PassInputs({"inputs_embeds": torch.zeros(2, 5, 8)}, 0)
    assert found.shape == (2, 5)
    assert found.input_ids is None
    assert found.positions.shape == (2, 5)


@pytest.mark.parametrize("way", ["position_ids", "cu_seq_lens_q", "mask"])
def test_packed_documents_lose_the_pairs_across_their_borders(build, token_ids, slow_consistency, gradients_of, way):
    model = build("mixtral")
    ids = token_ids(1, 7)
    told = {
        "position_ids": {"position_ids": torch.tensor([[0, 1, 2, 0, 1, 2, 3]])},
        "cu_seq_lens_q": {"cu_seq_lens_q": torch.tensor([0, 3, 7]), "max_length_q": 4},
        "mask": {"attention_mask": torch.tensor([[1, 1, 1, 2, 2, 2, 2]])},
    }[way]
    with capture_routing(model) as capture:
        model(ids, use_cache=False, **told)
        routing = capture.routing
        found = gradients_of(model, Objective(consistency=1.0)(routing).total)
        recorded = model(ids, use_cache=False, output_router_logits=True, **told).router_logits
    pairs = [(0, t) for t in (1, 2, 4, 5, 6)]
    gates = [logits.softmax(-1).view(1, 7, -1) for logits in recorded]
    torch.testing.assert_close(found, gradients_of(model, slow_consistency(gates, pairs)), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_rows_have_the_gradient_of_their_real_pairs(main_model, token_ids, slow_consistency, gradients_of, side):
    ids = token_ids(2, 6)
    mask = torch.ones(2, 6, dtype=torch.long)
    mask[0, :2] = 0
    if side == "right":
        mask = mask.flip(1)
    real = mask.bool()
    with capture_routing(main_model) as capture:
        main_model(ids, attention_mask=mask)
    routing = capture.routing
    pairs = [(row, t) for row in range(2) for t in range(1, 6) if real[row, t] and real[row, t - 1]]
    expected = gradients_of_retained(main_model, slow_consistency(routing.gate_probs, pairs), gradients_of)
    found = gradients_of(main_model, Objective(consistency=1.0)(routing).total)
    assert len(pairs) == 8
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)
    rows = [ids[row][real[row]] for row in range(2)]
    alone = []
    for row in rows:
        with capture_routing(main_model) as capture:
            main_model(row[None])
        alone.append(capture.routing.gate_probs[0])
    for row in range(2):
        torch.testing.assert_close(routing.gate_probs[0][row, real[row]], alone[row][0], rtol=1e-3, atol=1e-5)


def gradients_of_retained(model, loss, gradients_of):
    """The gradients of `loss`, its graph kept for a second backward pass."""
    model.zero_grad()
    loss.backward(retain_graph=True)
    return {name: tensor.grad.clone() for name, tensor in model.named_parameters() if tensor.grad is not None}


def test_generation_tells_prompt_and_steps_apart(main_model, token_ids):
    with capture_routing(main_model, keep=None) as capture:
        main_model.generate(
            token_ids(2, 4), attention_mask=torch.tensor([[0, 1, 1, 1], [1] * 4]), max_new_tokens=4, do_sample=False,
            pad_token_id=0, eos_token_id=None,
        )  # fmt: skip
    assert [done.phase for done in capture.passes] == ["prefill", "decode", "decode", "decode"]
    assert [done.inputs.past for done in capture.passes] == [0, 4, 5, 6]
    assert [done.inputs.shape for done in capture.passes] == [(2, 4)] + [(2, 1)] * 3
    assert capture.passes[0].routing.token_mask.tolist() == [[False, True, True, True], [True] * 4]
    assert [done.inputs.positions[:, -1].tolist() for done in capture.passes] == [[2, 3], [3, 4], [4, 5], [5, 6]]


def test_generated_tokens_route_as_in_one_pass_over_the_result(main_model, token_ids):
    prompt = token_ids(2, 4)
    with torch.no_grad(), capture_routing(main_model, keep=None) as capture:
        whole = main_model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=4, do_sample=False, pad_token_id=0,
            eos_token_id=None,
        )  # fmt: skip
        generated = capture.take()
        main_model(whole[:, :-1])
    expected = capture.routing
    for layer in range(expected.num_layers):
        found = torch.cat([done.routing.gate_probs[layer] for done in generated], dim=1)
        torch.testing.assert_close(found, expected.gate_probs[layer], rtol=1e-3, atol=1e-5)


def test_beams_are_rows_of_their_own(build, token_ids):
    model = build("mixtral")
    prompt = token_ids(2, 4)
    with capture_routing(model, keep=None) as capture:
        model.generate(
            prompt, attention_mask=torch.ones_like(prompt), num_beams=3, max_new_tokens=3, do_sample=False,
            pad_token_id=0, eos_token_id=None,
        )  # fmt: skip
    assert {done.routing.gate_probs[0].shape[0] for done in capture.passes} == {6}
    assert [done.phase for done in capture.passes][1:] == ["decode", "decode"]


def test_a_prompt_read_in_chunks_is_prefill_to_its_last_token(build, token_ids):
    model = build("mixtral")
    prompt = token_ids(1, 7)
    settings = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    with torch.no_grad(), capture_routing(model, keep=None, prompt_tokens=7) as capture:
        model.generate(prompt, attention_mask=torch.ones_like(prompt), prefill_chunk_size=3,
                       cache=DynamicCache(config=model.config), **settings)  # fmt: skip
        chunks = capture.take()
        model(prompt)
    assert [(done.inputs.shape[1], done.phase) for done in chunks] == [
        (3, "prefill"), (3, "prefill"), (1, "prefill"), (1, "decode"), (1, "decode"),
    ]  # fmt: skip
    found = torch.cat([done.routing.gate_probs[2] for done in chunks[:3]], dim=1)
    torch.testing.assert_close(found, capture.routing.gate_probs[2], rtol=1e-3, atol=1e-5)


def test_a_static_cache_is_told_apart_as_well(build, token_ids):
    model = build("mixtral")
    prompt = token_ids(2, 4)
    with capture_routing(model, keep=None) as capture:
        model.generate(
            prompt, attention_mask=torch.tensor([[0, 1, 1, 1], [1] * 4]), max_new_tokens=3, do_sample=False,
            pad_token_id=0, eos_token_id=None, cache_implementation="static",
        )  # fmt: skip
    assert [done.inputs.past for done in capture.passes] == [0, 4, 5]
    assert [done.phase for done in capture.passes] == ["prefill", "decode", "decode"]
    assert capture.passes[0].routing.token_mask.tolist() == [[False, True, True, True], [True] * 4]
    assert capture.passes[1].routing.token_mask.all()
