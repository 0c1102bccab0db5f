"""Room for more routers: one file, one line."""

import torch

from stickymoe.model import ROUTERS, StickyMoEConfig, StickyMoEForCausalLM
from stickymoe.model.router import Router, RouterDecision


class RoundRobin(Router):
    """Sends token t to expert t modulo N, whatever it is."""

    def __init__(self, config):
        super().__init__()
        self.num_experts = config.num_experts
        self.weight = torch.nn.Parameter(torch.empty(config.num_experts))

    def forward(self, hidden_states):
        batch, seq, _ = hidden_states.shape
        ids = (torch.arange(seq) % self.num_experts).expand(batch, seq)
        gates = torch.nn.functional.one_hot(ids, self.num_experts).float()
        return RouterDecision(gates + self.weight, gates, ids[..., None], torch.ones(batch, seq, 1))


def test_a_router_is_chosen_by_its_name_in_the_registry(monkeypatch, token_ids, tiny_config):
    monkeypatch.setitem(ROUTERS, "round_robin", RoundRobin)
    model = StickyMoEForCausalLM(tiny_config(router_type="round_robin", num_experts_per_tok=1, num_experts=3)).eval()
    routing = model(token_ids(1, 7)).routing
    for layer in range(2):
        assert routing.expert_ids[layer][0, :, 0].tolist() == [0, 1, 2, 0, 1, 2, 0]
    for layer in model.model.layers:
        assert 0 < layer.moe.router.weight.abs().max() < 3, "a new router's parameters are initialised as well"


def test_every_router_in_the_registry_builds_a_model(tiny_config, token_ids):
    for name in ROUTERS:
        out = StickyMoEForCausalLM(tiny_config(router_type=name)).eval()(token_ids(1, 4))
        assert out.logits.isfinite().all()
    assert StickyMoEConfig().router_type in ROUTERS
