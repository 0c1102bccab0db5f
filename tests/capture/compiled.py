"""Run by test_compile.py in a process of its own: capture under torch.compile; prints one line a case.

Shapes are not checked here: a checked signature cannot be traced. Where no gradient is asked for, the graph is run as
it was traced: whether hooks are in it is settled by then.
"""

import copy
import sys

import torch

from stickymoe.capture import capture_routing
from stickymoe.capture.tiny import tiny_model
from stickymoe.core.errors import CaptureError
from stickymoe.model import StickyMoEConfig, StickyMoEForCausalLM


def build(family):
    torch.manual_seed(0)
    if family == "stickymoe":
        sizes = {"vocab_size": 64, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
        model = StickyMoEForCausalLM(StickyMoEConfig(**sizes, expert_intermediate_size=8, max_position_embeddings=64))
    else:
        model = tiny_model(family)
    model.set_experts_implementation("grouped_mm")
    return model


def run(runner, seed):
    ids = torch.randint(3, 64, (2, 6), generator=torch.Generator().manual_seed(seed))
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6])
    return runner(input_ids=ids, attention_mask=mask, use_cache=False)


def consistency(routing):
    return sum((gates[:, 1:] - gates[:, :-1]).square().sum(-1).mean() for gates in routing.gate_probs)


def outcome(capture):
    try:
        return f"captured {capture.routing.num_layers}"
    except CaptureError as error:
        return error


def whole_graph(family):
    """A training step in one graph, compiled once for all batches of a shape, against the plain model."""
    plain = build(family)
    model = copy.deepcopy(plain)
    handle, expected = capture_routing(model), capture_routing(plain)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for seed in (1, 2, 3):  # a new pass must not be answered with the old one's routing
        torch._dynamo.config.error_on_recompile = seed > 1
        losses = []
        for runner, capture in ((compiled, handle), (plain, expected)):
            runner.zero_grad()
            out = run(runner, seed)
            losses.append(out.logits.square().mean() + consistency(capture.routing))
            losses[-1].backward()
        torch.testing.assert_close(*losses)
        assert handle.routing.token_mask.sum() == 10
        for one, other in zip(handle.routing.expert_ids, expected.routing.expert_ids, strict=True):
            assert torch.equal(one, other)
        for one, other in zip(model.parameters(), plain.parameters(), strict=True):
            assert (one.grad is None) == (other.grad is None)
            if one.grad is not None:
                torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-6)
    torch._dynamo.config.error_on_recompile = False
    return "equal"


def late(family):
    """Hooks that come after compilation, then a reset."""
    model = build(family)
    compiled = torch.compile(model, backend="eager")
    run(compiled, 1)
    handle = capture_routing(model)
    run(compiled, 2)
    missed = outcome(handle)
    torch._dynamo.reset()
    run(compiled, 2)
    return f"{missed} | {outcome(handle)}"


def layers(family):
    """Layers compiled one by one before the hooks."""
    model = build(family)
    for layer in model.model.layers:
        layer.compile(backend="eager")
    run(model, 1)
    handle = capture_routing(model)
    run(model, 1)
    return outcome(handle)


def kept(family):
    """All passes kept, which breaks the graph."""
    model = build(family)
    handle = capture_routing(model, keep=None)
    compiled = torch.compile(model, backend="eager")
    for seed in (1, 2, 3):
        run(compiled, seed)
    return [done.routing.num_layers for done in handle.passes]


for name in sys.argv[1:]:
    torch._dynamo.reset()
    print("whole_graph", name, whole_graph(name))
for case in (late, layers, kept):
    torch._dynamo.reset()
    print(case.__name__, "mixtral", case("mixtral"))
