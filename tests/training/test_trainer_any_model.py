"""`StickyTrainer` on models of transformers: corpora with documents, batches with labels, evaluation, checkpoints."""

import itertools
import json

import pytest
import torch
from transformers import TrainerCallback

from stickymoe.capture import capture_routing
from stickymoe.core.errors import SettingError
from stickymoe.training import StickyTrainer

pytestmark = pytest.mark.hf
OBJECTIVE = {"consistency": 0.7, "router_z": 0.2}


class StopAfterTwo(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step >= 2


def arguments(tiny, folder, **overrides):
    settings = {"max_steps": 1, "save_strategy": "no", "max_grad_norm": 0.0, "logging_steps": 1, "learning_rate": 1e-3}
    return tiny.arguments(folder, objective=OBJECTIVE, **(settings | overrides))


def documents_of(row):
    """The places at which the documents of a row begin and end."""
    ids = row["document_ids"].tolist()
    borders = [0, *(place for place in range(1, len(ids)) if ids[place] != ids[place - 1]), len(ids)]
    return list(itertools.pairwise(borders))


def document_by_document(step, model, rows):
    """Gradients of all rows, every document of every row by itself, every target, pair and token by itself."""
    losses, pairs, tokens = [], [], []
    for row in rows:
        for begin, end in documents_of(row):
            with capture_routing(model) as capture:
                logits = model(input_ids=row["input_ids"][None, begin:end], use_cache=False).logits[0]
            losses += list(-logits.log_softmax(-1)[range(end - begin), row["shift_labels"][begin:end]])
            routing = capture.routing
            for place in range(end - begin):
                tokens.append(sum(layer[0, place].logsumexp(-1).square() for layer in routing.router_logits))
                if place:
                    pairs.append(sum((g[0, place] - g[0, place - 1]).square().sum() for g in routing.gate_probs))
    terms = {"consistency": sum(pairs) / len(pairs), "router_z": sum(tokens) / len(tokens)}
    weighted = sum(OBJECTIVE[name] * value / routing.num_layers for name, value in terms.items())
    (sum(losses) / len(losses) + weighted).backward()
    return step.gradients(model)


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "deepseek_v3"])
def test_rows_with_documents_and_padding_have_the_gradient_of_the_documents(tiny, step, tmp_path, family):
    rows = tiny.ragged_rows(6)
    expected = document_by_document(step, step.build(family), rows)
    keep = step.KeepGradients()
    args = arguments(tiny, tmp_path, per_device_train_batch_size=3, gradient_accumulation_steps=2)
    trainer = StickyTrainer(step.build(family), args, rows, callbacks=[keep])
    trainer.train()
    torch.testing.assert_close(keep.found[0], expected, rtol=1e-3, atol=2e-6)
    (row,) = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert len(row["switch_rate"]) == len(row["terms_by_layer"]["consistency"]) == len(trainer.sticky.layer_names)


def test_batches_with_labels_at_their_own_positions_train_and_evaluate(tiny, step, tmp_path):
    rows = step.ragged_rows()
    expected = step.row_by_row(step.build("mixtral"), rows)
    keep = step.KeepGradients()
    args = arguments(tiny, tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=2)
    model = step.build("mixtral")
    trainer = StickyTrainer(model, args, rows, rows, data_collator=step.padded, callbacks=[keep])
    with torch.no_grad():
        loss = model(**step.padded(rows)).loss
    args.per_device_eval_batch_size = 4
    assert trainer.evaluate()["eval_loss"] == pytest.approx(float(loss), rel=1e-5)
    trainer.train()
    torch.testing.assert_close(keep.found[0], expected, rtol=1e-3, atol=2e-6)


def test_the_loss_in_evaluation_leaves_the_models_own_load_balancing_out(tiny, step, tmp_path):
    losses = []
    for asked in (False, True):
        model = step.build("mixtral", output_router_logits=asked, router_aux_loss_coef=10.0)
        args = arguments(tiny, tmp_path, per_device_eval_batch_size=4)
        trainer = StickyTrainer(model, args, None, tiny.chunks(tokens=60))
        losses.append(trainer.evaluate()["eval_loss"])
        assert model.config.output_router_logits is asked
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_a_resumed_run_ends_with_the_weights_it_would_have_had(tiny, step, tmp_path, one_thread):
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "seed": 7}
    whole = StickyTrainer(step.build("qwen3_moe"), arguments(tiny, tmp_path / "whole", **settings), tiny.chunks())
    whole.train()
    parts = arguments(tiny, tmp_path / "parts", **settings)
    StickyTrainer(step.build("qwen3_moe"), parts, tiny.chunks(), callbacks=[StopAfterTwo()]).train()
    resumed = StickyTrainer(step.build("qwen3_moe"), arguments(tiny, tmp_path / "parts", **settings), tiny.chunks())
    resumed.train(resume_from_checkpoint=True)
    torch.testing.assert_close(resumed.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)


def test_routers_that_learn_nothing_are_logged_where_no_term_would_move_them(tiny, tmp_path):
    args = tiny.arguments(tmp_path, objective={}, report_terms=["consistency"], max_steps=1, logging_steps=1)
    trainer = StickyTrainer(tiny.model(router_type="hash"), args, tiny.chunks())
    trainer.train()
    (row,) = [row for row in trainer.state.log_history if "loss" in row]
    assert row["loss"] == pytest.approx(row["cross_entropy"])
    assert row["consistency"] > 0


def test_a_batch_without_targets_is_refused(tiny, step, tmp_path):
    def collate(rows):
        return {"input_ids": step.padded(rows)["input_ids"]}

    trainer = StickyTrainer(step.build("mixtral"), arguments(tiny, tmp_path), step.ragged_rows(), data_collator=collate)
    with pytest.raises(SettingError, match="labels or shift_labels"):
        trainer.train()
