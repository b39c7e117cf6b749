"""A model that follows a script: replies played through the real client's transport, with no network behind it.

A script is a list of replies. A reply is a ``Scripted``, or a function that is given the request's body
and returns one. When the script is over, the service answers every further request with an error.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import httpx2
from openai import AsyncOpenAI

from .limits import exact
from .messages import text
from .model import Model
from .settings import Price, Settings
from .waiting import Clock

PRICE = Price(Decimal(2), Decimal(10), Decimal("0.5"))
"""What a scripted model costs, in US dollars per million tokens."""

TOKENS = (500, 100)
"""What a scripted reply counts when nothing else is said: 0.002 US dollars at ``PRICE``."""


@dataclass(frozen=True, slots=True)
class Scripted:
    """One reply of a scripted service. ``tokens`` None: the reply does not say what it used.

    ``broken``: no reply comes; after its seconds the connection ends with the error of that name in ``httpx2``.
    """

    message: Mapping[str, Any] | None = None
    tokens: tuple[int, int] | None = TOKENS
    seconds: float = 0.0
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | bytes | None = None
    endless: bool = False
    broken: str = ""


Line = Scripted | Callable[[dict[str, Any]], Scripted]


def answer(words: str) -> Scripted:
    """The model answers in plain text."""
    return Scripted({"role": "assistant", "content": words})


def tool_call(name: str = "analyze_csv", arguments: Any = None, *, says: str | None = None) -> Scripted:
    """The model asks for one tool; without arguments, for ``analyze_csv`` on ``sales.csv``."""
    return tool_calls([(name, {"relative_path": "sales.csv"} if arguments is None else arguments)], says=says)


def tool_calls(wanted: Sequence[tuple[str, Any]], *, says: str | None = None) -> Scripted:
    """The model asks for several tools at once: pairs of a name and arguments (a dict, or raw text)."""
    calls = [
        {"id": "", "type": "function", "function": {"name": name, "arguments": _raw(arguments)}}
        for name, arguments in wanted
    ]
    return Scripted({"role": "assistant", "content": says, "tool_calls": calls})


def http_error(status: int, message: str = "", headers: Mapping[str, str] | None = None) -> Scripted:
    """The service refuses or fails with an HTTP status."""
    return Scripted(status=status, headers=headers or {}, body=json.dumps({"error": {"message": message}}))


def slow(seconds: float, reply: Scripted) -> Scripted:
    """The reply takes that long to arrive."""
    return replace(reply, seconds=seconds)


def costing(reply: Scripted, input_tokens: int, output_tokens: int) -> Scripted:
    """The reply counts that many tokens."""
    return replace(reply, tokens=(input_tokens, output_tokens))


def uncounted(reply: Scripted) -> Scripted:
    """The reply does not say what it used."""
    return replace(reply, tokens=None)


def endless(reply: Scripted) -> Scripted:
    """The reply comes again and again, for ever."""
    return replace(reply, endless=True)


def strict(line: Line) -> Line:
    """The reply, from a service that refuses (400) a history in which tool calls and tool results do not pair up."""

    def checked(body: dict[str, Any]) -> Scripted:
        problem = _unpaired(body["messages"])
        if problem:
            return http_error(400, problem)
        return line if isinstance(line, Scripted) else line(body)

    return checked


def _unpaired(messages: Sequence[Mapping[str, Any]]) -> str:
    """What is wrong with the ids in a history; empty if every call is answered right after it, and nothing else is."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return text("offline.unknown_id", id=message["tool_call_id"])
            waiting.remove(message["tool_call_id"])
        elif waiting:
            break
        else:
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
    return text("offline.unanswered", ids=", ".join(waiting)) if waiting else ""


def from_results(body: Mapping[str, Any]) -> Scripted:
    """Answer the sales question from the tool results that the request holds, as a model would."""
    for message in reversed(body["messages"]):
        data = message["role"] == "tool" and json.loads(message["content"])["data"]
        if data:
            rows = text("offline.and").join(
                text("offline.row", category=row["category"], revenue=row["revenue"])
                for row in data["revenue_by_category"]
            )
            return answer(text("offline.answer", top=data["top_category"], rows=rows, total=data["total_revenue"]))
    return answer(text("offline.nothing"))


