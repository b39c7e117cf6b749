"""Which model to ask, where, with which key and at what price: from ``.env`` and the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from . import project, strictjson
from .limits import add
from .messages import text
from .waiting import HAS_THREADS

REQUIRED = ("DASHSCOPE_API_KEY", "MODEL_BASE_URL", "MODEL_NAME")
"""The three variables that a live run needs."""

MAX_TOKENS = 2048
"""The longest answer that is asked for, in tokens, when nothing else is set."""

MAX_TOKENS_NAMES = ("max_tokens", "max_completion_tokens")
"""The two names that services have for the longest answer."""

OURS = {*MAX_TOKENS_NAMES, "messages", "model", "n", "stream", "tools"}
"""Fields of a request that no setting may replace: the quote of a call, and what can be read, hang on them."""

_MILLION = Decimal(1_000_000)
_MOST = 10**12
_KEY = re.compile(r"[\x21-\x7e]+")
_LIKE_A_KEY = re.compile(r"(sk|xai)-[\w-]{8}")
_SECRET_IN_ADDRESS = re.compile(r"[^/?#]+(?=@)|(?<=\?).+")  # user:password@ and ?key=


class SettingsError(ValueError):
    """Something in the settings is missing or wrong; the text says what, and never shows a key."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens. ``cached``: input that the service had in its cache; None: like the rest."""

    input: Decimal
    output: Decimal
    cached: Decimal | None = None

    def __post_init__(self) -> None:
        if self.cached is not None and self.cached > self.input:  # a quote takes all input to be fresh
            raise SettingsError(text("settings.cached_price"))

    def cost(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> Decimal:
        """What a call costs, exactly. Output holds the reasoning tokens, input the cached ones."""
        cached = self.input if self.cached is None else self.cached
        fresh = self.input * (input_tokens - cached_tokens) + cached * cached_tokens
        return add(fresh / _MILLION, self.output * output_tokens / _MILLION)

    def longest_answer(self, usd: Decimal) -> int | None:
        """How many output tokens a sum pays for; ``None``: any number, they are free."""
        return int(usd * _MILLION / self.output) if self.output else None


@dataclass(frozen=True, slots=True)
class Settings:
    """How to reach a model. ``repr`` shows neither the key nor what may be secret in the address.

    ``price`` None: unknown, which is not zero.
    """

    model: str
    base_url: str
    api_key: str = field(repr=False)
    price: Price | None = None
    max_tokens: int = MAX_TOKENS
    max_tokens_name: str = "max_tokens"
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        shown = {each.name: getattr(self, each.name) for each in fields(self) if each.repr}
        shown["base_url"] = _SECRET_IN_ADDRESS.sub("***", self.base_url)
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def env_file() -> Path:
    """The ``.env`` that is read: ``AGENTLAB_ENV_FILE`` if that is set, else the one at the project's root."""
    named = os.environ.get("AGENTLAB_ENV_FILE", "").strip()
    return Path(named) if named else project.root() / ".env"


def load_settings(base_url: str | None = None) -> Settings:
    """The settings from ``.env`` and the environment; a variable of the environment wins.

    ``base_url`` is the address of a client that the caller made: then only the model's name must be there.
    Raises ``SettingsError`` when a variable is missing or cannot be right.
    """
    needs_endpoint = base_url is None
    if not HAS_THREADS and needs_endpoint:
        raise SettingsError(text("settings.live_in_browser"))
    values = _values()
    absent = [name for name in (REQUIRED if needs_endpoint else REQUIRED[-1:]) if not values.get(name)]
    if absent:
        raise SettingsError(text("settings.missing", names=", ".join(absent), file=".env", example=".env.example"))
    key, url, model = (values.get(name, "") for name in REQUIRED)
    if needs_endpoint and not _KEY.fullmatch(key):
        raise SettingsError(text("settings.bad_key", name=REQUIRED[0]))
    if _LIKE_A_KEY.match(model):  # a model's name is shown in every trace
        raise SettingsError(text("settings.key_as_model", name=REQUIRED[2], key=REQUIRED[0]))
    if needs_endpoint and not _is_address(url):
        raise SettingsError(text("settings.bad_url", name=REQUIRED[1]))
    url = url if base_url is None else base_url
    return Settings(
        model=model,
        base_url=url,
        api_key=key,
        price=_price(values, model, url),
        max_tokens=int(_number(values, "MODEL_MAX_TOKENS", whole=True) or MAX_TOKENS),
        max_tokens_name=_max_tokens_name(values),
        extra=_extra(values),
    )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and url.split() == [url]
    except ValueError:  # half a pair of brackets, or a port that is none
        return False


def missing() -> list[str]:
    """The names of the required variables that are not set. Never raises, shows no value."""
    try:
        values = _values()
    except SettingsError:
        values = {}
    return [name for name in REQUIRED if not values.get(name)]


def _values() -> dict[str, str]:
    from dotenv import dotenv_values

    path = env_file()
    try:
        found = dotenv_values(path, interpolate=False, encoding="utf-8-sig") if path.is_file() else {}
    except (UnicodeDecodeError, OSError) as exc:
        raise SettingsError(text("settings.unreadable", file=path.name, problem=type(exc).__name__)) from None
    # A variable may hold bytes that are no text: they come as half characters, which nothing can be sent with.
    here = {name: value.encode(errors="replace").decode() for name, value in os.environ.items() if value.strip()}
    return {name: value.strip() for name, value in {**found, **here}.items() if value is not None}


def _max_tokens_name(values: Mapping[str, str]) -> str:
    """By any other name, a service would not know the field, and the longest answer would have no limit."""
    name = values.get("MODEL_MAX_TOKENS_NAME") or MAX_TOKENS_NAMES[0]
    if name not in MAX_TOKENS_NAMES:
        known = ", ".join(MAX_TOKENS_NAMES)
        raise SettingsError(
            text("settings.bad_choice", name="MODEL_MAX_TOKENS_NAME", value=_shown(name), choices=known)
        )
    return name


def _number(values: Mapping[str, str], name: str, whole: bool = False) -> Decimal | None:
    written = values.get(name)
    if not written:
        return None
    try:
        number = Decimal(written)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or not 0 <= number < _MOST:
        raise SettingsError(text("settings.bad_number", name=name, value=_shown(written)))
    if whole and (number != int(number) or number < 1):
        raise SettingsError(text("settings.bad_whole", name=name, value=_shown(written)))
    return number


def _shown(written: str) -> str:
    """A value as an error may show it: what is longer than a number may be a key that went to the wrong line."""
    return written if len(written) <= 8 else f"{written[:2]}…"


def _price(values: Mapping[str, str], model: str, url: str) -> Price | None:
    asked, answered = _number(values, "MODEL_PRICE_INPUT"), _number(values, "MODEL_PRICE_OUTPUT")
    cached = _number(values, "MODEL_PRICE_CACHED_INPUT")
    if asked is None and answered is None and cached is None:
        return look_up_price(model, url)
    if asked is None or answered is None:
        raise SettingsError(text("settings.half_price"))
    return Price(asked, answered, cached)


def look_up_price(model: str, url: str) -> Price | None:
    """The list price of a model as the package genai-prices knows it, else None.

    Long prompts cost more with some services, and some hours of the day: the highest tier is taken (the rate for a
    million tokens) and the dearest hour, for a run may last into it.
    """
    from genai_prices import Usage, calc_price

    million, now = int(_MILLION), datetime.now(UTC)
    hours = [now + timedelta(hours=hour) for hour in range(24)]

    def dearest(usage: Usage) -> tuple[Decimal, Decimal]:
        prices = [calc_price(usage, model, provider_api_url=url, genai_request_timestamp=hour) for hour in hours]
        return max(price.input_price for price in prices), max(price.output_price for price in prices)

    try:
        asked, answered = dearest(Usage(input_tokens=million, output_tokens=million))
        cached, _ = dearest(Usage(input_tokens=million, cache_read_tokens=million))
    except LookupError:
        return None
    return Price(asked, answered, min(asked, cached))


def _extra(values: Mapping[str, str]) -> dict[str, Any]:
    """Further fields of the request body: ``MODEL_ENABLE_THINKING=false`` and whatever ``MODEL_EXTRA_BODY`` holds."""
    try:
        extra = strictjson.parse(values.get("MODEL_EXTRA_BODY") or "{}")
    except ValueError:
        extra = None
    if not isinstance(extra, dict) or not OURS.isdisjoint(extra):
        raise SettingsError(text("settings.bad_extra", name="MODEL_EXTRA_BODY", ours=", ".join(sorted(OURS))))
    thinking = values.get("MODEL_ENABLE_THINKING", "").lower()
    if thinking:
        if thinking not in {"true", "false"}:
            raise SettingsError(text("settings.bad_flag", name="MODEL_ENABLE_THINKING", value=_shown(thinking)))
        extra["enable_thinking"] = thinking == "true"
    return extra
