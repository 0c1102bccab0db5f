"""A run folder: one process at a time, one recipe, and a clear word on what is missing."""

import json
import multiprocessing
import shutil
import signal

import pytest

from stickymoe.core.errors import CheckpointError, SettingError, StorageError
from stickymoe.experiments import run_folder
from stickymoe.experiments.recipe_file import save_recipe
from stickymoe.experiments.run_folder import claimed, is_finished, model_folder, recipe_of, require_own_recipe, stands


def rewrite(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def hold(folder, ready):
    with claimed(folder):
        ready.set()
        signal.pause()


def test_a_claimed_folder_is_refused_to_others_until_the_process_ends_however_it_ends(tmp_path):
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    process = context.Process(target=hold, args=(tmp_path, ready))
    process.start()
    assert ready.wait(30)
    with pytest.raises(SettingError, match="is in use by another training process"), claimed(tmp_path):
        pass
    process.kill()
    process.join()
    with claimed(tmp_path):
        pass


def test_a_claim_is_given_back_and_makes_missing_folders(tmp_path):
    for _ in range(2):
        with claimed(tmp_path / "a" / "b"):
            assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("place", ["file", "file/below", "n" * 300])
def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, place):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot be written: .*; choose another --out"), claimed(tmp_path / place):
        pass


def test_a_run_is_gone_on_with_only_when_asked_and_only_by_its_own_recipe(trained, tiny):
    run = trained / "run"
    require_own_recipe(run, tiny(), resume=True)
    require_own_recipe(run, tiny("training.log_every=7", "name=other"), resume=True)
    with pytest.raises(SettingError, match="already holds a run; add --resume"):
        require_own_recipe(run, tiny(), resume=False)
    with pytest.raises(SettingError, match=r"another recipe \(training\.steps 8 -> 9\); choose another --out"):
        require_own_recipe(run, tiny("training.steps=9"), resume=True)


def test_a_folder_without_a_run_may_be_used(tmp_path, tiny):
    require_own_recipe(tmp_path, tiny(), resume=False)


def test_the_trained_run_stands_and_is_finished(trained, tiny):
    assert stands(trained / "run", tiny())
    assert is_finished(trained / "run", tiny(), "validation")
    assert not is_finished(trained / "run", tiny(), "test")
    assert not is_finished(trained / "run", tiny("label=Other"), "validation")
    assert not stands(trained / "run", tiny("training.seed=1"))
    assert not stands(trained, tiny())


def test_an_interrupted_run_stands_whatever_code_began_it(tmp_path, tiny):
    save_recipe(tiny(), tmp_path / "recipe.toml")
    assert stands(tmp_path, tiny())
    assert not is_finished(tmp_path, tiny(), "validation")


def test_a_run_trained_by_other_code_does_not_stand(run_copy, tiny):
    rewrite(run_copy / "train.json", made_by="0.0.1 abc")
    assert not stands(run_copy, tiny())
    assert not is_finished(run_copy, tiny(), "validation")


@pytest.mark.parametrize("missing", ["metrics.json", "trace-validation.parquet", "model"])
def test_a_run_that_lacks_a_result_is_not_finished_but_stands(run_copy, tiny, missing):
    path = run_copy / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert stands(run_copy, tiny())
    assert not is_finished(run_copy, tiny(), "validation")


def test_a_label_that_was_not_given_is_the_name(run_copy, tiny):
    nameless = tiny().model_copy(update={"label": None})
    rewrite(run_copy / "metrics.json", label=nameless.name)
    assert is_finished(run_copy, nameless, "validation")


@pytest.mark.parametrize("damage", ["{", "[]", "3", None])
def test_damaged_facts_do_not_stand(run_copy, tiny, damage):
    (run_copy / "train.json").write_text(damage) if damage else (run_copy / "train.json").write_bytes(b"\xff")
    assert not stands(run_copy, tiny())


def test_where_there_is_no_model_the_message_says_how_to_get_one(tmp_path, tiny):
    with pytest.raises(CheckpointError, match="does not exist; train one with stickymoe train"):
        model_folder(tmp_path / "nope")
    with pytest.raises(CheckpointError, match="holds no trained model"):
        model_folder(tmp_path)
    save_recipe(tiny(), tmp_path / "recipe.toml")
    with pytest.raises(CheckpointError, match=r"finish it with stickymoe train .*recipe\.toml --out .* --resume"):
        model_folder(tmp_path)


def test_a_saved_model_alone_is_no_run(trained):
    assert model_folder(trained / "run" / "model") == trained / "run" / "model"
    with pytest.raises(CheckpointError, match=r"is no run folder, it has no recipe\.toml"):
        recipe_of(trained / "run" / "model")


def test_a_run_knows_its_recipe(trained, tiny):
    assert recipe_of(trained / "run") == tiny()


def test_json_that_is_no_object_is_named(tmp_path):
    (tmp_path / "train.json").write_text("[1]")
    with pytest.raises(CheckpointError, match=r"train\.json must hold one JSON object, got list"):
        run_folder.read_facts(tmp_path)
