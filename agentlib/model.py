"""One model call: sent once, read with care. A malformed reply becomes one typed error with a sentence that helps."""

from __future__ import annotations

import email.utils
import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from .history import Call, portable
from .messages import text
from .settings import Settings, SettingsError, load_settings
from .waiting import Clock, RealClock

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

MOST_BYTES = 4 * 2**20
"""The longest reply that is read: no model writes so much, and a service without an end must not fill the memory."""

MOST_ERROR_BYTES = 2**16
"""What is read of an error's body: all that people could be shown of it, many times over."""

MOST_CALLS = 1000
"""The most tool calls in one reply that are taken for a plan."""

_FILTER_CODES = {"content_filter", "data_inspection_failed", "DataInspectionFailed"}
_SHORT = 300


class ModelFault(Exception):
    """A call that gave no usable reply. ``reason`` is the stop reason, ``str()`` the sentence for people.

    ``retryable``: the same request may work later; ``wait``: seconds that the server asked for;
    ``billed``: the server may have done (and charge for) the work although no reply arrived.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        wait: float | None = None,
        billed: bool = False,
    ) -> None:
        super().__init__(message)
        self.reason, self.status, self.retryable, self.wait, self.billed = reason, status, retryable, wait, billed


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the server counted. Reasoning is part of ``output``, cached input part of ``input``."""

    input: int
    output: int
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply that was understood. ``content`` is what goes back, ``text`` what a person reads."""

    content: str | None
    text: str
    thinking: str
    calls: list[Call]
    finish_reason: str
    refusal: str
    reasoning: str | None


@dataclass(slots=True)
class Model:
    """A client, the settings to ask with, and the clock that the call is timed by."""

    client: AsyncOpenAI
    settings: Settings
    clock: Clock = field(default_factory=RealClock)
    offline: bool = False

    @classmethod
    def live(cls) -> Model:
        """The endpoint that ``.env`` names. Raises ``SettingsError``."""
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        settings = load_settings()
        try:
            http = DefaultAsyncHttpxClient(event_hooks={"response": [_shorten_error]})
            client = AsyncOpenAI(api_key=settings.api_key, base_url=settings.base_url, max_retries=0, http_client=http)
        except Exception as exc:  # a proxy it cannot use: ValueError, ImportError or its own
            raise SettingsError(text("settings.no_client", problem=_proxies() or type(exc).__name__)) from None
        return cls(client, settings)

    @classmethod
    def of(cls, client: Model | AsyncOpenAI | None) -> Model:
        """What a caller handed over, as a model. Raises ``SettingsError``."""
        from openai import AsyncOpenAI

        if client is None or isinstance(client, Model):
            return client or cls.live()
        if not isinstance(client, AsyncOpenAI):
            raise SettingsError(text("loop.bad_client"))
        return cls(client, replace(load_settings(str(client.base_url)), api_key=client.api_key))

    async def close(self) -> None:
        """Close the client's connections; whatever goes wrong with that harms nobody."""
        with suppress(Exception):
            await self.client.close()

    def fields(self, max_tokens: int) -> dict[str, Any]:
        """The fields of the request body beside messages and tools."""
        return {**self.settings.extra, "model": self.settings.model, self.settings.max_tokens_name: max_tokens}

    @property
    def _secret(self) -> str:
        """The key that goes out, which a client with a source of keys has only once it has sent it."""
        return self.client.api_key if len(self.client.api_key) >= 8 else ""

    async def send(self, body: bytes) -> dict[str, Any]:
        """One HTTP request, no retry. Returns the decoded reply; raises ``ModelFault``.

        The body is handed to the client as bytes: ``chat.completions.create`` would walk the whole
        history in Python again on every call.
        """
        import httpx2
        import openai

        try:
            response = await self.client.post(
                "/chat/completions",
                cast_to=httpx2.Response,
                content=body,
                options={
                    "headers": {"Content-Type": "application/json"},
                    "max_retries": 0,
                    "follow_redirects": False,
                },
                stream=True,  # the body is left to be read here, and no further than MOST_BYTES
                stream_cls=openai.AsyncStream[Any],
            )
        except openai.APIStatusError as exc:
            raise _refused(exc.response, self._secret) from None
        except openai.APIConnectionError as exc:
            raise _unreachable(exc) from None
        except RuntimeError as exc:
            # Closed by its owner, or with a connection of another event loop: that one is dropped, so the next may do.
            again = not self.client.is_closed()
            sentence = text("model.client_broken", problem=portable(str(exc), self._secret))
            raise ModelFault("failed:model", sentence, retryable=again, wait=0.0, billed=again) from None
        except Exception as exc:  # an address or a key that cannot be sent, or code of the caller's in the client
            raise ModelFault("failed:model", text("model.no_call", problem=type(exc).__name__)) from None
        return _decoded(await _content_of(cast(httpx2.Response, response)), self._secret)


