"""Figures and sentences of the panel, as plain text in the language in force."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..limits import Limits
from ..messages import text
from ..plan import LogLine, PlanStep
from ..results import TaskResult, ToolResult


def money(usd: float | None) -> str:
    """Dollars to the digit that matters in an agent's step: ``$0.012``, ``$0.000425``."""
    if usd is None:
        return text("panel.unknown")
    digits = f"{usd:.9f}".rstrip("0")
    whole, _, part = digits.partition(".")
    return f"${whole}.{part.ljust(3, '0')}"


def seconds(value: float) -> str:
    """Seconds with one decimal: ``9.1``."""
    return f"{value:.1f}"


def short(anything: str, most: int = 80) -> str:
    """One line of at most ``most`` characters."""
    line = " ".join(anything.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def call(tool: str, arguments: str) -> str:
    """A tool call as a person writes it: ``analyze_csv(sales.csv)``."""
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        values = None
    inside = ", ".join(str(v) for v in values.values()) if isinstance(values, dict) else str(arguments)
    return f"{tool}({short(inside, 60)})"


def outcome(result: ToolResult) -> str:
    """What a tool run gave, in a few words: ``ok``, or the code and message of the error."""
    error = result["error"]
    return "ok" if error is None else f"{error['code']}: {short(error['message'], 120)}"


def ending(result: TaskResult) -> str:
    """Why the run ended, in one sentence whose arithmetic can be checked: used, quote and limit."""
    summary = result["summary"]
    reason, stop = summary["stop_reason"], summary.get("stop")
    if reason == "done":
        return text("panel.end_done", steps=summary["steps"])
    if reason == "stopped:user":
        why = text("panel.end_user")
    elif stop:
        why = _cap_sentence(stop)
    else:
        return (result["warnings"] or [reason])[0]
    kept = text("panel.kept", why=why, steps=summary["steps"], calls=summary["tool_calls_used"])
    return text("panel.estimated", kept=kept) if summary["usage"]["estimated"] else kept


def plan_ending(plan: Sequence[PlanStep], limits: Limits, reason: str, log: Sequence[LogLine]) -> str:
    """Why the plan ended there: the step that was not begun, and the sum that a class can check."""
    if reason == "done":
        return text("panel.plan_done")
    following = plan[len(log)]
    name = short(following["name"], 30)
    if reason == "stopped:steps":
        return text("panel.plan_steps", name=name, used=len(log), next=len(log) + 1, limit=limits.max_steps)
    if reason == "stopped:time":
        used, ask = log[-1]["seconds"] if log else 0.0, following["seconds"]
        sums = {"used": f"{used:.9g}", "quote": f"{ask:.9g}", "total": f"{used + ask:.9g}"}
        return text("panel.plan_time", name=name, limit=f"{limits.max_seconds:g}", **sums)
    used, ask = log[-1]["usd"] if log else 0.0, following["usd"]
    sums = {"used": money(used), "quote": money(ask), "total": money(used + ask)}
    return text("panel.plan_budget", name=name, limit=money(limits.max_usd), **sums)


def _cap_sentence(stop: dict[str, Any]) -> str:
    name, used, limit, quote = stop["limit"], stop["used"], stop["limit_value"], stop["quote"]
    if name == "max_seconds":
        return text("panel.end_time", used=seconds(used), limit=f"{limit:g}")
    if name != "max_usd":
        key = "panel.end_steps" if name == "max_steps" else "panel.end_requests"
        return text(key, name=name.upper(), used=f"{used:g}", limit=f"{limit:g}", next=f"{used + 1:g}")
    if quote is None:
        return text("panel.end_budget_unknown", used=money(used), limit=money(limit))
    return text("panel.end_budget", used=money(used), limit=money(limit), quote=money(quote), total=money(used + quote))
