"""Samples from any text: lines, files, folders and the default corpus, with a part held out."""

import json

import pytest

from stickymoe.core.errors import DataError, SettingError
from stickymoe.data.samples import load_samples


def lines(path, count):
    path.write_text("".join(json.dumps({"text": f"row {n}"}) + "\n" for n in range(count)))
    return path


def test_rows_are_held_out_by_their_content_not_by_their_place(tmp_path):
    found = load_samples(lines(tmp_path / "a.jsonl", 80))
    assert (len(found.train), len(found.held_out)) == (72, 8)
    assert found.name == "a.jsonl"
    turned = tmp_path / "b.NDJSON"
    turned.write_text("".join(reversed((tmp_path / "a.jsonl").read_text().splitlines(keepends=True))))
    again = load_samples(turned)
    assert {sample.content for sample in again.held_out} == {sample.content for sample in found.held_out}
    assert again.fingerprint != found.fingerprint


def test_a_sample_knows_its_line(tmp_path):
    found = load_samples(lines(tmp_path / "a.jsonl", 5))
    for sample in (*found.train, *found.held_out):
        row = int(sample.content.split()[1])
        assert sample.where == f"{tmp_path / 'a.jsonl'} line {row + 1}"


@pytest.mark.parametrize(("rows", "held"), [(2, 1), (19, 1), (40, 4), (300, 8), (400, 10), (1000, 25)])
def test_few_rows_give_a_tenth_and_many_a_fortieth(tmp_path, rows, held):
    assert len(load_samples(lines(tmp_path / "a.jsonl", rows)).held_out) == held


def test_at_least_one_row_is_held_out_and_one_is_not_enough(tmp_path):
    found = load_samples(lines(tmp_path / "a.jsonl", 2))
    assert (len(found.train), len(found.held_out)) == (1, 1)
    with pytest.raises(DataError, match=r"a.jsonl must have >= 2 rows, one of them to measure on, got 1"):
        load_samples(lines(tmp_path / "a.jsonl", 1))


def test_files_and_folders_of_text_keep_their_own_split(letters):
    found = load_samples(letters)
    assert (len(found.train), len(found.held_out)) == (8, 1)
    assert all(sample.content.startswith(("Letter", "# Letter")) for sample in found.train)
    long = letters / "long.txt"
    long.write_text("".join(f"Line {n}.\n" for n in range(200)))
    one = load_samples(long)
    assert long.read_text().startswith(one.train[0].content + one.held_out[0].content)


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(SettingError, match="data must be an existing file"):
        load_samples(tmp_path / "a.jsonl")
    with pytest.raises(SettingError, match="corpus must be one of sotu"):
        load_samples("sot")
