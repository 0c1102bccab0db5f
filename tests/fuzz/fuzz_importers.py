"""Feeds damaged files to every importer: each must end in a trace, a profile, or one line that says what is wrong.

    python tests/fuzz/fuzz_importers.py -max_total_time=600 [corpus folder]

needs atheris; one format alone with FUZZ_FORMAT=npz. Without atheris the module still serves the tests beside it.
"""

from __future__ import annotations

import base64
import io
import json
import os
import struct
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

# Small enough that a file of a few bytes that asks for more is refused, large enough for every seed
MAX_BYTES = 2**20
IDS = np.array([[[0, 1], [2, 3]], [[3, 1], [5, 0]], [[2, 1], [3, 4]]], dtype=np.int32)


@dataclass(frozen=True)
class Seed:
    """A valid file of a format.

    Args:
        format: The importer.
        data: What is to be damaged.
        options: What the importer must be told.
        wrap: Puts `data` into its file, as an archive whose checksums would find the damage before the reader does.
    """

    format: str
    data: bytes
    options: dict[str, Any] = field(default_factory=dict)
    wrap: Callable[[bytes], bytes] = bytes


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def member(name: str, others: dict[str, bytes]) -> Callable[[bytes], bytes]:
    """Return what stores its argument as `name` in an archive, beside others."""

    def wrap(data: bytes) -> bytes:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for key, content in {name: data, **others}.items():
                archive.writestr(zipfile.ZipInfo(key), content)
        return stream.getvalue()

    return wrap


def safetensors(arrays: dict[str, np.ndarray]) -> bytes:
    types = {"float32": "F32", "int16": "I16", "int8": "I8", "int32": "I32", "bool": "BOOL"}
    header, data = {}, b""
    for name, array in arrays.items():
        place = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": types[array.dtype.name], "shape": list(array.shape), "data_offsets": place}
        data += array.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def torch_seeds() -> list[Seed]:
    """Return the recorder's two kinds of file, with the pickle or the numbers of one tensor to be damaged."""
    try:
        import torch
    except ImportError:
        return []
    ids = torch.full((2, 3, 8), -1, dtype=torch.int32)
    ids[:, :, :2] = torch.from_numpy(IDS).transpose(0, 1)
    record = {
        "forward_pass_id": 1,
        "input_ids": [4, 5, 6],
        "positions": [0, 1, 0],
        "extend_seq_lens": [2, 1],
        "forward_mode": 1,
        "topk_ids_of_layer": ids,
    }
    payloads = (
        {"records": [record], "last_physical_to_logical_map": torch.arange(8).repeat(2, 1)},
        {"rank": 0, "logical_count": torch.ones(2, 3, 4, dtype=torch.int32)},
    )
    seeds = []
    for payload in payloads:
        stream = io.BytesIO()
        torch.save(payload, stream)
        with zipfile.ZipFile(stream) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        for name in members:
            if name.endswith(("data.pkl", "data/0")):
                others = {key: content for key, content in members.items() if key != name}
                seeds.append(Seed("sglang-recorder", members[name], {}, member(name, others)))
    return seeds


