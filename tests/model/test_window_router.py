"""Hard-Window and Hysteresis: worked by hand, against a loop over tokens, and what their names promise."""

import pytest
import torch

from stickymoe.core.errors import SettingError
from stickymoe.model import StickyMoEConfig
from stickymoe.model.routers import ROUTERS
from stickymoe.model.stream import TokenStream
from stickymoe.model.window_router import scale_bonus

KINDS = [("hard_window", False), ("hard_window", True), ("hysteresis", False), ("hysteresis", True)]


@pytest.fixture
def route(tiny_config):
    """Route rows of logits: the gate is the identity, so that hidden states are the logits."""

    def run(logits, kind, token_mask=None, document_ids=None, scale=1.0, training=True, **settings):
        experts = logits.shape[-1]
        config = tiny_config(
            router_type=kind, num_experts=experts, hidden_size=experts, num_attention_heads=1, num_hidden_layers=1,
            **settings,
        )  # fmt: skip
        router = ROUTERS[kind](config).to(logits.dtype)
        router.weight.data = torch.eye(experts, dtype=logits.dtype)
        scale_bonus(router, scale)
        router.train(training)
        stream = TokenStream(logits, None, token_mask, document_ids)
        return router(logits, router.contexts(config, stream)[0])

    return run


def naive(logits, window, bonus, recursive, top_k=2, real=None, documents=None):
    """One row, token by token: ids and biased logits of the real tokens, None at padding."""
    remembered, out, document = [], [], None
    for place, row in enumerate(logits):
        if real is not None and not real[place]:
            out.append(None)
            continue
        if documents is not None and documents[place] != document:
            remembered, document = [], documents[place]
        near = {expert for chosen in remembered[-window:] for expert in chosen}
        biased = [float(value) + bonus * (expert in near) for expert, value in enumerate(row)]
        ids = sorted(range(len(row)), key=lambda expert: -biased[expert])[:top_k]
        alone = sorted(range(len(row)), key=lambda expert: -float(row[expert]))[:top_k]
        remembered.append(ids if recursive else alone)
        out.append((ids, biased))
    return out


def test_a_hand_worked_row(route):
    # top-1 of three experts, W = 1, beta = 1. Alone: 0, 1, 1, 2.
    #   t=0  nobody before                                          -> 0
    #   t=1  before: 0. 0.5+1 beats 1.0                             -> 0
    #   t=2  paper: before is 1 (alone), 0.9 + 1 wins               -> 1;  followed: before is 0, 0.2+1 beats 0.9 -> 0
    #   t=3  before: 1 resp. 0; expert 2 with 5.0 beats either      -> 2
    logits = torch.tensor([[[2.0, 1.0, 0.0], [0.5, 1.0, 0.0], [0.2, 0.9, 0.0], [0.0, 0.0, 5.0]]])
    settings = {"router_window": 1, "router_bonus": 1.0, "num_experts_per_tok": 1}
    decision = route(logits, "hysteresis", **settings)
    assert decision.expert_ids.flatten().tolist() == [0, 0, 1, 2]
    followed = route(logits, "hysteresis", router_recursive=True, **settings)
    assert followed.expert_ids.flatten().tolist() == [0, 0, 0, 2]
    torch.testing.assert_close(decision.router_logits[0, 1], torch.tensor([1.5, 1.0, 0.0]))
    torch.testing.assert_close(decision.gate_probs[0, 1], torch.tensor([1.5, 1.0, 0.0]).softmax(0))


@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize("window", [1, 2, 4])
@pytest.mark.parametrize("bonus", [0.0, 0.7, 10.0])
@pytest.mark.parametrize("where", ["plain", "padded left", "padded right", "holes", "packed", "packed and padded"])
def test_it_equals_the_loop_over_tokens(route, recursive, window, bonus, where):
    torch.manual_seed(1)
    logits = torch.randn(3, 11, 5, dtype=torch.float64)
    mask = documents = None
    if where in ("padded left", "padded right", "holes", "packed and padded"):
        mask = torch.ones(3, 11, dtype=torch.bool)
        mask[1, slice(0, 4) if where == "padded left" else slice(8, 11) if where == "padded right" else [2, 3, 7]] = 0
    if "packed" in where:
        documents = torch.tensor([[0] * 4 + [1] * 7, [3] * 8 + [2] * 3, [5] + [6] + [5] * 9])
    settings = {"router_window": window, "router_bonus": bonus, "router_recursive": recursive}
    decision = route(logits, "hysteresis", mask, documents, **settings)
    for row in range(3):
        real = None if mask is None else mask[row]
        ids_of = None if documents is None else documents[row].tolist()
        for place, found in enumerate(naive(logits[row], window, bonus, recursive, real=real, documents=ids_of)):
            if found is not None:
                assert decision.expert_ids[row, place].tolist() == found[0]
                biased = torch.tensor(found[1], dtype=torch.float64)
                torch.testing.assert_close(decision.router_logits[row, place], biased)
    gates = decision.router_logits.softmax(dim=-1)
    torch.testing.assert_close(decision.gate_probs, gates)
    chosen = gates.gather(-1, decision.expert_ids)
    torch.testing.assert_close(decision.expert_weights, chosen / chosen.sum(-1, keepdim=True))


