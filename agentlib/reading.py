"""What the lessons show: the package's own source, and what went over the wire, as plain text."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .inputs import FOLDER
from .project import root


class Source:
    """A function's or class's source: coloured in a notebook, plain text elsewhere."""

    def __init__(self, thing: Callable[..., Any] | type) -> None:
        self.text = textwrap.dedent(inspect.getsource(thing)).rstrip()

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return f"```python\n{self.text}\n```"


def show(thing: Callable[..., Any] | type) -> Source:
    """The source that is really running, never a pasted copy."""
    return Source(thing)


def show_file(name: str) -> None:
    """Print a text file of ``data/input`` as it is."""
    print((root() / FOLDER / name).read_text(encoding="utf-8").rstrip())


def show_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    """Print a conversation, one line a message: who speaks, and what."""
    for message in messages:
        print(f"{message['role']:<10}{_gist(message)}")


def _gist(message: Mapping[str, Any]) -> str:
    parts = [str(message["content"])] if message.get("content") else []
    for call in message.get("tool_calls") or ():
        parts.append(f"→ {call['function']['name']}({call['function']['arguments']}) id={call['id']}")
    if message.get("tool_call_id"):
        parts.insert(0, f"[{message['tool_call_id']}]")
    words = " ".join(parts)
    return words if len(words) <= 100 else words[:99] + "…"


def show_trace(result: Mapping[str, Any], last: int = 0) -> None:
    """Print what really happened in a run, one line an event; ``last``: only that many from the end."""
    for event in result["summary"]["trace"][-last:]:
        print(
            f"{event['step']:>2} {event['seconds']:>6g} s  {event['kind']:<12}{_detail(event['kind'], event['data'])}"
        )


def _detail(kind: str, data: Mapping[str, Any]) -> str:
    if kind == "tool_call":
        return f"{data['tool']}({data['arguments']})"
    if kind == "tool_result":
        error = data["result"]["error"]
        return str(error["code"]) if error else "ok"
    if kind == "retry":
        return f"{data['status'] or ''} wait={data['wait']:g}".strip()
    if kind == "reply":
        return f"finish={data['finish_reason']} calls={data['calls']} usd={data['usd']}"
    return f"attempt={data['attempt']}" if kind == "request" else ""


def show_json(value: Any) -> None:
    """Print a value as JSON, indented."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def show_rows(rows: Sequence[Mapping[str, Any]], *names: str) -> None:
    """Print rows of a run log as a table: the columns named, or all of them; a ``rate`` in per cent."""
    shown = names or tuple(rows[0])
    table = [shown, *(tuple(_cell(name, row[name]) for name in shown) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(name: str, value: Any) -> str:
    if name == "rate":
        return f"{value:.1%}"
    return f"{value:g}" if isinstance(value, float) else str(value)
