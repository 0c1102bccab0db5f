"""The settings of a tuning check themselves."""

import json

import pytest

from stickymoe.core.errors import SettingError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": 0}, r"tune.tokens must be >= 1, got 0"),
        ({"sequence_length": 1}, r"tune.sequence_length must be >= 2, got 1; neighbours are compared"),
        ({"objective": "paper", "coefficients": {"lag": float("nan")}}, r"objective.lag must be a finite number .*"),
        ({"accumulation": 0}, r"tune.accumulation must be >= 1, got 0"),
        ({"learning_rate": float("nan")}, r"tune.learning_rate must be a finite number > 0, got nan"),
        ({"learning_rate": 0.0}, r"tune.learning_rate must be a finite number > 0, got 0.0"),
        ({"warmup_share": 1.5}, r"tune.warmup_share must be in \[0, 1\], got 1.5"),
        ({"lora": -1}, r"tune.lora must be >= 0, got -1"),
        ({"lags": [1, 1]}, r"objective.lags must be different whole numbers >= 1, got \[1, 1\]; .*"),
        ({"working_set_window": 0}, r"objective.working_set_window must be a whole number >= 1, got 0; .*"),
        ({"coefficients": {"reus": 1.0}}, r"objective has no term 'reus'; did you mean 'reuse'\?"),
        ({"coefficients": {"reuse": -1.0}}, r"objective.reuse must be a finite number >= 0, got -1.0; .*"),
        ({"coefficients": {"cross_layer": 1.0}}, r"objective.cross_layer must be 0 where adjacent layers .*"),
    ],
)
def test_a_setting_that_breaks_its_rule_is_named(small, changes, message):
    with pytest.raises(SettingError, match=f"^{message}$"):
        small.settings(**changes)


def test_settings_are_json(small):
    found = small.settings()
    assert json.loads(json.dumps(found.as_dict()))["coefficients"] == found.coefficients
