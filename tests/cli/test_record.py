"""Recording from the command line: a run of this tool, what replays make of it, stopping, and what is refused."""

import json
import signal

import pytest

from stickymoe.capture.recording import record
from stickymoe.traces import RoutingTrace


@pytest.fixture
def text(tmp_path):
    (tmp_path / "words.txt").write_text("Some experts stay, some experts go. " * 30)
    return tmp_path / "words.txt"


def test_a_run_is_recorded_and_its_trace_is_taken_by_what_reads_traces(stickymoe, trained, text):
    done = stickymoe("trace", "record", trained / "run", "--data", text, "--generate", 4, "--chunk", 12,
                     "--max-tokens", 60, "--out", "run.parquet")  # fmt: skip
    assert done.exit_code == 0, done.output
    trace = RoutingTrace.load(text.parent / "run.parquet")
    assert trace.num_sequences == 5
    assert f"run.parquet: {trace.num_tokens} tokens (60 of prefill, " in done.stdout
    measured = stickymoe("measure", "run.parquet", "--no-intervals", "--json")
    assert measured.exit_code == 0, measured.output
    assert json.loads(measured.stdout)["sizes"]["tokens"] == trace.num_tokens
    replayed = stickymoe("simulate", "run.parquet", "--capacity", "50%", "--prefill", "pass")
    assert replayed.exit_code == 0, replayed.output
    why = stickymoe("diagnose", "run.parquet", "--budget", "50%", "--no-report")
    assert why.exit_code == 0, why.output
    told = stickymoe("trace", "info", "run.parquet", "--json")
    assert json.loads(told.stdout)["format"] == "stickymoe record"


def test_ctrl_c_ends_the_file_with_the_last_whole_batch(stickymoe, trained, text, monkeypatch):
    calls = []

    def interrupted(*given):
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return read_batch(*given)

    read_batch = record.read_batch
    monkeypatch.setattr(record, "read_batch", interrupted)
    words = (
        "trace",
        "record",
        trained / "run",
        "--data",
        text,
        "--chunk",
        8,
        "--batch-size",
        2,
        "--out",
        "run.parquet",
    )
    done = stickymoe(*words)
    assert done.exit_code == 130
    assert "stopped after 4 of " in done.stderr
    assert RoutingTrace.load(text.parent / "run.parquet").num_sequences == 4
    calls[:] = [1, 1]
    (text.parent / "run.parquet").write_text("precious")
    done = stickymoe(*words)
    assert done.exit_code == 130
    assert "run.parquet was not written" in done.stderr
    assert (text.parent / "run.parquet").read_text() == "precious"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nowhere",), "could not be had from the hub"),
        (("./nowhere",), "does not exist"),
        (("RUN", "--data", "nothing.txt"), "corpus must be one of"),
        (("RUN", "--chunk", "9999"), "chunk must be <="),
        (("RUN", "--generate", "9999"), "generate must be <"),
        (("RUN", "--device", "abacus"), "device must be one that this machine has"),
        (("RUN", "--out", "words.txt/t.parquet"), "words.txt"),
        (("RUN", "--top-p", "0"), "top-p"),
    ],
)
def test_what_cannot_be_ends_in_one_line_and_writes_nothing(stickymoe, trained, text, monkeypatch, words, told):
    from stickymoe.capture.opening import place

    def unreachable(*_):
        raise place.HubUnreachable("no network")

    monkeypatch.setattr(place, "download", unreachable)
    rest = () if "--data" in words else ("--data", text)
    done = stickymoe("trace", "record", *(trained / "run" if word == "RUN" else word for word in words), *rest)
    assert done.exit_code == 2, done.output
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert told in errors[0]
    assert not list(text.parent.glob("*.parquet"))
