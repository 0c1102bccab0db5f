"""A router that remembers is exact wherever a cache may go: step by step, padded, with beams, cropped, selected."""

import copy

import pytest
import torch
from transformers import DynamicCache, StaticCache

from stickymoe.core.errors import SettingError
from stickymoe.model.memory import RoutingMemory

# Small bonuses let old and new experts win by turns, so a forgotten set would show.
STATEFUL = {
    "hard_window": {"router_type": "hard_window", "router_window": 3},
    "hysteresis, followed": {"router_type": "hysteresis", "router_window": 4, "router_recursive": True},
    "trajectory": {"router_type": "trajectory", "router_span": 3},
}
OTHERS = {
    "hard_window, followed": {"router_type": "hard_window", "router_window": 2, "router_recursive": True},
    "hysteresis": {"router_type": "hysteresis", "router_window": 1, "router_bonus": 0.7},
    "trajectory of the document": {"router_type": "trajectory"},
    "trajectory of the token": {"router_type": "trajectory", "router_span": 1},
    "hash": {"router_type": "hash"},
    "oracle": {"router_input": "attended"},
    "shared": {"experts_shared": "all"},
    "together": {"experts_shared": "all", "router_input": "attended", "router_type": "hysteresis"},
}
EVERY = STATEFUL | OTHERS
stateful = pytest.mark.parametrize("settings", STATEFUL.values(), ids=STATEFUL)
every = pytest.mark.parametrize("settings", EVERY.values(), ids=EVERY)


@pytest.fixture
def build(tiny_model):
    return lambda settings: tiny_model(torch.float64, **settings).eval()


def generate(model, ids, **settings):
    mask = settings.pop("attention_mask", torch.ones_like(ids))
    settings = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "repetition_penalty": 2.0, **settings}
    return model.generate(ids, attention_mask=mask, **settings)


def chosen(out):
    return torch.stack(out.routing.expert_ids)


@every
def test_step_by_step_it_routes_and_scores_as_in_one_pass(build, token_ids, settings):
    model, ids = build(settings), token_ids(3, 14)
    whole = model(ids)
    cache, logits, routed = None, [], []
    for part in (ids[:, :4], ids[:, 4:5], ids[:, 5:6], ids[:, 6:11], ids[:, 11:]):
        out = model(part, cache=cache, use_cache=True)
        cache = out.cache
        logits.append(out.logits)
        routed.append(chosen(out))
    torch.testing.assert_close(torch.cat(logits, dim=1), whole.logits, atol=1e-12, rtol=1e-10)
    assert torch.equal(torch.cat(routed, dim=2), chosen(whole))


@stateful
def test_the_test_above_would_notice_a_router_without_memory(build, token_ids, settings):
    model, ids = build(settings), token_ids(3, 14)
    out = model(ids[:, :10], use_cache=True)
    out.cache.layers[-1].facts.fill_(-1)
    amnesic = model(ids[:, 10:], cache=out.cache)
    assert not torch.equal(chosen(amnesic), chosen(model(ids))[:, :, 10:])


@stateful
@pytest.mark.parametrize(
    "mode",
    [
        {},
        {"do_sample": True, "top_k": 0},
        {"num_beams": 3, "num_return_sequences": 2},
        {"cache_implementation": "static"},
        {"prefill_chunk_size": 3},
    ],
    ids=["greedy", "sampled", "beams", "static", "chunked"],
)
def test_generated_with_a_cache_are_the_tokens_generated_without(build, token_ids, settings, mode):
    model, ids = build(settings), token_ids(3, 5)
    torch.manual_seed(2)
    cached = generate(model, ids, **mode)
    torch.manual_seed(2)
    plain = {name: value for name, value in mode.items() if name not in ("cache_implementation", "prefill_chunk_size")}
    assert torch.equal(cached, generate(model, ids, use_cache=False, **plain))
    assert len(set(cached[:, 5:].flatten().tolist())) > 3, "a model that repeats one token would prove nothing"


@every
def test_a_padded_batch_generates_with_a_cache_what_each_row_does_without(build, token_ids, settings):
    model, short, long = build(settings), token_ids(1, 3), token_ids(1, 8, seed=1)
    batch = torch.cat([torch.cat([torch.zeros(1, 5, dtype=torch.long), short], dim=1), long])
    mask = (torch.arange(8) >= torch.tensor([[5], [0]])).long()
    together = generate(model, batch, attention_mask=mask)
    assert torch.equal(together[:1, 8:], generate(model, short, use_cache=False)[:, 3:])
    assert torch.equal(together[1:, 8:], generate(model, long, use_cache=False)[:, 8:])


@stateful
def test_drafts_that_are_taken_back_leave_no_trace(build, token_ids, settings):
    model, ids = build(settings), token_ids(1, 6).repeat(1, 2)
    drafted = generate(model, ids, prompt_lookup_num_tokens=3)
    assert torch.equal(drafted, generate(model, ids, use_cache=False))


