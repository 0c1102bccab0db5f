"""Looking into trace files: what they hold, their first tokens, another format."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from stickymoe.cli import main
from stickymoe.traces import RoutingTrace


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


CHUNKS = [(), ("--chunk-tokens", 2)]


@pytest.fixture
def trace():
    ids = np.array([[[3, 0], [1, -1]], [[2, 3], [0, 1]], [[0, 1], [1, 2]]])
    weights = np.array([[[0.75, 0.25], [1.0, 0.0]], [[0.5, 0.5], [0.6, 0.4]], [[0.9, 0.1], [0.7, 0.3]]])
    return RoutingTrace(
        ids,
        np.array([7, 7, 8]),
        4,
        expert_weights=weights,
        phases=np.array([0, 1, 0]),
        event_ids=np.array([0, 1, 0]),
        layer_names=("2", "mtp0"),
        expert_bytes=np.array([1000, 3000]),
        provenance={"model": "toy"},
    )


@pytest.fixture
def file(trace, tmp_path):
    trace.save(tmp_path / "toy.parquet")
    return tmp_path / "toy.parquet"


def test_info_says_what_a_trace_holds(file):
    done = run("trace", "info", file)
    assert done.exit_code == 0, done.output
    told = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    told = {name.strip(): value.strip() for name, value in told.items()}
    assert told["model"] == "toy"
    assert (told["layers"], told["experts"], told["top k"], told["tokens"]) == ("2", "4", "2", "3")
    assert (told["prefill tokens"], told["decode tokens"], told["forward passes"]) == ("2", "1", "3")
    assert (told["sequences"], told["lookups"], told["expert bytes"]) == ("2", "11", "1,000 to 3,000")
    assert (told["weights"], told["residency"], told["layer names"]) == ("yes", "no", "2, mtp0")


def test_info_as_json_is_one_object(file):
    told = json.loads(run("trace", "info", file, "--json").stdout)
    assert told["tokens"] == 3
    assert told["weights"] is True


def test_info_of_counts_says_that_there_is_no_order(tmp_path):
    (tmp_path / "x.coli_usage").write_text("0 0 5\n0 1 2\n1 1 3\n")
    done = run("trace", "info", tmp_path / "x.coli_usage", "--num-experts", 4)
    assert done.exit_code == 0, done.output
    assert "counts without order" in done.stdout
    refused = run("trace", "head", tmp_path / "x.coli_usage", "--num-experts", 4)
    assert refused.exit_code == 2
    assert "holds only counts" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_chunks_are_sequences_of_their_own(tmp_path):
    (tmp_path / "moe_trace.csv").write_text("layer,expert\n" + "0,1\n0,2\n1,3\n1,0\n" * 6)
    told = [json.loads(run("trace", "info", tmp_path / "moe_trace.csv", "--json", *more).stdout) for more in CHUNKS]
    assert [each["sequences"] for each in told] == [1, 3]


def test_head_prints_one_line_a_token_and_layer_with_weights(file):
    lines = run("trace", "head", file, "-n", 2).stdout.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["7", "0", "prefill", "2", "3:0.7500", "0:0.2500"],
        ["7", "0", "prefill", "mtp0", "1:1.0000"],
        ["7", "1", "decode", "2", "2:0.5000", "3:0.5000"],
        ["7", "1", "decode", "mtp0", "0:0.6000", "1:0.4000"],
    ]


def test_head_shows_the_layers_asked_for(file):
    lines = run("trace", "head", file, "--layers", "mtp0").stdout.splitlines()
    assert {line.split()[3] for line in lines[1:]} == {"mtp0"}
    refused = run("trace", "head", file, "--layers", "9")
    assert refused.exit_code == 2
    assert "among 2, mtp0" in refused.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["info", "absent.csv"], "absent.csv must be a trace file, found nothing"),
        (["info", "junk.bin"], "junk.bin"),
        (["info", "junk.bin", "--format", "bigmoeonedg"], "did you mean 'bigmoeonedge'?"),
        (["head", "junk.bin", "-n", "0"], "-n"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_and_exit_code_2(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junk.bin").write_bytes(bytes(range(256)))
    done = run("trace", *words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_convert_writes_what_its_suffix_or_to_says_and_it_reads_back(file, trace, tmp_path):
    done = run("trace", "convert", file, tmp_path / "out.parquet")
    assert done.exit_code == 0, done.output
    assert RoutingTrace.load(tmp_path / "out.parquet") == trace
    done = run("trace", "convert", file, tmp_path / "out.dat", "--to", "jsonl")
    assert done.exit_code == 0, done.output
    told = json.loads(run("trace", "info", tmp_path / "out.dat", "--json").stdout)
    assert (told["tokens"], told["layers"], told["experts"]) == (3, 2, 4)


def test_what_a_format_has_no_room_for_is_one_warning_a_line(file, tmp_path):
    full = run("trace", "convert", file, tmp_path / "out.npz")
    assert full.exit_code == 0, full.output
    warned = [line for line in full.stderr.splitlines() if line.startswith("warning: ")]
    assert warned
    assert all("npz files do not keep" in line for line in warned)


@pytest.mark.parametrize(
    ("out", "words", "said"),
    [
        ("out.foo", [], "give --to, one of"),
        ("out.npz", ["--to", "nzp"], "did you mean 'npz'?"),
        ("out.csv", [], "cannot be written"),
    ],
)
def test_a_format_that_cannot_be_written_leaves_nothing_behind(file, tmp_path, out, words, said):
    done = run("trace", "convert", file, tmp_path / out, *words)
    assert done.exit_code == 2
    assert said in done.stderr.splitlines()[-1]
    assert not (tmp_path / out).exists()
