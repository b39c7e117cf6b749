"""The right-hand side of the panels as HTML: bars, log, ending. Text from models, tools and people is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

from ..charts import cap_of
from ..limits import Limits
from ..messages import text
from . import words
from .story import LogLine, Progress

_SHOWN = {"max_steps": "{:g}".format, "max_seconds": words.seconds, "max_usd": words.money}
_MARKS = {"waiting": "…", "ok": "✓", "error": "✗"}
_KINDS = {"model": "", "retry": "↻ ", "tool": "→ "}


@dataclass(frozen=True)
class Bar:
    """One cap as a bar: what is used, in parts; what the next step asks for; what the plan holds after that.

    ``parts`` None: what was used cannot be told.
    """

    cap: str
    parts: Sequence[float] | None
    quote: float = 0.0
    rest: float = 0.0


def style() -> str:
    """The style sheet of the panels, as an element of its own."""
    css = (files(__package__) / "panel.css").read_text(encoding="utf-8")
    return f"<style>{css}</style>"


def bars(rows: Iterable[Bar], limits: Limits, fired: str | None = None) -> str:
    """The bars below each other; that of the cap that ``fired`` turns, in colour, sign and word."""
    return "".join(_bar(row, getattr(limits, row.cap), row.cap == fired) for row in rows)


def _bar(bar: Bar, limit: float | None, fired: bool) -> str:
    write, name, parts = _SHOWN[bar.cap], text(f"panel.{bar.cap}"), bar.parts or ()
    so_far = text("panel.unknown") if bar.parts is None else write(sum(parts))
    figures = f"{so_far} / {text('panel.no_limit') if limit is None else write(limit)}"
    sign, tone = (f"◀ {text('panel.fired')}", " al-fired") if fired else ("", "")
    return (
        f'<div class="al-bar{tone}"><span>{escape(name)}</span><span>{escape(figures)} <b>{escape(sign)}</b></span>'
        f'<div class="al-track" role="img" aria-label="{escape(f"{name}: {figures} {sign}")}">'
        f"{_pieces(bar, parts, limit)}</div></div>"
    )


def _pieces(bar: Bar, parts: Sequence[float], limit: float | None) -> str:
    full = max(limit or 0.0, sum(parts) + bar.quote + bar.rest) or 1.0
    sizes = [("used", part) for part in parts] + [("quote", bar.quote), ("rest", bar.rest)]
    inner = "".join(f'<i class="al-{kind}" style="width:{100 * size / full:.2f}%"></i>' for kind, size in sizes if size)
    if limit is None:
        return inner
    return f'{inner}<b class="al-limit" style="left:{100 * limit / full:.2f}%"></b>'


def run_bars(progress: Progress, limits: Limits, stop: dict[str, Any] | None) -> str:
    """The bars of a run. What the next call may take is shown beside what is used, at a stop beyond the limit."""
    asked, fired = {"max_usd": progress.quote_usd or 0.0}, None
    if stop:
        fired = stop["limit"]
        asked[fired] = stop["quote"] or 0.0
    used = {"max_steps": progress.steps, "max_seconds": progress.seconds, "max_usd": progress.usd}
    return bars([Bar(cap, _known(used[cap]), asked.get(cap, 0.0)) for cap in _SHOWN], limits, fired)


def _known(used: float | None) -> Sequence[float] | None:
    return None if used is None else (used,)


def plan_bars(plan: Sequence[Mapping[str, Any]], limits: Limits, reason: str, steps: int) -> str:
    """The bars of a plan: each step done, the step that a cap refused, and what was left in the plan."""
    rows = []
    for cap, key in (("max_steps", ""), ("max_seconds", "seconds"), ("max_usd", "usd")):
        sizes = [float(step.get(key, 1)) for step in plan]
        rows.append(Bar(cap, sizes[:steps], sum(sizes[steps : steps + 1]), sum(sizes[steps + 1 :])))
    return bars(rows, limits, cap_of(reason))


def log(lines: Iterable[LogLine]) -> str:
    """The log, one row per line; the step's number stands before its model call."""
    return f'<div class="al-log" role="log">{"".join(map(_log_row, lines))}</div>'


def _log_row(line: LogLine) -> str:
    number = str(line.step) if line.kind == "model" else ""
    told = f"{_KINDS[line.kind]}{line.text}"
    return f'<div class="al-{line.state}"><b>{number}</b><span>{escape(told)} <i>{_MARKS[line.state]}</i></span></div>'


def ending(reason: str, sentence: str, speech: str = "", title: str = "") -> str:
    """The stop reason, the sentence about it, and what the model said, marked as its claim."""
    if not reason:
        return ""
    tone, sign = ("done", "✓") if reason == "done" else ("stopped", "■")
    said = f"<div class='al-said'><b>{escape(title)}</b>{escape(speech)}</div>" if speech else ""
    return (
        f'<div class="al-ending al-{tone}" role="status"><code>{sign} {escape(reason)}</code> '
        f"<span>{escape(sentence)}</span>{said}</div>"
    )


def counter(progress: Progress) -> str:
    """How many requests, tool calls and tokens so far."""
    figures = {"requests": progress.requests, "tool_calls": progress.tool_calls, "tokens": f"{progress.tokens:,}"}
    retries = text("panel.retries", retries=progress.retries) if progress.retries else ""
    told = text("panel.counter", retries=retries, **figures)
    return f'<div class="al-counter">{escape(told)}</div>'


def note(sentence: str, kind: str = "hint") -> str:
    """A small sentence: a hint, a heading, the state of the run, or (kind "error") what is wrong."""
    role = ' role="alert"' if kind == "error" else ""
    sign = "⚠ " if kind == "error" else ""
    return f'<div class="al-{kind}"{role}>{sign}{escape(sentence)}</div>' if sentence else ""
