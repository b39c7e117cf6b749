"""The tool that the model may ask for, and the one door through which it is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, cast

from . import strictjson
from .csvdata import revenue_by_category
from .inputs import FOLDER, DataError, names_in, reading, shown
from .messages import text
from .results import ToolResult, error, ok

# --- the tool ---------------------------------------------------------------------------------------------------------


def analyze_csv(relative_path: str) -> ToolResult:
    """Add up quantity × unit_price by category in a CSV file in ``data/input``.

    ``relative_path`` is relative to ``data/input``, for instance ``"sales.csv"``.
    The rules for the file stand in ``csvdata``. Never raises: whatever is wrong
    comes back as an error with a code and a sentence.
    """
    path, source = "", list[str]()
    try:
        names = names_in(relative_path)
        path = "/".join(names)
        with reading(names) as lines:
            source = [f"{FOLDER}/{path}"]
            count, revenue = revenue_by_category(lines)
    except DataError as problem:
        message = text(f"tools.{problem.key}", path=path, **problem.values)
        return error(problem.code, message, source)

    ranking = sorted(revenue.items(), key=lambda item: (-item[1], item[0]))
    rows = [{"category": name, "revenue": amount} for name, amount in ranking]
    top_category, top_revenue = ranking[0]
    data = {
        "row_count": count,
        "revenue_by_category": rows,
        "total_revenue": sum(revenue.values()),
        "top_category": top_category,
        "top_revenue": top_revenue,
    }
    return ok(data, source)


# --- what the model is told -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tool:
    """A Python function that the model may ask for, with what the model is told about it.

    ``parameters`` is the JSON schema of the arguments object. ``isolated`` asks for a child process that can be killed.
    """

    function: Callable[..., Any]
    description: str
    parameters: dict[str, Any]
    name: str = ""
    isolated: bool = False

    def __post_init__(self) -> None:
        name = self.name or getattr(self.function, "__name__", "")
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            raise ValueError(text("tools.bad_name", name=shown(name)))
        object.__setattr__(self, "name", name)
        properties = self.parameters.get("properties", {})
        if not isinstance(properties, dict) or not all(isinstance(schema, dict) for schema in properties.values()):
            raise ValueError(text("tools.bad_parameters", name=name))

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as the API wants it in ``tools=[…]``."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


ANALYZE_CSV = Tool(
    analyze_csv,
    "Add up quantity × unit_price by category in one CSV file. "
    "Returns row_count, revenue_by_category (highest first), total_revenue, top_category and top_revenue.",
    {
        "type": "object",
        "properties": {
            "relative_path": {
                "type": "string",
                "description": "Path of the file, relative to data/input, for example sales.csv",
            }
        },
        "required": ["relative_path"],
        "additionalProperties": False,
    },
)

TOOLBOX: dict[str, Tool] = {ANALYZE_CSV.name: ANALYZE_CSV}
"""The white list: what is not in it is never run."""

TOOLS: list[dict[str, Any]] = [tool.schema for tool in TOOLBOX.values()]
"""What the model is told about the tools."""


# --- the dispatch -----------------------------------------------------------------------------------------------------


def execute_tool(
    name: str,
    arguments_json: Any,
    toolbox: Mapping[str, Tool] = TOOLBOX,
) -> ToolResult:
    """Run the tool that the model asks for, if it is in the toolbox and its arguments fit.

    ``arguments_json`` is JSON text as the model wrote it; an object is taken too,
    and nothing at all counts as ``{}``. Never raises, except for ``KeyboardInterrupt``.
    """
    tool = toolbox.get(name) if isinstance(name, str) else None
    if tool is None:
        asked = shown(name) if isinstance(name, str) else type(name).__name__
        names = ", ".join(toolbox)
        return error("UNKNOWN_TOOL", text("tools.unknown_tool", asked=asked, names=names))
    try:
        arguments = check_arguments(tool, arguments_json)
    except ArgumentsError as problem:
        return error("INVALID_ARGUMENTS", str(problem))
    return run_function(tool.function, arguments)


class ArgumentsError(ValueError):
    """Arguments that a tool cannot be called with; its text says which and why."""


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (NoneType,),
}


def check_arguments(tool: Tool, raw: Any) -> dict[str, Any]:
    """The arguments as a dictionary that fits ``tool.parameters``. Raises ``ArgumentsError``."""
    arguments = _arguments(tool, raw)
    properties = tool.parameters.get("properties", {})
    missing = [key for key in tool.parameters.get("required", ()) if key not in arguments]
    if missing:
        raise ArgumentsError(text("tools.arguments_missing", tool=tool.name, names=", ".join(missing)))
    unknown = [shown(key) for key in arguments if key not in properties]
    if unknown and not tool.parameters.get("additionalProperties"):
        known = ", ".join(properties)
        raise ArgumentsError(text("tools.arguments_unknown", tool=tool.name, names=", ".join(unknown[:5]), known=known))
    for key, value in arguments.items():
        _check_value(tool, key, value, properties.get(key, {}))
    return arguments


def _arguments(tool: Tool, raw: Any) -> dict[str, Any]:
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        return {}
    try:
        value = strictjson.parse(raw) if isinstance(raw, str) else strictjson.copy(raw)
    except ValueError as problem:
        raise ArgumentsError(text("tools.arguments_not_json", tool=tool.name, reason=_one_line(problem))) from None
    if not isinstance(value, dict):
        raise ArgumentsError(text("tools.arguments_not_object", tool=tool.name, kind=_json_type(value)))
    return value


def _check_value(tool: Tool, key: str, value: Any, schema: dict[str, Any]) -> None:
    wanted = schema.get("type", [])
    wanted = [wanted] if isinstance(wanted, str) else wanted
    if wanted and not any(type(value) in _TYPES.get(kind, ()) for kind in wanted):  # type(): true is no integer
        values = {"tool": tool.name, "key": key, "wanted": "/".join(wanted), "kind": _json_type(value)}
        raise ArgumentsError(text("tools.arguments_type", **values))
    choices = schema.get("enum")
    if choices is not None and not any(type(value) is type(choice) and value == choice for choice in choices):
        values = {"tool": tool.name, "key": key, "choices": ", ".join(map(repr, choices))}
        raise ArgumentsError(text("tools.arguments_choice", **values))


def _json_type(value: Any) -> str:
    return next(kind for kind, types in _TYPES.items() if type(value) in types)


# --- running it -------------------------------------------------------------------------------------------------------

_FOLDERS = re.compile(
    r"""(?<![\w/:.]) / (?: [^\\/'":,;()<>|*?\n]+ / )+               # /home/me/
      | (?<!\w) [A-Za-z]: [\\/]+ (?: [^\\/'":,;()<>|*?\n]+ [\\/]+ )*  # C:\\Users\\me\\
      | \\\\+ (?: [^\\/'":,;()<>|*?\n]+ [\\/]+ )+                     # \\\\server\\share\\
    """,
    re.VERBOSE,
)


def run_function(function: Callable[..., Any], arguments: dict[str, Any]) -> ToolResult:
    """Call a function and turn whatever happens into a ToolResult. Only ``KeyboardInterrupt`` passes through.

    A returned ToolResult is taken as it is, any other value that JSON can carry becomes ``{"value": …}``.
    """
    try:
        value = function(**arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # SystemExit too: a tool must not end the run
        return error("TOOL_FAILED", text("tools.failed", problem=describe(problem)))
    try:
        value = strictjson.copy(value)
    except ValueError as problem:
        return error("TOOL_FAILED", text("tools.not_json", reason=_one_line(problem)))
    return cast(ToolResult, value) if is_tool_result(value) else ok({"value": value})


def describe(problem: BaseException) -> str:
    """Type and message of an exception on one line: no traceback, no folders of this machine."""
    message = _one_line(problem)
    return f"{type(problem).__name__}: {message}" if message else type(problem).__name__


def _one_line(problem: BaseException) -> str:
    try:
        message = " ".join(str(problem)[:2000].split())
    except Exception:
        return ""
    return _FOLDERS.sub("…/", message)[:300].encode("utf-8", "backslashreplace").decode("utf-8")


def is_tool_result(value: Any) -> bool:
    """Whether a value has the shape of a ToolResult."""
    match value:
        case {"status": "ok", "data": dict(), "source": list(source), "error": None}:
            pass
        case {"status": "error", "data": None, "source": list(source), "error": {"code": str(), "message": str()}}:
            pass
        case _:
            return False
    return len(value) == 4 and all(isinstance(path, str) for path in source)
