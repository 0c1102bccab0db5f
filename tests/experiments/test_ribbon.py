"""The ribbon: text that joins to the passage, switches that are counted, colours that can be told apart and read on."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stickymoe.core.errors import SettingError
from stickymoe.experiments.ribbon import (
    EXPERT_COLOURS,
    TOKEN_INK,
    RoutedPassage,
    decode_pieces,
    expert_colour,
    ribbon_column,
)


def decode_bytes(ids):
    return bytes(ids).decode("utf-8", errors="replace")


def passage_of(first, experts=4, pieces=None):
    ids = np.array([[[e, (e + 1) % experts]] for e in first])
    weights = np.tile(np.array([0.75, 0.25], dtype=np.float32), (len(first), 1, 1))
    return RoutedPassage("soft", pieces or ["x"] * len(first), ids, weights, experts)


def test_a_character_of_several_tokens_belongs_to_the_one_that_completes_it():
    ids = list("aé😀b".encode())
    assert decode_pieces(ids, decode_bytes) == ["a", "", "é", "", "", "", "😀", "b"]


def test_characters_cut_by_the_ends_are_dropped_not_shown_as_garbage():
    emoji = list("😀".encode())
    assert decode_pieces([*emoji[2:], *b"ab", *emoji[:3]], decode_bytes) == ["", "", "a", "b", "", "", ""]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=12))
def test_pieces_join_to_the_passage_one_for_each_token(text):
    ids = list(text.encode())
    pieces = decode_pieces(ids, decode_bytes)
    assert "".join(pieces) == text
    assert len(pieces) == len(ids)


def test_decoders_that_drop_the_first_space_lose_none_inside():
    words = ["▁Hello", "▁wor", "ld", "▁!"]
    pieces = decode_pieces(range(4), lambda ids: "".join(words[i] for i in ids).replace("▁", " ").lstrip(" "))
    assert pieces == ["Hello", " wor", "ld", " !"]


def test_switches_and_stripes_by_hand():
    layer = ribbon_column(passage_of([0, 0, 1, 1, 1, 3]), "Soft").layers[0]
    assert (layer.switches, layer.pairs) == (2, 5)
    assert [token.is_switch for token in layer.tokens] == [False, False, True, False, False, True]
    assert [(s.start, s.length, s.css_class) for s in layer.stripes] == [(0, 2, "x0"), (2, 3, "x1"), (5, 1, "x3")]
    assert layer.tokens[2].hover == "expert 1: 0.75, expert 2: 0.25"


def test_one_token_has_no_pairs():
    layer = ribbon_column(passage_of([2]), "Soft").layers[0]
    assert (layer.switches, layer.pairs) == (0, 0)


def test_models_beyond_the_palette_get_hues_of_their_own():
    hues = {expert_colour(expert, 64)[1] for expert in range(64)}
    assert len(hues) == 64
    assert expert_colour(3, 64)[0] == ""
    assert expert_colour(7, 8)[0] == "x7"


@pytest.mark.parametrize(
    "broken",
    [
        {"pieces": ["x"]},
        {"expert_weights": np.zeros((3, 1, 1))},
        {"num_experts": 2},
        {"expert_ids": np.zeros((3, 1), dtype=int)},
    ],
)
def test_arrays_that_do_not_fit_are_refused(broken):
    good = passage_of([0, 2, 1]).__dict__
    with pytest.raises(SettingError, match="passage"):
        RoutedPassage(**{**good, **broken})


def linear(colour):
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
VISIONS = {  # Machado et al. 2009, severity 1
    "normal": np.eye(3),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
}


def lab(rgb):
    x, y, z = TO_XYZ @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = [np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z)]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("theme", [0, 1])
def test_text_on_every_expert_colour_reaches_the_contrast_of_wcag_aa(theme):
    ink = TO_XYZ[1] @ linear(TOKEN_INK[theme])
    for pair in EXPERT_COLOURS:
        low, high = sorted([ink, TO_XYZ[1] @ linear(pair[theme])])
        assert (high + 0.05) / (low + 0.05) >= 4.5


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("vision", VISIONS)
def test_expert_colours_stay_apart_for_colour_blind_readers(theme, vision):
    seen = [lab(VISIONS[vision] @ linear(pair[theme])) for pair in EXPERT_COLOURS]
    assert min(np.linalg.norm(one - two) for one, two in combinations(seen, 2)) > 10
    assert min(np.linalg.norm(one - two) for one, two in combinations(seen[:4], 2)) > 18
