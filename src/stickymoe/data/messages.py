"""Conversations as data sets spell them, turned into the roles and contents that chat templates take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from stickymoe.core.errors import DataError

# What a row may hold -> the names it is met under, the likeliest first
TEXT_KEYS = ("text", "content", "document", "body", "raw_content", "article", "story", "code")
TURNS_KEYS = ("messages", "conversations", "conversation", "chat", "dialogue", "dialog", "turns")
PROMPT_KEYS = ("prompt", "instruction", "question", "query", "problem")
INPUT_KEYS = ("input", "context")
ANSWER_KEYS = ("completion", "response", "output", "answer", "solution", "chosen")
ROLE_KEYS = ("role", "from", "speaker")
CONTENT_KEYS = ("content", "value", "text")
ROLES = {
    "human": "user",
    "user": "user",
    "prompter": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "bot": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}


class Message(NamedTuple):
    """One turn: `role` is system, user, assistant or tool."""

    role: str
    content: str


def content_of(row: Mapping[str, Any], where: str, *, prompts: bool = False) -> str | tuple[Message, ...]:
    """Return the text or the turns of a row, whichever of the known names it uses; turns go before text.

    Args:
        row: The row.
        where: What an error calls it.
        prompts: Whether a prompt without an answer is a text; to be trained on it is not.

    Raises:
        DataError: The row has no text, or a turn is not one.
    """
    turns = _first(row, TURNS_KEYS)
    if isinstance(turns, list):
        return _conversation(turns, where)
    prompt, answer = _first(row, PROMPT_KEYS), _first(row, ANSWER_KEYS)
    if isinstance(prompt, list):  # a prompt of several turns, its answer beside it
        return _conversation([*prompt, *(answer if isinstance(answer, list) else [])], where)
    if _is_text(prompt) and _is_text(answer):
        more = _first(row, INPUT_KEYS)
        asked = f"{prompt}\n\n{more}" if _is_text(more) else str(prompt)
        system = row.get("system")
        first = [Message("system", str(system))] if _is_text(system) else []
        return (*first, Message("user", asked), Message("assistant", str(answer)))
    for name in TEXT_KEYS:
        if _is_text(row.get(name)):
            return str(row[name])
    if prompts and _is_text(prompt):
        return str(prompt)
    known = ", ".join((*TEXT_KEYS[:3], *TURNS_KEYS[:2], "prompt with completion"))
    found = ", ".join(map(repr, list(row)[:6])) or "no keys"
    raise DataError(f"{where} must have a text that is not empty, under a key such as {known}; got {found}")


def _conversation(turns: list[Any], where: str) -> tuple[Message, ...]:
    messages = tuple(_message(turn, f"{where}, turn {number}") for number, turn in enumerate(turns, 1))
    if not any(message.content.strip() for message in messages):
        raise DataError(f"{where} must have a turn with text, got {len(messages)} without any")
    return messages


def _message(turn: Any, where: str) -> Message:
    if not isinstance(turn, dict):
        raise DataError(f"{where} must be an object with role and content, got {type(turn).__name__}")
    role, content = _first(turn, ROLE_KEYS), _first(turn, CONTENT_KEYS)
    if not isinstance(role, str) or role.lower() not in ROLES:
        raise DataError(f"{where} must have a role such as user, assistant or system, got {role!r:.60}")
    if isinstance(content, list):  # parts: those of text are kept
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "".join(part for part in parts if isinstance(part, str))
    if content is not None and not isinstance(content, str):
        raise DataError(f"{where} must have a content of text, got {type(content).__name__}")
    return Message(ROLES[role.lower()], content or "")


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