def array_seeds() -> list[Seed]:
    experts = npy(IDS.transpose(1, 0, 2).astype(np.int16))
    meta = npy(np.array(json.dumps({"k": 2, "num_experts": 8, "n_moe_layers": 2, "chunk": 2})))
    shape = {"num_layers": 2, "top_k": 2}
    rule = {"top_k": 2, "selection": "sigmoid-topk-norm"}
    logits = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    samples = {
        "topk_indices": IDS.transpose(1, 0, 2)[None].astype(np.int16),
        "topk_weights": np.full((1, 2, 3, 2), 0.5, dtype=np.float32),
        "sequence_lengths": np.array([3], dtype=np.int32),
        "attention_mask": np.ones((1, 3), dtype=bool),
    }
    response = {"choices": [{"routed_experts": base64.b64encode(npy(IDS)).decode()}], "prompt_token_ids": [1, 2, 3]}
    reply = {"meta_info": {"prompt_tokens": 2, "completion_tokens": 2}}
    reply["meta_info"]["routed_experts"] = base64.b64encode(IDS.tobytes()).decode()
    return [
        Seed("npz", experts, {}, member("experts.npy", {"meta.npy": meta})),
        Seed("npz", meta, {}, member("meta.npy", {"experts.npy": experts})),
        Seed("npz", member("experts.npy", {"meta.npy": meta})(experts)),
        Seed("vllm", npy(IDS)),
        Seed("vllm", npy(IDS), {"prompt_tokens": 2}, base64.b64encode),
        Seed("vllm", json.dumps(response).encode()),
        Seed("vllm", json.dumps(response | {"prompt_routed_experts": IDS.tolist()}).encode()),
        Seed("vllm", npy(np.arange(2)), {}, member("prompt_token_ids.npy", {"routed_experts.npy": npy(IDS)})),
        Seed("sglang", IDS.tobytes(), shape, base64.b64encode),
        Seed("sglang", json.dumps(reply).encode(), {"top_k": 2}),
        Seed("topk-indices", safetensors(samples)),
        Seed("topk-indices", safetensors({"math": IDS[None, :, 0].astype(np.int8)}), {"num_experts": 8}),
        Seed("hf-logits", safetensors({"router_logits": logits}), rule),
        Seed("hf-logits", npy(logits), rule, member("router_logits.npy", {})),
        Seed("hf-logits", npy(logits[0]), rule, member("gate_3.npy", {"gate_7.npy": npy(logits[1])})),
        Seed("eplb", npy(np.array([[9, 3], [2, 1]]))),
        Seed("moe-infinity", npy(np.array([[[9.0, 3.0], [2.0, 1.0]], [[0.0, 0.0], [1.0, 0.0]]]))),
        Seed("eplb", safetensors({"weight": np.array([[9, 3], [2, 1]], dtype=np.int32)})),
    ]


def text_seeds() -> list[Seed]:
    route = "# route_trace v1\n# model=m arch=a n_layer=2 n_expert=8 n_expert_used=2\n"
    route += "".join(f"# layer={layer} expert_bytes=9 dense_bytes=7\n" for layer in range(2))
    route += "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes,dropped\n"
    for token, layer, slot in np.ndindex(IDS.shape):
        row = (0, min(token, 1), token, layer, slot, IDS[token, layer, slot], 0.6 - 0.2 * slot, slot, 0, 0)
        route += ",".join(map(str, row)) + "\n"
    prompt = {"prompt_len": 2, "prefill": IDS[:2].tolist(), "decode": IDS[2:].tolist()}
    granite = {"num_layers": 2, "num_experts": 8, "top_k": 2, "prompts": {"prose": prompt}}
    colibri = "".join(
        f"0 {row} {layer} {IDS[row, layer, 0]}:0.6000 {IDS[row, layer, 1]}:0.4000\n"
        for layer in range(2)
        for row in range(3)
    )
    megatron = [
        {"step": 0, "stage": "pre_dispatch", "block": "decoder", "layer": layer, "rank": 0, "num_tokens": 3, "topk": 2}
        | {"top_indices": IDS[:, layer].tolist()}
        for layer in range(2)
    ]
    rows = [
        {"token": token, "layer": layer, "experts": IDS[token, layer].tolist(), "scores": [0.6, 0.4], "phase": "decode"}
        for token in range(3)
        for layer in range(2)
    ]
    flat = [[layer, *IDS[token, layer].tolist()] for token in range(3) for layer in range(2)]
    pairs = "".join(f"{layer},{expert}\n" for token in IDS for layer, ids in enumerate(token) for expert in ids)
    log = "".join(f"EXPERT|L{layer}|T1: {ids.tolist()}\n" for token in IDS for layer, ids in enumerate(token))
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    table = "token,layer,experts\n" + "".join(f'{r["token"]},{r["layer"]},"{r["experts"]}"\n' for r in rows)
    return [
        Seed("bigmoeonedge", route.encode()),
        Seed("onnx-genai", json.dumps(granite).encode()),
        Seed("colibri", colibri.encode()),
        Seed("megatron", "".join(json.dumps(record) + "\n" for record in megatron).encode()),
        Seed("imp", json.dumps(flat).encode()),
        Seed("llama-csv", b"layer,expert\n" + pairs.encode(), {"top_k": 2}),
        Seed("llama-log", log.encode()),
        Seed("coli-usage", b"-1 2 4\n-2 1 3815245270\n0 3 7\n1 0 2\n1 1 9\n"),
        Seed("eplb", b'{"logical_count": [[9, 3], [2, 1]]}'),
        Seed("jsonl", lines.encode()),
        Seed("json", json.dumps({"num_experts": 8, "activations": rows}).encode()),
        Seed("csv", table.encode()),
        Seed("usage-csv", b"layer,expert,count\n0,3,7\n1,0,2\n"),
    ]


