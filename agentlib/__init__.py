"""Agent Lab: a small agent loop that keeps its caps, and what its lessons stand on.

Names are loaded when they are first used: ``import agentlib`` itself imports neither openai,
matplotlib nor ipywidgets.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .journal import Event
    from .limits import MAX_STEPS, PROFILES, Limits
    from .loop import arun_task, events, run_task
    from .messages import language, use_language
    from .model import Model
    from .plan import run
    from .results import TaskResult, ToolResult
    from .runlog import RunLog
    from .tools import TOOLBOX, TOOLS, Tool, analyze_csv, execute_tool

_HOMES = {
    "Event": "journal",
    "Limits": "limits",
    "MAX_STEPS": "limits",
    "PROFILES": "limits",
    "Model": "model",
    "RunLog": "runlog",
    "TOOLBOX": "tools",
    "TOOLS": "tools",
    "TaskResult": "results",
    "Tool": "tools",
    "ToolResult": "results",
    "analyze_csv": "tools",
    "arun_task": "loop",
    "events": "loop",
    "execute_tool": "tools",
    "language": "messages",
    "run": "plan",
    "run_task": "loop",
    "use_language": "messages",
}

__all__ = [
    "MAX_STEPS",
    "PROFILES",
    "TOOLBOX",
    "TOOLS",
    "Event",
    "Limits",
    "Model",
    "RunLog",
    "TaskResult",
    "Tool",
    "ToolResult",
    "analyze_csv",
    "arun_task",
    "events",
    "execute_tool",
    "language",
    "run",
    "run_task",
    "use_language",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
