"""Calibration files: an exact round trip, and one line for every hostile one."""

import json
import re
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stickymoe.cache.calibration import (
    Calibration,
    CalibrationError,
    Link,
    Spread,
    load_calibration,
    save_calibration,
)

TIME = Spread(0.001, 0.00123456789012345, 0.003, 7)
MEASURED = Calibration(
    3_059_712,
    (Link("disk-random", 4, 3_059_712, 4096, TIME, Spread(1e-5, 1e-5, 1e-5, 3)),),
    TIME,
    {"processor": "a", "cores": 2, "memory_gib": 23.4},
    "2026-01-02T03:04:05+00:00",
    ("a note",),
)


@pytest.fixture
def content():
    return json.loads(json.dumps({"format": "stickymoe.calibration"} | asdict(MEASURED)))


def refusal(path) -> str:
    with pytest.raises(CalibrationError) as caught:
        load_calibration(path)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    return message


@pytest.mark.parametrize("matmul", [TIME, None])
def test_a_round_trip_is_exact(tmp_path, matmul):
    measured = Calibration(1000, MEASURED.links, matmul, MEASURED.hardware, MEASURED.date, ())
    save_calibration(measured, tmp_path / "machine.json")
    assert load_calibration(tmp_path / "machine.json") == measured


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        (["format"], "x", "must be a calibration file"),
        (["version"], 2, "the format version must be 1, got 2"),
        (["version"], True, "the format version must be 1, got True"),
        (["version"], "\n", r"the format version must be 1, got '\\n'"),
        (["expert_bytes"], 0, "expert_bytes"),
        (["expert_bytes"], 10**400, "expert_bytes"),
        (["expert_bytes"], "12", "expert_bytes: .*integer"),
        (["links"], [], "links"),
        (["links", 0, "name"], "floppy", "links.0.name"),
        (["links", 0, "queue_depth"], -1, "links.0.queue_depth"),
        (["links", 0, "block", "p50"], 0.0, "links.0.block.p50"),
        (["links", 0, "block", "p50"], 9.0, "p20 <= p50 <= p80"),
        (["links", 0, "block", "p50"], float("nan"), "links.0.block.p50"),
        (["links", 0, "small_bytes"], 2**40, "below link.block_bytes"),
        (["matmul"], {"p20": 1.0}, "matmul.p50"),
        (["hardware"], {"a": [1]}, "hardware.a"),
        (["surprise"], 1, "surprise"),
        (["notes"], "text", "notes"),
    ],
)
def test_a_broken_rule_is_named_in_one_line(tmp_path, content, where, value, words):
    target = content
    for key in where[:-1]:
        target = target[key]
    target[where[-1]] = value
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(content))
    message = refusal(path)
    assert re.search(words, message), message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "null",
        '{"format"',
        "[" * 100_000,
        "9" * 10_000,
        '{"a": NaN}',
        "\ufeff{}",
        '{"version": ' + "9" * 5000 + "}",
    ],
)
def test_what_is_no_calibration_is_one_line(tmp_path, text):
    path = tmp_path / "machine.json"
    path.write_text(text, encoding="utf-8")
    refusal(path)


def test_no_file_a_folder_bytes_and_a_huge_file_are_one_line(tmp_path):
    assert "no such file" in refusal(tmp_path / "none.json")
    assert "directory" in refusal(tmp_path)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    refusal(tmp_path / "bytes.json")
    (tmp_path / "huge.json").write_bytes(b" " * (2**20 + 1))
    assert "at most 1048576 bytes" in refusal(tmp_path / "huge.json")


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_any_single_value_replaced_loads_or_is_refused_in_one_line(tmp_path_factory, data):
    content = json.loads(json.dumps({"format": "stickymoe.calibration"} | asdict(MEASURED)))
    place, key = content, data.draw(st.sampled_from(sorted(content)))
    while isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
        place = place[key]
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    place[key] = data.draw(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just([]) | st.just({})
    )
    path = tmp_path_factory.mktemp("hostile") / "machine.json"
    path.write_text(json.dumps(content))
    try:
        loaded = load_calibration(path)
    except CalibrationError:
        refusal(path)
    else:
        save_calibration(loaded, path)
        assert load_calibration(path) == loaded
