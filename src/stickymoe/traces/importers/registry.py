"""The formats that can be read, by name, in the order of detection: a new one is a file, a line here and a test.

Special formats stand before general ones: the first that recognises a file has it.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from stickymoe.core.errors import SettingError, TraceError
from stickymoe.core.settings import nearest, require_at_least
from stickymoe.traces.importers import (
    bigmoeonedge,
    coli_usage,
    colibri,
    eplb,
    generic_csv,
    generic_json,
    generic_jsonl,
    generic_parquet,
    hf_logits,
    imatrix,
    imp,
    llama_csv,
    llama_log,
    llama_records,
    longspear,
    megatron,
    moe_infinity,
    moepager,
    npz,
    onnx_genai,
    sglang,
    sglang_recorder,
    stickymoe_parquet,
    topk_indices,
    usage_csv,
    vllm,
)
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.profile import UsageProfile
from stickymoe.traces.trace import RoutingTrace

IMPORTERS: dict[str, Importer] = {
    module.IMPORTER.name: module.IMPORTER
    for module in (
        stickymoe_parquet,
        bigmoeonedge,
        onnx_genai,
        npz,
        vllm,
        sglang,
        sglang_recorder,
        topk_indices,
        hf_logits,
        longspear,
        moepager,
        imatrix,
        coli_usage,
        megatron,
        llama_csv,
        usage_csv,
        colibri,
        llama_log,
        imp,
        eplb,
        moe_infinity,
        llama_records,  # no magic number: any special binary format goes first
        # one line a format, special before general; the generic tables stay last
        generic_jsonl,
        generic_json,
        generic_csv,
        generic_parquet,
    )
}
# Where their names are: an error has no room for them.
ALL_FORMATS = "stickymoe trace info --formats lists them"
# What a parser may throw at a file that lies.
DAMAGE = (
    pa.ArrowException,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def read_trace(path: Path | str, format: str | None = None, **options: Any) -> RoutingTrace | UsageProfile:
    """Read any trace or usage profile: the format is found by content unless it is given.

        trace = read_trace("qwen.route.csv")
        trace = read_trace("dump.jsonl", format="generic", num_experts=128)

    Args:
        path: A file, or a folder where a format is several files.
        format: A name in `IMPORTERS`; None to detect it.
        options: What the file may not say: the fields of `ReadOptions`.

    Returns:
        A trace, or counts without order where the file holds no more. `provenance["format"]` names a foreign format.

    Raises:
        SettingError: Unknown format or option.
        TraceError: Nothing recognises the file, or it breaks its format; one line that names file, place and rule.
    """
    path = Path(path)
    if format is not None and format not in IMPORTERS:
        way_out = f"{nearest(format, IMPORTERS)} {ALL_FORMATS}".lstrip()
        raise SettingError.broken("format", f"one of the {len(IMPORTERS)} that are read", format, way_out)
    told = read_options(options)
    importer = IMPORTERS[format] if format is not None else detect(path)
    try:
        Head.of(path)
        found = importer.read(path, told)
    except TraceError as error:
        if str(path) in str(error):
            raise
        raise TraceError(f"{path}: {error}") from error
    except SettingError:  # which is a ValueError too
        raise
    except DAMAGE as error:
        detail = " ".join(str(error).split())[:200] or type(error).__name__
        raise TraceError(f"{path} is not a readable {importer.name} file: {detail}; record or copy it again") from error
    if importer is not stickymoe_parquet.IMPORTER:  # whose files come back exactly as they were saved
        found.provenance.setdefault("format", importer.name)
    return found


def detect(path: Path) -> Importer:
    """Return the first importer that recognises the file by its content.

    Raises:
        TraceError: None does.
    """
    head = Head.of(path)
    for importer in IMPORTERS.values():
        if importer.matches(head):
            return importer
    found = f"{head.size} bytes beginning {head.data[:24]!r}" if head.size else "an empty file"
    found = "a folder" if path.is_dir() else found
    raise TraceError(
        f"{path} must be a trace in a known format, found {found}; name its format if it is one of the "
        f"{len(IMPORTERS)} that are read: {ALL_FORMATS}"
    )


def read_options(given: dict[str, Any]) -> ReadOptions:
    """Return checked options; those given as None count as not given.

    Raises:
        SettingError: An unknown name, or a number below 1.
    """
    known = [each.name for each in fields(ReadOptions)]
    told = {name: value for name, value in given.items() if value is not None}
    for name, value in told.items():
        if name not in known:
            raise SettingError.broken("read option", "one of " + ", ".join(known), name, nearest(name, known))
        if name != "selection":
            if isinstance(value, bool) or not isinstance(value, int):
                raise SettingError.broken(name, "a whole number", value)
            require_at_least(name, value, 0 if name == "prompt_tokens" else 1)
    return ReadOptions(**told)
