"""The training step against losses computed straight from their definitions."""

import json
import logging

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from stickymoe.core.errors import SettingError, TrainingError
from stickymoe.data import collate_chunks
from stickymoe.losses import anchor_loss, consistency_loss, load_balancing_loss, reuse_loss, router_z_loss
from stickymoe.routing import valid_pairs
from stickymoe.training import StickyTrainerMixin

MEANS = {"consistency": 0.7, "anchor": 0.9, "router_z": 0.2}
NOT_MEANS = {"load_balancing": 0.6, "reuse": 0.3}


def one_step(tiny, folder, rows, batch, accumulate, objective, **settings):
    """Train one step and return the trainer and the gradients its optimiser was given."""
    args = tiny.arguments(
        folder,
        max_steps=1,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulate,
        objective=objective,
        save_strategy="no",
        max_grad_norm=0.0,
        logging_steps=1,
        **settings,
    )
    trainer = tiny.StickyTrainer(tiny.model(), args, rows)
    keep = tiny.KeepGradients()
    trainer.add_callback(keep)
    trainer.train()
    return trainer, keep.steps[0]


def naive_loss(model, rows, objective):
    """Cross-entropy and terms of all rows as one batch, straight from the definitions."""
    batch = collate_chunks(rows)
    out = model(**batch)
    routing = out.routing
    values = dict.fromkeys(objective, 0.0)
    for gates, ids, logits in zip(routing.gate_probs, routing.expert_ids, routing.router_logits, strict=True):
        mask, documents, pairs = routing.token_mask, routing.document_ids, routing.valid_pairs()
        every = {
            "consistency": consistency_loss(gates, pairs),
            "anchor": anchor_loss(gates, 4, mask, documents),
            "router_z": router_z_loss(logits, mask),
            "load_balancing": load_balancing_loss(gates, ids, mask),
            "reuse": reuse_loss(gates, ids, pairs),
        }
        for name in objective:
            values[name] = values[name] + every[name] / routing.num_layers
    return out.loss + sum(objective[name] * value for name, value in values.items()), values, out.loss


def assert_same(found, expected):
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize(("batch", "accumulate"), [(16, 1), (4, 4), (5, 4)])
def test_gradients_are_those_of_the_whole_step_however_it_is_cut_into_micro_batches(tiny, tmp_path, batch, accumulate):
    rows = tiny.ragged_rows(16)
    objective = MEANS if accumulate > 1 else MEANS | NOT_MEANS
    _, found = one_step(tiny, tmp_path, rows, batch, accumulate, objective)
    model = tiny.model()
    naive_loss(model, rows, objective)[0].backward()
    assert_same(found, {name: weight.grad for name, weight in model.named_parameters()})


def test_pairs_and_windows_may_end_at_borders_across_which_the_model_attends(tiny, tmp_path):
    rows = tiny.ragged_rows(16)
    apart = [
        {"pair_document_ids" if name == "document_ids" else name: ids for name, ids in row.items()} for row in rows
    ]
    _, found = one_step(tiny, tmp_path, apart, 4, 4, MEANS)
    model, batch = tiny.model(), collate_chunks(apart)
    borders = batch.pop("pair_document_ids")
    out = model(**batch)
    pairs = valid_pairs(out.routing.token_mask, borders)
    consistency = sum(consistency_loss(gates, pairs) for gates in out.routing.gate_probs) / 2
    anchor = sum(anchor_loss(gates, 4, out.routing.token_mask, borders) for gates in out.routing.gate_probs) / 2
    router_z = sum(router_z_loss(logits, out.routing.token_mask) for logits in out.routing.router_logits) / 2
    (out.loss + MEANS["consistency"] * consistency + MEANS["anchor"] * anchor + MEANS["router_z"] * router_z).backward()
    assert_same(found, {name: weight.grad for name, weight in model.named_parameters()})
    _, crossing = one_step(tiny, tmp_path / "x", [dict(list(row.items())[:2]) for row in apart], 4, 4, MEANS)
    assert not torch.allclose(crossing["model.layers.0.moe.router.weight"], found["model.layers.0.moe.router.weight"])


def test_terms_that_are_no_means_are_averaged_over_the_micro_batches(tiny, tmp_path):
    rows = tiny.ragged_rows(16)
    _, found = one_step(tiny, tmp_path, rows, 4, 4, NOT_MEANS, train_sampling_strategy="sequential")
    model = tiny.model()
    whole = naive_loss(model, rows, {})[0]
    for begin in range(0, 16, 4):
        _, values, _ = naive_loss(model, rows[begin : begin + 4], NOT_MEANS)
        whole = whole + sum(NOT_MEANS[name] * value for name, value in values.items()) / 4
    whole.backward()
    assert_same(found, {name: weight.grad for name, weight in model.named_parameters()})


