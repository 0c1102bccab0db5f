"""The mixin over transformers' own Trainer: what it adds, and what it leaves as it was."""

import logging

import pytest
import torch
from transformers import Trainer

from stickymoe.core.errors import CaptureError, SettingError
from stickymoe.losses import Objective
from stickymoe.training import StickyObjective, StickyTrainerMixin

pytestmark = pytest.mark.hf
EQUAL = (6, 6, 6, 6)
COEFFICIENT = 3.0


def own_aux_model(step, family="mixtral"):
    return step.build(family, output_router_logits=True, router_aux_loss_coef=COEFFICIENT)


@pytest.fixture(scope="module")
def expected_rows(step):
    return step.row_by_row(step.build("mixtral"), step.ragged_rows())


def train(step, model, rows, folder, size, accumulate, **settings):
    trainer, keep = step.trainer(model, rows, folder, size, accumulate, **settings)
    trainer.train()
    return trainer, keep.found[0]


def own_aux_gradients(step, model, rows, size):
    """Gradients of the model's own load balancing, the mean over micro-batches."""
    model.zero_grad()
    batches = [step.padded(rows[begin : begin + size]) for begin in range(0, len(rows), size)]
    aux = [model(**batch).aux_loss for batch in batches]
    (COEFFICIENT * sum(aux) / len(batches)).backward()
    return step.gradients(model)


def assert_sum(found, one, other):
    assert found.keys() == one.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, one[name] + other.get(name, 0.0), rtol=1e-3, atol=2e-6, msg=name)


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "gpt_oss"])
@pytest.mark.parametrize(("size", "accumulate"), [(4, 1), (2, 2), (1, 4)])
def test_a_models_own_load_balancing_is_counted_once_for_any_accumulation(step, family, size, accumulate, tmp_path):
    model, rows = own_aux_model(step, family), step.ragged_rows()
    own = own_aux_gradients(step, model, rows, size)
    others = step.row_by_row(model, rows)
    model.zero_grad()
    trainer, found = train(step, model, rows, tmp_path, size, accumulate)
    assert_sum(found, others, own)
    assert trainer.model.config.output_router_logits is True


def test_the_trainer_alone_counts_it_once_a_micro_batch(step, tmp_path):
    # Should this fail, transformers has mended it, and the mixin must no longer
    rows, model = step.ragged_rows(EQUAL), own_aux_model(step)
    own = own_aux_gradients(step, model, rows, 1)
    model.zero_grad()
    _, with_aux = train(step, model, rows, tmp_path, 1, 4, kind=Trainer, objective=None)
    _, without = train(step, step.build("mixtral"), rows, tmp_path, 1, 4, kind=Trainer, objective=None)
    name = "model.layers.0.mlp.gate.weight"
    torch.testing.assert_close(with_aux[name], without[name] + 4 * own[name], rtol=1e-3, atol=1e-5)


def test_load_balancing_is_kept_where_labels_are_smoothed(step, tmp_path):
    rows, model = step.ragged_rows(), own_aux_model(step)
    own = own_aux_gradients(step, model, rows, 2)
    model.zero_grad()
    settings = {"label_smoothing_factor": 0.1, "objective": {}}
    _, found = train(step, model, rows, tmp_path, 2, 2, **settings)
    _, bare = train(step, step.build("mixtral"), rows, tmp_path, 2, 2, **settings)
    assert_sum(found, bare, own)


def test_a_loss_function_of_the_users_own_is_left_as_it_is(step, tmp_path):
    rows = step.ragged_rows()

    def loss_of(outputs, labels, num_items_in_batch):
        return outputs.logits.square().mean() + outputs.aux_loss

    built = {}
    for kind, objective in ((Trainer, None), (step.Mixed, {})):
        trainer, keep = step.trainer(own_aux_model(step), rows, tmp_path, 2, 2, kind=kind, objective=objective)
        trainer.compute_loss_func = loss_of
        trainer.train()
        built[kind] = keep.found[0]
    torch.testing.assert_close(built[step.Mixed], built[Trainer])


