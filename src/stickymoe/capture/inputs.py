"""What a forward pass was given: which tokens are real, to which document they belong, where they stand."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from stickymoe.model.stream import real_tokens

NAMES = (
    "input_ids",
    "inputs_embeds",
    "attention_mask",
    "position_ids",
    "document_ids",
    "cu_seq_lens_q",
    "seq_idx",
    "moe_mm_token_type_ids",
)


@dataclass(frozen=True, eq=False)
class PassInputs:
    """The arguments of a forward pass that say how its rows belong together.

    Attributes:
        given: Those of `NAMES` that were given.
        past_seen: How many tokens the cache held before.
    """

    given: dict[str, Any]
    past_seen: int | Tensor

    @cached_property
    def past(self) -> int:
        """How many tokens the cache held before."""
        return int(self.past_seen)

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Batch and sequence length."""
        tensor = self.input_ids if self.input_ids is not None else self.given["inputs_embeds"]
        return int(tensor.shape[0]), int(tensor.shape[1])

    @property
    def input_ids(self) -> Int[Tensor, "batch seq"] | None:
        """The tokens; None where embeddings were given."""
        return self.given.get("input_ids")

    @cached_property
    def token_mask(self) -> Bool[Tensor, "batch seq"] | None:
        """Which tokens are real; None where all are, as far as is told."""
        mask, (batch, seq) = self._mask, self.shape
        if mask is None:
            return None
        if mask.ndim == 2:
            return self._columns(mask).bool()
        return real_tokens(mask, batch, self.past, seq)

    @cached_property
    def document_ids(self) -> Int[Tensor, "batch seq"] | None:
        """The documents of each row by number, a new one wherever any argument says so; None where none does."""
        borders: Tensor | None = None
        for found in self._borders():
            borders = found if borders is None else borders | found
        if borders is None:
            return None
        starts = torch.nn.functional.pad(borders, (1, 0)).expand(self.shape)
        return starts.long().cumsum(dim=1)

    @cached_property
    def positions(self) -> Int[Tensor, "batch seq"]:
        """Each token's position in its sequence, as the model was told or counts it."""
        (batch, seq), told = self.shape, self.given.get("position_ids")
        if told is not None:
            positions: Tensor = told[0] if told.ndim == 3 else told
            return positions.expand(batch, seq)
        mask = self._mask
        if mask is not None and mask.ndim == 2 and mask.shape[1] >= self.past + seq:
            return self._columns(mask.bool().long().cumsum(dim=1) - 1).clamp(min=0)
        device = next(tensor.device for tensor in self.given.values() if isinstance(tensor, Tensor))
        return torch.arange(self.past, self.past + seq, device=device).expand(batch, seq)

    @cached_property
    def _mask(self) -> Tensor | None:
        """The attention mask as one tensor; of one for each kind of layer, that which sees the whole past."""
        mask = self.given.get("attention_mask")
        if isinstance(mask, dict):
            parts = {name: part for name, part in mask.items() if isinstance(part, Tensor)}
            mask = parts.get("full_attention", next(iter(parts.values()), None))
        if not isinstance(mask, Tensor) or mask.ndim not in (2, 4):
            return None
        return None if mask.ndim == 4 and mask.shape[-1] < self.past + self.shape[1] else mask

    def _columns(self, values: Tensor) -> Tensor:
        """Take this pass's columns out of values over cache and input, or over the input alone."""
        seq = self.shape[1]
        return values[:, self.past : self.past + seq] if values.shape[1] >= self.past + seq else values[:, -seq:]

    def _borders(self) -> Iterator[Bool[Tensor, "rows pairs"]]:
        """Yield, for each argument that tells, where the token on the right begins another document."""
        batch, seq = self.shape
        for name in ("document_ids", "seq_idx"):
            numbers = self.given.get(name)
            if numbers is not None:
                yield numbers[:, 1:] != numbers[:, :-1]
        lengths = self.given.get("cu_seq_lens_q")
        if lengths is not None:
            flat = torch.zeros(batch * seq + 1, dtype=torch.bool, device=lengths.device)
            yield flat.index_fill(0, lengths.long(), True)[:-1].view(batch, seq)[:, 1:]
        mask = self._mask
        if mask is not None and mask.ndim == 2 and mask.dtype != torch.bool:
            numbers = self._columns(mask)  # packed rows may be numbered 1, 1, 2, 2, 2, 0
            yield (numbers[:, 1:] != numbers[:, :-1]) & (numbers[:, 1:] != 0) & (numbers[:, :-1] != 0)
        elif mask is not None and mask.ndim == 4 and seq > 1:
            sees = mask if mask.dtype == torch.bool else mask == 0
            yield ~sees[:, 0, 1:, self.past :].diagonal(dim1=1, dim2=2)[:, : seq - 1]
        positions = self.given.get("position_ids")
        if positions is not None:
            yield _position_borders(positions)


def _position_borders(positions: Tensor) -> Bool[Tensor, "rows pairs"]:
    """Mark where a position does not follow its left.

    Multimodal positions come as (3, batch, seq), time first, where an image holds time still: there only a fall begins
    a document. As (4, batch, seq) the plain positions stand before them.
    """
    if positions.ndim == 3:
        time = positions[0]
        return time[:, 1:] < time[:, :-1] if len(positions) == 3 else time[:, 1:] != time[:, :-1] + 1
    return positions[:, 1:] != positions[:, :-1] + 1


def parameter_names(module: nn.Module) -> list[str]:
    """Return what a module's forward calls its positional arguments."""
    return [name for name in inspect.signature(type(module).forward).parameters if name != "self"]


def noted_inputs(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> PassInputs:
    """Keep the arguments of a forward pass that tell how its rows belong together; call it before the pass runs."""
    named = dict(zip(names, args, strict=False)) | dict(kwargs)
    given = {name: named[name] for name in NAMES if named.get(name) is not None}
    cache = named.get("cache")
    return PassInputs(given, _cached_tokens(named.get("past_key_values") if cache is None else cache))


def _cached_tokens(cache: Any) -> Any:
    """Return how many tokens a cache holds; 0 where all its layers are recurrent and none counts."""
    if cache is None:
        return 0
    try:
        past = cache.get_seq_length()
    except ValueError:
        return 0
    return past.clone() if isinstance(past, Tensor) else past  # a static cache counts on in place