async def _shorten_error(response: httpx2.Response) -> None:
    """Keep the head of an error's body: the SDK would read, and unpack, all of it, however long it is."""
    import httpx2

    if not response.is_success and isinstance(response.stream, httpx2.AsyncByteStream):
        head = bytearray()
        async for chunk in response.stream:
            head += chunk
            if len(head) > MOST_ERROR_BYTES:
                break
        await response.stream.aclose()
        response.stream = httpx2.ByteStream(bytes(head[:MOST_ERROR_BYTES]))


async def _content_of(response: httpx2.Response) -> bytes:
    """The body of a reply. Raises ``ModelFault`` where it breaks off, or is longer than any model writes."""
    content = bytearray()
    try:
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > MOST_BYTES:
                break
    except Exception as exc:  # of httpx2, or of whatever a caller's client is built on
        raise _unreachable(exc) from None
    finally:
        await response.aclose()
    if len(content) > MOST_BYTES:
        raise ModelFault("failed:reply", text("model.too_long", most=MOST_BYTES), billed=True)
    return bytes(content)


def _proxies() -> str:
    names = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY")
    return ", ".join(name for name in names if os.environ.get(name) or os.environ.get(name.lower()))


def _unreachable(exc: Exception) -> ModelFault:
    """No answer at all. Unless the connection could not be made, the server may have worked (and bill) all the same."""
    cause = type(exc.__cause__ or exc).__name__
    never_sent = cause in {"ConnectError", "ConnectTimeout", "ProxyError", "UnsupportedProtocol", "PoolTimeout"}
    return ModelFault("failed:model", text("model.unreachable", problem=cause), retryable=True, billed=not never_sent)


def _refused(response: Any, secret: str) -> ModelFault:
    """An HTTP error status, with the server's own sentence and, where one is known, the way out."""
    status = response.status_code
    payload = _json_or_none(response.content, secret)
    says, code = _server_says(payload), _error_code(payload)
    if 300 <= status < 400:
        return ModelFault("failed:model", text("model.redirect", status=status), status=status)
    if code in _FILTER_CODES:
        return ModelFault("failed:filtered", text("model.filtered_request", says=says), status=status)
    hint = "thinking" if "enable_thinking" in says else {401: "key", 403: "key", 404: "address"}.get(status, "")
    sentence = text("model.status", status=status, says=says or text("model.says_nothing"))
    wait = retry_after(response.headers)
    if wait is not None:
        sentence += text("model.asked_to_wait", wait=f"{wait:g}")
    if hint:
        sentence += text(f"model.hint_{hint}")
    later = status in {408, 409, 429} or status >= 500
    return ModelFault(
        "failed:model", sentence, status=status, retryable=later and code != "insufficient_quota", wait=wait
    )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait: ``retry-after-ms``, or ``retry-after`` as seconds or as a date (RFC 9110, 10.2.3)."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        wanted = headers.get("retry-after", "")
        if re.fullmatch(r"\d+(\.\d+)?", wanted):
            return float(wanted)
        return max(0.0, email.utils.parsedate_to_datetime(wanted).timestamp() - time.time()) if wanted else None
    except (ValueError, OverflowError):
        return None


