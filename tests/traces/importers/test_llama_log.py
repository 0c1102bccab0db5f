"""moe-l2's EXPERT log lines: among other lines, one bracket a token."""

import pytest

from stickymoe.core.errors import TraceError, TraceWarning
from stickymoe.traces import DECODE, PREFILL, read_trace
from stickymoe.traces.importers import llama_log

LOG = """llama_model_loader: loaded meta data
EXPERT|L0|T2: [1,2,7] [3, 1, 0]
EXPERT|L1|T2: [5,2,4] [5,3,4]
main: a line between
0.01.2 I EXPERT|L0|T1: [2,1,0]
EXPERT|L1|T1: [4,5,6]
"""


@pytest.fixture
def written(tmp_path):
    def write(content=LOG):
        path = tmp_path / "run.log"
        path.write_text(content)
        return path

    return write


def test_brackets_are_tokens(written):
    trace = read_trace(written())
    assert trace.expert_ids.tolist() == [[[1, 2, 7], [5, 2, 4]], [[3, 1, 0], [5, 3, 4]], [[2, 1, 0], [4, 5, 6]]]
    assert trace.phases.tolist() == [PREFILL, PREFILL, DECODE]
    assert trace.provenance["format"] == "llama-log"
    assert trace.num_experts == 8


def test_blocks_of_any_size_read_the_same(written, monkeypatch):
    whole = read_trace(written())
    for size in (1, 40, 100):
        monkeypatch.setattr(llama_log, "BLOCK_BYTES", size)
        assert read_trace(written()) == whole
    monkeypatch.setattr(llama_log, "BLOCK_BYTES", 100)
    with pytest.raises(TraceError, match="line 7 must read"):
        read_trace(written(LOG + "EXPERT|L0|T1 [2,1]\n"))
    with pytest.raises(TraceError, match="line 6 must name as many experts"):
        read_trace(written(LOG.replace("[4,5,6]", "[4,5,6,7]")))


def test_tokens_that_the_log_left_out_are_warned_of(written):
    with pytest.warns(TraceWarning, match="at most 2 tokens of a forward pass"):
        read_trace(written(LOG.replace("T2", "T37")))


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("", "found none"),
        ("nothing here\n", "found none"),
        (LOG + "EXPERT|L0|T1: [2,1", "line 7 must read"),
        (LOG + "EXPERT|L0|T1: [2,1]\n", "line 7 must name as many experts a token as the others, got 2 ids against 3"),
        (LOG + "EXPERT|L0|T1: [2,-1,3]\n", "line 7 must read"),
        (LOG.replace("[4,5,6]", "[4,5,4]"), "once a token and layer, got 4 twice"),
        (LOG.replace("[1,2,7] [3, 1, 0]", "[1,2,7]"), "line 2: layer 0 must have as many tokens"),
        (LOG.replace("L1", "L9999999"), "line 3 must read"),
    ],
)
def test_a_broken_log_is_refused_in_one_line(written, refused, content, rule):
    assert rule in refused(written(content), "llama-log")
