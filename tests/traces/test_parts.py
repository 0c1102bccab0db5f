"""Parts of traces and traces of parts."""

import dataclasses
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stickymoe.core.errors import SettingError, TraceError
from stickymoe.traces import DECODE, PREFILL, RoutingTrace

IDS = np.array([[[0, 1], [2, 3]], [[1, -1], [-1, -1]], [[3, 0], [1, 2]], [[2, 1], [0, 3]]])


def full_trace(**changes: Any) -> RoutingTrace:
    known: dict[str, Any] = {
        "sequence_ids": [5, 5, 5, 6],
        "num_experts": 4,
        "expert_weights": np.where(IDS == -1, 0, [0.75, 0.25]),
        "token_ids": [10, 11, 12, 13],
        "document_ids": [0, 0, 1, 1],
        "positions": [0, 1, 2, 0],
        "phases": [PREFILL, DECODE, PREFILL, DECODE],
        "event_ids": [0, 1, 2, 0],
        "layer_names": ("3", "mtp0.3"),
        "expert_bytes": [100, 200],
        "resident": np.where(IDS == -1, -1, [1, 0]),
        "provenance": {"model": "tiny"},
    }
    return RoutingTrace(IDS, **known | changes)


def test_the_names_of_layers_are_their_numbers_where_none_were_given():
    assert full_trace().names == ("3", "mtp0.3")
    assert full_trace(layer_names=None).names == ("0", "1")


@pytest.mark.parametrize(
    "changes",
    [
        {"phases": [0, 0, 0, 0]},
        {"event_ids": [0, 1, 3, 0]},
        {"layer_names": None},
        {"expert_bytes": [100, 201]},
        {"resident": None},
    ],
)
def test_traces_that_know_different_things_differ(changes):
    assert full_trace() == full_trace()
    assert full_trace() != full_trace(**changes)


def test_a_head_knows_of_its_tokens_all_that_the_trace_knew():
    part = full_trace().head(2)
    assert part.expert_ids.tolist() == IDS[:2].tolist()
    assert part.expert_weights.tolist() == [[[0.75, 0.25], [0.75, 0.25]], [[0.75, 0], [0, 0]]]
    assert part.token_ids.tolist() == [10, 11]
    assert part.phases.tolist() == [PREFILL, DECODE]
    assert part.event_ids.tolist() == [0, 1]
    assert part.resident.tolist() == [[[1, 0], [1, 0]], [[1, -1], [-1, -1]]]
    assert (part.layer_names, part.expert_bytes.tolist(), part.provenance) == (
        ("3", "mtp0.3"),
        [100, 200],
        {"model": "tiny"},
    )
    assert full_trace().head(99) == full_trace()
    with pytest.raises(SettingError, match="tokens must be >= 1, got 0"):
        full_trace().head(0)


def test_layers_are_selected_by_number_or_name_in_the_order_asked():
    part = full_trace().select(layers=["mtp0.3", 0])
    assert part.expert_ids.tolist() == IDS[:, ::-1].tolist()
    assert (part.layer_names, part.expert_bytes.tolist()) == (("mtp0.3", "3"), [200, 100])
    assert full_trace(layer_names=None).select(layers=[1]).names == ("1",)


def test_phases_and_sequences_are_selected_together():
    part = full_trace().select(phase="decode")
    assert part.token_ids.tolist() == [11, 13]
    assert part == full_trace().select(phase=DECODE)
    assert full_trace().select(sequences=[6]).token_ids.tolist() == [13]
    assert full_trace().select(sequences=[6, 5]) == full_trace()
    assert full_trace().select(phase="decode", sequences=[5]).token_ids.tolist() == [11]


def test_tokens_that_a_selection_makes_neighbours_are_no_pair():
    known = {"positions": None, "document_ids": None}
    part = full_trace(**known, phases=[0, 1, 0, 0]).select(phase="prefill")
    assert part.positions.tolist() == [0, 2, 0]
    assert part.valid_pairs().tolist() == [False, False]
    assert full_trace(**known, phases=[0, 0, 1, 1]).select(phase="prefill").positions is None


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"layers": [2]}, "numbers from 0 to 1 or names, got 2"),
        ({"layers": [-1]}, "got -1"),
        ({"layers": ["4"]}, "among 3, mtp0.3, got '4'"),
        ({"layers": []}, "at least one layer"),
        ({"layers": [0, "3"]}, "none twice"),
        ({"phase": "decoding"}, "'prefill' or 'decode', got 'decoding'"),
        ({"phase": 2}, "'prefill' or 'decode', got 2"),
        ({"sequences": [5, 7]}, "got 7, which it does not have"),
        ({"sequences": [6], "phase": "prefill"}, "at least one token, got none"),
        ({"sequences": []}, "at least one token, got none"),
    ],
)
def test_a_selection_of_what_is_not_there_is_refused(asked, words):
    with pytest.raises(TraceError, match=words):
        full_trace().select(**asked)


def test_a_phase_of_a_trace_that_knows_none_is_refused():
    with pytest.raises(TraceError, match="knows phases, got one without"):
        full_trace(phases=None).select(phase="decode")


def test_traces_behind_each_other_keep_their_sequences_apart():
    both = RoutingTrace.concat([full_trace(), full_trace()])
    assert both.sequence_ids.tolist() == [0, 0, 0, 1, 2, 2, 2, 3]
    assert both.token_ids.tolist() == [10, 11, 12, 13] * 2
    assert both.provenance == {"model": "tiny"}
    other = full_trace(provenance={"model": "large"})
    assert RoutingTrace.concat([full_trace(), other]).provenance == {"parts": [{"model": "tiny"}, {"model": "large"}]}


def test_the_widest_of_several_traces_gives_the_slots():
    narrow = dataclasses.replace(
        full_trace(), expert_ids=IDS[:1, :, :1], **{name: getattr(full_trace(), name)[:1] for name in TOKENS},
        expert_weights=full_trace().expert_weights[:1, :, :1], resident=full_trace().resident[:1, :, :1],
    )  # fmt: skip
    both = RoutingTrace.concat([narrow, full_trace()])
    assert both.expert_ids[0].tolist() == [[0, -1], [2, -1]]
    assert both.resident[0].tolist() == [[1, -1], [1, -1]]


TOKENS = ("sequence_ids", "token_ids", "document_ids", "positions", "phases", "event_ids")


@given(cuts=st.sets(st.integers(1, 3)))
def test_the_pieces_of_a_trace_make_it_again(cuts):
    bounds = [0, *sorted(cuts), 4]
    pieces = []
    for start, stop in pairwise(bounds):
        rows = {name: getattr(full_trace(), name)[start:stop] for name in (*TOKENS, "expert_weights", "resident")}
        pieces.append(dataclasses.replace(full_trace(), expert_ids=IDS[start:stop], **rows))
    assert RoutingTrace.concat(pieces, join_sequences=True) == full_trace()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_experts": 5}, "trace 1 must have the num_experts of the first trace, got 5 against 4"),
        ({"layer_names": ("3", "4")}, "trace 1 must have the names"),
        ({"expert_bytes": None}, "expert_bytes"),
        ({"token_ids": None}, "got token_ids in only one of the two; leave it out with"),
    ],
)
def test_traces_that_do_not_belong_together_are_refused(changes, words):
    with pytest.raises(TraceError, match=words) as caught:
        RoutingTrace.concat([full_trace(), full_trace(**changes)])
    assert "\n" not in str(caught.value)
    with pytest.raises(TraceError, match="at least one trace, got none"):
        RoutingTrace.concat([])
