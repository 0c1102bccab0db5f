"""`layer,expert,count` CSV: with and without further columns, a shared expert, damage."""

import pytest

from stickymoe.traces import read_trace

TEXT = "layer,expert,count\n0,3,7\n1,0,2\n1,1,9\n"


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "heat.csv"
        path.write_text(text)
        return path

    return write


def test_lines_become_a_table(written):
    profile = read_trace(written(TEXT))
    assert profile.counts.tolist() == [[0, 0, 0, 7], [2, 9, 0, 0]]
    assert profile.layer_names == ("0", "1")
    assert profile.provenance == {"format": "usage-csv", "num_experts_from": "largest id + 1"}
    assert read_trace(written(TEXT), num_experts=6).counts.shape == (2, 6)


def test_further_columns_and_a_shared_expert_are_passed_over(written):
    more = "layer,expert,count,frac_of_layer\n0,3,7,1.0\n1,0,2,0.2\n1,1,9,0.8\n1,-1,99,nan\n"
    assert read_trace(written(more)) == read_trace(written(TEXT))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "empty"),
        ("layer,expert\n0,1\n", "layer, expert and count"),
        ("layer,expert,count\n", "at least one expert"),
        (TEXT + "1,2\n", "line 5"),
        (TEXT + "1,2,x\n", "invalid value 'x'"),
        (TEXT + "1,-2,3\n", "line 5 must have expert from 0 to 1048575, got -2"),
        (TEXT + "-1,2,3\n", "line 5 must have layer from 0 to 1048575, got -1"),
        (TEXT + "1,2,-3\n", "line 5 must have count from 0 to"),
        (TEXT + "1,1,1\n", "line 5 must not count an expert that was counted above"),
        ("layer,expert,count\n0,0,0\n", "only zeros"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(written, refused, text, rule):
    assert rule in refused(written(text), "usage-csv")


def test_memory_is_bounded_before_it_is_taken(written, refused):
    rows = "".join(f"{layer},999999,1\n" for layer in range(10))
    assert "max_bytes" in refused(written("layer,expert,count\n" + rows), max_bytes=2**20)
