"""Where there are no tiles, or numba may not use them, the loss is torch's."""

import os
import subprocess
import sys

import pytest

from stickymoe.model.tiles.support import has_tiles

CODE = """
import torch
from stickymoe.model.linear_cross_entropy import linear_cross_entropy
from stickymoe.model.tiles.support import has_tiles

hidden, weight = torch.ones(4, 32, requires_grad=True), torch.zeros(8, 32, requires_grad=True)
with torch.autocast("cpu", torch.bfloat16):
    loss = linear_cross_entropy(hidden, weight, torch.arange(4))
loss.backward()
print(has_tiles(), round(loss.item(), 3))
"""


@pytest.mark.parametrize("setting", [{"NUMBA_CPU_NAME": "generic"}, {"NUMBA_DISABLE_JIT": "1"}])
def test_where_numba_is_told_not_to_use_them_the_loss_is_torchs(setting):
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, env=os.environ | setting, check=True
    )
    assert done.stdout.split() == ["False", "2.079"]


@pytest.mark.skipif(not has_tiles(), reason="needs a processor with AMX")
def test_the_kernel_refuses_to_run_where_there_are_no_tiles(monkeypatch):
    import torch

    from stickymoe.model.tiles import fused

    fused._code.cache_clear()
    monkeypatch.setattr(fused, "has_tiles", lambda: False)
    inputs = torch.ones(4, 32), torch.zeros(8, 32), torch.arange(4), torch.ones(4)
    assert not fused.can_fuse(*inputs[:2], torch.bfloat16)
    with pytest.raises(RuntimeError, match="no tiles"):
        fused.fused_cross_entropy(*inputs)