class LossOfItsOwn(Trainer):
    """Computes the loss from logits, as transformers' pages show it, with the model's own load balancing or without."""

    weight = 0.0

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        loss = outputs.logits.square().mean() + self.weight * outputs.aux_loss
        return (loss, outputs) if return_outputs else loss


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_trainer_that_computes_its_loss_itself_is_left_as_it_is(step, tmp_path, weight):
    class Plain(LossOfItsOwn):
        pass

    class Mixed(StickyTrainerMixin, LossOfItsOwn):
        pass

    Plain.weight = Mixed.weight = weight
    rows = step.ragged_rows()
    _, plain = train(step, own_aux_model(step), rows, tmp_path, 2, 2, kind=Plain, objective=None)
    trainer, mixed = train(step, own_aux_model(step), rows, tmp_path, 2, 2, kind=Mixed, objective={})
    torch.testing.assert_close(mixed, plain)
    row = next(row for row in trainer.state.log_history if "loss" in row)
    assert row["loss"] == pytest.approx(row["loss_without_terms"] + weight * row["aux_loss"] * 2, rel=1e-5)


def test_a_model_that_takes_means_of_its_own_has_the_terms_exactly(step, tmp_path):
    rows = step.ragged_rows(EQUAL)
    model = step.build("mixtral")
    expected = step.row_by_row(model, [{**row, "labels": row["input_ids"]} for row in rows])
    model.zero_grad()
    model.accepts_loss_kwargs = False  # each micro-batch gives its own mean, and the Trainer divides by their number
    rows = [{**row, "labels": row["input_ids"]} for row in rows]
    _, found = train(step, model, rows, tmp_path, 1, 4)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-6)


def test_without_coefficients_it_is_the_trainer_itself(step, tmp_path):
    rows = step.ragged_rows()
    _, plain = train(step, step.build("mixtral"), rows, tmp_path, 2, 2, kind=Trainer, objective=None)
    _, mixed = train(step, step.build("mixtral"), rows, tmp_path, 2, 2, objective=None)
    torch.testing.assert_close(mixed, plain, rtol=0, atol=0)


@pytest.mark.parametrize("aux", [False, True])
def test_the_evaluation_loss_is_the_trainers(step, tmp_path, aux):
    rows = step.ragged_rows()
    losses = []
    for kind, objective in ((Trainer, None), (step.Mixed, {"consistency": 1e3})):
        model = own_aux_model(step) if aux else step.build("mixtral")
        trainer, _ = step.trainer(model, rows, tmp_path, 2, 2, kind=kind, objective=objective)
        losses.append(trainer.evaluate()["eval_loss"])
        assert trainer.model.config.output_router_logits is aux
    assert losses[0] == losses[1]


def test_evaluation_in_the_middle_of_a_run_changes_nothing(step, tmp_path):
    rows = step.ragged_rows()
    weights = []
    for strategy in ("no", "steps"):
        settings = {"max_steps": 3, "eval_strategy": strategy, "eval_steps": 1, "learning_rate": 1e-2}
        trainer, _ = train(step, step.build("mixtral"), rows, tmp_path, 2, 2, **settings)
        weights.append(dict(trainer.model.named_parameters()))
    torch.testing.assert_close(*weights, rtol=0, atol=0)


def test_every_term_is_logged_by_itself_and_by_layer(step, tmp_path):
    rows, model = step.ragged_rows(), own_aux_model(step, "qwen3_moe")
    with torch.no_grad():
        aux = [float(model(**step.padded(rows[begin : begin + 2])).aux_loss) for begin in (0, 2)]
    trainer, _ = train(step, model, rows, tmp_path, 2, 2, learning_rate=0.0)
    row = next(row for row in trainer.state.log_history if "loss" in row)
    layers = [row[f"consistency/layer_{layer}"] for layer in range(3)]
    assert row["consistency"] == pytest.approx(sum(layers) / 3)
    assert len({round(value, 6) for value in layers}) == 3
    assert row["aux_loss"] == pytest.approx(sum(aux) / 2)
    whole = row["loss_without_terms"] + COEFFICIENT * row["aux_loss"]
    whole += sum(coefficient * row[name] for name, coefficient in step.OBJECTIVE.items())
    assert row["loss"] == pytest.approx(whole, rel=1e-4)
    assert {"switch_rate", "switch_rate/layer_2", "gate_entropy_bits/layer_0", "gate_margin"} <= row.keys()


def test_layers_are_called_what_the_model_calls_them(step, tmp_path):
    trainer, _ = train(step, step.build("deepseek_v3"), step.ragged_rows(), tmp_path, 4, 1)
    row = next(row for row in trainer.state.log_history if "loss" in row)
    assert {name for name in row if name.startswith("consistency/")} == {"consistency/layer_1", "consistency/layer_2"}