def test_a_window_of_one_with_a_huge_bonus_repeats_the_last_set(route):
    logits = torch.randn(2, 20, 6, generator=torch.Generator().manual_seed(3))
    alone = logits.topk(2, dim=-1).indices.sort(-1).values
    settings = {"router_window": 1, "router_bonus": 1e6}
    paper = route(logits, "hard_window", **settings).expert_ids.sort(-1).values
    assert torch.equal(paper[:, 1:], alone[:, :-1]), "what the token before would have chosen"
    followed = route(logits, "hard_window", router_recursive=True, **settings).expert_ids.sort(-1).values
    assert torch.equal(followed, alone[:, :1].expand_as(followed)), "what served the token before, and so the first"


def test_without_a_bonus_it_is_the_softmax_router(route):
    logits = torch.randn(2, 9, 6, generator=torch.Generator().manual_seed(3))
    plain = ROUTERS["softmax"](StickyMoEConfig(hidden_size=6, num_attention_heads=1, num_experts=6))
    plain.weight.data = torch.eye(6)
    for kind, recursive in KINDS:
        decision = route(logits, kind, router_bonus=0.0, router_recursive=recursive)
        for found, expected in zip(decision[:4], plain(logits)[:4], strict=True):
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("recursive", [False, True])
def test_in_training_the_bonus_is_scaled_and_in_evaluation_whole(route, recursive):
    logits = torch.randn(2, 9, 6, generator=torch.Generator().manual_seed(3))
    settings = {"router_window": 2, "router_recursive": recursive}
    for training, bonus in ((True, 0.5), (False, 2.0)):
        found = route(logits, "hysteresis", scale=0.25, training=training, router_bonus=2.0, **settings)
        expected = route(logits, "hysteresis", router_bonus=bonus, **settings)
        assert torch.equal(found.expert_ids, expected.expert_ids)
        torch.testing.assert_close(found.router_logits, expected.router_logits)


@pytest.mark.parametrize("recursive", [False, True])
def test_the_gradient_is_that_of_logits_with_a_constant_bonus(route, recursive):
    logits = torch.randn(2, 9, 5, dtype=torch.float64, requires_grad=True)
    decision = route(logits, "hysteresis", router_recursive=recursive)
    pull = torch.randn(2, 9, 2, dtype=torch.float64)
    (found,) = torch.autograd.grad((decision.expert_weights * pull).sum() + decision.gate_probs.square().sum(), logits)
    constant = (decision.router_logits - logits).detach()
    gates = (logits + constant).softmax(-1)
    chosen = gates.gather(-1, decision.expert_ids)
    value = (chosen / chosen.sum(-1, keepdim=True) * pull).sum() + gates.square().sum()
    torch.testing.assert_close(found, torch.autograd.grad(value, logits)[0])


@pytest.mark.parametrize(("kind", "window", "bonus"), [("hard_window", 2, 10.0), ("hysteresis", 1, 1.0)])
def test_settings_left_out_are_the_routers_own_and_are_saved(tmp_path, kind, window, bonus):
    config = StickyMoEConfig(router_type=kind)
    assert (config.router_window, config.router_bonus, config.router_recursive) == (window, bonus, False)
    config.save_pretrained(tmp_path)
    assert StickyMoEConfig.from_pretrained(tmp_path).router_bonus == bonus
    assert StickyMoEConfig(router_type=kind, router_bonus=3).router_bonus == 3.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"router_window": 0}, "model.router_window must be >= 1, got 0"),
        (
            {"router_window": 257},
            "model.router_window must be <= model.max_position_embeddings (256), got 257; no sequence is longer",
        ),
        ({"router_bonus": -1.0}, "model.router_bonus must be a finite number >= 0, got -1.0"),
        ({"router_bonus": float("inf")}, "model.router_bonus must be a finite number >= 0, got inf"),
        ({"router_bonus": float("nan")}, "model.router_bonus must be a finite number >= 0, got nan"),
        ({"router_window": 1.5}, "model.router_window must be of type int | None, got 1.5"),
        (
            {"router_type": "softmax", "router_window": 4},
            "model.router_window must be left out with model.router_type 'softmax', got 4; "
            "it is for hard_window, hysteresis",
        ),
    ],
)
def test_a_broken_setting_is_one_line(settings, message):
    with pytest.raises(SettingError) as caught:
        StickyMoEConfig(**{"router_type": "hysteresis", **settings})
    assert str(caught.value) == message
