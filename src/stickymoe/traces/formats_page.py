"""The page `docs/formats.md`, out of the registries: `python -m stickymoe.traces.formats_page docs/formats.md`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from stickymoe.traces.exporters.registry import EXPORTERS
from stickymoe.traces.importers.aliases import ALIASES
from stickymoe.traces.importers.registry import IMPORTERS

HEAD = """# Formats

Generated from the registry by `python -m stickymoe.traces.formats_page docs/formats.md`; a test keeps it so.

```python
from stickymoe.traces import read_trace, write_trace_as

trace = read_trace("qwen.route.csv")  # the format is found by content
trace = read_trace("dump.jsonl", format="jsonl", num_experts=128)  # or given, with what the file does not say
write_trace_as(trace, "qwen.npz", "npz")
```

A *trace* tells which experts served which token, in order. A *profile* tells only how often each expert was chosen:
enough for skew and for pinning, refused with the reason where order is needed. The files are looked at in the order
of this table, by content and never by name; the first format that recognises one has it.
"""
OPTIONS = """\
What a file does not say the caller may: `num_experts`, `top_k`, `num_layers`, `prompt_tokens` (the prompt's tokens
are prefill, the others decode), `chunk_tokens` (the context was cleared after so many tokens: a sequence a chunk),
`selection` (how experts are chosen from logits), `max_bytes`. The number of experts is never guessed in silence:
`provenance["num_experts_from"]` is `declared`, `given` or `largest id + 1`. Phases and forward passes that rest on
a rule, because the file does not tell them, are named in `provenance["phases_from"]` and
`provenance["events_from"]`. What a reader or writer leaves out, such as weights that are not finite, it names in a
`TraceWarning`.

No file is trusted: nothing is unpickled, sizes are compared with `max_bytes` before memory is taken, and a file
that is cut short or lies ends in one line that names file, place and rule.
"""
RECORDS = """## Home-made records

`jsonl`, `json`, `csv` and `parquet` share one table of names; a record is a token and layer, or one expert of
these. Names are compared in small letters, the first that is met counts, others are ignored.
"""
RULES = """\
- Tables as text may also hold a column a slot (`e0`, `e1`, ...; `w0`, `w1`, ...), or all ids in one cell in any
  brackets. The experts of a token and layer, where each has a row, stand on neighbouring rows.
- Records stand token by token, layer by layer, or in any order at all where none repeats. A list of lists is all
  layers of a token, or, where the record names its layer, a batch of tokens.
- A record that says again what was said before begins an **appended run**, and so does, in files with such records,
  a token number that falls while the layer does not rise, and a header in the middle of the file. A run is a
  sequence of its own. Runs of a single token go on with the sequence before them: such files number tokens anew in
  each forward pass. Requests are sequences, also where they take turns.
- A record without layer and experts is a header: it may tell `num_experts`, `top_k`, `num_layers` and the model.
- Fewer than k experts and missing layers become empty slots. Layers may have words for names and are sorted by the
  numbers in them; `block` (or `stage`, `stack`, `component`) keeps layers of one number apart.
- Without token numbers, forward passes are told by the layers: one ends where the layer does not rise.
- Phases are prefill and decode, prompt and generated, 0 and 1, 1 and 2, or `is_prefill` and `is_decode`, in any
  case.
- Ids that are numbered through the layers (layer * num_experts + expert) are numbered in each layer where
  `num_experts` is known.
- Slots are sorted by weight. Without weights their order is the file's; where every token's ids ascend,
  `provenance["slots"]` says that the top-1 expert is not known.
"""


def formats_page() -> str:
    """Return the page."""
    written = dict.fromkeys(EXPORTERS, "yes")
    formats = [
        (f"`{each.name}`", each.gives, written.get(each.name, ""), each.what, each.needs, each.loses)
        for each in IMPORTERS.values()
    ]
    names = [(what.replace("_", " "), ", ".join(f"`{name}`" for name in aliases)) for what, aliases in ALIASES.items()]
    parts = [
        HEAD,
        _table(("format", "holds", "written too", "what", "to be told", "not in the trace"), formats),
        OPTIONS,
        RECORDS,
        _table(("what", "names"), names),
        RULES,
    ]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(formats_page(), encoding="utf-8")
