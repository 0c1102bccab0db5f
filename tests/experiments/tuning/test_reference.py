"""The frozen routers see what the routers see, and say what these would have said at the start."""

import pytest
import torch

from stickymoe.capture import capture_routing
from stickymoe.core.errors import CaptureError, SettingError
from stickymoe.experiments.tuning.reference import FrozenRouters
from stickymoe.training import router_parameters

FAMILIES = [
    "mixtral", "deepseek_v3", "gpt_oss", "gemma4", "zaya", "jetmoe", "inkling2_loop", "deepseek_v4",
    "ernie4_5_vl_moe", "stickymoe",
]  # fmt: skip
IDS = torch.randint(3, 60, (2, 7), generator=torch.Generator().manual_seed(0))


def run(model, frozen, capture):
    model(input_ids=IDS, use_cache=False)
    routing = capture.routing
    return routing, frozen.take(routing)


@pytest.mark.hf
@pytest.mark.parametrize("family", FAMILIES)
def test_at_the_start_they_gate_as_the_routers_do_to_the_last_bit(small, family):
    model = small.model(family).train()
    frozen = FrozenRouters(model)
    with capture_routing(model, fixed_layers=False) as capture:
        routing, reference = run(model, frozen, capture)
    assert len(reference) == routing.num_layers
    for gates, found in zip(routing.gate_probs, reference, strict=True):
        assert torch.equal(gates, found)
        assert not found.requires_grad


@pytest.mark.hf
def test_once_the_routers_move_they_say_what_the_old_ones_say_of_the_new_hidden_states(small):
    model = small.model("mixtral").train()
    frozen = FrozenRouters(model)
    names = router_parameters(model)
    old = {name: model.get_parameter(name).detach().clone() for name in names}
    seen = []
    gates = [module for name, module in model.named_modules() if name.endswith(".gate")]
    hooks = [gate.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach())) for gate in gates]
    with torch.no_grad():
        for name in names:
            model.get_parameter(name).add_(torch.randn_like(old[name]))
    with capture_routing(model) as capture:
        routing, reference = run(model, frozen, capture)
    for hook in hooks:
        hook.remove()
    for name, hidden, gates_now, found in zip(names, seen, routing.gate_probs, reference, strict=True):
        expected = (hidden.reshape(-1, hidden.shape[-1]) @ old[name].T).softmax(dim=-1).reshape(found.shape)
        torch.testing.assert_close(found, expected)
        assert not torch.allclose(gates_now, found)


@pytest.mark.hf
def test_recomputation_under_checkpoints_and_passes_in_evaluation_are_not_seen(small):
    model = small.model("mixtral").train()
    model.activation_checkpointing_enable({"use_reentrant": False})
    frozen = FrozenRouters(model)
    with capture_routing(model) as capture:
        for _ in range(2):
            model(input_ids=IDS, use_cache=False).logits.sum().backward()
            frozen.take(capture.routing)
        model.eval()
        model(input_ids=IDS, use_cache=False)
        with pytest.raises(CaptureError, match="the frozen routers saw 0 calls in a pass of 3 layers; attach"):
            frozen.take(capture.routing)


@pytest.mark.hf
def test_passes_before_one_loss_are_taken_in_turn(small):
    model = small.model("mixtral").train()
    frozen = FrozenRouters(model)
    with capture_routing(model, keep=None) as capture:
        model(input_ids=IDS[:1], use_cache=False)
        model(input_ids=IDS[1:], use_cache=False)
        for done in capture.take():
            for gates, found in zip(done.routing.gate_probs, frozen.take(done.routing), strict=True):
                assert torch.equal(gates, found)


@pytest.mark.hf
def test_copies_reach_nothing_but_the_router_and_hooks_go(small):
    model = small.model("mixtral").train()
    with capture_routing(model) as capture:
        model(input_ids=IDS, use_cache=False)  # what a capture holds must not be copied
        before = len(list(model.modules()))
        frozen = FrozenRouters(model)
        _, reference = run(model, frozen, capture)
        assert len(reference) == 3
        frozen.remove()
        model(input_ids=IDS, use_cache=False)
        with pytest.raises(CaptureError):
            frozen.take(capture.routing)
    assert len(list(model.modules())) == before


@pytest.mark.hf
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
def test_layers_with_several_routers_and_two_stacks_are_refused(small):
    peft = pytest.importorskip("peft")
    kept = peft.get_peft_model(
        small.model("mixtral"), peft.LoraConfig(target_modules=["q_proj"], modules_to_save=["gate"])
    )
    with pytest.raises(SettingError, match=r"objective.trust must be 0 where a layer has 2 routers, as 0 has"):
        FrozenRouters(kept)
    with pytest.raises(SettingError, match=r"objective.trust must be 0 for a model with an encoder and a decoder"):
        FrozenRouters(small.model("switch_transformers"))
