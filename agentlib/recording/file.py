"""The file of a recording: JSON, told from any other by its first line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..messages import text

FORMAT, VERSION = "agentlib recording", 1
PRICES = ("input", "output", "cached")


class RecordingError(ValueError):
    """A recording cannot be read or written. ``code`` is for programs, the sentence for people.

    Codes: ``NOT_FOUND``, ``UNREADABLE``, ``DAMAGED``, ``FOREIGN``, ``OTHER_VERSION``, ``BAD_REPLY``, ``NOT_WRITTEN``.
    """

    def __init__(self, code: str, path: Path, **values: object) -> None:
        super().__init__(text(f"recording.{code.lower()}", file=path.name, **values))
        self.code = code


def read(file: Path) -> dict[str, Any]:
    """What the file holds, as far as it can be told to be a recording."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecordingError("NOT_FOUND", file) from None
    except OSError as exc:
        raise RecordingError("UNREADABLE", file, problem=exc.strerror or type(exc).__name__) from None
    except (ValueError, RecursionError):
        raise RecordingError("DAMAGED", file) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise RecordingError("FOREIGN", file)
    if found.get("version") != VERSION:
        raise RecordingError("OTHER_VERSION", file, version=found.get("version"), known=VERSION)
    if not isinstance(found.get("replies"), list):
        raise RecordingError("FOREIGN", file)
    return found


def longest(request: Mapping[str, Any]) -> Any:
    """How many tokens a request allows for its answer."""
    return request.get("max_tokens") or request.get("max_completion_tokens")
