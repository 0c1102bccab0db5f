"""A checkpoint goes on only as the model it was saved with."""

import json

import pytest

from stickymoe.core.errors import CheckpointError
from stickymoe.training.architecture import require_same_architecture


def save(folder, config):
    (folder / "config.json").write_text(json.dumps(config))
    return folder


CONFIG = {"model_type": "sticky_moe", "num_experts": 4, "hidden_size": 8, "dropout": 0.1, "use_cache": True}


def test_what_does_not_change_the_function_may_differ(tmp_path):
    here = {**CONFIG, "dropout": 0.0, "use_cache": False, "transformers_version": "9"}
    require_same_architecture(save(tmp_path, {**CONFIG, "transformers_version": "5"}), here)


def test_differences_are_named_with_both_values(tmp_path):
    with pytest.raises(CheckpointError, match="hidden_size 16 there and 8 here, num_experts 2 there and 4 here"):
        require_same_architecture(save(tmp_path, {**CONFIG, "num_experts": 2, "hidden_size": 16}), CONFIG)


def test_another_kind_of_model_is_refused_whatever_its_fields(tmp_path):
    with pytest.raises(CheckpointError, match="model_type 'mixtral' there and 'sticky_moe' here"):
        require_same_architecture(save(tmp_path, {"model_type": "mixtral"}), CONFIG)


def test_a_config_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config.json cannot be read"):
        require_same_architecture(tmp_path, CONFIG)
