"""The trainer moves what was chosen, alike for any split of a step, and goes on from a checkpoint as if unbroken."""

import pytest
import torch
from torch import nn

from stickymoe.core.errors import CheckpointError
from stickymoe.data.encoding import EncodedText
from stickymoe.data.rows import PaddedRows, collate_rows
from stickymoe.experiments.tuning.arguments import TuningArguments
from stickymoe.experiments.tuning.trainer import CHOSEN_FILE, TuningTrainer, chosen_weights, load_chosen, put_weights
from stickymoe.training import fingerprint, train_routers_only

pytestmark = pytest.mark.hf
EVERY_MEAN = {"smoothness": 0.3, "lag": 0.2, "working_set": 0.5, "trust": 2.0, "consistency": 0.5}


def rows(count=16):
    draw = torch.Generator().manual_seed(3)
    lengths = [3 + (5 * row) % 9 for row in range(count)]
    texts = [EncodedText(torch.randint(3, 60, (n,), generator=draw, dtype=torch.int32).numpy()) for n in lengths]
    return PaddedRows(texts, 12)


def arguments(folder, **changes):
    settings = {
        "output_dir": str(folder),
        "objective": EVERY_MEAN,
        "working_set_window": 3,
        "lags": [1, 2, 4],
        "max_steps": 4,
        "learning_rate": 1e-2,
        "warmup_steps": 0,
        "per_device_train_batch_size": 4,
        "save_steps": 2,
        "logging_steps": 1,
        "use_cpu": True,
        "seed": 1,
    }
    return TuningArguments(**(settings | changes))


def trained(model, args, resume=False, data=None):
    chosen = train_routers_only(model)
    trainer = TuningTrainer(model, args, chosen=chosen, train_dataset=data or rows(), data_collator=collate_rows)
    trainer.train(resume_from_checkpoint=resume)
    trainer.remove_hooks()
    return chosen_weights(model, chosen)


def test_any_split_of_a_step_moves_the_routers_alike(small, tmp_path):
    sizes = {"a": (4, 1), "b": (2, 2), "c": (1, 4)}
    found = [
        trained(
            small.model(),
            arguments(
                tmp_path / name, per_device_train_batch_size=batch, gradient_accumulation_steps=steps, max_steps=3
            ),
        )
        for name, (batch, steps) in sizes.items()
    ]
    start = small.model()
    for name, weights in found[0].items():
        assert not torch.equal(weights, start.get_parameter(name))
        for other in found[1:]:
            torch.testing.assert_close(weights, other[name], rtol=1e-3, atol=1e-5)


def test_nothing_else_moves_and_checkpoints_hold_nothing_else(small, tmp_path):
    model = small.model()
    chosen = train_routers_only(model)
    before = fingerprint(model, without=chosen)
    weights = trained(model, arguments(tmp_path))
    assert fingerprint(model, without=chosen) == before
    other = small.model()
    load_chosen(other, chosen, tmp_path / "checkpoint-4" / CHOSEN_FILE)
    assert all(torch.equal(other.get_parameter(name), values) for name, values in weights.items())
    large = {path.name for path in (tmp_path / "checkpoint-4").iterdir() if path.stat().st_size > 20_000}
    assert not large
    assert not (tmp_path / "checkpoint-4" / "model.safetensors").exists()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_resumed_from_a_checkpoint_it_ends_where_it_would_have_ended(small, tmp_path, dtype):
    straight = trained(small.model().to(dtype), arguments(tmp_path / "straight"))
    trained(small.model().to(dtype), arguments(tmp_path / "broken"))
    for path in (tmp_path / "broken" / "checkpoint-4").iterdir():
        path.unlink()  # as if it had been killed after step 3
    (tmp_path / "broken" / "checkpoint-4").rmdir()
    resumed = trained(small.model().to(dtype), arguments(tmp_path / "broken"), resume=True)
    for name, weights in straight.items():
        assert weights.dtype == dtype
        assert torch.equal(weights, resumed[name])


def test_trust_holds_the_routers_to_their_start(small, tmp_path):
    pulls = {"consistency": 5.0}
    free = trained(small.model(), arguments(tmp_path / "free", objective=pulls))
    held = trained(small.model(), arguments(tmp_path / "held", objective=pulls | {"trust": 100.0}))
    start = small.model()
    drift = [
        sum(float((weights - start.get_parameter(name)).square().sum().detach()) for name, weights in found.items())
        for found in (free, held)
    ]
    assert drift[1] < 0.8 * drift[0]


class Packed4(nn.Module):
    """A linear layer whose weights are whole numbers of four bits, as quantisation leaves them."""

    def __init__(self, linear):
        super().__init__()
        scale = linear.weight.detach().abs().amax(dim=1, keepdim=True) / 7
        levels = (linear.weight.detach() / scale).round().to(torch.int8) + 8
        self.packed = nn.Parameter((levels[:, ::2] * 16 + levels[:, 1::2]).to(torch.uint8), requires_grad=False)
        self.register_buffer("scale", scale.half())

    def forward(self, hidden):
        levels = torch.stack([self.packed // 16, self.packed % 16], dim=-1).flatten(1)
        return hidden @ ((levels.to(hidden.dtype) - 8) * self.scale.to(hidden.dtype)).T


def test_weights_in_four_bits_are_neither_touched_nor_recast(small, tmp_path):
    model = small.model()
    for layer in model.model.layers:
        layer.self_attn.o_proj = Packed4(layer.self_attn.o_proj)
    model.is_quantized = True  # which makes transformers' Trainer ask for adapters
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    weights = trained(model, arguments(tmp_path))
    assert len(weights) == 3
    assert {str(tensor.dtype) for tensor in before.values()} == {"torch.float32", "torch.float16", "torch.uint8"}
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == before[name].dtype
        assert torch.equal(tensor, before[name]) == (name not in weights)
    assert not getattr(model, "_hf_peft_config_loaded", False)


def test_weights_that_are_not_the_chosen_ones_are_refused(small, tmp_path):
    model = small.model()
    chosen = train_routers_only(model)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_chosen(model, chosen, tmp_path / "none.safetensors")
    trained(model, arguments(tmp_path, max_steps=2))
    with pytest.raises(CheckpointError, match="must hold the 2 chosen parameters, it holds others; start again"):
        load_chosen(model, chosen[:2], tmp_path / "checkpoint-2" / CHOSEN_FILE)


def test_weights_are_put_in_place(small):
    model = small.model()
    name = "model.layers.0.mlp.gate.weight"
    parameter = model.get_parameter(name)
    put_weights(model, {name: torch.zeros_like(parameter)})
    assert model.get_parameter(name) is parameter
    assert not parameter.any()