def _raw(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


class TurnableClock:
    """A clock that stands still until somebody turns it: by hand, or a scripted reply that takes its time.

    It moves on by itself only while something really takes longer than ``look`` seconds (a tool that hangs).
    Meant for one run at a time.
    """

    look = 0.5

    def __init__(self) -> None:
        self._now = Decimal(0)
        self._alarm: tuple[Decimal, asyncio.Future[None]] | None = None
        self._set = asyncio.Event()

    def now(self) -> float:
        """Seconds that the clock has been turned so far."""
        return float(self._now)

    def turn(self, seconds: float) -> None:
        """Turn the clock forward."""
        self._now += exact(seconds)
        if self._alarm and self._alarm[0] <= self._now:
            ring = self._alarm[1]
            ring.get_loop().call_soon_threadsafe(_ring, ring)

    async def sleep(self, seconds: float) -> None:
        """Turn the clock, with a halt at the alarm of whoever waits; at the same moment the sleeper wakes first."""
        end = self._now + exact(seconds)
        while self._now < end:
            if self._alarm is None or self._alarm[0] >= end:
                self._now = end
            else:
                # Stop at the alarm, and let the one who set it decide before time goes on.
                self._set.clear()
                self.turn(float(self._alarm[0] - self._now))
                await self._set.wait()

    async def wait(self, task: asyncio.Future[Any], seconds: float) -> None:
        """Return when the task is done or the clock has been turned that far."""
        ring: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        until = self._now + exact(seconds)
        self._alarm = (until, ring)
        self._set.set()
        done, _ = await asyncio.wait({task, ring}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        self._alarm = None
        if not done:
            self._now = max(self._now, until)


def _ring(alarm: asyncio.Future[None]) -> None:
    if not alarm.done():
        alarm.set_result(None)


class ScriptedTransport(httpx2.AsyncBaseTransport):
    """Where the real client's requests end: nothing behind it opens a socket."""

    def __init__(self, script: Sequence[Line], clock: Clock, pace: float) -> None:
        self.script, self.clock, self.pace = list(script), clock, pace
        self.requests: list[dict[str, Any]] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request with the next reply of the script."""
        body = json.loads(await request.aread())
        number = len(self.requests)
        self.requests.append(body)
        reply = self._next(number, body)
        await self.clock.sleep(reply.seconds + self.pace)
        if reply.broken:
            raise getattr(httpx2, reply.broken)("", request=request)
        headers = {"content-type": "application/json", **reply.headers}
        content = reply.body if reply.message is None else json.dumps(_completion(reply, body, number))
        return httpx2.Response(reply.status, headers=headers, content=content or b"")

    def _next(self, number: int, body: dict[str, Any]) -> Scripted:
        if number >= len(self.script):
            last = self.script[-1] if self.script else None
            if not (isinstance(last, Scripted) and last.endless):
                return http_error(400, text("offline.script_over", replies=len(self.script)))
            number = len(self.script) - 1
        line = self.script[number]
        return line if isinstance(line, Scripted) else line(body)


def _completion(reply: Scripted, body: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A reply in the form of the chat completions API; it keeps to the ``max_tokens`` it was given, as services do."""
    message = json.loads(json.dumps(reply.message))
    calls = message.get("tool_calls") or []
    for n, call in enumerate(calls, 1):
        call["id"] = call["id"] or f"call_{number + 1}_{n}"
    finish = "tool_calls" if calls else "stop"
    completion = {"id": f"chatcmpl-{number + 1}", "object": "chat.completion", "created": 0, "model": body["model"]}
    if reply.tokens:
        asked, answered = reply.tokens
        allowed = body.get("max_tokens") or body.get("max_completion_tokens") or answered
        if answered > allowed:
            finish, kept = "length", allowed / answered
            answered = allowed
            message["content"] = message.get("content") and _part(message["content"], kept)
            for call in calls:
                call["function"]["arguments"] = _part(call["function"]["arguments"], kept)
        completion["usage"] = {
            "prompt_tokens": asked,
            "completion_tokens": answered,
            "total_tokens": asked + answered,
        }
    completion["choices"] = [{"index": 0, "finish_reason": finish, "message": message}]
    return completion


def _part(words: str, share: float) -> str:
    return words[: int(len(words) * share)]


@dataclass(slots=True)
class OfflineModel(Model):
    """A scripted model. ``requests`` holds the bodies that the service was sent."""

    transport: ScriptedTransport = field(kw_only=True)

    @property
    def requests(self) -> list[dict[str, Any]]:
        """Every request body so far, in order."""
        return self.transport.requests


def scripted(
    *script: Line, clock: Clock | None = None, pace: float = 0.0, price: Price | None = PRICE, max_tokens: int = 2048
) -> OfflineModel:
    """The real client over a script. ``pace``: seconds that every reply takes on top of its own.

    The clock is a ``TurnableClock`` unless another is given, so that a run takes no real time
    and its seconds are exact.
    """
    clock = clock or TurnableClock()
    transport = ScriptedTransport(script, clock, pace)
    http = httpx2.AsyncClient(transport=transport, trust_env=False)
    client = AsyncOpenAI(api_key="offline", base_url="http://offline.invalid/v1", max_retries=0, http_client=http)
    settings = Settings("scripted-model", "http://offline.invalid/v1", "offline", price, max_tokens)
    return OfflineModel(client, settings, clock, offline=True, transport=transport)


def _answers() -> list[Line]:
    return [tool_call(says=text("offline.says_first")), from_results]


def _tool_error() -> list[Line]:
    return [tool_call(arguments={"relative_path": "sale.csv"}), tool_call(says=text("offline.says_typo")), from_results]


def _runaway() -> list[Line]:
    return [endless(tool_call(says=text("offline.says_again")))]


def _slow() -> list[Line]:
    return [endless(slow(11.3, tool_call(says=text("offline.says_again"))))]


def _costly() -> list[Line]:
    return [endless(costing(tool_call(says=text("offline.says_long")), 500, 1000))]


SCENARIOS: dict[str, Callable[[], list[Line]]] = {
    "answers": _answers,
    "tool-error": _tool_error,
    "runaway": _runaway,
    "slow": _slow,
    "costly": _costly,
}
"""Ready scripts by name. ``slow`` takes 11.3 s a reply beyond its pace, ``costly`` 0.011 US dollars."""


def scenario(name: str, *, clock: Clock | None = None, pace: float = 0.7) -> OfflineModel:
    """A ready script by its name. Raises ``ValueError`` naming those there are."""
    if name not in SCENARIOS:
        raise ValueError(text("offline.no_scenario", name=name, names=", ".join(SCENARIOS)))
    return scripted(*SCENARIOS[name](), clock=clock, pace=pace)
