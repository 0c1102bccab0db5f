"""moepager .mpt traces: full observations become tokens; misses alone and file pages are refused."""

import json
import struct

import pytest

from stickymoe.traces import DECODE, PREFILL, read_trace

FACTS = {
    "source": "llama.cpp",
    "observation": "full",
    "n_layers": 4,
    "n_experts": 8,
    "top_k": 2,
    "page_size": 4096,
    "model_file": "tiny.gguf",
    "model_size": 1,
    "params": {},
}
# (token, layer, expert): two tokens through layers 1 and 3, in layer-major order
ACCESSES = [(5, 1, 7), (5, 1, 0), (6, 1, 2), (6, 1, 3), (5, 3, 1), (5, 3, 4), (6, 3, 5), (6, 3, 6)]


def content(accesses=ACCESSES, facts=FACTS, version=1, kind=1, length=None, tail=b""):
    header = json.dumps(facts).encode()
    data = b"MPTRACE\0" + struct.pack("<HHI", version, kind, len(header) if length is None else length) + header
    return data + b"".join(struct.pack("<QIHH", at, *access) for at, access in enumerate(accesses)) + tail


@pytest.fixture
def written(tmp_path):
    def write(data):
        path = tmp_path / "run.mpt"
        path.write_bytes(data)
        return path

    return write


def test_a_full_observation_becomes_tokens(written):
    trace = read_trace(written(content()))
    assert trace.expert_ids.tolist() == [[[7, 0], [1, 4]], [[2, 3], [5, 6]]]
    assert trace.layer_names == ("1", "3")
    assert trace.num_experts == 8
    assert trace.phases is None
    assert trace.provenance == {
        "format": "moepager",
        "num_experts_from": "declared",
        "source": "llama.cpp",
        "model_file": "tiny.gguf",
    }
    assert read_trace(written(content()), prompt_tokens=1).phases.tolist() == [PREFILL, DECODE]


def test_tokens_one_after_the_other_read_the_same(written):
    assert read_trace(written(content(sorted(ACCESSES, key=lambda a: a[0])))) == read_trace(written(content()))


def test_misses_alone_are_refused_for_a_replay_would_be_of_another_stream(written, refused):
    message = refused(written(content(facts=FACTS | {"observation": "miss-only"})))
    assert "got observation 'miss-only'" in message
    assert "record again in full" in message


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", "empty"),
        (b"MPTRACE\0", "header of 16 bytes"),
        (content(version=2), "version 2"),
        (content(kind=2), "file pages"),
        (content(kind=3), "kind 3"),
        (content(length=2**32 - 1), "must lie in the file"),
        (content(length=3), "must be JSON"),
        (content(facts=[1]), "must be a JSON object, got list"),
        (content(facts=FACTS | {"top_k": -1}), "the header's top_k must be"),
        (content(facts=FACTS | {"n_experts": True}), "the header's n_experts must be"),
        (content(accesses=[]), "no record at all"),
        (content(tail=b"\0" * 15), "record 8 must have 16 bytes, found 15 of its bytes; cut it off with head -c"),
        (content([*ACCESSES, (7, 4, 0)]), "record 8 must have a layer below the header's 4, got 4"),
        (content([*ACCESSES, (7, 3, 8)]), "record 8 must have a expert below the header's 8, got 8"),
        (content([*ACCESSES, (6, 3, 1)]), "record 8 must keep to 2 experts a token and layer"),
        (content([*ACCESSES, *ACCESSES]), "record 8 must not go back to an earlier token, got token 5 after 6"),
        (content([(5, 1, 7), (5, 1, 7)]), "once a token and layer, got 7 twice"),
    ],
)
def test_a_lying_or_cut_file_is_refused_in_one_line(written, refused, data, rule):
    assert rule in refused(written(data), "moepager")


def test_a_huge_token_number_takes_no_memory(written):
    assert read_trace(written(content([(2**32 - 1, 1, 0), (2**32 - 1, 1, 1)]))).num_tokens == 1
