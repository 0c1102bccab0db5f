"""Run by test_expert_parallel.py on two gloo ranks that share a model's experts: writes each case's gradients."""

import os
import runpy
import sys
import warnings
from pathlib import Path

import torch
from torch import distributed

CASES = {"tensor": {"tp_size": 2, "ep_size": 2}, "data": {"fsdp_size": 2, "ep_size": 2}}


def main(environment, folder, step_file, families):
    os.environ.update(environment)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    from transformers.distributed import DistributedConfig

    from stickymoe.capture.tiny import model_class
    from stickymoe.training import StickyObjective

    step, rank = runpy.run_path(step_file), int(environment["RANK"])
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    rows, found = step["ragged_rows"](), {}
    targets = sum(int((row["labels"][1:] != -100).sum()) for row in rows)
    for family in families:
        for case, sizes in CASES.items():
            where = f"{folder}/{family}"
            model = model_class(family).from_pretrained(where, distributed_config=DistributedConfig(**sizes)).train()
            sticky = StickyObjective(step["OBJECTIVE"])
            sticky.attach(model)
            # Ranks that split tensors see the same rows; ranks that split data see their own, and average
            mine = rows if case == "tensor" else rows[rank * 2 : rank * 2 + 2]
            # Splitting tensors, transformers adds up the norms' gradients over ranks once more with each backward pass,
            # whatever the loss: there the step is one batch
            size = len(mine) if case == "tensor" else 1
            batches = [step["padded"](mine[begin : begin + size]) for begin in range(0, len(mine), size)]
            sticky.begin_step(batches)
            for batch in batches:
                out = model(**batch, num_items_in_batch=targets / (1 if case == "tensor" else 2), use_cache=False)
                (out.loss + sticky.loss()).backward()
            grads = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
            whole = {name: grad.full_tensor() if hasattr(grad, "full_tensor") else grad for name, grad in grads.items()}
            found[f"{family} {case}"] = {name: grad for name, grad in whole.items() if bool(grad.any())}
    if rank == 0:
        torch.save(found, Path(folder) / "gradients.pt")
    distributed.destroy_process_group()


if __name__ == "expert_parallel_child":
    with (Path(CHILD[1]) / f"err{CHILD[0]['RANK']}").open("w") as sys.stderr:  # noqa: F821 - given by runpy
        main(*CHILD)  # noqa: F821
    sys.stderr = sys.__stderr__
