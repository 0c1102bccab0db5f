"""One rank of a data-parallel run, started by test_distributed.py: RANK RENDEZVOUS_FILE BATCH_FILE RESULT_FILE."""

import sys

import torch
import torch.distributed as dist

from stickymoe.losses import Objective, sum_across_ranks
from stickymoe.routing import Routing

rank, rendezvous, batch_file, result_file = sys.argv[1:]
dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=int(rank), world_size=2)
batch = torch.load(batch_file)
rows = slice(0, 2) if rank == "0" else slice(2, 5)
weight = batch["weight"].requires_grad_()
logits = batch["inputs"][:, rows] @ weight
gates = logits.softmax(dim=-1)
ids = batch["ids"][:, rows]
mask, docs, reference = batch["mask"][rows], batch["docs"][rows], tuple(batch["reference"][:, rows])
routing = Routing(tuple(logits), tuple(gates), tuple(ids), tuple(ids.float()), mask, docs, reference)
objective = Objective(batch["coefficients"], window=3, allow_unshared=True, reduce=sum_across_ranks)
result = objective(routing)
result.total.backward()
dist.all_reduce(weight.grad)  # what data parallelism does: the mean over ranks
torch.save({"total": result.total.detach(), "gradient": weight.grad / 2}, result_file)
dist.destroy_process_group()