@stateful
def test_beams_of_left_padded_prompts_in_a_static_cache_continue_as_each_alone(build, token_ids, settings):
    model, short, long = build(settings), token_ids(1, 3), token_ids(1, 8, seed=1)
    batch = torch.cat([torch.cat([torch.zeros(1, 5, dtype=torch.long), short], dim=1), long])
    mask = (torch.arange(8) >= torch.tensor([[5], [0]])).long()
    together = generate(model, batch, attention_mask=mask, cache_implementation="static", num_beams=2)
    assert torch.equal(together[:1, 8:], generate(model, short, num_beams=2)[:, 3:])
    assert torch.equal(together[1:, 8:], generate(model, long, num_beams=2)[:, 8:])


@stateful
def test_right_padding_before_the_next_call_is_not_remembered(build, token_ids, settings):
    model, ids = build(settings), token_ids(1, 9)
    padded = torch.cat([ids[:, :5], torch.zeros(1, 3, dtype=torch.long)], dim=1)
    mask = torch.tensor([[1] * 5 + [0] * 3])
    cache = model(padded, attention_mask=mask, use_cache=True).cache
    mask = torch.cat([mask, torch.ones(1, 4, dtype=torch.long)], dim=1)
    out = model(ids[:, 5:], attention_mask=mask, cache=cache)
    whole = model(ids)
    assert torch.equal(chosen(out), chosen(whole)[:, :, 5:])
    torch.testing.assert_close(out.logits, whole.logits[:, 5:], atol=1e-12, rtol=1e-10)


@every
def test_packed_documents_route_as_each_alone(build, token_ids, settings):
    model, first, second = build(settings), token_ids(1, 5), token_ids(1, 7, seed=1)
    documents = torch.tensor([[0] * 5 + [1] * 7])
    packed = chosen(model(torch.cat([first, second], dim=1), document_ids=documents))
    assert torch.equal(packed, torch.cat([chosen(model(first)), chosen(model(second))], dim=2))
    positions = torch.cat([torch.arange(5), torch.arange(7)])[None]
    by_position = model(torch.cat([first, second], dim=1), position_ids=positions, use_cache=False)
    assert torch.equal(chosen(by_position), packed)


@stateful
@torch.no_grad()
def test_the_memory_follows_every_change_of_the_cache(build, token_ids, settings):
    model, ids, more = build(settings), token_ids(3, 6), token_ids(3, 3, seed=5)
    cache = model(ids, use_cache=True).cache
    branch = copy.deepcopy(cache)
    branch.crop(-2)
    branch.batch_select_indices(torch.tensor([2, 0]))
    branch.batch_repeat_interleave(2)
    branch.reorder_cache(torch.tensor([3, 1, 0]))
    rows = [0, 2, 2]  # of [2, 2, 0, 0]
    expected = chosen(model(torch.cat([ids[rows, :4], more], dim=1)))[:, :, 4:]
    assert torch.equal(chosen(model(more, cache=branch)), expected)
    cache.reset()
    assert torch.equal(chosen(model(more, cache=cache)), chosen(model(more))), "the copy and the reset are apart"


def test_what_is_kept_is_small(build, token_ids):
    cache = build(OTHERS["hysteresis"])(token_ids(2, 7), use_cache=True).cache
    memory = cache.layers[-1]
    assert isinstance(memory, RoutingMemory)
    assert memory.facts.shape == (2, 7, 2 * 2), "layers x k ids a token"
    assert memory.facts.dtype == torch.int32


@pytest.mark.parametrize("kind", [DynamicCache, StaticCache])
def test_a_cache_of_another_model_is_refused(build, tiny_model, token_ids, kind):
    plain = tiny_model(torch.float64).eval()
    size = {"max_cache_len": 16} if kind is StaticCache else {}
    cache = plain(token_ids(1, 4), cache=kind(config=plain.config, **size)).cache
    assert len(cache.layers) == 2, "a router without memory adds nothing to the cache"
    with pytest.raises(SettingError) as caught:
        build(OTHERS["hysteresis"])(token_ids(1, 1), cache=cache)
    assert str(caught.value) == (
        "cache must be filled by this model: its router must know all 4 tokens in it, got 0; start with an empty one"
    )


@every
@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_changes_neither_routing_nor_gradients(tiny_model, token_ids, settings, reentrant):
    ids, found = token_ids(2, 9), []
    for checkpointed in (False, True):
        model = tiny_model(torch.float64, **settings).train()
        if checkpointed:
            model.activation_checkpointing_enable({"use_reentrant": reentrant})
        out = model(ids, labels=ids)
        gates = torch.stack(out.routing.gate_probs)
        (out.loss + (gates[:, :, 1:] - gates[:, :, :-1]).square().mean()).backward()
        found.append((chosen(out), [parameter.grad for parameter in model.parameters()]))
    assert any(grad is not None and grad.any() for grad in found[0][1])
    assert torch.equal(found[0][0], found[1][0])
    for one, other in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@stateful
def test_on_a_gpu_the_same_tokens_come_as_on_the_cpu(build, token_ids, settings):
    model, ids = build(settings), token_ids(2, 5)
    on_cpu = generate(model, ids)
    assert torch.equal(generate(model.cuda(), ids.cuda()).cpu(), on_cpu)
