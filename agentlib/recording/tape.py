"""Recording: what a model is answered goes into a file, and nothing else does."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx2

from ..history import portable
from ..journal import Event
from ..model import Model, retry_after
from ..settings import Settings
from .file import FORMAT, PRICES, VERSION, RecordingError, longest, read

if TYPE_CHECKING:
    from openai import AsyncOpenAI

MOST_BYTES = 8 * 2**20
"""The most that is taken of one reply: more than the loop reads of it."""

_BODY = ("object", "created", "model", "choices", "usage")  # what is kept of a reply
_TROUBLE = ("error", "message", "detail", "msg", "code")  # and of what it says about an error
_KEYS = re.compile(r"\b(?:sk|xai)-[\w*-]{8,}")
_NAMES = re.compile(r"\b(?:org|proj|req|user|acct)[-_]\w{8,}")
_NAMING = re.compile(r"request.?id|trace.?id|organi[sz]ation|account|user|e.?mail", re.IGNORECASE)


def record(model: Model | AsyncOpenAI | None, path: str | os.PathLike[str], about: str = "") -> Tape:
    """The same model, writing down in ``path`` what it is answered; the file is whole after each reply.

    ``about``: a sentence for whoever opens the file. Hand the tape's ``on_event`` to the run too, and the file also
    says how the run ended. An older recording is replaced; any other file is left alone, with a ``RecordingError``.
    """
    source, file = Model.of(model), Path(path)
    if file.exists():
        read(file)
    reel = _Reel(file, {"format": FORMAT, "version": VERSION, "about": about, **_head(source.settings)})
    inner = source.client._client  # the SDK has no public name for the client that does its HTTP
    microphone = _Microphone(inner, source, reel)
    http = httpx2.AsyncClient(transport=microphone, headers=inner.headers, trust_env=False)
    return Tape(source.client.copy(http_client=http), source.settings, source.clock, source.offline, reel=reel)


@dataclass(slots=True)
class Tape(Model):
    """A model whose replies are being recorded."""

    reel: _Reel = field(kw_only=True, repr=False)

    def on_event(self, event: Event) -> None:
        """Keep how the run ended. Raises ``RecordingError`` then, if the file could not be written."""
        if event.kind == "end":
            summary = event.data["result"]["summary"]
            names = ("stop_reason", "steps", "tool_calls_used", "usage", "limits")
            self.reel.write(ended={name: summary[name] for name in names})
            if self.reel.problem:
                raise RecordingError("NOT_WRITTEN", self.reel.path, problem=self.reel.problem)


class _Reel:
    """The file, whole at any moment. A fault in writing must not harm the run, so it is kept for later."""

    def __init__(self, path: Path, head: Mapping[str, Any]) -> None:
        self.path, self.problem = path, ""
        self._content = {**head, "ended": None, "replies": list[dict[str, Any]]()}
        self.write()
        if self.problem:
            raise RecordingError("NOT_WRITTEN", path, problem=self.problem)

    def keep(self, seconds: float, **reply: Any) -> None:
        self._content["replies"].append({"seconds": round(seconds, 6), **reply})
        self.write()

    def write(self, **changes: Any) -> None:
        self._content.update(changes)
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.draft")
        try:
            draft.write_text(json.dumps(self._content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            draft.replace(self.path)
            self.problem = ""
        except OSError as exc:
            self.problem = exc.strerror or type(exc).__name__


class _Microphone(httpx2.AsyncBaseTransport):
    """Hands each request to the client that the model came with, and keeps what comes back."""

    def __init__(self, inner: Any, model: Model, reel: _Reel) -> None:
        self._inner, self._clock, self._reel = inner, model.clock, reel
        key = model.settings.api_key if len(model.settings.api_key) >= 8 else ""
        self._secrets = {key, quote(key, safe="")} - {""}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """One exchange, timed by the model's own clock."""
        began = self._clock.now()
        try:
            response = await self._inner.send(request, stream=True, follow_redirects=False)
            content = await _content(response)
        except httpx2.RequestError as exc:
            self._reel.keep(self._clock.now() - began, broken=type(exc).__name__)
            raise
        except asyncio.CancelledError:
            self._reel.keep(self._clock.now() - began, cut=True)
            raise
        seconds, wait = self._clock.now() - began, retry_after(response.headers)
        headers = {} if wait is None else {"retry-after": f"{wait:f}".rstrip("0").rstrip(".")}
        kept = {
            "headers": headers,
            "max_tokens": longest(json.loads(request.content)),
            "body": _harmless(content, self._secrets),
        }
        self._reel.keep(seconds, status=response.status_code, **kept)
        heads = [(name, value) for name, value in response.headers.multi_items() if name not in _ABOUT_CODING]
        return httpx2.Response(response.status_code, headers=heads, content=content)


_ABOUT_CODING = {"content-encoding", "content-length", "transfer-encoding"}


async def _content(response: httpx2.Response) -> bytes:
    content = bytearray()
    try:
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > MOST_BYTES:
                break
    finally:
        await response.aclose()
    return bytes(content)


def _head(settings: Settings) -> dict[str, Any]:
    """What a replay needs to ask and to pay alike. Texts among the extras may name somebody: they are left out."""
    price = settings.price and {name: _text(getattr(settings.price, name)) for name in PRICES}
    extra = {name: value for name, value in settings.extra.items() if isinstance(value, (bool, int, float))}
    names = {"max_tokens": settings.max_tokens, "max_tokens_name": settings.max_tokens_name}
    return {"model": settings.model, "price": price, **names, "extra": extra}


def _text(price: Decimal | None) -> str | None:
    return None if price is None else str(price)


def _harmless(content: bytes, secrets: set[str]) -> Any:
    """A reply's body as it is kept: what the loop reads of it, or a few words in place of what is no JSON object."""
    try:
        payload = portable(json.loads(content))
    except (ValueError, RecursionError):
        payload = None
    if not isinstance(payload, dict):
        return "<a web page, not kept>" if content.lstrip()[:1] == b"<" else "no JSON object, not kept"

    def blot(words: str) -> str:
        for secret in secrets:
            words = words.replace(secret, "***")
        return _KEYS.sub("***", words)

    def blot_names(words: str) -> str:
        return _NAMES.sub("***", blot(words))

    said = {name: _each_text(payload[name], blot) for name in _BODY if name in payload}
    wrong = {name: _each_text(payload[name], blot_names, _NAMING) for name in _TROUBLE if name in payload}
    return said | wrong


def _each_text(value: Any, change: Callable[[str], str], naming: re.Pattern[str] | None = None) -> Any:
    """The value with every text in it changed, keys too; what stands under a ``naming`` key is blotted out."""
    if isinstance(value, dict):
        return {
            change(name): "***" if naming and naming.search(name) else _each_text(item, change, naming)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_each_text(item, change, naming) for item in value]
    return change(value) if isinstance(value, str) else value
