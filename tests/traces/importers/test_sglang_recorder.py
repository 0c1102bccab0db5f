"""SGLang's expert distribution recorder: batches taken apart, physical experts, counts, and files that lie."""

import io
import pickle
import sys
import zipfile

import numpy as np
import pytest

from stickymoe.core.errors import TraceError, TraceWarning
from stickymoe.traces import DECODE, PREFILL, RoutingTrace, UsageProfile, read_trace
from stickymoe.traces.importers import sglang_recorder
from stickymoe.traces.importers.importer import Head

torch = pytest.importorskip("torch")

LAYERS, LOGICAL, REPLICAS, K = 3, 6, 2, 2
# Layer 0 is dense; the last two physical experts of a layer are second copies of two logical ones
MAP = np.array([[0, 1, 2, 3, 4, 5, 0, 1], [0, 1, 2, 3, 4, 5, 4, 2], [5, 4, 3, 2, 1, 0, 3, 3]])


def topk(rng, tokens):
    """Return physical ids as the recorder keeps them, (layers, tokens, 8), -1 where nothing was written."""
    ids = np.full((LAYERS, tokens, 8), -1, dtype=np.int32)
    for layer in range(1, LAYERS):
        for token in range(tokens):
            while True:
                ids[layer, token, :K] = rng.choice(LOGICAL + REPLICAS, K, replace=False)
                if len(set(MAP[layer, ids[layer, token, :K]])) == K:
                    break
    return ids


def record(rng, number, mode, pieces):
    """Return one record; `pieces` are (positions, token ids) of each request of the batch."""
    positions = [position for piece, _ in pieces for position in piece]
    return {
        "forward_pass_id": number,
        "rank": 0,
        "gatherer_key": "primary",
        "input_ids": [token for _, tokens in pieces for token in tokens],
        "positions": positions,
        "extend_seq_lens": None if mode == 2 else [len(piece) for piece, _ in pieces],
        "forward_mode": mode,
        "topk_ids_of_layer": torch.from_numpy(topk(rng, len(positions))),
        "misc_objects": [],
        "global_physical_count": torch.zeros(LAYERS, LOGICAL + REPLICAS, dtype=torch.int32),
    }


def saved(path, records, **more):
    torch.save({"records": records, "last_physical_to_logical_map": torch.from_numpy(MAP)} | more, path)
    return path


@pytest.fixture
def session(tmp_path):
    """Return a file of one session, its records, and the (request, position, token, phase, pass) of every row."""
    rng = np.random.default_rng(0)
    plan = [
        (1, [("a", range(3)), ("b", range(2))]),
        (2, [("a", [3]), ("b", [2])]),
        (1, [("c", range(4))]),
        (2, [("a", [4]), ("b", [3]), ("c", [4])]),  # a and c wait for one position
        (2, [("a", [5]), ("c", [5])]),  # b is done
        (4, []),
        (3, [("d", range(2)), ("a", [6]), ("c", [6])]),
        (1, [("d", range(2, 5))]),  # the prompt's second chunk
        (2, [("d", [5])]),
    ]
    records, rows = [], []
    for number, (mode, batch) in enumerate(plan):
        pieces = [(list(at), [100 * ord(name) + position for position in at]) for name, at in batch]
        records.append(record(rng, 7 + number, mode, pieces))
        event = number - (number > 5)
        for name, at in batch:
            decoded = mode == 2 or (mode == 3 and name != "d")
            rows += [(name, position, 100 * ord(name) + position, int(decoded), event) for position in at]
    return saved(tmp_path / "recorded_0.pt", records), records, rows


def test_requests_are_sequences_and_passes_are_events(session):
    path, records, rows = session
    trace = read_trace(path)
    assert isinstance(trace, RoutingTrace)
    assert trace.layer_names == ("1", "2")
    assert (trace.num_experts, trace.top_k, trace.num_sequences) == (LOGICAL, K, 4)
    ids = np.concatenate([each["topk_ids_of_layer"].numpy() for each in records], axis=1)
    wanted = sorted(
        (name, position, token, phase, event, [[int(MAP[layer, e]) for e in ids[layer, row, :K]] for layer in (1, 2)])
        for row, (name, position, token, phase, event) in enumerate(rows)
    )
    columns = (trace.positions, trace.token_ids, trace.phases, trace.event_ids, trace.expert_ids)
    found = [tuple(column[row].tolist() for column in columns) for row in range(trace.num_tokens)]
    assert found == [row[1:] for row in wanted]
    assert trace.sequence_ids.tolist() == ["abcd".index(row[0]) for row in wanted]
    assert trace.phases.sum() == DECODE * sum(row[3] for row in rows)
    assert trace.phases[0] == PREFILL
    assert trace.provenance == {"num_experts_from": "declared", "format": "sglang-recorder"}