def _decoded(content: bytes, secret: str) -> dict[str, Any]:
    """The JSON object of a reply with status 200. Raises ``ModelFault`` for anything else."""
    if content.lstrip()[:1] == b"<":
        raise ModelFault("failed:model", text("model.web_page"), status=200)
    payload = _json_or_none(content, secret)
    if not isinstance(payload, dict):
        raise ModelFault("failed:reply", text("model.not_json"), billed=True)
    if payload.get("error"):
        says = _server_says(payload) or text("model.says_nothing")
        raise ModelFault("failed:model", text("model.error_in_reply", says=says), status=200)
    return payload


def _json_or_none(content: bytes, secret: str) -> Any:
    """What was sent, fit to be written down; None if it is no JSON, or is nested too deep to be handled."""
    try:
        return portable(json.loads(content), secret)
    except (ValueError, RecursionError):
        return None


def _server_says(payload: Any) -> str:
    """The server's own sentence, on one line and not too long; nothing of a web page."""
    if not isinstance(payload, dict):
        return ""
    error = payload.get("error") or payload
    if isinstance(error, dict):
        error = next((error[key] for key in ("message", "detail", "msg", "code") if error.get(key)), "")
    words = " ".join(str(error).split())
    # A server may repeat (part of) a key that it did not like.
    words = re.sub(r"\b(sk|key|xai)-[\w*-]{4,}", "***", words)
    return words if len(words) <= _SHORT else words[:_SHORT] + "…"


def _error_code(payload: Any) -> str:
    error = payload.get("error", payload) if isinstance(payload, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) else ""


def tokens(payload: Mapping[str, Any]) -> Tokens | None:
    """What the reply says it used; None if it does not say, or says something that no count can be."""
    usage = payload.get("usage")
    if not isinstance(usage, dict):
        return None
    asked, answered = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    if asked is None or answered is None:
        return None
    total = _count(usage.get("total_tokens"))
    if total is not None:
        answered = max(answered, total - asked)  # some services count reasoning in the total alone
    details = usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return Tokens(asked, answered, min(cached or 0, asked))


def _count(value: Any) -> int | None:
    whole = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 10**15
    return int(value) if whole and value == int(value) else None


def read(payload: Mapping[str, Any]) -> Reply:
    """The first choice of a reply. Raises ``ModelFault`` (``failed:reply``) when it is not a chat message."""
    choices = payload.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise ModelFault("failed:reply", text("model.no_message"))
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise ModelFault("failed:reply", text("model.no_message"))
    if len(calls) > MOST_CALLS:
        raise ModelFault("failed:reply", text("model.too_many_calls", calls=len(calls), most=MOST_CALLS))
    content = _content(message.get("content"), "content" in message)
    thinking, words = _split_thinking(content or "")
    reasoning = message.get("reasoning_content")
    return Reply(
        content=content,
        text=words,
        thinking=thinking or (reasoning if isinstance(reasoning, str) else ""),
        calls=[_call(item) for item in calls],
        finish_reason=str(choice.get("finish_reason") or ""),
        refusal=message["refusal"] if isinstance(message.get("refusal"), str) else "",
        reasoning=reasoning if isinstance(reasoning, str) else None,
    )


def _content(content: Any, given: bool) -> str | None:
    """The text as the server sent it (null stays null); of a list of parts, the text parts joined."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        return "".join(part for part in parts if isinstance(part, str))
    if content is None:
        return None if given else ""
    return content if isinstance(content, str) else ""


def _split_thinking(content: str) -> tuple[str, str]:
    """(thinking, answer): some local models think aloud at the head of the answer, between ``think`` tags."""
    match = re.match(r"\s*<think>(.*?)(?:</think>|\Z)", content, re.DOTALL)
    return (match[1].strip(), content[match.end() :].strip()) if match else ("", content)


def _call(item: Any) -> Call:
    item = item if isinstance(item, dict) else {}
    function = item.get("function")
    function = function if isinstance(function, dict) else {}
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
    return Call(item.get("id"), name if isinstance(name, str) else "", arguments, item.get("extra_content"))
