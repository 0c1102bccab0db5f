"""Run by test_gradient_equality.py in a process of its own: `family: equal` where compiling once changes nothing.

Shapes are not checked here: a checked signature cannot be traced.
"""

import importlib.util
import sys
from pathlib import Path

import torch

from stickymoe.training import StickyObjective

spec = importlib.util.spec_from_file_location("step", Path(__file__).with_name("step.py"))
step = importlib.util.module_from_spec(spec)
spec.loader.exec_module(step)
torch.set_num_threads(1)
backend, *families = sys.argv[1:]

for family in families:
    torch._dynamo.reset()
    rows = step.ragged_rows()
    expected = step.row_by_row(step.build(family), rows)
    model = step.build(family)
    model.set_experts_implementation("grouped_mm")
    sticky = StickyObjective(step.OBJECTIVE)
    sticky.attach(model, keep=1)
    # The reference model's loss breaks the graph
    compiled = torch.compile(model, backend=backend, fullgraph=family != "stickymoe")
    batches = [step.padded(rows[begin : begin + 2], width=8) for begin in (0, 2)]
    sticky.begin_step(batches)
    targets = sum(int((batch["labels"][:, 1:] != -100).sum()) for batch in batches)
    for number, batch in enumerate(batches):
        torch._dynamo.config.error_on_recompile = number > 0
        out = compiled(**batch, use_cache=False, num_items_in_batch=torch.tensor(targets))
        (out.loss + sticky.loss()).backward()
    torch.testing.assert_close(step.gradients(model), expected, rtol=1e-3, atol=2e-6)
    torch._dynamo.config.error_on_recompile = False
    print(f"{family}: equal")