def test_requests_of_equal_length_that_may_have_changed_places_are_warned_of(tmp_path):
    rng = np.random.default_rng(1)
    two = [([0, 1], [1, 2]), ([0, 1], [3, 4])]
    same = [record(rng, 0, 1, two), record(rng, 1, 2, [([2], [5]), ([2], [6])])]
    assert read_trace(saved(tmp_path / "both.pt", same)).sequence_ids.tolist() == [0, 0, 0, 1, 1, 1]
    one_done = [record(rng, 0, 1, two), record(rng, 1, 2, [([2], [5])])]
    with pytest.warns(TraceWarning, match="in 1 of 2 passes requests of equal length"):
        read_trace(saved(tmp_path / "one.pt", one_done))


def test_a_recording_that_begins_in_the_middle_is_read(tmp_path):
    rng = np.random.default_rng(2)
    records = [record(rng, 0, 2, [([9], [1])]), record(rng, 1, 2, [([10], [2])])]
    trace = read_trace(saved(tmp_path / "late.pt", records))
    assert trace.positions.tolist() == [9, 10]
    assert trace.num_sequences == 1


def test_stat_counts_add_up_over_passes(tmp_path):
    counts = np.random.default_rng(3).integers(0, 9, (5, LAYERS, LOGICAL)).astype(np.int32)
    counts[:, 0] = 0
    whole = {"rank": 0, "logical_count": torch.from_numpy(counts), "average_utilization_rate_over_window": None}
    torch.save(whole, tmp_path / "stat.pt")
    profile = read_trace(tmp_path / "stat.pt")
    assert isinstance(profile, UsageProfile)
    assert profile.counts.tolist() == counts[:, 1:].sum(axis=0).tolist()
    assert profile.layer_names == ("1", "2")
    assert profile.provenance["passes"] == 5


def test_pass_counts_go_from_copies_to_the_experts_they_copy(tmp_path):
    rng = np.random.default_rng(4)
    records = [
        {"forward_pass_id": number, "global_physical_count": torch.from_numpy(rng.integers(0, 9, MAP.shape))}
        for number in range(3)
    ]
    profile = read_trace(saved(tmp_path / "pass.pt", records))
    total = sum(each["global_physical_count"].numpy() for each in records)
    wanted = np.zeros((LAYERS, LOGICAL), dtype=int)
    for layer in range(LAYERS):
        for physical in range(LOGICAL + REPLICAS):
            wanted[layer, MAP[layer, physical]] += total[layer, physical]
    assert profile.counts.tolist() == wanted.tolist()


def damaged(session, number=0, **changes):
    path, records, _ = session
    return saved(path, [*records[:number], records[number] | changes, *records[number + 1 :]])


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"topk_ids_of_layer": torch.full((LAYERS, 5, 8), 8)}, "physical experts from 0 to 7 or -1, got 8"),
        ({"topk_ids_of_layer": torch.full((LAYERS, 5, 8), -2)}, "physical experts from 0 to 7 or -1, got -2"),
        ({"topk_ids_of_layer": torch.zeros(LAYERS, 5, 8)}, "a tensor of whole numbers, got float32"),
        ({"topk_ids_of_layer": torch.zeros(LAYERS, 5, dtype=torch.int32)}, "3 dimensions, got shape (3, 5)"),
        ({"topk_ids_of_layer": torch.zeros(2, 5, 8, dtype=torch.int32)}, "the 3 layers of last_physical"),
        ({"topk_ids_of_layer": [[1]]}, "a tensor of whole numbers, got list"),
        ({"topk_ids_of_layer": torch.zeros(1, dtype=torch.int32).expand(LAYERS, 10**9, 8)}, "over fewer numbers"),
        ({"topk_ids_of_layer": torch.zeros(LAYERS, 5, 8, dtype=torch.int32).to_sparse()}, "a plain tensor"),
        ({"topk_ids_of_layer": torch.zeros(LAYERS, 5, 2, dtype=torch.int32)}, "the slots of record 0, 2, got 8"),
        ({"topk_ids_of_layer": torch.tensor([0, 6] + [-1] * 6).expand(3, 5, 8).clone()}, "0 twice at token 0, layer 0"),
        ({"positions": [0, 1, 2, 0]}, "positions must be a list of 5 whole numbers"),
        ({"positions": [0, 1, 2, 0, True]}, "positions must be a list of 5 whole numbers"),
        ({"positions": [0, 1, 2, 0, -1]}, "positions must be >= 0, got -1 to 2"),
        ({"positions": [0, 1, 3, 0, 1]}, "record 0 must have positions that follow each other, got a gap at token 2"),
        ({"input_ids": [0, 1, 3, 0, 2**70]}, "input_ids must be >= 0"),
        ({"extend_seq_lens": [3]}, "extend_seq_lens must be whole numbers that sum to 5 tokens, got [3]"),
        ({"extend_seq_lens": None}, "extend_seq_lens must be whole numbers"),
        ({"extend_seq_lens": [6, -1]}, "extend_seq_lens must be whole numbers"),
        ({"forward_mode": 5}, "got 5; drafts are not laid out"),
        ({"forward_mode": None}, "got None"),
    ],
)
def test_a_record_that_breaks_a_rule_is_named(session, refused, changes, rule):
    message = refused(damaged(session, **changes))
    assert rule in message
    assert "record 0" in message or "token 0" in message


