"""TRL's SFTTrainer with the terms: the same gradient as slow loops over rows, padded, packed or split."""

import pytest
import torch

from stickymoe.training import StickyTrainerMixin

pytest.importorskip("datasets")
trl = pytest.importorskip("trl")
pytestmark = [pytest.mark.hf, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class Mixed(StickyTrainerMixin, trl.SFTTrainer):
    """SFTTrainer with the terms."""


@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    numbers = {str(number): number for number in range(3, 64)}
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 2, **numbers}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")


@pytest.fixture
def train(step, tokenizer, tmp_path):
    def train(model, rows, size, accumulate, kind=Mixed, objective=step.OBJECTIVE, coefficient=0.0, **settings):
        from datasets import Dataset

        arguments = trl.SFTConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulate,
            router_aux_loss_coef=coefficient,
            max_steps=1,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            max_grad_norm=0.0,
            disable_tqdm=True,
            train_sampling_strategy="sequential",
            dataset_kwargs={"skip_prepare_dataset": True},
            **settings,
        )
        keep = step.KeepGradients()
        given = {} if objective is None else {"objective": objective}
        data = Dataset.from_list([{name: values.tolist() for name, values in row.items()} for row in rows])
        trainer = kind(model, arguments, train_dataset=data, processing_class=tokenizer, callbacks=[keep], **given)
        trainer.train()
        return trainer, keep.found[0]

    return train


@pytest.fixture(scope="module")
def expected(step):
    return step.row_by_row(step.build("mixtral"), step.ragged_rows())


@pytest.mark.parametrize(("size", "accumulate", "settings"), [(4, 1, {}), (1, 4, {}), (2, 2, {"padding_free": True})])
def test_rows_padded_or_packed_have_one_gradient(step, train, expected, size, accumulate, settings):
    trainer, found = train(step.build("mixtral"), step.ragged_rows(), size, accumulate, max_length=None, **settings)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-6)
    row = next(row for row in trainer.state.log_history if "loss" in row)
    whole = row["loss_without_terms"] + sum(weight * row[name] for name, weight in step.OBJECTIVE.items())
    assert row["loss"] == pytest.approx(whole, rel=1e-4)
    assert "mean_token_accuracy" in row  # what TRL logs is still there


@pytest.mark.parametrize("family", ["qwen3_moe", "deepseek_v3", "gpt_oss"])
def test_other_families_train_under_it(step, train, family):
    expected = step.row_by_row(step.build(family), step.ragged_rows())
    _, found = train(step.build(family), step.ragged_rows(), 2, 2)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-6)


def test_load_balancing_that_trl_counts_right_is_left_as_it_is(step, train):
    rows, losses = step.ragged_rows(), []
    for kind, objective in ((trl.SFTTrainer, None), (Mixed, {})):
        trainer, found = train(step.build("mixtral"), rows, 1, 4, kind=kind, objective=objective, coefficient=3.0)
        losses.append((found, next(row for row in trainer.state.log_history if "loss" in row)))
    (plain, plain_row), (mixed, mixed_row) = losses
    torch.testing.assert_close(mixed, plain, rtol=1e-5, atol=1e-8)
    assert mixed_row["aux_loss"] == plain_row["aux_loss"]
    assert mixed_row["loss"] == pytest.approx(mixed_row["loss_without_terms"] + 3.0 * mixed_row["aux_loss"], rel=1e-4)


def test_preferences_are_trained_with_the_terms_on_both_answers(step, tokenizer, tmp_path):
    from datasets import Dataset

    class MixedDPO(StickyTrainerMixin, trl.DPOTrainer):
        pass

    rows = [
        {"prompt": "5 6 7", "chosen": " 8 9 10", "rejected": " 11 12"},
        {"prompt": "15 16", "chosen": " 18 19", "rejected": " 21 22 23 24"},
    ]
    found = []
    for size, accumulate in ((2, 1), (1, 2)):
        arguments = trl.DPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulate,
            router_aux_loss_coef=0.0,
            max_steps=1,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            max_grad_norm=0.0,
            disable_tqdm=True,
            train_sampling_strategy="sequential",
        )
        keep = step.KeepGradients()
        trainer = MixedDPO(
            step.build("mixtral"),
            step.build("mixtral"),
            args=arguments,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            callbacks=[keep],
            objective={"consistency": 0.7},
        )
        trainer.train()
        found.append(keep.found[0])
        assert any("consistency/layer_0" in row for row in trainer.state.log_history)
    torch.testing.assert_close(*found, rtol=1e-3, atol=2e-6)
