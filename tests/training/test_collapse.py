"""The collapse alarm against hand-worked loads."""

import logging

import numpy as np

from stickymoe.training.collapse import CollapseAlarm


def feed(alarm, loads, first=1):
    """Feed steps of one layer with 100 tokens each and return the steps that warned, with the experts."""
    warned = {}
    for step, load in enumerate(loads, start=first):
        if found := alarm.update(step, np.array([load], dtype=float), 100.0):
            warned[step] = found
    return warned


def test_an_expert_under_the_share_for_all_the_steps_is_named_once(caplog):
    alarm = CollapseAlarm(share=0.01, steps=3)
    with caplog.at_level(logging.WARNING):
        assert feed(alarm, [[99.5, 0.5]] * 8) == {3: [(0, 1)]}
    (message,) = caplog.messages
    assert message.startswith(
        "expert 1 of layer 0 has collapsed: under 1 % of the tokens in each of the 3 steps up to step 3"
    )


def test_one_good_step_starts_the_count_anew():
    assert feed(CollapseAlarm(0.01, 3), [[99, 0], [99, 0], [99, 1], [99, 0], [99, 0]]) == {}


def test_an_expert_that_recovers_and_starves_again_is_named_again():
    starved, healthy = [99.5, 0.5], [50, 50]
    assert feed(CollapseAlarm(0.01, 2), [starved] * 3 + [healthy] + [starved] * 3) == {2: [(0, 1)], 6: [(0, 1)]}


def test_exactly_the_share_is_enough():
    assert feed(CollapseAlarm(0.01, 1), [[99, 1]]) == {}


def test_a_step_without_tokens_neither_counts_nor_recovers():
    alarm = CollapseAlarm(0.01, 2)
    assert alarm.update(1, np.array([[99.5, 0.5]]), 100.0) == []
    assert alarm.update(2, np.array([[0.0, 0.0]]), 0.0) == []
    assert alarm.update(3, np.array([[99.5, 0.5]]), 100.0) == [(0, 1)]


def test_every_layer_has_its_own_experts():
    alarm = CollapseAlarm(0.01, 1)
    assert alarm.update(1, np.array([[0.0, 100.0], [100.0, 0.0]]), 100.0) == [(0, 0), (1, 1)]
