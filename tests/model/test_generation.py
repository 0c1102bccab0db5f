"""`generate()`: the cache, left padding and beams change the speed, never the tokens."""

import pytest
import torch
from transformers import DynamicCache

from stickymoe.core.errors import SettingError


@pytest.fixture
def generate(tiny_model):
    model = tiny_model().eval()

    def run(ids, **kwargs):
        torch.manual_seed(4)
        return model.generate(ids, **{"max_new_tokens": 10, "do_sample": False, "pad_token_id": 0, **kwargs})

    return run


@pytest.mark.parametrize(
    "settings",
    [{}, {"do_sample": True, "top_k": 0}, {"num_beams": 3}, {"repetition_penalty": 1.5}],
    ids=["greedy", "sampled", "beams", "penalised"],
)
def test_with_a_cache_the_same_tokens_come_as_without(generate, token_ids, settings):
    ids = token_ids(3, 5)
    cached, recomputed = generate(ids, **settings), generate(ids, use_cache=False, **settings)
    assert cached.shape == (3, 15)
    assert torch.equal(cached, recomputed)
    assert len(set(cached[:, 5:].flatten().tolist())) > 3, "a model that repeats one token would prove nothing"


def test_a_static_cache_gives_the_same_tokens(generate, token_ids):
    ids = token_ids(2, 5)
    assert torch.equal(generate(ids, cache_implementation="static"), generate(ids))


def test_step_by_step_logits_and_routing_equal_those_of_one_pass(tiny_model, token_ids):
    model, ids = tiny_model(torch.float64).eval(), token_ids(2, 9)
    whole = model(ids)
    cache, logits, chosen = None, [], []
    for part in (ids[:, :4], ids[:, 4:5], ids[:, 5:8], ids[:, 8:]):
        out = model(part, cache=cache, use_cache=True)
        cache = out.cache
        logits.append(out.logits)
        chosen.append(out.routing.expert_ids[1])
    torch.testing.assert_close(torch.cat(logits, dim=1), whole.logits, atol=1e-12, rtol=1e-10)
    assert torch.equal(torch.cat(chosen, dim=1), whole.routing.expert_ids[1])


def test_positions_may_be_given_together_with_an_empty_cache(tiny_model, token_ids):
    model, ids = tiny_model().eval(), token_ids(1, 4)
    out = model(ids, position_ids=torch.arange(4)[None], cache=DynamicCache(config=model.config))
    assert out.cache.get_seq_length() == 4
    assert out.routing.document_ids is None
    torch.testing.assert_close(out.logits, model(ids).logits)


@pytest.mark.parametrize("settings", [{}, {"num_beams": 2}, {"use_cache": False}, {"cache_implementation": "static"}])
def test_left_padded_prompts_continue_as_each_alone(generate, token_ids, settings):
    short, long = token_ids(1, 3), token_ids(1, 7, seed=1)
    batch = torch.cat([torch.cat([torch.zeros(1, 4, dtype=torch.long), short], dim=1), long])
    mask = torch.ones_like(batch)
    mask[0, :4] = 0
    together = generate(batch, attention_mask=mask, **settings)
    assert torch.equal(together[0, 7:], generate(short, **settings)[0, 3:])
    assert torch.equal(together[1, 7:], generate(long, **settings)[0, 7:])


def test_packed_documents_are_not_generated_from(generate, token_ids):
    with pytest.raises(SettingError, match="packed documents cannot be continued from a cache"):
        generate(token_ids(1, 4), document_ids=torch.tensor([[0, 0, 1, 1]]))


@pytest.mark.parametrize("use_cache", [True, False])
def test_generation_beyond_the_positions_ends_with_one_line(generate, token_ids, use_cache):
    assert generate(token_ids(1, 20), max_new_tokens=5).shape == (1, 25), "the last token needs no position"
    with pytest.raises(SettingError, match=r"sequence length must be <= max_position_embeddings \(24\), got 25"):
        generate(token_ids(1, 20), max_new_tokens=6, use_cache=use_cache)


def test_scores_and_hidden_states_can_be_had(generate, token_ids):
    out = generate(token_ids(1, 4), return_dict_in_generate=True, output_scores=True, output_hidden_states=True)
    assert len(out.scores) == 10
    assert out.hidden_states[0][0].shape == (1, 4, 12)


def test_in_training_mode_a_cache_still_gives_the_same_tokens(tiny_model, token_ids):
    model, ids = tiny_model().train(), token_ids(1, 4)
    settings = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    trained = model.generate(ids, **settings)
    assert torch.equal(trained, model.eval().generate(ids, **settings))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_same_tokens_come_as_on_the_cpu(tiny_model, token_ids):
    model, ids = tiny_model().eval(), token_ids(2, 5)
    settings = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    on_cpu = model.generate(ids, **settings)
    assert torch.equal(model.cuda().generate(ids.cuda(), **settings).cpu(), on_cpu)
