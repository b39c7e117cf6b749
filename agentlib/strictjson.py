"""JSON without its grey zones: no NaN, no key twice, no half characters, no endless nesting."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from .messages import text as message

MAX_DEPTH = 100
"""How deep lists and objects may stand in one another. Far more than needed, far less than what breaks a parser."""


def parse(text: str) -> Any:
    """The value of a JSON text. Raises ``ValueError`` for anything that is not strict JSON."""
    try:
        return copy(_decode(text))
    except RecursionError:
        raise _too_deep() from None


def copy(value: Any) -> Any:
    """The value as it arrives after a trip through JSON. Raises ``ValueError`` if JSON cannot carry it."""
    try:
        text = encode(value)
        text.encode("utf-8")
        result = _decode(text)
    except RecursionError:
        raise _too_deep() from None
    except UnicodeEncodeError:
        raise ValueError(message("tools.json_surrogate")) from None
    except Exception as problem:  # dumps runs methods of foreign objects
        raise ValueError(str(problem)) from None
    if _deeper_than(MAX_DEPTH, result):
        raise _too_deep()
    return result


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(message("tools.json_twice", key=repr(twice[:60])))
    return result


encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
"""A value as JSON text. Raises ``ValueError`` for NaN and infinity, ``TypeError`` for what JSON does not know."""

_decode = json.JSONDecoder(object_pairs_hook=_object).decode


def _too_deep() -> ValueError:
    return ValueError(message("tools.json_depth", most=MAX_DEPTH))


def _deeper_than(depth: int, value: Any) -> bool:
    level = [value]
    for _ in range(depth + 1):
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, (dict, list))]
        level = [item for items in inner for item in items]
        if not level:
            return False
    return True
