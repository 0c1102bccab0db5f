"""Training and measuring a run: complete results, and the same weights whatever came between."""

import json
import logging
import os
import signal

import pytest
from safetensors.torch import load_file

from stickymoe.core.errors import CheckpointError, DataError, SettingError, TrainingError
from stickymoe.experiments import run as run_module
from stickymoe.experiments.arguments import trainer_arguments
from stickymoe.experiments.metrics_file import RoutingMeasures
from stickymoe.experiments.ranks import Ranks
from stickymoe.experiments.results import RunResult
from stickymoe.experiments.run import corpus_of, evaluate_run, passage_of, train_run
from stickymoe.traces import RoutingTrace
from stickymoe.training import Interrupted
from stickymoe.training.checkpoints import seal


def weights(run):
    return {name: tensor.numpy().tobytes() for name, tensor in load_file(run / "model" / "model.safetensors").items()}


def at_step(step, action):
    """Progress that does `action` when training reaches `step`."""

    def progress(description, done, total):
        if description.startswith("training") and done == step:
            action()

    return progress


def test_a_run_folder_holds_everything_and_the_metrics_are_complete(trained, tiny):
    run = trained / "run"
    result = RunResult.load(run)
    read = result.read
    assert (result.name, result.label, read.split, read.seed) == ("tiny", "Tiny λ=0.1", "validation", 42)
    assert set(result.metrics["routing"]) == set(RoutingMeasures.model_fields)
    assert all(len(getattr(read.routing, name).per_layer) == 2 for name in RoutingMeasures.model_fields)
    assert read.cache[0].semantics.is_the_papers
    assert {(counts.accesses, counts.capacity) for counts in read.cache[1:]} == {("topk", 2), ("topk", 3)}
    assert read.train.steps == 8
    assert read.train.tokens_per_step == 4 * 16
    assert (read.num_experts, read.top_k, read.num_layers) == (4, 2, 2)
    assert result.metrics["recipe"] == tiny().fingerprint()
    assert {"split_rule", "tokenizer", "counts", "fingerprint"} <= set(result.metrics["corpus"])
    assert result.log[-1]["step"] == 8
    assert "Tiny λ=0.1 on text" in (run / "report.html").read_text(encoding="utf-8")
    assert read.predicted_tokens == corpus_of(tiny()).splits["validation"].num_tokens - 1
    assert len(RoutingTrace.load(run / "trace-validation.parquet").expert_ids) == read.predicted_tokens


def test_an_interrupted_run_resumed_ends_with_the_undisturbed_runs_weights(trained, tiny, tmp_path):
    with pytest.raises(Interrupted) as stopped:
        train_run(tiny(), tmp_path, progress=at_step(5, lambda: os.kill(os.getpid(), signal.SIGINT)))
    assert stopped.value.checkpoint.name in ("checkpoint-5", "checkpoint-6")
    with pytest.raises(CheckpointError, match="holds an unfinished run; finish it with"):
        evaluate_run(tmp_path)
    result = train_run(tiny(), tmp_path, resume=True)
    assert weights(tmp_path) == weights(trained / "run")
    assert result.read.perplexity == RunResult.load(trained / "run").read.perplexity
    assert [row["step"] for row in result.log] == sorted({row["step"] for row in result.log})


def test_a_run_that_died_between_checkpoints_resumed_ends_with_the_same_weights(trained, tiny, tmp_path):
    with pytest.raises(ZeroDivisionError):
        train_run(tiny(), tmp_path, progress=at_step(6, lambda: 1 / 0))
    train_run(tiny(), tmp_path, resume=True)
    assert weights(tmp_path) == weights(trained / "run")


def test_resuming_a_finished_run_only_evaluates_it(run_copy, tiny, monkeypatch):
    before = weights(run_copy)
    monkeypatch.setattr(run_module, "build_model", lambda *_: pytest.fail("nothing is to be trained"))
    assert train_run(tiny(), run_copy, resume=True, split="test").read.split == "test"
    assert weights(run_copy) == before


def test_a_model_that_was_not_saved_is_saved_from_the_last_checkpoint(run_copy, tiny):
    before = weights(run_copy)
    (run_copy / "model" / "model.safetensors").unlink()
    train_run(tiny(), run_copy, resume=True)
    assert weights(run_copy) == before


def test_evaluating_leaves_a_trace_and_metrics_of_the_split_asked_for(run_copy, tiny):
    seen = []
    corpus = corpus_of(tiny())
    result = evaluate_run(run_copy, "test", batch_size=3, progress=lambda *told: seen.append(told))
    assert result.read.predicted_tokens == corpus.splits["test"].num_tokens - 1
    assert seen[-1] == ("evaluating on test", seen[-1][2], seen[-1][2])
    passage = passage_of(result, run_copy, corpus)
    text = corpus.tokenizer.decode(corpus.splits["test"].tokens[: len(passage.pieces)])
    assert "".join(passage.pieces) == text
    assert len(passage.pieces) == 16  # one chunk


def test_the_batch_size_does_not_change_what_is_measured(run_copy):
    one, many = (evaluate_run(run_copy, "validation", batch_size=size).metrics for size in (1, 64))
    assert one["cross_entropy"] == pytest.approx(many["cross_entropy"], rel=1e-6)
    assert one["cache"] == many["cache"]


