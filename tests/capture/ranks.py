"""Run by test_wrappers.py on two gloo ranks, DDP then FSDP2: prints `equal` when gradients are those of the batch."""

import sys

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from stickymoe.capture import capture_routing
from stickymoe.capture.tiny import tiny_model
from stickymoe.losses import Objective

store, rank = sys.argv[1], int(sys.argv[2])
distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
objective = Objective(consistency=1.0)
ids = torch.randint(3, 64, (4, 6), generator=torch.Generator().manual_seed(0))


def gradients(model, rows):
    with capture_routing(model) as capture:
        out = model(input_ids=rows, use_cache=False)
        (out.logits.square().mean() + objective(capture.routing).total).backward()
    return {name.removeprefix("module."): p.grad for name, p in model.named_parameters() if p.grad is not None}


for family, checkpointing in (("mixtral", False), ("deepseek_v3", True)):
    expected = gradients(tiny_model(family), ids)
    model = tiny_model(family)
    if checkpointing:
        model.train()
        model.activation_checkpointing_enable({"use_reentrant": False})
    found = gradients(DistributedDataParallel(model, find_unused_parameters=True), ids[rank * 2 : rank * 2 + 2])
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)

model = tiny_model("mixtral")
expected = gradients(tiny_model("mixtral"), ids)
for layer in model.model.layers:
    fully_shard(layer)
found = gradients(fully_shard(model), ids[rank * 2 : rank * 2 + 2])
torch.testing.assert_close({name: g.full_tensor() for name, g in found.items()}, expected, rtol=1e-3, atol=1e-6)
distributed.destroy_process_group()
print("equal")
