"""What goes to the model: messages built from a short white list, never dumped from what came in.

Each message becomes JSON text once, when it is added, so that a step costs the same however long the history is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import strictjson
from .messages import text
from .results import ToolResult

SYSTEM = (
    "You are a careful data analyst. Work only with the tools you are given and with what they return. "
    "Take numbers from tool results as they are. When you have what you need, answer in plain text, "
    "in the language of the question."
)
"""The system prompt. A model reads it, no person: it is the same in every language, and so is what it costs."""

MAX_RESULT_CHARS = 20_000
"""The longest tool result that is sent to the model, in characters of JSON."""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call as the model made it. ``arguments`` is the raw text, whether or not it is JSON."""

    id: Any
    name: str
    arguments: str
    extra: Any = None


class History:
    """The messages of one run, and the most tokens that they can be for the model."""

    def __init__(self, system: str, question: str, tools: Sequence[Mapping[str, Any]]) -> None:
        self._messages = [
            strictjson.encode({"role": "system", "content": system}),
            strictjson.encode({"role": "user", "content": question}),
        ]
        self._tools = strictjson.encode(list(tools))
        self._ids: set[str] = set()
        self._counted: int | None = None
        self._since = 0

    def body(self, fields: Mapping[str, Any], with_tools: bool = True) -> bytes:
        """The body of the next request; ``fields`` are the model's name, the length of the answer and the like."""
        head = strictjson.encode(dict(fields))[:-1]
        tools = f', "tools": {self._tools}' if with_tools and self._tools != "[]" else ""
        return f'{head}{tools}, "messages": [{", ".join(self._messages)}]}}'.encode()

    def most_tokens(self, body: bytes) -> int:
        """An upper bound for the prompt: what the last reply counted, a token per byte since.

        A byte-level tokenizer never makes more than one token of a byte. Before the
        first count it is one token per byte of the whole body.
        """
        return len(body) if self._counted is None else self._counted + self._since

    def counted(self, input_tokens: int) -> None:
        """The model's own count of the request that was just answered.

        A history only grows: a count below an earlier one leaves something out (cached input, say), and bounds nothing.
        """
        if self._counted is None or input_tokens >= self._counted:
            self._counted, self._since = input_tokens, 0

    def add_reply(self, content: str | None, calls: Sequence[Call], reasoning: str | None) -> list[str]:
        """Add what the model said, made fit to be sent back; returns the ids under which its calls are answered."""
        ids = [self._new_id(call.id) for call in calls]
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if reasoning is not None:
            message["reasoning_content"] = reasoning
        message["tool_calls"] = [_echo(call, call_id) for call, call_id in zip(calls, ids, strict=True)]
        self._add(message)
        return ids

    def add_result(self, call_id: str, result: ToolResult) -> None:
        """Hand a tool's result back under the id of its call."""
        self._add({"role": "tool", "tool_call_id": call_id, "content": for_model(result)})

    def add_user(self, words: str) -> None:
        """Add a sentence of the host's own."""
        self._add({"role": "user", "content": words})

    def _add(self, message: dict[str, Any]) -> None:
        written = strictjson.encode(message)
        self._messages.append(written)
        self._since += len(written.encode()) + 2

    def _new_id(self, wanted: Any) -> str:
        """The id that the model gave, or one of ours where it gave none, or one that is taken."""
        call_id = wanted if isinstance(wanted, str) and wanted else "call"
        number = len(self._ids)
        while call_id in self._ids or call_id == "call":
            number += 1
            call_id = f"call_{number}"
        self._ids.add(call_id)
        return call_id


def _echo(call: Call, call_id: str) -> dict[str, Any]:
    function = {"name": _legal_name(call.name), "arguments": _object_text(call.arguments)}
    echo: dict[str, Any] = {"id": call_id, "type": "function", "function": function}
    return echo if call.extra is None else {**echo, "extra_content": call.extra}


def _legal_name(name: str) -> str:
    """Services refuse a whole history for one name outside ``[A-Za-z0-9_-]{1,64}``."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unnamed"


def _object_text(arguments: str) -> str:
    """The arguments if they are a JSON object, else an empty one: the raw text stays in the trace."""
    try:
        value = strictjson.parse(arguments)
    except ValueError:
        return "{}"
    return arguments if isinstance(value, dict) else "{}"


def for_model(result: ToolResult) -> str:
    """A tool result as JSON text that is never too long; where something was cut, it says so."""
    whole = strictjson.encode(result)
    if len(whole) <= MAX_RESULT_CHARS:
        return whole
    for most in (1000, 300, 100, 30, 10, 3, 1, 0):
        short = strictjson.encode(
            {**_shorten(dict(result), most), "cut": text("loop.result_cut", chars=len(whole), most=most)}
        )
        if len(short) <= MAX_RESULT_CHARS:
            break
    return short


def _shorten(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= 40 * (most + 5) else value[: 40 * (most + 5)] + "…"
    if isinstance(value, dict):
        return {key[:200]: _shorten(item, most) for key, item in list(value.items())[: most + 10]}
    return [_shorten(item, most) for item in value[:most]] if isinstance(value, list) else value


def portable(value: Any, secret: str = "") -> Any:
    """A copy of decoded JSON that can be written as UTF-8 and strict JSON, with ``secret`` blotted out.

    Half a surrogate pair becomes U+FFFD, NaN and infinity become None. Raises ``RecursionError`` if it is too deep.
    """
    if isinstance(value, str):
        if secret and secret in value:
            value = value.replace(secret, "***")
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {portable(key, secret): portable(item, secret) for key, item in value.items()}
    return [portable(item, secret) for item in value] if isinstance(value, list) else value