def test_a_step_whose_labels_are_all_masked_trains_the_terms_alone(step, tmp_path):
    rows = [{**row, "labels": torch.full_like(row["labels"], -100)} for row in step.ragged_rows()]
    trainer, found = train(step, step.build("mixtral"), rows, tmp_path, 2, 2)
    row = next(row for row in trainer.state.log_history if "loss" in row)
    assert row["loss_without_terms"] == 0.0
    assert row["loss"] == pytest.approx(sum(step.OBJECTIVE[name] * row[name] for name in step.OBJECTIVE))
    assert all(bool(gradient.isfinite().all()) for gradient in found.values())


def test_rows_of_one_token_have_no_pairs_and_no_gradient_of_the_pairwise_terms(step, tmp_path):
    rows = step.ragged_rows((1, 1, 1, 1))
    trainer, _ = step.trainer(step.build("mixtral"), rows, tmp_path, 2, 2, objective={"consistency": 1.0})
    trainer.train()
    row = next(row for row in trainer.state.log_history if "loss" in row)
    assert row["loss"] == row["consistency"] == 0.0
    assert "switch_rate" not in row


def test_an_objective_with_settings_of_its_own_is_taken_as_it_is(step, tmp_path):
    for objective in (StickyObjective(anchor=1.0, window=2), Objective(anchor=1.0, window=2)):
        trainer, _ = step.trainer(step.build("mixtral"), step.ragged_rows(), tmp_path, 2, 2, objective=objective)
        assert trainer.sticky.objective.window == 2
    with pytest.raises(SettingError, match="beside it"):
        StickyObjective(Objective(anchor=1.0), window=2)


def test_a_model_made_anew_by_model_init_is_the_one_that_is_captured(step, expected_rows, tmp_path):
    trainer, keep = step.trainer(None, step.ragged_rows(), tmp_path, 2, 2, model_init=lambda: step.build("mixtral"))
    trainer.train()
    torch.testing.assert_close(keep.found[0], expected_rows, rtol=1e-3, atol=2e-6)


def test_a_dense_model_is_refused_when_the_trainer_is_made(step, tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=2))
    with pytest.raises(CaptureError, match="layers are dense"):
        step.trainer(model, step.ragged_rows(), tmp_path, 2, 2)


def test_batches_that_cannot_be_counted_are_refused(step, tmp_path):
    model = step.build("mixtral")

    def collate(rows):
        batch = step.padded(rows)
        ids = batch.pop("input_ids")
        return {**batch, "inputs_embeds": torch.zeros(*ids.shape, 16)}

    for collator, message in ((collate, "input_ids"), (list, "got a list: use StickyObjective")):
        trainer, _ = step.trainer(model, step.ragged_rows(), tmp_path, 2, 2, collator=collator, objective={"anchor": 1})
        with pytest.raises(SettingError, match=message):
            trainer.train()


def test_a_trainer_that_runs_other_rows_than_its_batches_hold_is_told(step, tmp_path):
    class CutsRows(Trainer):
        def compute_loss(self, model, inputs, *args, **kwargs):
            return super().compute_loss(model, {name: value[:, :3] for name, value in inputs.items()}, *args, **kwargs)

    class Mixed(StickyTrainerMixin, CutsRows):
        pass

    trainer, _ = step.trainer(step.build("mixtral"), step.ragged_rows(), tmp_path, 2, 2, kind=Mixed)
    with pytest.raises(CaptureError, match="tell begin_step exactly what the model is given"):
        trainer.train()


@pytest.mark.filterwarnings("ignore::FutureWarning")  # PEFT asks transformers by a deprecated name
def test_adapters_alone_may_be_trained(step, tmp_path):
    peft = pytest.importorskip("peft")
    model = own_aux_model(step)
    own_before = {name: weight.clone() for name, weight in model.named_parameters()}
    wrapped = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", target_parameters=["gate.weight"]))
    trainer, found = train(step, wrapped, step.ragged_rows(), tmp_path, 2, 2)
    assert found
    assert all("lora" in name for name in found)
    row = next(row for row in trainer.state.log_history if "loss" in row)
    whole = row["loss_without_terms"] + COEFFICIENT * row["aux_loss"]
    assert row["loss"] == pytest.approx(whole + sum(c * row[name] for name, c in step.OBJECTIVE.items()), rel=1e-4)
    frozen = {name.replace("base_model.model.", ""): weight for name, weight in wrapped.named_parameters()}
    for name, before in own_before.items():
        now = frozen.get(name)
        if now is not None:
            assert torch.equal(now, before), name


def test_nothing_is_warned_of(step, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        train(step, step.build("mixtral"), step.ragged_rows(), tmp_path, 2, 2)
    assert caplog.messages == []
