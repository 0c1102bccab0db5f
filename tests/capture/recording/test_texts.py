"""Texts and how they become sequences: nothing lost, nothing joined, hostile files told by their line."""

import copy
import json
from itertools import chain

import pytest
from tokenizers.processors import TemplateProcessing

from stickymoe.capture.recording import find_texts, plan_prompts, texts
from stickymoe.core.errors import DataError, SettingError


def plain(tokenizer, document):
    return [token for block in document.blocks for token in tokenizer(block).input_ids]


def test_sequences_put_together_are_the_documents(tokenizer, records):
    planned = plan_prompts(find_texts(records), tokenizer, length=5)
    assert planned.documents == ["records:1", "records:2", "records:3"]
    for number, document in enumerate(find_texts(records).read()):
        mine = [each.token_ids.tolist() for each in planned.sequences if each.document == number]
        assert list(chain.from_iterable(mine)) == plain(tokenizer, document)
        assert [len(each) for each in mine[:-1]] == [5] * (len(mine) - 1)


@pytest.mark.parametrize("budget", [1, 4, 5, 7, 12])
def test_no_more_tokens_are_read_than_allowed(tokenizer, text, budget):
    whole = plan_prompts(find_texts(text), tokenizer, length=5)
    some = plan_prompts(find_texts(text), tokenizer, length=5, max_tokens=budget)
    assert some.num_tokens == budget
    flat = [token for each in whole.sequences for token in each.token_ids.tolist()]
    assert [token for each in some.sequences for token in each.token_ids.tolist()] == flat[:budget]


def test_reading_stops_at_the_budget_without_looking_at_the_rest_of_the_file(tokenizer, tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_text(json.dumps({"text": "some experts stay " * 9}) + "\nno JSON at all\n")
    assert plan_prompts(find_texts(path), tokenizer, length=8, max_tokens=16).num_tokens == 16
    with pytest.raises(DataError, match="line 2"):
        plan_prompts(find_texts(path), tokenizer, length=8)


def test_short_tails_may_be_left_out(tokenizer, records):
    planned = plan_prompts(find_texts(records), tokenizer, length=5, shortest=3)
    assert min(len(each.token_ids) for each in planned.sequences) >= 3


def test_every_sequence_begins_as_the_tokenizer_begins_a_text(tokenizer, text):
    begins = copy.deepcopy(tokenizer)
    ends_too = TemplateProcessing(single="<|endoftext|> $A <|endoftext|>", special_tokens=[("<|endoftext|>", 0)])
    begins._tokenizer.post_processor = ends_too
    assert begins("a").input_ids == [0, *tokenizer("a").input_ids, 0]
    planned = plan_prompts(find_texts(text), begins, length=5)
    assert all(each.token_ids[0] == 0 for each in planned.sequences)
    kept = [token for each in planned.sequences for token in each.token_ids[1:].tolist()]
    assert kept == tokenizer(text.read_text()).input_ids
    with pytest.raises(SettingError, match="chunk must be >= 2"):
        plan_prompts(find_texts(text), begins, length=1)


def test_long_texts_are_read_in_blocks_at_line_breaks(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "BLOCK_CHARACTERS", 10)
    path = tmp_path / "lines.txt"
    content = "one\ntwo\r\nthree four five six seven\n\neight"
    path.write_bytes(content.encode())
    (document,) = find_texts(path).read()
    blocks = list(document.blocks)
    assert "".join(blocks) == content
    assert len(blocks) > 2
    assert all(len(block) <= 20 for block in blocks)


def test_chats_go_through_the_models_own_template(tokenizer, tmp_path):
    path = tmp_path / "chats.jsonl"
    turns = [{"from": "human", "value": "stay?"}, {"role": "assistant", "content": "I stay."}]
    path.write_text(json.dumps({"messages": turns}))
    with pytest.raises(SettingError, match="no chat template"):
        plan_prompts(find_texts(path), tokenizer, length=8)
    chatty = copy.deepcopy(tokenizer)
    chatty.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    planned = plan_prompts(find_texts(path), chatty, length=64)
    assert tokenizer.decode(planned.sequences[0].token_ids) == "user: stay?\nassistant: I stay.\n"
    chatty.chat_template = "{{ raise_exception('odd roles') }}"
    with pytest.raises(DataError, match="odd roles"):
        plan_prompts(find_texts(path), chatty, length=64)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 1 must be one JSON object"),
        ("{}", "line 1 must have a text that is not empty"),
        ('{"text": "\udc80"}', "line 1 must be UTF-8"),
    ],
)
def test_a_line_that_is_no_record_is_told(tokenizer, tmp_path, line, told):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(line.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=told):
        plan_prompts(find_texts(path), tokenizer, length=8)


def test_a_line_without_end_is_not_read_to_its_end(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("stickymoe.data.jsonl.LONGEST_LINE", 100)
    path = tmp_path / "long.jsonl"
    path.write_text('{"text": "' + "x" * 1000)
    with pytest.raises(DataError, match="at most 100 bytes"):
        plan_prompts(find_texts(path), tokenizer, length=8)


def test_files_that_are_no_text_are_told(tokenizer, tmp_path):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"fine\n\xff")
    with pytest.raises(DataError, match="UTF-8"):
        plan_prompts(find_texts(path), tokenizer, length=8)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="at least 1 tokens"):
        plan_prompts(find_texts(path), tokenizer, length=8)
    with pytest.raises(SettingError, match="sotu"):
        find_texts(tmp_path / "missing.txt")


def test_a_folder_of_texts_gives_one_split(tokenizer, tmp_path):
    for number in range(12):
        (tmp_path / f"{number:02}.txt").write_text(f"Text number {number}.")
    found = find_texts(tmp_path)
    names = [document.name for document in found.read()]
    assert 1 <= len(names) < 12
    assert found.facts["split"] == "test"
    with pytest.raises(SettingError, match="split must be one of"):
        find_texts(tmp_path, split="exam")
    assert found.facts["name"] == tmp_path.name
