"""What every request must keep to so that no service refuses it. Each rule was broken somewhere, and cost a run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MESSAGE_KEYS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "reasoning_content"},
    "tool": {"role", "content", "tool_call_id"},
}
CALL_KEYS = {"id", "type", "function", "extra_content"}
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def broken_rules(body: Mapping[str, Any]) -> list[str]:
    """One line for each rule that a request's body breaks."""
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as problem:
        return [f"the body is no strict JSON in UTF-8: {problem}"]
    messages = body["messages"]
    return [f"message {n}: {line}" for n, line in [*_shapes(messages), *_answers(messages)]]


def _shapes(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    """Nothing unknown, nothing empty, nothing null that must not be."""
    for n, message in enumerate(messages):
        role = message.get("role", "")
        if unknown := set(message) - MESSAGE_KEYS.get(role, set()):
            yield n, f"a message of role {role!r} has {sorted(unknown)}"
        if not isinstance(message.get("content", 0), str) and not (role == "assistant" and message["content"] is None):
            yield n, f"content is {message.get('content', 'absent')!r}"
        if any(value is None for key, value in message.items() if key != "content"):
            yield n, "a null is sent back"
        if "tool_calls" in message and not message["tool_calls"]:
            yield n, "an empty list of calls is sent back"
        for call in message.get("tool_calls", []):
            yield from ((n, line) for line in _call(call))


def _call(call: Mapping[str, Any]) -> Iterator[str]:
    if call.get("type") != "function" or not set(call) <= CALL_KEYS or None in call.values():
        yield f"a call of another form: {dict(call)!r}"
    if not isinstance(call.get("id"), str) or not call["id"]:
        yield f"a call has the id {call.get('id')!r}"
    function = call.get("function")
    if not isinstance(function, dict) or set(function) != {"name", "arguments"}:
        yield f"a call has the function {function!r}"
        return
    if not NAME.fullmatch(str(function["name"])):
        yield f"the name {function['name']!r} is not one that every service takes"
    if not _is_object(function["arguments"]):
        yield f"the arguments {function['arguments']!r} are not the text of a JSON object"


def _is_object(arguments: Any) -> bool:
    try:
        return isinstance(arguments, str) and isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


def _answers(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    """Each call has an id of its own, and is answered once, right after the message that made it."""
    seen, open_calls = set[str](), list[str]()
    for n, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] in open_calls:
                open_calls.remove(message["tool_call_id"])
            else:
                yield n, f"it answers {message['tool_call_id']!r}, which nobody asked"
            continue
        if open_calls:
            yield n, f"{open_calls} are not answered before it"
        open_calls = [call.get("id") for call in message.get("tool_calls", [])]
        for call_id in open_calls:
            if call_id in seen:
                yield n, f"the id {call_id!r} is used twice"
            seen.add(call_id)
    if open_calls:
        yield len(messages), f"{open_calls} are never answered"