def test_the_log_row_holds_cross_entropy_and_every_term_unweighted(tiny, tmp_path):
    rows = tiny.ragged_rows(16)
    one_step(tiny, tmp_path, rows, 4, 4, MEANS)
    (row,) = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    with torch.no_grad():
        _, values, cross_entropy = naive_loss(tiny.model(), rows, MEANS)
    assert row["cross_entropy"] == pytest.approx(float(cross_entropy), rel=1e-5)
    for name, value in values.items():
        assert row[name] == pytest.approx(float(value), rel=1e-5), name
    assert {"step", "epoch", "learning_rate", "grad_norm", "coefficient_scale", "seconds"} <= row.keys()
    assert [len(row[name]) for name in ("switch_rate", "gate_entropy_bits", "gate_margin")] == [2, 2, 2]


def test_a_log_row_is_the_mean_over_its_steps(tiny, tmp_path):
    every, pairs = tmp_path / "every", tmp_path / "pairs"
    for folder, steps in ((every, 1), (pairs, 2)):
        args = tiny.arguments(folder, logging_steps=steps, save_strategy="no")
        tiny.StickyTrainer(tiny.model(), args, tiny.chunks()).train()
    singles = [json.loads(line) for line in (every / "log.jsonl").read_text().splitlines()]
    doubles = [json.loads(line) for line in (pairs / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in doubles] == [2, 4, 6]
    for double, first, second in zip(doubles, singles[::2], singles[1::2], strict=True):
        for name in ("cross_entropy", "consistency", "load_balancing"):
            assert double[name] == pytest.approx((first[name] + second[name]) / 2, rel=1e-5)


def test_coefficients_on_their_way_up_leave_load_balancing_alone(tiny, tmp_path):
    rows = tiny.ragged_rows(16)
    objective = {"consistency": 5.0, "load_balancing": 0.6}
    _, found = one_step(tiny, tmp_path, rows, 16, 1, objective, coefficient_warmup_steps=10)
    model = tiny.model()
    naive_loss(model, rows, {"load_balancing": 0.6})[0].backward()
    assert_same(found, {name: weight.grad for name, weight in model.named_parameters()})


class WatchBonus(TrainerCallback):
    """Notes how much of the bonus each layer's window router gave in each step."""

    def __init__(self):
        self.scales = []

    def on_step_end(self, args, state, control, model=None, **_):
        self.scales.append([float(layer.moe.router.bonus_scale) for layer in model.model.layers])


def test_the_bonus_of_a_window_router_grows_with_the_coefficients(tiny, tmp_path):
    watch = WatchBonus()
    args = tiny.arguments(tmp_path, save_strategy="no", max_steps=6, coefficient_warmup_steps=4)
    model = tiny.model(router_type="hysteresis")
    tiny.StickyTrainer(model, args, tiny.chunks(), callbacks=[watch]).train()
    assert watch.scales == [[scale] * 2 for scale in (0.0, 0.25, 0.5, 0.75, 1.0, 1.0)]


def test_any_trainer_with_a_warm_up_of_its_own_gets_a_bonus_that_grows(tiny, tmp_path):
    class Warmed(StickyTrainerMixin, Trainer):
        def coefficient_scale(self, step):
            return min(1.0, step / 2)

    watch = WatchBonus()
    args = TrainingArguments(str(tmp_path), max_steps=3, use_cpu=True, save_strategy="no", report_to="none")
    rows = [{"input_ids": row, "labels": row} for row in torch.arange(24).remainder(23).view(4, 6)]
    Warmed(tiny.model(router_type="hysteresis"), args, train_dataset=rows, callbacks=[watch]).train()
    assert watch.scales == [[0.0] * 2, [0.5] * 2, [1.0] * 2]


def test_the_loss_in_evaluation_is_cross_entropy_alone(tiny, tmp_path):
    rows = tiny.ragged_rows(8)
    args = tiny.arguments(tmp_path, objective={"consistency": 1e3}, per_device_eval_batch_size=8)
    trainer = tiny.StickyTrainer(tiny.model(), args, rows, rows)
    with torch.no_grad():
        expected = naive_loss(tiny.model(), rows, {})[0]
    assert trainer.evaluate()["eval_loss"] == pytest.approx(float(expected), rel=1e-5)


def test_bf16_on_the_cpu_computes_in_bf16_and_routes_in_float32(tiny, tmp_path):
    seen = {}

    class Watch(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, **_):
            layer = model.model.layers[0]
            layer.attention.qkv_proj.register_forward_hook(lambda _m, _i, out: seen.update(attention=out.dtype))
            layer.moe.router.register_forward_hook(lambda _m, _i, out: seen.update(gates=out.gate_probs.dtype))

    args = tiny.arguments(tmp_path, bf16=True, save_strategy="no", max_steps=2)
    trainer = tiny.StickyTrainer(tiny.model(), args, tiny.chunks(), callbacks=[Watch()])
    trainer.train()
    assert seen == {"attention": torch.bfloat16, "gates": torch.float32}
    assert next(trainer.model.parameters()).dtype == torch.float32


def test_a_step_of_nothing_but_padding_has_loss_zero_and_leaves_no_nan(tiny, tmp_path):
    row = {
        "input_ids": torch.zeros(5, dtype=torch.long),
        "shift_labels": torch.full((5,), -100),
        "attention_mask": torch.zeros(5, dtype=torch.long),
    }

    def collate(rows):
        return {name: torch.stack([each[name] for each in rows]) for name in rows[0]}

    args = tiny.arguments(tmp_path, max_steps=1, logging_steps=1, save_strategy="no", objective=MEANS | NOT_MEANS)
    trainer = tiny.StickyTrainer(tiny.model(), args, [row] * 4, data_collator=collate)
    trainer.train()
    (logged,) = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert (logged["cross_entropy"], logged["consistency"], logged["reuse"]) == (0.0, 0.0, 0.0)
    assert logged["switch_rate"] == [None, None]
    assert all(bool(weight.isfinite().all()) for weight in trainer.model.parameters())


def test_sequences_of_one_token_have_cross_entropy_but_no_pairs(tiny, tmp_path):
    args = tiny.arguments(tmp_path, max_steps=1, logging_steps=1, save_strategy="no")
    tiny.StickyTrainer(tiny.model(), args, tiny.chunks(seq_len=1)).train()
    (row,) = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert row["cross_entropy"] > 0
    assert row["consistency"] == 0
    assert row["switch_rate"] == [None, None]
    assert None not in row["gate_entropy_bits"]


def test_chunks_longer_than_the_models_positions_are_refused(tiny, tmp_path):
    chunks = tiny.chunks(seq_len=tiny.SEQ_LEN + 1, respect_documents=False)
    with pytest.raises(SettingError, match=r"sequence length must be <= max_position_embeddings \(8\), got 9"):
        tiny.StickyTrainer(tiny.model(), tiny.arguments(tmp_path), chunks).train()


class Poison(TrainerCallback):
    """Spoils a weight before a step."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, model=None, **_):
        if state.global_step + 1 == self.step:
            with torch.no_grad():
                model.model.final_norm.weight.fill_(float("nan"))


def test_a_loss_that_is_no_number_stops_the_run_before_it_is_saved(tiny, tmp_path):
    args = tiny.arguments(tmp_path, gradient_accumulation_steps=2, max_steps=8, save_steps=2)
    trainer = tiny.StickyTrainer(tiny.model(), args, tiny.chunks(), callbacks=[Poison(6)])
    with pytest.raises(TrainingError) as raised:
        trainer.train()
    # 7 batches an epoch are 4 steps (2 + 2 + 2 + 1); step 6 is the second of epoch 2 and begins with batch 3
    message = str(raised.value)
    assert message.startswith("cross-entropy is nan at step 6 (batch 3 of epoch 2, seed 3)")
    assert f"the last good checkpoint is {tmp_path / 'checkpoint-4'}" in message
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == ["checkpoint-2", "checkpoint-4"]


def test_a_gradient_that_is_no_number_stops_the_run_before_it_is_saved(tiny, tmp_path):
    trainer = tiny.StickyTrainer(tiny.model(), tiny.arguments(tmp_path), tiny.chunks())
    weight = trainer.model.model.final_norm.weight
    weight.register_hook(lambda grad: grad * float("inf") if trainer.state.global_step == 3 else grad)
    with pytest.raises(
        TrainingError, match=r"the gradient's norm is (inf|nan) at step 4 \(batch 4 of epoch 1, seed 3\)"
    ):
        trainer.train()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]


def test_training_prints_nothing_and_reports_to_the_given_function(tiny, tmp_path, capfd):
    told = []
    trainer = tiny.StickyTrainer(
        tiny.model(), tiny.arguments(tmp_path), tiny.chunks(), progress=lambda *report: told.append(report)
    )
    trainer.train()
    assert capfd.readouterr() == ("", "")
    assert [(step, total) for step, total, _ in told] == [(step, 6) for step in (0, 1, 2, 3, 4, 5, 6, 6)]
    assert told[1][2] is None
    assert told[-1][2]["step"] == 6


def test_a_starved_expert_is_told_of_once(tiny, tmp_path, caplog):
    model = tiny.model()
    layer = model.model.layers[1]
    with torch.no_grad():  # the norm's output sums to 8, so that expert 3's logit is always -100
        layer.moe_norm.bias.fill_(1.0)
        layer.moe.router.weight[3] = -100 / 8
    args = tiny.arguments(tmp_path, collapse_steps=3, learning_rate=1e-9, logging_steps=6, save_strategy="no")
    with caplog.at_level(logging.WARNING):
        tiny.StickyTrainer(model, args, tiny.chunks()).train()
    (told,) = [message for message in caplog.messages if "has collapsed" in message]
    assert told.startswith(
        "expert 3 of layer 1 has collapsed: under 1 % of the tokens in each of the 3 steps up to step 3"
    )
