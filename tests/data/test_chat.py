"""Where the assistant's words stand in a rendered conversation."""

from types import SimpleNamespace

import numpy as np
import pytest
from jinja2 import TemplateError

from stickymoe.data.chat import TemplateRefusal, assistant_spans, has_template, rendered, tokens_within
from stickymoe.data.messages import Message

TURNS = (Message("system", "Brief."), Message("user", "a b"), Message("assistant", "a b"), Message("user", "?"))


def templated(write):
    return SimpleNamespace(chat_template="some", apply_chat_template=lambda turns, tokenize: write(turns))


def words(turns):
    return "".join(f"[{turn['role']}]{turn['content']}[end]" for turn in turns)


def test_without_a_template_a_turn_is_a_line():
    bare = SimpleNamespace(chat_template=None)
    assert not has_template(bare)
    assert rendered(bare, TURNS[1:3], "here") == "user: a b\nassistant: a b\n"


def test_the_assistants_words_are_found_behind_the_users_even_where_they_are_the_same():
    text = rendered(templated(words), TURNS, "here")
    ((begin, end),) = assistant_spans(templated(words), TURNS, text, "here")
    assert text[begin:end] == "a b[end]"
    assert begin > text.index("a b")


def test_every_turn_of_the_assistant_has_a_span_and_an_empty_one_what_the_template_writes():
    turns = (Message("assistant", ""), Message("user", "x"), Message("assistant", " y "))
    text = rendered(templated(words), turns, "here")
    assert [text[a:b] for a, b in assistant_spans(templated(words), turns, text, "here")] == [
        "[assistant][end]",
        "y [end]",
    ]


def test_a_past_that_is_written_otherwise_later_is_refused():
    rewriting = templated(lambda turns: f"{len(turns)}" + words(turns))
    with pytest.raises(
        TemplateRefusal, match=r"here: the chat template rewrites earlier turns, .*; take the loss on all"
    ):
        assistant_spans(rewriting, TURNS, rendered(rewriting, TURNS, "here"), "here")


@pytest.mark.parametrize("error", [TemplateError("roles must\nalternate"), ValueError("roles must alternate")])
def test_what_a_template_refuses_is_told_in_one_line(error):
    def refusing(turns):
        raise error

    with pytest.raises(TemplateRefusal, match=r"^here is not taken by the tokenizer's chat template: roles must al"):
        rendered(templated(refusing), TURNS, "here")


def test_tokens_count_where_they_begin_and_those_of_no_characters_never():
    offsets = np.array([[0, 0], [0, 2], [2, 5], [5, 5], [5, 6], [6, 9]])
    assert tokens_within(offsets, [(2, 6)]).tolist() == [False, False, True, False, True, False]
    assert not tokens_within(offsets, []).any()
