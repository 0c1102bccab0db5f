"""The table of models in docs/models.md, written from what capture does to a tiny model of every family.

python -m stickymoe.capture.table docs/models.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from transformers import PreTrainedModel

from stickymoe.capture.capture import capture_routing
from stickymoe.capture.passes import CapturedPass
from stickymoe.capture.tiny import families, model_class, tiny_model
from stickymoe.core.errors import CaptureError
from stickymoe.core.files import whole_file

_GATES = {"softmax": "softmax", "sigmoid": "sigmoid, shares", "sqrtsoftplus": "sqrt-softplus, shares"}


@dataclass(frozen=True)
class Row:
    """One family: what was seen of it."""

    family: str
    model: str
    gate: str
    choice: str
    router: str
    injection: str
    special: str

    def cells(self) -> tuple[str, ...]:
        """Return the row as markdown cells."""
        names = (self.family, f"`{self.model}`", self.gate, self.choice, f"`{self.router}`" if self.router else "")
        return (*names, self.injection, self.special)


def describe(family: str, model: PreTrainedModel) -> Row:
    """Run a tiny model of a family once and say what capture saw."""
    name = model_class(family).__name__
    ids = torch.arange(3, 51).view(4, 12)
    given = {"input_ids": ids, "decoder_input_ids": ids} if model.config.is_encoder_decoder else {"input_ids": ids}
    try:
        with torch.no_grad(), capture_routing(model) as capture:
            model(**given)
        seen = capture.last
    except CaptureError as error:
        return Row(family, name, "refused", "", "", "", str(error).partition(": ")[2])
    layer = capture.layers[-1]
    router = re.sub(r"(^|\.)\d+(?=\.|$)", r"\1{i}", layer.path)
    injection = "yes" if layer.family.weighs_in_experts and layer.experts is not None else "no"
    return Row(family, name, _GATES[layer.family.gate], _choice(seen), router, injection, layer.family.note)


def _choice(seen: CapturedPass) -> str:
    """Say how the last layer chose, from whether its experts are those with the largest gates."""
    gates, ids = seen.routing.gate_probs[-1], seen.routing.expert_ids[-1]
    largest = gates.topk(ids.shape[-1], dim=-1).indices
    same = torch.equal(largest.sort(dim=-1).values, ids.sort(dim=-1).values)
    return "largest gates" if same else "by bias or group"


def table(rows: Sequence[Row]) -> str:
    """Return the markdown table."""
    head = ("Family", "Class", "Gate", "Choice", "Router", "Injection", "Special")
    lines = [head, ("---",) * len(head), *(row.cells() for row in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def page(model_of: Callable[[str], PreTrainedModel] = tiny_model) -> str:
    """Return the whole page docs/models.md."""
    rows = [describe(family, model_of(family)) for family in families()]
    captured = sum(row.gate != "refused" for row in rows)
    return TEXT.format(
        version=transformers.__version__,
        captured=captured,
        known=len(rows),
        table=table(rows),
    )


TEXT = """# Models whose routing can be captured

This page is written by `python -m stickymoe.capture.table docs/models.md`, which runs a tiny random model of every
family whose classes declare routers in transformers {version}; a test holds it up to date. {captured} of {known} are
captured, beside StickyMoE's own model. A family's other classes (classifiers, multimodal wholes) hold the same layers.

```python
from stickymoe.capture import capture_routing

with capture_routing(model) as capture:
    out = model(**batch)
routing = capture.routing  # logits, gates, expert ids and weights of every MoE layer, with gradients
```

## What the columns say

- **Gate**: what `gate_probs` holds, in float32: the softmax over all experts; or, where a router scores each expert by
  itself, the shares of those scores. No bias of the choice is in it, and where the router chooses among the top k by a
  softmax over their logits, the gates are the softmax over all.
- **Choice**: whether the experts of the tiny model are those with the largest gates. Where a bias or groups have a say
  they are not; `expert_ids` are always those that the experts received, sorted by falling weight.
- **Router**: where the router is in the layer stack.
- **Injection**: whether `inject_gradients` works, the way for reentrant activation checkpointing.
- **Special**: what else to know. A weight of 0 says that the expert did not serve the token.

## What is right whatever the model

Padding on either side, packed rows (documents begin where `position_ids`, `cu_seq_lens_q`, `seq_idx`, a numbered or a
block-diagonal attention mask says so), decoding behind a cache, beams, prompts read in chunks, non-reentrant activation
checkpointing, `torch.compile` with the hooks attached first, bfloat16, PEFT, DDP, FSDP2. What would be
wrong is an error that says what to do: reentrant checkpointing, hooks that came after compilation, `nn.DataParallel`.

## Another architecture

A model that declares `_can_record_outputs["router_logits"]`, or has a `gate` or `router` beside `experts`, is tried by
the common contract: the router returns its logits among its outputs, the experts are called with hidden states, ids
(tokens, top k) and weights (tokens, top k). At the first pass the weights are held against the gates; where they do not
fit, the model is refused. Then it needs an adapter: a subclass of `Family` in `src/stickymoe/capture/families/` that
overrides what differs (`source`, `gates`, `chosen`, `num_experts`), and a line in `FAMILIES` there.

## Families

{table}
"""


def main() -> None:
    """Write the page to the path given."""
    (path,) = (Path(argument) for argument in sys.argv[1:])
    with whole_file(path) as temporary:
        temporary.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