def binary_seeds() -> list[Seed]:
    layers = [(layer, IDS[:, layer].astype("<i4")) for layer in range(2)]
    records = b"".join(struct.pack("<3i", layer, 3, 2) + ids.tobytes() for layer, ids in layers)
    longspear = b"LONGSPEAR_ROUTE_TRACE v1 model=m experts=9 top_k=2 layers=2 main_layers=2 mode=full endian=little "
    longspear += b"record=u16_layer,u16_n_rows,n_rows*top_k*u16_expert\n"
    longspear += b"".join(struct.pack("<2H", layer, 3) + ids.astype("<u2").tobytes() for layer, ids in layers)
    facts = json.dumps({"source": "s", "observation": "full", "n_layers": 2, "n_experts": 8, "top_k": 2}).encode()
    accesses = [(token, layer, IDS[token, layer, slot]) for token, layer, slot in np.ndindex(IDS.shape)]
    moepager = b"MPTRACE\0" + struct.pack("<HHI", 1, 1, len(facts)) + facts
    moepager += b"".join(struct.pack("<QIHH", at, *access) for at, access in enumerate(accesses))
    return [
        Seed("llama-records", records),
        Seed("longspear", longspear),
        Seed("moepager", moepager),
        Seed("imatrix", imatrix()),
        Seed("coli-usage", b"IKU1" + struct.pack("<2I", 2, 2) + struct.pack("<4I", 1, 2, 3, 4)),
        Seed("stickymoe", ours()),
        Seed("parquet", table()),
    ]


def imatrix() -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + text("general.type") + struct.pack("<I", 8) + text("imatrix")
    head += text("blk.1.ffn_gate_exps.weight.counts") + struct.pack("<IQQIQ", 2, 1, 3, 0, 0)
    return head + bytes(-len(head) % 32) + struct.pack("<3f", 5, 0, 7)


def ours() -> bytes:
    from stickymoe.traces import RoutingTrace

    with tempfile.TemporaryDirectory() as folder:
        RoutingTrace(IDS, np.array([0, 0, 1]), 8, positions=np.array([0, 1, 0])).save(Path(folder) / "trace")
        return (Path(folder) / "trace").read_bytes()


def table() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tokens, layers = (each.reshape(-1) for each in np.indices(IDS.shape[:2]))
    columns = {"token": tokens, "layer": layers, "expert_ids": IDS.reshape(-1, 2).tolist(), "phase": ["decode"] * 6}
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream, compression="none")
    return stream.getvalue()


def seeds() -> list[Seed]:
    """Return the seeds of the formats that are registered."""
    from stickymoe.traces.importers.registry import IMPORTERS

    found = [*text_seeds(), *array_seeds(), *binary_seeds(), *torch_seeds()]
    return [seed for seed in found if seed.format in IMPORTERS]


def check(seed: Seed, data: bytes, folder: Path) -> bool:
    """Read `data`, by name of the format and by content; return whether it is a trace all the same."""
    from stickymoe.core.errors import StickyMoEError, TraceWarning
    from stickymoe.traces import RoutingTrace, UsageProfile, read_trace

    path = folder / "trace"
    path.write_bytes(seed.wrap(data))
    good = False
    for format in (seed.format, None):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", TraceWarning)
                found = read_trace(path, format, max_bytes=MAX_BYTES, **seed.options)
        except StickyMoEError as error:
            # "Type-check": the checker of shapes under test, which a reader takes for damage
            if "\n" in str(error) or not str(error).startswith(str(path)) or "Type-check" in str(error):
                raise AssertionError(f"not one line about the file: {error!r}") from error
        else:
            assert isinstance(found, RoutingTrace | UsageProfile), type(found)
            good = good or format is not None
    return good


def main() -> None:
    """Fuzz under atheris: the first byte chooses the seed's format, the rest is the damaged data."""
    import atheris

    with atheris.instrument_imports(include=["stickymoe.traces"]):
        chosen = [seed for seed in seeds() if os.environ.get("FUZZ_FORMAT") in (None, seed.format)]
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for number, seed in enumerate(chosen):
            (corpus / str(number)).write_bytes(bytes([number]) + seed.data)

        def one(data: bytes) -> None:
            if data:
                check(chosen[data[0] % len(chosen)], data[1:], Path(folder))

        atheris.Setup([*sys.argv, str(corpus), "-max_len=4096", "-rss_limit_mb=4096", "-malloc_limit_mb=256"], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
