"""Random batches of routing, padded and packed in every way, for the tests of the losses."""

from types import SimpleNamespace

import pytest
import torch


@pytest.fixture(scope="session")
def make_batch():
    return random_batch


def random_batch(seed=0, batch=3, seq=9, experts=5, top_k=2, window=3, layers=2, padded=True, packed=True):
    """Logits that require gradient and what follows from them; `gates` are leaves of their own.

    Padded: row 0 on the left, row 1 on the right, row 2 in its middle. Packed: documents of random lengths and ids.
    """
    draw = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(layers, batch, seq, experts, generator=draw)
    mask = torch.ones(batch, seq, dtype=torch.bool)
    if padded:
        for row, (start, stop) in enumerate([(0, seq // 3), (seq - seq // 4, seq), (seq // 2, seq // 2 + 1)][:batch]):
            mask[row, start:stop] = False
    borders = torch.rand(batch, seq, generator=draw) < 0.3
    return SimpleNamespace(
        logits=logits.requires_grad_(),
        gates=logits.detach().softmax(dim=-1).requires_grad_(),
        reference=torch.randn(layers, batch, seq, experts, generator=torch.Generator().manual_seed(seed + 1)).softmax(
            -1
        ),
        ids=logits.detach().topk(top_k, dim=-1).indices,
        mask=mask if padded else None,
        docs=(40 - 7 * borders.cumsum(dim=1)) if packed else None,
        pair_weights=torch.rand(batch, max(seq - 1, 0), generator=draw),
        window=window,
    )
