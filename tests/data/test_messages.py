"""Conversations and texts, whatever a data set calls them."""

import pytest

from stickymoe.core.errors import DataError
from stickymoe.data.messages import ROLES, TEXT_KEYS, TURNS_KEYS, content_of

ASKED = (("user", "How much?"), ("assistant", "Two."))


@pytest.mark.parametrize("key", TEXT_KEYS)
def test_plain_text_under_any_known_name(key):
    assert content_of({"id": 3, key: "one\n"}, "line 1") == "one\n"


@pytest.mark.parametrize("key", TURNS_KEYS)
@pytest.mark.parametrize(("role", "content"), [("role", "content"), ("from", "value"), ("speaker", "text")])
def test_turns_under_any_known_name(key, role, content):
    turns = [{role: "human", content: "How much?"}, {role: "gpt", content: "Two."}]
    assert content_of({key: turns, "text": "not this"}, "line 1") == ASKED


@pytest.mark.parametrize("row", [
    {"prompt": "How much?", "completion": "Two."},
    {"question": "How much?", "answer": "Two.", "text": "not this"},
    {"instruction": "How much?", "input": "", "output": "Two."},
    {"prompt": [{"role": "user", "content": "How much?"}], "completion": [{"role": "assistant", "content": "Two."}]},
])  # fmt: skip
def test_questions_with_answers_are_conversations(row):
    assert content_of(row, "line 1") == ASKED


def test_an_instruction_with_input_and_a_system_prompt():
    row = {"system": "Be brief.", "instruction": "Add.", "input": "1 + 1", "output": "2"}
    assert content_of(row, "line 1") == (("system", "Be brief."), ("user", "Add.\n\n1 + 1"), ("assistant", "2"))


def test_parts_of_text_are_joined_and_an_empty_turn_is_kept():
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None},
    ]
    assert content_of({"messages": turns}, "line 1") == (("user", "ab"), ("assistant", ""))


def test_a_prompt_without_an_answer_is_no_conversation():
    assert content_of({"prompt": "How much?", "text": "one"}, "line 1") == "one"


def test_a_prompt_without_an_answer_is_a_text_where_prompts_are_asked_for():
    with pytest.raises(DataError, match="got 'prompt'"):
        content_of({"prompt": "How much?"}, "line 1")
    assert content_of({"prompt": "How much?"}, "line 1", prompts=True) == "How much?"
    assert content_of({"prompt": "How much?", "text": "one"}, "line 1", prompts=True) == "one"


def test_every_role_is_one_that_templates_know():
    assert set(ROLES.values()) == {"system", "user", "assistant", "tool"}


@pytest.mark.parametrize(("row", "message"), [
    ({"messages": []}, "line 7 must have a turn with text, got 0 without any"),
    ({"messages": [{"role": "user", "content": " "}]}, "line 7 must have a turn with text, got 1 without any"),
    ({"messages": ["a"]}, "line 7, turn 1 must be an object with role and content, got str"),
    ({"messages": [{"role": "user", "content": "a"}, {"content": "b"}]},
     "line 7, turn 2 must have a role such as user, assistant or system, got None"),
    ({"messages": [{"role": "judge", "content": "b"}]},
     "line 7, turn 1 must have a role such as user, assistant or system, got 'judge'"),
    ({"messages": [{"role": "user", "content": 3}]}, "line 7, turn 1 must have a content of text, got int"),
    ({"text": 3}, "line 7 must have a text that is not empty, under a key such as .*; got 'text'"),
])  # fmt: skip
def test_what_is_no_text_is_told_with_its_place(row, message):
    with pytest.raises(DataError, match=f"^{message}$"):
        content_of(row, "line 7")
