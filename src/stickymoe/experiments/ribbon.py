"""The routing ribbon: the text of one passage, each token coloured by its top-1 expert, ready for the template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from stickymoe.core.errors import SettingError

# Expert colours as (light theme, dark theme) backgrounds. Light: Paul Tol's scheme for cells with dark text.
# Dark: chosen for text contrast >= 4.5 and for distance under normal, deuteranopic and protanopic vision.
EXPERT_COLOURS = (
    ("#77aadd", "#015bac"),
    ("#ee8866", "#700f00"),
    ("#eedd88", "#876d03"),
    ("#44bb99", "#046c43"),
    ("#ffaabb", "#aa458c"),
    ("#99ddff", "#003c5c"),
    ("#bbcc33", "#647739"),
    ("#dddddd", "#5d565d"),
)
TOKEN_INK = ("#1b2026", "#f5f7f9")
_GOLDEN_ANGLE = 137.508
_UNDECODED = "\ufffd"


@dataclass(frozen=True)
class RoutedPassage:
    """How one run routed one passage, taken from a single document.

    Args:
        run_name: Name of the run, as in its `RunResult`.
        pieces: Text of each token; joined they are the passage. See `decode_pieces`.
        expert_ids: (tokens, layers, top_k), first slot = top-1.
        expert_weights: The same shape.
        num_experts: Experts a layer.

    Raises:
        SettingError: The shapes do not fit one another, or an expert id is out of range.
    """

    run_name: str
    pieces: list[str]
    expert_ids: np.ndarray
    expert_weights: np.ndarray
    num_experts: int

    def __post_init__(self) -> None:
        """Refuse arrays that do not fit."""
        ids, weights = self.expert_ids, self.expert_weights
        if ids.ndim != 3 or len(ids) != len(self.pieces) or min(ids.shape) < 1:
            rule = f"shaped (tokens, layers, top_k) for {len(self.pieces)} tokens"
            raise SettingError.broken("passage.expert_ids", rule, ids.shape)
        if weights.shape != ids.shape:
            raise SettingError.broken("passage.expert_weights", f"shaped like the ids, {ids.shape}", weights.shape)
        if ids.min() < 0 or ids.max() >= self.num_experts:
            rule = f"within 0..{self.num_experts - 1}"
            raise SettingError.broken("passage.expert_ids", rule, (int(ids.min()), int(ids.max())))


@dataclass(frozen=True)
class RibbonToken:
    """One coloured token. `css_class` names a palette colour; beyond the palette it is empty and `hue` counts."""

    text: str
    expert: int
    css_class: str
    hue: int
    hover: str
    is_switch: bool


@dataclass(frozen=True)
class Stripe:
    """A run of neighbouring tokens on one expert, for the overview strip."""

    start: int
    length: int
    css_class: str
    hue: int


@dataclass(frozen=True)
class RibbonLayer:
    """One layer of one run's ribbon."""

    layer: int
    tokens: list[RibbonToken]
    stripes: list[Stripe]
    switches: int
    pairs: int


@dataclass(frozen=True)
class RibbonColumn:
    """All layers of one run's ribbon under its label."""

    label: str
    num_experts: int
    layers: list[RibbonLayer]


def decode_pieces(token_ids: Sequence[int], decode: Callable[[list[int]], str]) -> list[str]:
    """Return the text that each token adds, so that the pieces joined are the decoded passage.

    A byte-level token may hold part of a character: such a token's piece is empty and the character belongs to the
    token that completes it. Of characters that the passage's ends cut, the bytes are dropped, never shown as garbage.

    Args:
        token_ids: The passage.
        decode: The tokenizer's decode, special tokens kept.
    """
    ids = [int(token) for token in token_ids]
    pieces: list[str] = []
    anchor = done = 0  # ids[anchor:done] is context already shown; ids[done:] is not yet text
    for end in range(1, len(ids) + 1):
        shown, text = decode(ids[anchor:done]), decode(ids[anchor:end])
        is_last = end == len(ids)
        if text.endswith(_UNDECODED) and not is_last:
            pieces.append("")
            continue
        piece = text[len(shown) :]
        piece = piece.rstrip(_UNDECODED) if is_last else piece
        pieces.append(piece if any(pieces) else piece.lstrip(_UNDECODED))
        anchor, done = done, end
    return pieces


def ribbon_column(passage: RoutedPassage, label: str) -> RibbonColumn:
    """Prepare one run's column of the ribbon."""
    layers = [_ribbon_layer(passage, layer) for layer in range(passage.expert_ids.shape[1])]
    return RibbonColumn(label, passage.num_experts, layers)


def expert_colour(expert: int, num_experts: int) -> tuple[str, int]:
    """Return an expert's palette class and its hue; the class is empty where the palette is too small for the model."""
    css_class = f"x{expert}" if num_experts <= len(EXPERT_COLOURS) else ""
    return css_class, round(expert * _GOLDEN_ANGLE) % 360


def _ribbon_layer(passage: RoutedPassage, layer: int) -> RibbonLayer:
    first = passage.expert_ids[:, layer, 0].tolist()
    switched = [False] + [one != two for one, two in pairwise(first)]
    tokens = []
    for position, (piece, expert, is_switch) in enumerate(zip(passage.pieces, first, switched, strict=True)):
        css_class, hue = expert_colour(expert, passage.num_experts)
        hover = _hover(passage.expert_ids[position, layer], passage.expert_weights[position, layer])
        tokens.append(RibbonToken(piece, expert, css_class, hue, hover, is_switch))
    stripes, start = [], 0
    for expert, run in groupby(first):
        length = len(list(run))
        stripes.append(Stripe(start, length, *expert_colour(expert, passage.num_experts)))
        start += length
    return RibbonLayer(layer, tokens, stripes, switches=sum(switched), pairs=len(first) - 1)


def _hover(ids: np.ndarray, weights: np.ndarray) -> str:
    return ", ".join(f"expert {expert}: {weight:.2f}" for expert, weight in zip(ids, weights, strict=True))
