"""Playing: a recording becomes the script of an offline model."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2

from ..messages import text
from ..model import tokens
from ..offline import Line, OfflineModel, Scripted, endless, http_error, scripted
from ..settings import Price, Settings
from ..waiting import Clock
from .file import PRICES, RecordingError, longest, read

NEVER = 3600.0
"""How long a replay holds back a reply that the recorded run did not wait for: longer than any time cap."""


@dataclass(slots=True)
class Replay(OfflineModel):
    """A model that gives the recorded replies, once each. ``ended``: how the recorded run did, if the file says so."""

    about: str = field(kw_only=True)
    ended: dict[str, Any] | None = field(kw_only=True)


def replay(path: str | os.PathLike[str], clock: Clock | None = None) -> Replay:
    """The model of a recording. Its clock moves by the recorded seconds alone; with ``RealClock()`` they really pass.

    Raises ``RecordingError`` for a file that is missing, cut short, or something else.
    """
    file = Path(path)
    found = read(file)
    try:
        settings = Settings(
            model=_a(str, found["model"]),
            base_url="http://offline.invalid/v1",
            api_key="offline",
            price=_price(found["price"]),
            max_tokens=_a(int, found["max_tokens"]),
            max_tokens_name=_a(str, found["max_tokens_name"]),
            extra=_a(dict, found["extra"]),
        )
        about, ended = _a(str, found["about"]), found["ended"] and _a(dict, found["ended"])
    except (KeyError, TypeError, ValueError, ArithmeticError):
        raise RecordingError("FOREIGN", file) from None
    lines = [_line(file, number, reply) for number, reply in enumerate(found["replies"], 1)]
    over = endless(http_error(400, text("recording.over", replies=len(lines))))
    played = scripted(*lines, over, clock=clock)
    return Replay(played.client, settings, played.clock, True, transport=played.transport, about=about, ended=ended)


def _line(file: Path, number: int, reply: Any) -> Line:
    """One recorded reply as a line of a script."""
    try:
        seconds, status = float(_a((int, float), reply["seconds"])), reply.get("status", 200)
        if not (0 <= seconds < math.inf and 100 <= _a(int, status) < 600):
            raise ValueError(seconds, status)
        if reply.get("cut"):
            return Scripted(seconds=NEVER, broken="ReadTimeout")
        if "broken" in reply:
            return Scripted(seconds=seconds, broken=_error_name(reply["broken"]))
        body = _a((dict, str), reply["body"])
        headers = {name: f"{float(value):f}" for name, value in reply["headers"].items() if name == "retry-after"}
        allowed = reply["max_tokens"] and _a(int, reply["max_tokens"])
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        raise RecordingError("BAD_REPLY", file, number=number) from None
    whole = Scripted(status=status, seconds=seconds, headers=headers, body=_written(body))
    return lambda request: replace(whole, body=_written(_kept_short(body, allowed, longest(request))))


def _kept_short(body: Any, recorded: int | None, now: int | None) -> Any:
    """The body; where the answer may now be shorter than in the recorded run, and is not, it counts as cut there."""
    counted = tokens(body) if isinstance(body, dict) else None
    if not (counted and recorded and now and now < min(recorded, counted.output)):
        return body
    cut = {**body, "usage": {**body["usage"], "completion_tokens": now, "total_tokens": counted.input + now}}
    match body.get("choices"):
        case [dict(first), *others]:
            cut["choices"] = [{**first, "finish_reason": "length"}, *others]
    return cut


def _written(body: Any) -> str:
    return body if isinstance(body, str) else json.dumps(body)


def _error_name(name: Any) -> str:
    kind = getattr(httpx2, _a(str, name), None)
    if not (isinstance(kind, type) and issubclass(kind, httpx2.RequestError)):
        raise ValueError(name)
    return kind.__name__


def _price(written: Any) -> Price | None:
    if written is None:
        return None
    asked, answered, cached = (written[name] and Decimal(_a(str, written[name])) for name in PRICES)
    if min(asked, answered, cached or 0) < 0 or not (asked + answered + (cached or 0)).is_finite():
        raise ValueError(written)
    return Price(asked, answered, cached)


def _a(kind: Any, value: Any) -> Any:
    if type(value) not in (kind if isinstance(kind, tuple) else (kind,)):
        raise TypeError(type(value))
    return value
