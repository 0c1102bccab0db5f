"""`StickyObjective` in another loop: the right gradient for any split of the rows, and nothing in evaluation."""

import accelerate
import pytest
import torch

from stickymoe.capture import capture_routing
from stickymoe.capture.tiny import tiny_model
from stickymoe.core.errors import CaptureError, SettingError
from stickymoe.losses import Objective
from stickymoe.training.sticky_objective import StickyObjective

pytestmark = pytest.mark.hf


@pytest.fixture
def model():
    return tiny_model("mixtral").train()


@pytest.fixture
def batch():
    ids = torch.randint(3, 64, (6, 8), generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([8, 3, 5, 8, 2, 6])
    return {"input_ids": ids, "attention_mask": (torch.arange(8) < lengths[:, None]).long()}


def split(batch, sizes):
    parts = {name: values.split(sizes) for name, values in batch.items()}
    return [dict(zip(parts, values, strict=True)) for values in zip(*parts.values(), strict=True)]


def gradients(model):
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def test_two_lines_give_the_gradient_of_the_objective_on_captured_routing(model, batch):
    with capture_routing(model) as capture:
        out = model(**batch, labels=batch["input_ids"])
    (out.loss + Objective(consistency=0.1, load_balancing=0.01)(capture.routing).total).backward()
    expected = gradients(model)
    sticky = StickyObjective(consistency=0.1, load_balancing=0.01)
    handle = sticky.attach(model)
    out = model(**batch, labels=batch["input_ids"])
    (out.loss + sticky.loss()).backward()
    torch.testing.assert_close(gradients(model), expected)
    assert set(sticky.terms) == {"consistency", "load_balancing"}
    assert not any(value.requires_grad for value in sticky.terms.values())
    handle.remove()


@pytest.mark.parametrize("sizes", [[6], [3, 3], [1, 2, 3], [1] * 6])
def test_any_split_of_a_step_has_the_same_gradient(model, batch, sizes):
    sticky = StickyObjective(consistency=1.0, router_z=0.1)
    sticky.attach(model)
    model(**batch)
    sticky.loss().backward()
    expected = gradients(model)
    batches = split(batch, sizes)
    for _ in range(2):  # and the step after it as well
        sticky.begin_step(batches)
        for part in batches:
            model(**part)
            sticky.loss().backward()
        torch.testing.assert_close(gradients(model), expected, rtol=1e-4, atol=1e-7)
    model(**batch)
    sticky.loss().backward()
    torch.testing.assert_close(gradients(model), expected)


def test_packed_rows_are_counted_as_they_are_captured(model):
    ids = torch.randint(3, 64, (1, 9), generator=torch.Generator().manual_seed(0))
    packed = {"input_ids": ids, "position_ids": torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4, 0]])}
    sticky = StickyObjective(consistency=1.0)
    sticky.attach(model)
    sticky.begin_step([packed])
    model(**packed, use_cache=False)
    value = sticky.loss()
    model(**packed, use_cache=False)
    torch.testing.assert_close(value, sticky.loss())


def test_passes_before_one_loss_count_alike(model, batch):
    one, other = split(batch, [3, 3])
    sticky = StickyObjective(consistency=1.0)
    sticky.attach(model)
    values = []
    for part in (one, other):
        model(**part)
        values.append(sticky.loss())
    model(**one)
    model(**other)
    torch.testing.assert_close(sticky.loss(), sum(values) / 2)


def test_evaluation_adds_nothing_and_does_not_disturb_training(model, batch):
    sticky = StickyObjective(consistency=1.0)
    sticky.attach(model)
    model(**batch)
    model.eval()
    with torch.no_grad():
        model(**batch)
        model(**batch)
    model.train()
    value = sticky.loss()
    model.eval()
    model(**batch)
    assert float(sticky.loss()) == 0.0
    assert sticky.terms == {}
    model.train()
    model(**batch)
    torch.testing.assert_close(sticky.loss(), value)


def test_a_loss_without_a_pass_is_an_error_in_training(model, batch):
    sticky = StickyObjective(consistency=1.0)
    with pytest.raises(CaptureError, match="attach"):
        sticky.loss()
    sticky.attach(model)
    model(**batch)
    sticky.loss()
    with pytest.raises(CaptureError, match="since the last sticky"):
        sticky.loss()


def test_what_begin_step_cannot_count_is_refused(model):
    sticky = StickyObjective(consistency=1.0)
    sticky.attach(model)
    with pytest.raises(SettingError, match="input_ids"):
        sticky.begin_step([{"inputs_embeds": torch.zeros(1, 2, 16)}])
    sticky.attach(tiny_model("switch_transformers"))
    with pytest.raises(SettingError, match="encoder and a decoder"):
        sticky.begin_step([])


def test_labels_all_masked_and_sequences_of_one_token_give_a_loss_of_zero_that_can_go_backward(model):
    sticky = StickyObjective(consistency=1.0)
    sticky.attach(model)
    model(torch.tensor([[5], [6]]))
    value = sticky.loss()
    assert float(value.detach()) == 0.0
    value.backward()


def test_hash_layers_are_left_out():
    model = tiny_model("deepseek_v4").train()
    sticky = StickyObjective(consistency=1.0)
    handle = sticky.attach(model)
    assert [layer.name for layer in handle.layers] == ["1", "2"]


def test_accelerates_loop_has_the_same_gradient(model, batch):
    sticky = StickyObjective(consistency=1.0)
    sticky.attach(model)
    model(**batch)
    sticky.loss().backward()
    expected = gradients(model)
    accelerator = accelerate.Accelerator(cpu=True)
    prepared, _ = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    sticky.attach(prepared)
    prepared(**batch)
    accelerator.backward(sticky.loss())
    torch.testing.assert_close(gradients(model), expected)
