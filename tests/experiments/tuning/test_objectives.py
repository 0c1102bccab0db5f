"""The objectives by name: known terms, no balance, and words that change them."""

import pytest

from stickymoe.core.errors import SettingError
from stickymoe.experiments.tuning.objectives import OBJECTIVES, choose_objective, read_terms
from stickymoe.losses import TERMS, Objective


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_is_of_known_terms_with_balance_off(name):
    found = OBJECTIVES[name]
    Objective(found.coefficients)
    assert found.name == name
    assert "load_balancing" not in found.coefficients
    assert all(value > 0 for value in found.coefficients.values())


def test_remoe_has_all_of_its_terms_and_says_that_their_weights_are_not_its_own():
    assert set(OBJECTIVES["remoe"].coefficients) == {"reuse", "smoothness", "lag", "working_set", "trust"}
    assert "ours" in OBJECTIVES["remoe"].open_choices


def test_an_objective_says_in_a_line_what_it_is_and_what_is_open():
    assert OBJECTIVES["ce"].worded() == "cross-entropy alone: what more training by itself does"
    assert OBJECTIVES["paper"].worded().endswith("the consistency loss alone (consistency 0.1)")
    what, _, choices = OBJECTIVES["reuse"].worded().partition("; ")
    assert what == "ReMoE's reuse mass and trust alone (reuse 0.1, trust 0.1)"
    assert choices == "open in the paper as we have it: the weights of its terms: ours"


def test_the_papers_simulation_has_the_papers_numbers():
    assert (OBJECTIVES["paper"].coefficients, OBJECTIVES["paper"].learning_rate) == ({"consistency": 0.1}, 1e-4)
    assert OBJECTIVES["paper"].open_choices == ""


def test_words_change_terms_and_zero_takes_one_out():
    terms = read_terms(["reuse=0.5", "trust=0", "load_balancing=1e-2"])
    found = choose_objective("remoe", terms).coefficients
    assert found["reuse"] == 0.5
    assert found["load_balancing"] == 0.01
    assert set(found) == {"reuse", "smoothness", "lag", "working_set", "load_balancing"}
    assert OBJECTIVES["remoe"].coefficients["reuse"] == 0.1


def test_a_coefficient_that_is_none_is_left_for_the_settings_to_refuse():
    for value in ("-1", "nan"):
        found = choose_objective("remoe", read_terms([f"reuse={value}"])).coefficients
        with pytest.raises(SettingError, match=r"objective.reuse must be a finite number >= 0"):
            Objective(found)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reus=0.5"], r"term must be one of .*, got 'reus'; did you mean 'reuse'\?"),
        (["reuse"], "term must be TERM=COEFFICIENT, such as reuse=0.5, got 'reuse'"),
        (["reuse=much"], "term must be TERM=COEFFICIENT, such as reuse=0.5, got 'reuse=much'"),
        (["reuse=1", "reuse=2"], "term reuse must be given once, got it twice"),
    ],
)
def test_words_that_mean_nothing_are_refused(words, message):
    with pytest.raises(SettingError, match=f"^{message}$"):
        read_terms(words)


def test_an_unknown_objective_is_refused_with_the_nearest():
    with pytest.raises(SettingError, match=r"^objective must be one of .*, got 'remo'; did you mean 'remoe'\?$"):
        choose_objective("remo")


def test_every_term_can_be_named():
    assert read_terms(f"{name}=1" for name in TERMS) == dict.fromkeys(TERMS, 1.0)