def test_a_missing_trace_is_named(run_copy, tiny):
    (run_copy / "trace-validation.parquet").unlink()
    with pytest.raises(CheckpointError, match=r"trace-validation\.parquet is missing; evaluate the run again"):
        passage_of(RunResult.load(run_copy), run_copy, corpus_of(tiny()))


def test_a_checkpoint_of_another_architecture_is_refused_in_one_line(run_copy, tiny):
    (run_copy / "model" / "model.safetensors").unlink()
    config = run_copy / "checkpoint-8" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"hidden_size": 32}))
    seal(run_copy / "checkpoint-8")
    with pytest.raises(CheckpointError, match="hidden_size 32 there and 16 here") as caught:
        train_run(tiny(), run_copy, resume=True)
    assert "\n" not in str(caught.value)


def test_a_damaged_checkpoint_is_refused_by_name_and_the_one_before_used(trained, run_copy, tiny, caplog):
    (run_copy / "model" / "model.safetensors").unlink()
    (run_copy / "checkpoint-8" / "model.safetensors").write_bytes(b"x")
    with caplog.at_level(logging.WARNING):
        train_run(tiny(), run_copy, resume=True)
    assert "checkpoint-8 is refused" in caplog.text
    assert weights(run_copy) == weights(trained / "run")


@pytest.mark.parametrize(
    ("overrides", "split", "error", "message"),
    [
        (
            ["training.batch_size=100000"],
            "test",
            SettingError,
            r"batch_size .* must be <= \d+, the chunks of the train",
        ),
        (["objective.cross_layer=0.1"], "test", SettingError, "set objective.allow_unshared"),
        (["training.report_to=['nothing']"], "test", SettingError, r"training.report_to \['nothing'\] cannot be used"),
        (["data.tokenizer=bpe-3"], "test", SettingError, "tokenizer vocabulary must be >= 257, got 3"),
        (["data.corpus=nowhere"], "test", SettingError, "corpus must be one of .* got 'nowhere'"),
        ([], "tset", DataError, "split of text must be one of train, validation, test, got 'tset'"),
    ],
)
def test_what_cannot_be_trained_is_refused_and_leaves_no_run_behind(tiny, tmp_path, overrides, split, error, message):
    with pytest.raises(error, match=message):
        train_run(tiny(*overrides), tmp_path / "run", split=split)
    assert not (tmp_path / "run" / "recipe.toml").exists()


def test_a_shape_that_breaks_a_rule_is_refused_before_the_corpus_is_read(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "load_corpus", lambda *_, **__: pytest.fail("read"))
    with pytest.raises(SettingError, match="num_experts_per_tok must be <= "):
        train_run(tiny("model.num_experts_per_tok=9"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_split_shorter_than_one_chunk_is_refused(tiny, tmp_path):
    (tmp_path / "text").mkdir()
    for number in range(3):
        (tmp_path / "text" / f"{number}.txt").write_text("a b")
    recipe = tiny(f"data.corpus={tmp_path / 'text'}", "data.tokenizer=bpe-257")
    with pytest.raises(DataError, match="a corpus split must have >= 17 tokens for one chunk of seq_len 16"):
        train_run(recipe, tmp_path / "run")


def test_a_loss_that_is_no_number_names_the_step_and_the_last_good_checkpoint(tiny, tmp_path):
    with pytest.raises(TrainingError, match=r"at step \d+ .* checkpoint"):
        train_run(tiny("training.peak_learning_rate=1e30", "training.warmup_steps=0"), tmp_path)


def test_every_key_of_the_recipe_reaches_the_trainer(tiny, tmp_path):
    recipe = tiny(
        "training.steps=2", "training.gradient_accumulation=2", "training.batch_size=2", "training.evaluate_every=1",
        "training.activation_checkpointing=true", "training.log_every=1", "objective.boundary_weight=0.5",
        "objective.warmup_steps=4", "objective.window=2", "objective.anchor=0.5", "data.respect_documents=false",
        "model.dropout=0.1",
    )  # fmt: skip
    result = train_run(recipe, tmp_path)
    training = [row for row in result.log if "cross_entropy" in row]
    assert [row["step"] for row in result.log if "eval_loss" in row] == [1, 2]
    assert [row["coefficient_scale"] for row in training] == [0.0, 0.25]
    assert result.read.train.tokens_per_step == 64
    assert RoutingTrace.load(tmp_path / "trace-validation.parquet").document_ids is None
    arguments = trainer_arguments(recipe, tmp_path, corpus_of(recipe), Ranks())
    assert (arguments.window, arguments.boundary_weight, arguments.objective["anchor"]) == (2, 0.5, 0.5)
    assert arguments.boundary_token_ids
    assert arguments.activation_checkpointing


def test_a_home_folder_in_a_path_is_found_and_a_name_is_left_alone(tiny, monkeypatch, trained):
    monkeypatch.setenv("HOME", str(trained))
    assert corpus_of(tiny("data.corpus=~/text")).name == "text"
    assert run_module._at_home("./sotu") == "./sotu"
