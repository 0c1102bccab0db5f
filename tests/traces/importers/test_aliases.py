"""The table of names."""

import pytest

from stickymoe.traces.importers.aliases import ALIASES, PHASES, is_routing, resolve, wide


def test_names_are_small_letters_and_none_stands_twice_for_one_thing():
    for names in ALIASES.values():
        assert len(set(names)) == len(names)
        assert all(name == name.lower() for name in names)
    assert all(word == word.lower() for word in PHASES)


@pytest.mark.parametrize("layer", ["layer", "layer_idx", "layer_id", "l"])
@pytest.mark.parametrize("token", ["token", "token_idx", "token_position", "t", "step", "pos"])
@pytest.mark.parametrize(
    "experts",
    ["experts", "expert_ids", "selected_ids", "selected_experts", "topk_ids", "topk_experts", "top_indices", "e"],
)
def test_every_name_met_in_the_field_is_known(layer, token, experts):
    found = resolve([layer, token, experts, "gate_weights", "req_id", "something"])
    assert found == {
        "layer": layer,
        "token": token,
        "experts": experts,
        "weights": "gate_weights",
        "request": "req_id",
    }
    assert is_routing(found)


def test_a_name_serves_once_and_the_likelier_one_first():
    assert resolve(["step", "token"]) == {"token": "token", "event": "step"}
    assert resolve(["step"]) == {"token": "step"}
    assert resolve([" Layer "]) == {"layer": " Layer "}
    assert not is_routing(resolve(["layer", "expert"]))


def test_columns_of_one_slot_each_come_in_the_order_of_their_numbers():
    assert wide(["e10", "e2", "layer", "e0"], "experts") == ["e0", "e2", "e10"]
    assert wide(["expert_0", "Expert_1", "w0"], "experts") == ["expert_0", "Expert_1"]
    assert wide(["w0", "w1"], "weights") == ["w0", "w1"]
    assert wide(["e0", "e_0"], "experts") == []
