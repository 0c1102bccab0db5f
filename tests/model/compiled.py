"""Run by test_compile.py in a process of its own: compares compiled models with plain ones, prints `equal` for each.

`eager`: a training step with our own experts and loss, which stay outside the graph. `grouped_mm`: logits and routing
of padded and packed rows, all in one graph; only a router that follows what served has to leave it.
"""

import copy
import json
import sys

import torch

from stickymoe.model import StickyMoEConfig, StickyMoEForCausalLM


def compare(implementation, settings):
    torch.manual_seed(0)
    config = StickyMoEConfig(
        vocab_size=61,
        hidden_size=16,
        num_hidden_layers=1,
        expert_intermediate_size=8,
        max_position_embeddings=16,
        **settings,
    )
    plain = StickyMoEForCausalLM(config)
    plain.set_experts_implementation(implementation)
    whole = implementation == "grouped_mm" and not settings.get("router_recursive")
    compiled = torch.compile(copy.deepcopy(plain), backend="aot_eager", fullgraph=whole)
    for seed in (1, 2):  # new routing must not be answered with the old one's
        ids = torch.randint(0, 61, (2, 9), generator=torch.Generator().manual_seed(seed))
        mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 9])
        documents = torch.tensor([[0] * 4 + [1] * 5] * 2)
        values, routers = [], []
        for model in (plain, compiled):
            model.zero_grad()
            if implementation == "grouped_mm":
                out = model(ids, attention_mask=mask, document_ids=documents)
                value = out.logits.square().mean()
            else:
                out = model(ids, labels=ids)
                value = out.loss
            consistency = sum(
                (gates[:, 1:] - gates[:, :-1]).square().sum(-1).mean() for gates in out.routing.gate_probs
            )
            (value + consistency).backward()
            values.append((value, consistency))
            routers.append(out.routing.expert_ids)
        torch.testing.assert_close(values[1], values[0])
        assert all(torch.equal(one, other) for one, other in zip(*routers, strict=True))
        for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
            torch.testing.assert_close(other.grad, one.grad)


for case in json.loads(sys.argv[1]):
    torch.compiler.reset()
    compare(*case)
    print("equal", flush=True)
