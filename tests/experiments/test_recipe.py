"""The tables of a recipe: what they know, what they refuse, and what makes two runs the same."""

import hashlib

import pytest
from pydantic import ValidationError

from stickymoe.experiments.recipe import (
    BOOKKEEPING,
    ORIGINS,
    DataTable,
    ModelTable,
    ObjectiveTable,
    Recipe,
    TrainingTable,
)
from stickymoe.losses import TERMS
from stickymoe.model.config import SETTINGS


def changed(**tables):
    return Recipe.model_validate({name: {key: value} for name, (key, value) in tables.items()})


def test_every_term_of_the_registry_has_its_coefficient_and_nothing_else_is_one():
    known = set(TERMS) - {"trust"}  # which needs a frozen copy of the routers
    all_on = ObjectiveTable(**dict.fromkeys(known, 0.5))
    assert set(all_on.coefficients()) == known


def test_terms_at_zero_are_switched_off():
    assert ObjectiveTable(consistency=0.0, anchor=2.0, window=3).coefficients() == {"anchor": 2.0}


def test_the_model_table_speaks_of_settings_the_model_has():
    assert set(ModelTable.model_fields) - {"preset", *ORIGINS} <= set(SETTINGS)


def test_an_architecture_has_keys_of_its_own_and_they_count_in_the_fingerprint():
    tables = [{"architecture": "mixtral", "num_local_experts": experts, "hidden_size": 8} for experts in (4, 8)]
    first, second = (Recipe.model_validate({"model": table}) for table in tables)
    assert first.model.settings == {"num_local_experts": 4, "hidden_size": 8}
    assert first.outcome()["model"]["num_local_experts"] == 4
    assert first.fingerprint() != second.fingerprint()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, [1, [float("nan")]], {"a": object()}, b"x"])
def test_a_value_that_no_recipe_file_can_hold_is_refused(value):
    with pytest.raises(ValidationError, match="a finite number, a text, true, false, or a list or table of these"):
        ModelTable.model_validate({"architecture": "mixtral", "other": value})


@pytest.mark.parametrize("other", [{"hidden_size": 8}, {"architecture": "mixtral"}, {"sliding_window": 3}])
def test_a_pretrained_model_takes_no_shape(other):
    with pytest.raises(ValidationError, match=r"left out beside model\.pretrained"):
        ModelTable.model_validate({"pretrained": "folder", **other})


@pytest.mark.parametrize("value", ["many", "5", True, 1.5, 0, -1, None, [1]])
def test_a_count_is_a_whole_number_of_at_least_one_and_nothing_that_resembles_it(value):
    with pytest.raises(ValidationError):
        TrainingTable(steps=value)


@pytest.mark.parametrize("value", [-1e-9, float("nan"), float("inf"), "0.1", True])
def test_a_coefficient_is_a_finite_number_of_at_least_zero(value):
    with pytest.raises(ValidationError):
        ObjectiveTable(consistency=value)


@pytest.mark.parametrize("window", [0, -4, 2.5])
def test_a_window_is_at_least_one(window):
    with pytest.raises(ValidationError):
        ObjectiveTable(window=window)


def test_one_token_is_no_sequence():
    with pytest.raises(ValidationError, match="greater than or equal to 2"):
        DataTable(sequence_length=1)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "a\\b", "a\nb"])
def test_a_name_that_is_no_folder_name_is_refused(name):
    with pytest.raises(ValidationError, match="plain name"):
        Recipe(name=name)


def test_names_do_not_change_the_fingerprint():
    assert Recipe(name="a", label="A").fingerprint() == Recipe(name="b").fingerprint()


def test_the_fingerprint_is_the_same_on_every_machine_and_day():
    again = Recipe.model_validate(Recipe().model_dump(mode="json"))
    assert again.fingerprint() == Recipe().fingerprint()


def test_a_key_at_its_default_leaves_the_fingerprint_as_it_was_before_there_was_that_key():
    assert Recipe().fingerprint() == hashlib.sha256(b"{}").hexdigest()[:16]
    one = hashlib.sha256(b'{"training": {"steps": 5}}').hexdigest()[:16]
    assert changed(training=("steps", 5)).fingerprint() == one
    explicit = Recipe.model_validate({"training": {"steps": 5, "log_every": 3, "seed": 42}, "data": {"corpus": "sotu"}})
    assert explicit.fingerprint() == one


def test_the_defaults_stand_since_results_are_kept_by_what_differs_from_them():
    # Another default for a key that is here already: raise TRAINING_VERSION in experiments/sweeps/versions.py
    known = DEFAULTS | {"respect_documents": True, "train_only": "all", "precision": "bf16", "experts_shared": None}
    found = {key: value for entries in Recipe().outcome().values() for key, value in entries.items()}
    assert {key: found[key] for key in known} == known


@pytest.mark.parametrize("key", BOOKKEEPING)
def test_what_is_noted_on_the_way_does_not_change_the_fingerprint(key):
    value = ["tensorboard"] if key == "report_to" else 7
    assert changed(training=(key, value)).fingerprint() == Recipe().fingerprint()


DEFAULTS = {
    "corpus": "sotu", "tokenizer": "auto", "sequence_length": 256, "window": 4, "boundary_weight": 1.0,
    "warmup_steps": 100, "steps": 1000, "batch_size": 16, "gradient_accumulation": 1, "peak_learning_rate": 3e-4,
    "weight_decay": 0.1, "adam_beta1": 0.9, "adam_beta2": 0.95, "max_grad_norm": 1.0, "seed": 42, "consistency": 0.0,
    "anchor": 0.0, "load_balancing": 0.0, "router_z": 0.0, "cross_layer": 0.0, "reuse": 0.0, "preset": None,
}  # fmt: skip
OUTCOME = [
    (table, key)
    for table, entries in Recipe().outcome().items()
    for key in entries
]  # fmt: skip
OTHER = {
    "corpus": "x", "tokenizer": "x", "preset": "x", "router_type": "x", "precision": "fp32", "boundary_weight": 0.5,
    "router_recursive": True, "router_input": "x", "experts_shared": "x", "train_only": "routers", "start_from": "x",
    "dropout": 0.25, "adam_beta1": 0.5, "adam_beta2": 0.5, "architecture": "mixtral", "pretrained": "x",
}  # fmt: skip


@pytest.mark.parametrize(("table", "key"), OUTCOME)
def test_every_key_that_changes_the_outcome_changes_the_fingerprint(table, key):
    before = Recipe().outcome()[table][key]
    after = not before if isinstance(before, bool) else OTHER.get(key, 77)
    assert changed(**{table: (key, after)}).fingerprint() != Recipe().fingerprint()
