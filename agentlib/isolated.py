"""A tool in a process of its own, which can be killed together with everything that it has started.

``python -m agentlib.isolated module:function`` reads the arguments as JSON from standard input and writes the
ToolResult as JSON to standard output.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from operator import attrgetter
from typing import Any

from . import strictjson
from .messages import language, text
from .results import ToolResult, error
from .tools import Tool, is_tool_result, run_function


class Child(subprocess.Popen[bytes]):
    """The process that runs one tool. Leaving its ``with`` block kills it."""

    def result(self, timeout: float | None = None) -> ToolResult:
        """Wait for the ToolResult. Raises ``subprocess.TimeoutExpired``; the process then still runs."""
        output, _ = self.communicate(timeout=timeout)
        with suppress(ValueError):
            value: Any = strictjson.parse(output.decode("utf-8"))
            if is_tool_result(value):
                return value  # type: ignore[no-any-return]
        return error("TOOL_FAILED", text("tools.isolated_died", code=self.returncode))

    def kill(self) -> None:
        """End the process and everything that it has started, at once."""
        if sys.platform == "win32":
            subprocess.run(["taskkill", "/F", "/T", "/PID", str(self.pid)], capture_output=True, check=False)
        else:
            with suppress(ProcessLookupError, PermissionError):  # macOS forbids it for a process that has just ended
                os.killpg(self.pid, signal.SIGKILL)

    def __exit__(self, *exception: Any) -> None:
        self.kill()
        super().__exit__(*exception)


def start(tool: Tool, arguments: dict[str, Any]) -> Child:
    """Start a tool in a process of its own. Raises ``ValueError`` if its function cannot be imported there."""
    group: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    search = os.pathsep.join(folder for folder in sys.path if folder)
    with tempfile.TemporaryFile() as question:
        question.write(json.dumps(arguments).encode("utf-8"))
        question.seek(0)
        return Child(
            [sys.executable, "-m", __name__, address(tool)],
            stdin=question,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": search, "AGENTLIB_LANG": language()},
            **group,
        )


def address(tool: Tool) -> str:
    """Where another process finds the function: ``module:function``. Raises ``ValueError`` if it cannot."""
    module = getattr(tool.function, "__module__", None)
    name = getattr(tool.function, "__qualname__", "")
    found = None
    with suppress(AttributeError):
        found = attrgetter(name or "?")(sys.modules.get(module or ""))
    if module == "__main__" or found is not tool.function:
        raise ValueError(text("tools.isolated_address", name=tool.name))
    return f"{module}:{name}"


def main(where: str) -> None:
    """Run one function. What it prints does not mix with the result."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    module, _, name = where.partition(":")
    function = attrgetter(name)(import_module(module))
    result = run_function(function, json.loads(sys.stdin.buffer.read()))
    with answer:
        answer.write(json.dumps(result).encode("utf-8"))


if __name__ == "__main__":
    main(sys.argv[1])
