"""What routers keep of earlier tokens, as one more layer of transformers' cache.

`Cache` hands every reorder (beams), crop (assisted decoding), repetition, selection and reset on to each of its layers,
so what is kept here follows the keys and values wherever they go, whatever kind of cache they are in.
"""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DummyLayer

from stickymoe.core.errors import SettingError


class RoutingMemory(DummyLayer):
    """A few integers for each token that went through the model: (batch, tokens, facts), -1 at padding.

    All tokens are kept, not only the last window's: a crop must find what stood before. Beside keys and values that is
    little, 4 bytes a fact. A `DummyLayer`, since those have no keys to be moved when a cache is offloaded.
    """

    def __init__(self) -> None:
        """Start with nothing."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.facts: Tensor | None = None

    @property
    def num_tokens(self) -> int:
        """How many tokens, padding included, are kept."""
        return 0 if self.facts is None else self.facts.shape[1]

    def append(self, facts: Int[Tensor, "batch seq facts"]) -> None:
        """Keep the facts of a call's tokens."""
        facts = facts.detach().to(torch.int32)
        self.facts = facts if self.facts is None else torch.cat([self.facts, facts.to(self.facts.device)], dim=1)

    def reset(self) -> None:
        """Forget everything."""
        self.facts = None

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Follow the beams."""
        self.batch_select_indices(beam_idx)

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens; transformers gives their number as a negative one."""
        if self.facts is not None and tokens_to_remove:
            self.facts = self.facts[:, : max(self.num_tokens - abs(tokens_to_remove), 0)]

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row."""
        if self.facts is not None:
            self.facts = self.facts.repeat_interleave(repeats, dim=0)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep only the rows `indices`."""
        if self.facts is not None:
            self.facts = self.facts[indices.to(self.facts.device)]


def recall(cache: Cache | None, past: int) -> Int[Tensor, "batch past facts"] | None:
    """Return what was kept of the `past` tokens in `cache`; None where there are none.

    Raises:
        SettingError: The cache was not filled by a model whose router keeps what this one needs.
    """
    if cache is None or past == 0:
        return None
    memory = _memory_of(cache)
    if memory is None or memory.num_tokens != past:
        kept = 0 if memory is None else memory.num_tokens
        rule = f"filled by this model: its router must know all {past} tokens in it"
        raise SettingError.broken("cache", rule, kept, "start with an empty one")
    return memory.facts


def keep(cache: Cache, facts: Int[Tensor, "batch seq facts"]) -> None:
    """Keep the facts of a call's tokens beside its keys and values; to be called after all layers have run."""
    memory = _memory_of(cache)
    if memory is None:
        memory = RoutingMemory()
        cache.layers.append(memory)
    memory.append(facts)


def _memory_of(cache: Cache) -> RoutingMemory | None:
    # From the end, where it was put; not a name on the cache, which a copy or a subclass might lose
    return next((layer for layer in reversed(cache.layers) if isinstance(layer, RoutingMemory)), None)
