"""AdamW as torch has it, and small steps that a coarse type would lose."""

import copy

import pytest
import torch

from stickymoe.experiments.tuning.optimiser import MasterAdamW


def quadratic(weight, step):
    target = torch.linspace(-1, 1, weight.numel()).view_as(weight) * (1 + step % 3)
    return (weight.float() - target).square().sum()


def train(optimiser, weight, steps, first=0):
    for step in range(first, first + steps):
        optimiser.zero_grad()
        quadratic(weight, step).backward()
        optimiser.step()


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_in_float32_it_is_torchs(decay):
    ours, theirs = (torch.nn.Parameter(torch.full((3, 4), 0.5)) for _ in range(2))
    train(MasterAdamW([ours], 0.05, (0.9, 0.95), weight_decay=decay), ours, 20)
    train(torch.optim.AdamW([theirs], 0.05, (0.9, 0.95), weight_decay=decay), theirs, 20)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_steps_too_small_for_bfloat16_add_up():
    ours, theirs = (torch.nn.Parameter(torch.full((8,), 1.0, dtype=torch.bfloat16)) for _ in range(2))
    exact = torch.nn.Parameter(torch.ones(8))
    for optimiser, weight in (
        (MasterAdamW([ours], 1e-4), ours),
        (torch.optim.AdamW([theirs], 1e-4, (0.9, 0.95), weight_decay=0), theirs),
        (torch.optim.AdamW([exact], 1e-4, (0.9, 0.95), weight_decay=0), exact),
    ):
        for _ in range(100):
            optimiser.zero_grad()
            weight.float().sum().backward()
            optimiser.step()
    assert torch.equal(theirs, torch.ones_like(theirs))  # every step rounds to nothing
    assert torch.equal(ours, exact.detach().bfloat16())
    assert ours.max() < 0.995


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loaded_it_goes_on_as_if_it_had_not_stopped(dtype):
    straight, resumed = (torch.nn.Parameter(torch.full((5,), 0.5, dtype=dtype)) for _ in range(2))
    train(MasterAdamW([straight], 0.003), straight, 12)
    first = MasterAdamW([resumed], 0.003)
    train(first, resumed, 5)
    again = MasterAdamW([resumed], 0.003)
    again.load_state_dict(copy.deepcopy(first.state_dict()))
    assert all(again.state[resumed][name].dtype == torch.float32 for name in ("mean", "square"))
    train(again, resumed, 7, first=5)
    assert torch.equal(straight, resumed)


def test_parameters_without_a_gradient_stay():
    weight = torch.nn.Parameter(torch.ones(2))
    MasterAdamW([weight], 0.1, weight_decay=0.5).step()
    assert torch.equal(weight, torch.ones(2))
