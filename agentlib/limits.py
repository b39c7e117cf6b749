"""Caps as values, what has been used, and the one function that decides a stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from decimal import ROUND_CEILING, Context, Decimal
from functools import lru_cache
from numbers import Integral, Real
from typing import Any

from .messages import text

MAX_STEPS = 4
"""The step cap of ``run_task`` when nothing else is said."""

EXACT = Context(prec=60, rounding=ROUND_CEILING)
"""Sums are exact to 60 digits, and beyond those err upwards: never under a true cost."""

add = EXACT.add


@lru_cache(maxsize=1024)
def exact(value: float | Decimal) -> Decimal:
    """The number as it is written: 0.1 is one tenth, not the nearest binary fraction."""
    return Decimal(str(value))


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a run may use. ``None`` switches a cap off; ``0`` means that nothing may be used.

    ``max_steps``: model requests with their tool calls; ``max_seconds``: the whole run, waiting included;
    ``max_usd``: US dollars; ``max_tool_calls``: tool calls run per step; ``max_tool_seconds``: one tool run;
    ``max_requests``: attempts that reach the model, retries included.

    Raises ``ValueError``, naming the limit, for text, booleans, NaN, infinite and negative values.
    """

    max_steps: int | None = 5
    max_seconds: float | None = 30.0
    max_usd: float | None = 0.05
    max_tool_calls: int | None = 8
    max_tool_seconds: float | None = 10.0
    max_requests: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            object.__setattr__(self, field.name, _checked(field.name, value))

    def change(self, **values: Any) -> Limits:
        """A copy with other values, checked in the same way."""
        return replace(self, **values)

    def as_dict(self) -> dict[str, float | None]:
        """The limits by name, for a result or a log."""
        return asdict(self)


_WHOLE = {"max_steps", "max_tool_calls", "max_requests"}


def _checked(name: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (Real, Decimal)):
        raise ValueError(text("limits.not_a_number", name=name, value=value))
    if not math.isfinite(number := _as_float(value)):
        raise ValueError(text("limits.not_finite", name=name, value=number))
    if value < 0:
        raise ValueError(text("limits.negative", name=name, value=value))
    if name not in _WHOLE:
        return number
    if not isinstance(value, Integral):
        raise ValueError(text("limits.not_whole", name=name, value=value))
    return int(value)


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except ValueError:  # a signalling NaN
        return math.nan


PROFILES = {
    "conservative": Limits(max_steps=3, max_seconds=10.0, max_usd=0.01, max_tool_calls=4, max_tool_seconds=5.0),
    "standard": Limits(),
    "relaxed": Limits(max_steps=12, max_seconds=120.0, max_usd=0.5, max_tool_calls=16, max_tool_seconds=30.0),
}
"""Three sets of limits to start from; no one value is right for every kind of task."""

LimitsSource = Limits | Callable[[], Limits]
"""A fixed ``Limits``, or anything callable that returns the current one."""


@dataclass(slots=True)
class Usage:
    """What a run has used so far. ``usd`` is exact; ``usd_known`` is false once a cost could not be told."""

    steps: int = 0
    seconds: Decimal = Decimal(0)
    usd: Decimal = Decimal(0)
    requests: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd_known: bool = True
    estimated: bool = False

    def as_dict(self) -> dict[str, float | int | bool | None]:
        """The ``usage`` of a TaskResult: JSON numbers, an unknown cost as None."""
        return {
            "seconds": round(float(self.seconds), 3),
            "usd": float(self.usd) if self.usd_known else None,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "requests": self.requests,
            "estimated": self.estimated,
        }


@dataclass(frozen=True, slots=True)
class Quote:
    """The most that the next step can take. ``None``: not known beforehand, but more than nothing."""

    seconds: Decimal | None = None
    usd: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a run may not go on: the reason, and the figures that a person can check."""

    reason: str
    limit_name: str
    limit: float
    used: Decimal | int
    quote: Decimal | int | None

    def as_dict(self) -> dict[str, str | float | None]:
        """The figures as JSON."""
        quote = None if self.quote is None else float(self.quote)
        return {"limit": self.limit_name, "limit_value": self.limit, "used": float(self.used), "quote": quote}


def decide(limits: Limits, used: Usage, quote: Quote) -> Stop | None:
    """Whether a step of at most ``quote`` may begin. No other place compares a cap.

    Returns None if it may, else the first cap that it could break, in the order steps,
    requests, time, money. A step of unknown length may begin while any time is left:
    the loop cuts it at its deadline.
    """
    checks = (
        ("stopped:steps", "max_steps", limits.max_steps, used.steps, 1),
        ("stopped:steps", "max_requests", limits.max_requests, used.requests, 1),
        ("stopped:time", "max_seconds", limits.max_seconds, used.seconds, quote.seconds),
        ("stopped:budget", "max_usd", limits.max_usd, used.usd, quote.usd),
    )
    for reason, name, limit, spent, ask in checks:
        if limit is not None and not _fits(spent, ask, exact(limit)):
            return Stop(reason, name, limit, spent, ask)
    return None


def _fits(spent: Decimal | int, ask: Decimal | int | None, limit: Decimal) -> bool:
    return spent < limit if ask is None else add(spent, ask) <= limit


def seconds_left(limits: Limits, used: Usage) -> float | None:
    """How much of the time cap is left; None: there is no cap. At zero or below nothing more may run."""
    return None if limits.max_seconds is None else float(exact(limits.max_seconds) - used.seconds)


def tool_call_fits(limits: Limits, number: int) -> bool:
    """Whether the ``number``-th tool call of a step (the first is 0) may still be run."""
    return limits.max_tool_calls is None or number < limits.max_tool_calls
