"""Beginning with another run's weights, and training the routers alone: what changes, what provably does not."""

import json
import shutil

import pytest
from safetensors.torch import load_file

from stickymoe.core.errors import CheckpointError, SettingError, TrainingError
from stickymoe.core.files import sha256_of
from stickymoe.experiments import start as start_module
from stickymoe.experiments.recipe_file import load_recipe
from stickymoe.experiments.run import train_run
from stickymoe.experiments.run_folder import recipe_of
from stickymoe.experiments.start import OnlyRouters, start_of
from stickymoe.experiments.variants import REMOE


def weights(run):
    return {name: tensor.numpy().tobytes() for name, tensor in load_file(run / "model" / "model.safetensors").items()}


@pytest.fixture
def place(trained, tmp_path):
    """A folder with the trained run under the name `vanilla`."""
    shutil.copytree(trained / "run", tmp_path / "vanilla")
    return tmp_path


def test_remoe_begins_with_vanillas_weights_and_changes_the_gates_alone(tiny, place):
    base = tiny("training.steps=30", "training.warmup_steps=10")
    train_run(REMOE.apply(base), place / "remoe")
    before, after = weights(place / "vanilla"), weights(place / "remoe")
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {f"model.layers.{layer}.moe.router.weight" for layer in range(2)}
    facts = json.loads((place / "remoe" / "train.json").read_text())
    assert facts["steps"] == 3
    assert facts["start"] == {
        "run": "vanilla",
        "recipe": recipe_of(place / "vanilla").fingerprint(),
        "sha256": sha256_of(place / "vanilla" / "model" / "model.safetensors"),
    }
    assert facts["frozen"]["trained"] == sorted(changed)
    assert len(facts["frozen"]["sha256"]) == 64


def test_a_run_of_the_routers_that_was_interrupted_goes_on_from_its_own_checkpoint(tiny, place):
    recipe = tiny("training.steps=4", "training.checkpoint_every=2", "training.train_only=routers",
                  "training.start_from=vanilla")  # fmt: skip
    train_run(recipe, place / "whole")
    train_run(recipe, place / "part")
    for gone in ("model", "checkpoint-4"):
        shutil.rmtree(place / "part" / gone)
    train_run(recipe, place / "part", resume=True)
    assert weights(place / "part") == weights(place / "whole")


def test_a_start_may_be_a_path_and_all_weights_may_go_on(tiny, trained, place):
    recipe = tiny("training.steps=2", "training.warmup_steps=0", f"training.start_from={trained / 'run'}")
    train_run(recipe, place / "on")
    before, after = weights(trained / "run"), weights(place / "on")
    assert all(before[name] != after[name] for name in before if name.endswith("proj"))
    assert "frozen" not in json.loads((place / "on" / "train.json").read_text())


def test_a_start_that_is_not_there_or_unfinished_is_refused_before_the_corpus_is_read(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("stickymoe.experiments.run.load_corpus", lambda *_, **__: pytest.fail("read"))
    recipe = tiny("training.start_from=vanilla")
    with pytest.raises(CheckpointError, match=r"^training.start_from must be a finished run, got 'vanilla'; .* exist"):
        train_run(recipe, tmp_path / "remoe")
    (tmp_path / "vanilla").mkdir()
    (tmp_path / "vanilla" / "recipe.toml").write_text("")
    with pytest.raises(CheckpointError, match=r"got 'vanilla'; .* holds an unfinished run"):
        train_run(recipe, tmp_path / "remoe")
    with pytest.raises(SettingError, match=r"training.start_from must be another run .*, got 'vanilla'"):
        start_of(recipe, tmp_path / "vanilla")
    assert start_of(tiny(), tmp_path / "x") is None


def test_a_start_of_another_shape_or_with_other_tokens_is_refused(tiny, place):
    with pytest.raises(CheckpointError, match="expert_intermediate_size 16 there and 8 here"):
        train_run(tiny("training.start_from=vanilla", "model.expert_intermediate_size=8"), place / "x")
    tokenizer = json.loads((place / "vanilla" / "model" / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    first, second = list(words)[:2]
    words[first], words[second] = words[second], words[first]
    (place / "vanilla" / "model" / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(CheckpointError, match="was trained on other tokens than those of text"):
        train_run(tiny("training.start_from=vanilla"), place / "y")


def test_a_frozen_weight_that_moved_all_the_same_ends_in_an_error(trained):
    model = start_module.load_model(trained / "run")
    only = OnlyRouters(model)
    assert only.proven() == only.proven()
    model.model.final_norm.weight.data[0] += 1e-6
    with pytest.raises(TrainingError, match="weights outside the routers changed: hash"):
        only.proven()


def test_the_start_is_part_of_what_identifies_a_run():
    base = load_recipe("demo")
    assert base.fingerprint() != load_recipe("demo", ["training.start_from=vanilla"]).fingerprint()