def test_a_layer_count_that_changes_midway_is_named(session, refused):
    assert "record 1 must have the 3 layers" in refused(
        damaged(session, 1, topk_ids_of_layer=torch.zeros(4, 2, 8, dtype=torch.int32))
    )


@pytest.mark.parametrize(
    ("payload", "rule"),
    [
        ([1, 2], "found neither"),
        ({"records": []}, "last_physical_to_logical_map must be a tensor"),
        ({"records": [], "last_physical_to_logical_map": torch.zeros(2, 3, dtype=torch.int64)}, "found none"),
        ({"records": [3], "last_physical_to_logical_map": torch.zeros(2, 3, dtype=torch.int64)}, "found none"),
        ({"records": [{}], "last_physical_to_logical_map": torch.zeros(2, 0, dtype=torch.int64)}, "got shape (2, 0)"),
        ({"records": [{}], "last_physical_to_logical_map": torch.full((2, 3), -1)}, "logical expert >= 0"),
        ({"records": [{}], "last_physical_to_logical_map": torch.zeros(2, 3, dtype=torch.int64)}, "record 0 global"),
        ({"logical_count": torch.zeros(4, 2, 3, dtype=torch.int32)}, "at least one use, got only zeros"),
        ({"logical_count": torch.full((4, 2, 3), -1)}, "from 0 to 2**63 - 1, got -4"),
        ({"logical_count": torch.full((4, 2, 3), float("nan"))}, "a tensor of whole numbers, got float32"),
        ({"logical_count": torch.zeros(4, 2, 0, dtype=torch.int32)}, "num_experts must be a whole number"),
    ],
)
def test_a_payload_that_breaks_a_rule_is_named(tmp_path, refused, payload, rule):
    torch.save(payload, tmp_path / "bad.pt")
    assert rule in refused(tmp_path / "bad.pt", "sglang-recorder")


class Harm:
    def __reduce__(self):
        return (print, ("a pickle was run",))


def test_code_in_a_pickle_is_never_run(tmp_path, refused, capsys):
    path = saved(tmp_path / "harm.pt", [Harm()])
    assert "what only unpickling would open" in refused(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", pickle.dumps({"records": Harm(), "last_physical_to_logical_map": 1}, protocol=2))
        archive.writestr("x/version", "3\n")
    refused(path, "sglang-recorder")
    assert "a pickle was run" not in capsys.readouterr().out


def test_old_packed_cut_and_empty_files_are_refused(session, tmp_path, refused):
    path, _, _ = session
    whole = path.read_bytes()
    old = io.BytesIO()
    torch.save({"records": []}, old, _use_new_zipfile_serialization=False)
    packed = io.BytesIO()
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            target.writestr(entry.filename, source.read(entry))
    for data, rule in (
        (b"", "must be a zip archive"),
        (old.getvalue(), "must be a zip archive"),
        (whole[:-40], "must be a zip archive"),
        (whole[: len(whole) // 2], "must be a zip archive"),
        (packed.getvalue(), "found it packed"),
        (whole.replace(b"forward_mode", b"forward_m\xffde", 1), "not a readable"),
    ):
        (tmp_path / "bad.pt").write_bytes(data)
        assert rule in refused(tmp_path / "bad.pt", "sglang-recorder")
    assert "max_bytes 1000" in refused(path, max_bytes=1000)
    assert not sglang_recorder.IMPORTER.matches(Head(tmp_path / "bad.pt", b"PK\x03\x04", 4))


def test_a_pickle_of_another_protocol_is_read_without_torch_s_remarks(tmp_path):
    torch.save({"logical_count": torch.ones(1, 2, 3, dtype=torch.int32)}, tmp_path / "stat.pt", pickle_protocol=3)
    assert read_trace(tmp_path / "stat.pt").counts.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_without_torch_the_line_says_what_to_install(session, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TraceError, match=r"torch must be installed to read \.pt files, found none; pip install torch"):
        read_trace(session[0])
