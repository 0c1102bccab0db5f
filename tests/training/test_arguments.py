"""Defaults, the learning rate's course, and broken settings named."""

import math

import pytest
import torch
from transformers import get_scheduler

from stickymoe.core.errors import SettingError
from stickymoe.training import StickyArguments


def test_the_defaults_are_fused_adamw_with_a_silent_trainer(tmp_path):
    args = StickyArguments(output_dir=str(tmp_path), use_cpu=True)
    assert args.optim == "adamw_torch_fused"
    assert (args.weight_decay, args.adam_beta1, args.adam_beta2) == (0.1, 0.9, 0.95)
    assert args.report_to == []
    assert args.disable_tqdm is True
    assert args.label_names == ["shift_labels"]


def test_the_learning_rate_warms_up_linearly_and_ends_at_a_tenth_of_its_peak(tmp_path):
    args = StickyArguments(output_dir=str(tmp_path), use_cpu=True, learning_rate=0.5, warmup_steps=4)
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=args.learning_rate)
    schedule = get_scheduler(args.lr_scheduler_type, optimiser, 4, 24, args.lr_scheduler_kwargs)
    rates = []
    for _ in range(25):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    assert rates[:5] == pytest.approx([0.0, 0.125, 0.25, 0.375, 0.5])
    assert rates[14] == pytest.approx(0.5 * (0.1 + 0.9 * (1 + math.cos(math.pi / 2)) / 2))
    assert rates[24] == pytest.approx(0.05)


def test_another_schedule_is_not_given_the_cosines_floor(tmp_path):
    args = StickyArguments(output_dir=str(tmp_path), use_cpu=True, lr_scheduler_type="linear")
    assert not args.lr_scheduler_kwargs


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU would be used")
def test_bf16_needs_no_further_switch_where_there_is_no_gpu(tmp_path):
    assert StickyArguments(output_dir=str(tmp_path), bf16=True).device.type == "cpu"


def test_locality_coefficients_grow_linearly_from_zero(tmp_path):
    args = StickyArguments(output_dir=str(tmp_path), use_cpu=True, coefficient_warmup_steps=4)
    assert [args.coefficient_scale(step) for step in range(6)] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    assert StickyArguments(output_dir=str(tmp_path), use_cpu=True).coefficient_scale(0) == 1.0


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("objective", {"consistancy": 0.1}, "objective has no term 'consistancy'; did you mean 'consistency'"),
        ("objective", {"consistency": -0.1}, "objective.consistency must be a finite number >= 0"),
        ("objective", {"consistency": math.nan}, "objective.consistency must be a finite number >= 0"),
        ("window", 0, "objective.window must be a whole number >= 1, got 0"),
        ("boundary_weight", 1.5, r"objective.boundary_weight must be in \[0, 1\], got 1.5"),
        ("coefficient_warmup_steps", -1, "objective.coefficient_warmup_steps must be >= 0, got -1"),
        ("collapse_share", 1.0, r"training.collapse_share must be in \[0, 1\), got 1.0"),
        ("collapse_steps", 0, "training.collapse_steps must be >= 1, got 0"),
        ("learning_rate", 0.0, "training.learning_rate must be a finite number > 0, got 0.0"),
        ("learning_rate", math.inf, "training.learning_rate must be a finite number > 0, got inf"),
        ("per_device_train_batch_size", 0, "training.per_device_train_batch_size must be >= 1, got 0"),
        ("gradient_accumulation_steps", 0, "training.gradient_accumulation_steps must be >= 1, got 0"),
        ("max_steps", 0, "training.max_steps must be >= 1, got 0; or -1 to count epochs"),
        ("num_train_epochs", 0.0, "training.num_train_epochs must be > 0, got 0.0"),
        ("warmup_steps", -1, "training.warmup_steps must be >= 0, got -1"),
        ("weight_decay", -0.1, "training.weight_decay must be >= 0, got -0.1"),
        ("save_total_limit", 1, "training.save_total_limit must be >= 2, got 1"),
        ("average_tokens_across_devices", False, "training.average_tokens_across_devices must be true"),
        ("lr_scheduler_type", "cosinus", "training settings cannot be used: .*cosinus"),
    ],
)
def test_a_broken_setting_is_named_with_its_rule_and_value(tmp_path, setting, value, message):
    with pytest.raises(SettingError, match=message) as raised:
        StickyArguments(output_dir=str(tmp_path), use_cpu=True, **{setting: value})
    assert "\n" not in str(raised.value)
