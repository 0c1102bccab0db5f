"""One pool of experts for several layers: counted, saved and trained once. And what Oracle-MoE's router reads."""

import copy

import pytest
import torch
from safetensors import safe_open

from stickymoe.core.errors import SettingError
from stickymoe.model import StickyMoEConfig, StickyMoEForCausalLM
from stickymoe.model.experts import Experts

SIX = {"num_hidden_layers": 6}
# up (width, hidden) and its bias, down (hidden, width) and its bias; five experts
POOL = 5 * (10 * 12 + 10 + 12 * 10 + 12)


@pytest.mark.parametrize(("shared", "pools"), [("none", 6), ("groups:2", 3), ("groups:3", 2), ("all", 1)])
def test_the_experts_parameters_are_counted_and_saved_once_a_pool(tiny_model, tmp_path, shared, pools):
    model = tiny_model(**SIX, experts_shared=shared)
    in_experts = sum(p.numel() for m in model.modules() if isinstance(m, Experts) for p in m.parameters())
    assert in_experts == pools * POOL
    assert model.num_parameters() == tiny_model(**SIX).num_parameters() - (6 - pools) * POOL
    model.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        sizes = [torch.tensor(file.get_slice(name).get_shape()).prod() for name in file.keys()]  # noqa: SIM118
        in_file = [name for name in file.keys() if "proj" in name and "attention" not in name]  # noqa: SIM118
    assert sum(sizes) == model.num_parameters()
    assert len(in_file) == pools * 4


@pytest.mark.parametrize(("shared", "blocks"), [("groups:2", [0, 0, 1, 1, 2, 2]), ("all", [0] * 6)])
def test_a_shared_pool_equals_layers_of_their_own_with_equal_weights_gradients_added(
    tiny_model, token_ids, shared, blocks
):
    ids = token_ids(2, 9)
    model, own = tiny_model(torch.float64, **SIX, experts_shared=shared), tiny_model(torch.float64, **SIX)
    weights = model.state_dict()
    for layer, block in enumerate(blocks):
        pool = f"model.expert_pools.{block}."
        weights |= {
            name.replace(pool, f"model.layers.{layer}.moe.experts."): weight
            for name, weight in model.state_dict().items()
            if name.startswith(pool)
        }
    own.load_state_dict({name: weights[name] for name in own.state_dict()})
    losses = [one(ids, labels=ids).loss for one in (model, own)]
    torch.testing.assert_close(losses[0], losses[1])
    for loss in losses:
        loss.backward()
    for block in set(blocks):
        for name, parameter in model.model.expert_pools[block].named_parameters():
            layers = [own.model.layers[layer].moe.experts for layer, of in enumerate(blocks) if of == block]
            added = sum(layer.get_parameter(name).grad for layer in layers)
            torch.testing.assert_close(parameter.grad, added)


def test_a_shared_pool_survives_saving_loading_moving_and_copying(tiny_model, token_ids, tmp_path):
    model, ids = tiny_model(**SIX, experts_shared="groups:3").eval(), token_ids(1, 6)
    model.save_pretrained(tmp_path)
    for other in (StickyMoEForCausalLM.from_pretrained(tmp_path).eval(), copy.deepcopy(model)):
        assert other.config.experts_shared == "groups:3"
        torch.testing.assert_close(other(ids).logits, model(ids).logits)
        other.double()
        with torch.no_grad():
            other.model.expert_pools[1].down_proj.zero_()
        layers = [layer.moe.experts for layer in other.model.layers]
        assert layers[0] is layers[2] is other.model.expert_pools[0]
        assert layers[3] is layers[5] is other.model.expert_pools[1]
        assert layers[3].down_proj.dtype == torch.float64
        assert not layers[5].down_proj.any()
    assert model.model.layers[5].moe.experts.down_proj.any(), "the copy is apart"


@pytest.mark.parametrize("shared", ["groups:4", "groups:6", "groups:1", "groups:", "groups:x", "block:2", "", "All"])
def test_other_ways_of_sharing_are_refused(shared):
    with pytest.raises(SettingError) as caught:
        StickyMoEConfig(**SIX, experts_shared=shared)
    assert str(caught.value) == (
        f"model.experts_shared must be one of none, all, groups:2, groups:3 with 6 layers, got {shared!r}"
    )


def test_one_layer_shares_with_nobody():
    assert StickyMoEConfig(num_hidden_layers=1, experts_shared="all").layers_per_pool == 1


def test_oracle_routers_read_the_attended_values_before_the_output_projection(tiny_model, token_ids):
    ids = token_ids(2, 7)
    model = tiny_model(torch.float64, router_input="attended").eval()
    seen = []
    for layer in model.model.layers:
        layer.attention.out_proj.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    routing = model(ids).routing
    assert len(seen) == 2
    for number, attended in enumerate(seen):
        expected = attended @ model.model.layers[number].moe.router.weight.T
        torch.testing.assert_close(routing.router_logits[number], expected)
    hidden = tiny_model(torch.float64).eval()(ids).routing
    assert not torch.allclose(hidden.router_logits[0], routing.router_logits[0])


def test_other_router_inputs_are_refused():
    with pytest.raises(SettingError, match=r"model\.router_input must be one of attended, hidden, got 'values'"):
        StickyMoEConfig(router_input="values")
