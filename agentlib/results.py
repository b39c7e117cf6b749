"""The two results that everything else returns, as plain dictionaries that are strict JSON."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Code = str
"""An error code such as ``FILE_NOT_FOUND``: for programs, the same in every language."""


class ToolError(TypedDict):
    """Why a tool gave nothing: a code for programs, a sentence for people."""

    code: Code
    message: str


class ToolResult(TypedDict):
    """What one tool run gave. ``data`` is None exactly when ``status`` is ``"error"``."""

    status: Literal["ok", "error"]
    data: dict[str, Any] | None
    source: list[str]
    error: ToolError | None


class TaskResult(TypedDict):
    """What one whole run gave. ``summary["stop_reason"]`` says why it ended."""

    task_id: str
    status: Literal["completed", "failed"]
    report_path: None
    summary: dict[str, Any]
    warnings: list[str]


def ok(data: dict[str, Any], source: list[str] | None = None) -> ToolResult:
    """A tool run that worked."""
    return {"status": "ok", "data": data, "source": source or [], "error": None}


def error(code: Code, message: str, source: list[str] | None = None) -> ToolResult:
    """A tool run that did not work: ``code`` for programs, ``message`` for people and the model."""
    return {"status": "error", "data": None, "source": source or [], "error": {"code": code, "message": message}}


def task_result(task_id: str, summary: dict[str, Any], warnings: list[str]) -> TaskResult:
    """The result of a run. Only the stop reason ``done`` is a completed task."""
    status: Literal["completed", "failed"] = "completed" if summary["stop_reason"] == "done" else "failed"
    return {"task_id": task_id, "status": status, "report_path": None, "summary": summary, "warnings": warnings}
