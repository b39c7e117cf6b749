"""A service that does its worst, over a real socket: the caps hold, the run comes back in time, and nothing is lost."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from typing import Any

import httpx2
import pytest
from request_rules import broken_rules
from wire_server import (
    KEY,
    Play,
    Request,
    Service,
    call,
    calls,
    completion,
    cuts_off,
    drips_body,
    drips_headers,
    drips_lines,
    fails,
    hangs,
    hangs_up,
    headed,
    model_at,
    resets,
    says,
    text,
)

from agentlib import Event, Limits, Tool, arun_task, run_task
from agentlib.model import MOST_BYTES, MOST_CALLS
from agentlib.results import TaskResult
from agentlib.settings import Price

CAP = 2.0
SLACK = 0.25
"""How much later than its cap a run may be back in the caller's hands; on an idle machine it is 0.05."""

OPEN = Limits(max_steps=20, max_seconds=30, max_usd=10)


def reason(result: TaskResult) -> str:
    return str(result["summary"]["stop_reason"])


def waits(result: TaskResult) -> list[float]:
    """How long the run waited before each further attempt."""
    return [event["data"]["wait"] for event in result["summary"]["trace"] if event["kind"] == "retry"]


def toolbox(function: Callable[..., Any], **options: Any) -> dict[str, Tool]:
    return {"analyze_csv": Tool(function, "", {"properties": {"relative_path": {}}}, "analyze_csv", **options)}


def plain(relative_path: str) -> int:
    return 1


def sleeps(relative_path: str) -> int:
    time.sleep(6)
    return 1


def ask(*script: Play, endless: bool = False, door: str = "sync", **options: Any) -> tuple[TaskResult, float, Service]:
    """One run against a service; its result, the seconds until it was back, and the service.

    What holds for every run, whatever the service does, is checked here.
    """
    with Service(*script, endless=endless) as service:
        model = options.setdefault("client", service.model())
        options = {"limits": OPEN, "toolbox": toolbox(plain), **options}

        async def run() -> TaskResult:
            result = await arun_task("What is the total?", **options)
            await model.close()
            return result

        began = time.monotonic()
        result = run_task("What is the total?", **options) if door == "sync" else asyncio.run(run())
        took = time.monotonic() - began
    summary, limits = result["summary"], options["limits"]
    json.dumps(result, ensure_ascii=False, allow_nan=False).encode()
    assert KEY not in str(result)
    assert [line for body in service.requests for line in broken_rules(body)] == []
    assert summary["usage"]["requests"] == len(service.requests)
    assert limits.max_steps is None or summary["steps"] <= limits.max_steps
    assert limits.max_requests is None or summary["usage"]["requests"] <= limits.max_requests
    assert (result["status"] == "completed") == (summary["stop_reason"] == "done")
    assert result["warnings"] or result["status"] == "completed"
    return result, took, service


# --- time -------------------------------------------------------------------------------------------------------------

SLOW: dict[str, tuple[list[Play], dict[str, Any], str, int]] = {
    # name: script, options, stop reason, requests
    "every call takes 0.7 s": ([says(calls(), delay=0.7)], {}, "stopped:time", 3),
    "the second call hangs": ([says(calls()), hangs], {}, "stopped:time", 2),
    "Retry-After says 5": ([fails(429, retry_after="5")], {}, "failed:model", 1),
    "a tool sleeps 6 s": ([says(calls())], {"toolbox": toolbox(sleeps)}, "stopped:time", 1),
    "the head drips": ([says(calls()), drips_headers], {}, "stopped:time", 2),
    "the body drips": ([says(calls()), drips_body(text())], {}, "stopped:time", 2),
    "line breaks drip": ([says(calls()), drips_lines(text(), 100, 0.1)], {}, "stopped:time", 2),
}


@pytest.mark.parametrize("door", ["sync", "async"])
@pytest.mark.parametrize("name", SLOW)
def test_back_in_time(name: str, door: str, record_property: Callable[[str, object], None]) -> None:
    script, options, wanted, requests = SLOW[name]
    limits = OPEN.change(max_seconds=CAP)
    for _ in range(3):  # a busy machine may wake a sleeper late, but hardly three times in a row
        result, took, service = ask(*script, endless=True, door=door, limits=limits, **options)
        assert (reason(result), len(service.requests)) == (wanted, requests)
        if took <= CAP + SLACK:
            break
    record_property("seconds", round(took, 3))
    assert took <= CAP + SLACK
    assert result["summary"]["usage"]["seconds"] <= CAP + SLACK
    assert took >= CAP or wanted == "failed:model"


def test_the_time_of_a_tool_is_its_own_too() -> None:
    limits = OPEN.change(max_tool_seconds=0.3)
    result, took, _ = ask(says(calls()), says(text()), limits=limits, toolbox=toolbox(sleeps))
    assert reason(result) == "done"
    assert took < 0.3 + 4 * SLACK
    assert result["summary"]["tool_results"][0]["result"]["error"]["code"] == "TOOL_TIMEOUT"


# --- money ------------------------------------------------------------------------------------------------------------

LIST_PRICE = Price(Decimal("0.15"), Decimal("0.60"))


def test_a_budget_of_two_and_a_half_rounds_spends_two() -> None:
    with Service(says(calls(usage=(1000, 200))), endless=True) as service:
        limits = OPEN.change(max_usd=0.000675)
        result = run_task("What is the total?", client=service.model(LIST_PRICE), limits=limits, toolbox=toolbox(plain))
    assert len(service.requests) == 2
    assert reason(result) == "stopped:budget"
    assert result["summary"]["usage"]["usd"] == 0.00054
    stop = result["summary"]["stop"]
    assert stop["used"] + stop["quote"] > stop["limit_value"] == 0.000675
    assert result["warnings"][0] == "budget cap reached: MAX_USD=0.000675, still no final text answer"


def test_a_service_that_bills_more_than_it_was_asked_for() -> None:
    result, _, service = ask(says(calls(usage=(100, 500_000))), endless=True, limits=OPEN.change(max_usd=1))
    assert service.requests[0]["max_tokens"] == 2048
    assert len(service.requests) == 1
    assert reason(result) == "stopped:budget"
    assert result["summary"]["usage"]["usd"] == 5.0001  # not 1, and not the quote: what it really was
    assert result["summary"]["stop"]["used"] == 5.0001


def test_a_request_that_is_cut_is_charged_at_its_quote() -> None:
    result, _, _ = ask(hangs, limits=OPEN.change(max_seconds=0.3))
    usage = result["summary"]["usage"]
    assert (reason(result), usage["estimated"]) == ("stopped:time", True)
    assert usage["usd"] == result["summary"]["trace"][0]["data"]["quote_usd"] > 0


def test_broken_connections_do_not_break_the_budget() -> None:
    with Service(hangs_up, endless=True) as service:
        limits = OPEN.change(max_usd=0.05)
        result = run_task("What is the total?", client=service.model(), limits=limits, retries=9)
    assert reason(result) == "stopped:budget"  # each of them may have been billed
    assert 0.04 < result["summary"]["usage"]["usd"] <= 0.05
    asked = [body["max_tokens"] for body in service.requests]
    assert asked[:2] == [2048, 2048]
    assert asked[2] < 2048


# --- trying again -----------------------------------------------------------------------------------------------------


def test_an_error_for_ever() -> None:
    result, took, service = ask(says(calls()), fails(500, "out of order"), endless=True)
    assert (reason(result), len(service.requests)) == ("failed:model", 4)
    assert waits(result) == [0.5, 1.0]
    assert 1.5 <= took < 3
    assert "out of order" in result["warnings"][0]
    assert result["summary"]["tool_results"][0]["result"]["status"] == "ok"
    assert result["summary"]["steps"] == 1


@pytest.mark.parametrize("limits", [OPEN, OPEN.change(max_seconds=None)], ids=["30 s", "no time cap"])
@pytest.mark.parametrize("after", ["100", "277403", "9" * 400])
def test_a_wait_that_is_too_long(after: str, limits: Limits) -> None:
    result, took, service = ask(fails(429, retry_after=after), endless=True, limits=limits)
    assert (reason(result), len(service.requests), waits(result)) == ("failed:model", 1, [])
    assert took < 1
    assert after[:3] in result["warnings"][0] or "inf" in result["warnings"][0]


def in_seconds(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"retry_after_ms": "120"}, 0.12, 0.12),
        ({"retry_after": "0.2"}, 0.2, 0.2),
        ({"retry_after": "0"}, 0, 0),
        ({"retry_after": in_seconds(-3600)}, 0, 0),
        ({"retry_after": in_seconds(1.5)}, 0, 1.5),
        ({"retry_after": "soon"}, 0.5, 0.5),
        ({"retry_after": "-3"}, 0.5, 0.5),
        ({"retry_after_ms": "nan"}, 0, 0),
        ({"retry_after": "Thu, 01 Jan 0000 00:00:00 GMT"}, 0, 0),
        ({"retry_after": "Sun, 99 Foo 2026 25:61:00 GMT"}, 0.5, 0.5),
    ],
)
def test_a_wait_that_fits(headers: dict[str, str], least: float, most: float) -> None:
    result, took, _ = ask(fails(429, **headers), says(text()))
    assert reason(result) == "done"
    assert least <= waits(result)[0] <= most
    assert took >= waits(result)[0]


def test_a_wait_is_cut_by_the_caller() -> None:
    waiting: list[Event] = []
    hear = lambda event: waiting.append(event) if event.kind == "retry" else None  # noqa: E731
    result, took, service = ask(fails(429, retry_after="20"), endless=True, on_event=hear, stop=lambda: bool(waiting))
    assert (reason(result), len(service.requests)) == ("stopped:user", 1)
    assert took < 5


def test_attempts_count_against_max_requests() -> None:
    result, _, service = ask(fails(500), endless=True, limits=OPEN.change(max_requests=2))
    assert (reason(result), len(service.requests)) == ("failed:model", 2)
    result, _, service = ask(
        fails(500, retry_after="0"), says(calls()), endless=True, limits=OPEN.change(max_requests=3)
    )
    assert (reason(result), len(service.requests)) == ("stopped:steps", 3)
    assert result["summary"]["stop"]["limit"] == "max_requests"


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 410, 413, 418, 422])
def test_what_cannot_work_later_is_not_tried_again(status: int) -> None:
    result, _, service = ask(fails(status, "no and no"), endless=True)
    assert (reason(result), len(service.requests)) == ("failed:model", 1)
    assert str(status) in result["warnings"][0]
    assert "no and no" in result["warnings"][0]


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_what_may_work_later_is(status: int) -> None:
    result, _, _ = ask(fails(status, retry_after="0"), says(text()))
    assert (reason(result), result["summary"]["usage"]["requests"]) == ("done", 2)


def test_an_empty_account_is_not_tried_again() -> None:
    body = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    assert len(ask(says(body, status=429), endless=True)[2].requests) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with Service(says(text())) as elsewhere:
        result, _, service = ask(says("", status, {"location": elsewhere.url + "/chat/completions"}), endless=True)
    assert (reason(result), len(service.requests), elsewhere.requests) == ("failed:model", 1, [])
    assert "MODEL_BASE_URL" in result["warnings"][0]


def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        model = model_at(f"http://127.0.0.1:{unused.getsockname()[1]}/v1")
        result = run_task("What is the total?", client=model, limits=OPEN, retries=1)
    assert reason(result) == "failed:model"
    assert result["summary"]["usage"]["usd"] == 0.0  # nothing can have been billed
    assert result["summary"]["usage"]["requests"] == 2
    assert "could not be reached" in result["warnings"][0]


# --- replies ----------------------------------------------------------------------------------------------------------


def sends(data: bytes) -> Play:
    """These bytes and no others, then the end of the connection."""

    def play(request: Request) -> None:
        request.send(data)
        hangs_up(request)

    return play


def floods(request: Request) -> None:
    """A reply of 50 MB."""
    request.send(headed(50_000_000))
    for _ in range(50):
        request.send(b" " * 1_000_000)


def for_ever(request: Request) -> None:
    """A reply that has no end."""
    request.send(headed("chunked"))
    while True:
        request.send(b"100000\r\n" + b" " * 0x100000 + b"\r\n")


def deep(levels: int) -> str:
    return '{"choices": ' + "[" * levels + "]" * levels + ', "error": ' + "[" * levels + "]" * levels + "}"


BOMB = gzip.compress(b" " * 60_000_000)
ZIPPED = {"content-encoding": "gzip"}

REPLIES: dict[str, tuple[Play, set[str]]] = {
    "reset": (resets, {"failed:model"}),
    "hung up": (hangs_up, {"failed:model"}),
    "cut off": (cuts_off, {"failed:model"}),
    "too short for its length": (sends(headed(999) + b"{}"), {"failed:model"}),
    "no HTTP": (sends(b"220 mail.example.com ESMTP\r\n\r\n"), {"failed:model"}),
    "an endless header": (sends(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 2_000_000), {"failed:model"}),
    "broken chunks": (sends(headed("chunked") + b"zz\r\n{}"), {"failed:model"}),
    "cut JSON": (says('{"choices": [{"mess'), {"failed:reply"}),
    "nothing": (says(""), {"failed:reply"}),
    "no content": (says("", 204), {"failed:reply"}),
    "no JSON": (says("The total is 32."), {"failed:reply"}),
    "not UTF-8": (says(b'{"choices": "\xff\xfe"}'), {"failed:reply"}),
    "a list": (says("[]"), {"failed:reply"}),
    "a number": (says("1e999"), {"failed:reply"}),
    "null": (says("null"), {"failed:reply"}),
    "a web page": (says("\n <!doctype html><p>Hello", headers={"content-type": "text/html"}), {"failed:model"}),
    "a web page as an error": (says("<html><h1>no", 503), {"failed:model"}),
    "deep JSON": (says(deep(100_000)), {"failed:reply"}),
    "less deep JSON": (says(deep(700)), {"failed:reply", "failed:model"}),
    "a deep error": (says(deep(700), 400), {"failed:model"}),
    "a deeper error": (says(deep(100_000), 400), {"failed:model"}),
    "deep arguments": (says(calls(call(arguments=json.loads("[" * 300 + "]" * 300)))), {"stopped:steps"}),
    "deep text arguments": (says(calls(call(arguments='{"a":' * 50_000 + "1" + "}" * 50_000))), {"stopped:steps"}),
    "a number of 5000 digits": (says('{"choices": [], "n": ' + "9" * 5000 + "}"), {"failed:reply"}),
    "arguments with 5000 digits": (says(calls(call(arguments='{"n": ' + "9" * 5000 + "}"))), {"stopped:steps"}),
    "50 MB": (floods, {"failed:reply"}),
    "no end": (for_ever, {"failed:reply"}),
    "a small file that unpacks to 60 MB": (says(BOMB, headers=ZIPPED), {"failed:reply"}),
    "packed but broken": (says(b"\x1f\x8bnonsense", headers=ZIPPED), {"failed:model"}),
    "packed": (says(gzip.compress(json.dumps(text()).encode()), headers=ZIPPED), {"done"}),
    "a stream": (says('data: {"choices": []}\n\n', headers={"content-type": "text/event-stream"}), {"failed:reply"}),
    "choices as text": (says({"choices": "hello"}), {"failed:reply"}),
    "a choice as text": (says({"choices": ["hello"]}), {"failed:reply"}),
    "a message as text": (says({"choices": [{"message": "hello"}]}), {"failed:reply"}),
    "calls as text": (says(completion({"content": None, "tool_calls": "x"})), {"failed:reply"}),
    "calls as an object": (says(completion({"content": None, "tool_calls": {"id": 1}})), {"failed:reply"}),
    "calls of any kind": (
        says(calls(None, 5, "x", [], {}, {"function": 3}, {"function": {"name": 5}})),
        {"stopped:steps"},
    ),
    "a finish reason of any kind": (says(text(finish={"a": [1]})), {"done"}),
    "content as a number": (says(completion({"content": 5})), {"failed:no_answer"}),
    "content as parts of any kind": (
        says(completion({"content": [None, 5, {"type": "text", "text": 7}]})),
        {"failed:no_answer"},
    ),
    "blank text": (says(text(" \n\t ")), {"failed:no_answer"}),
    "a refusal": (says(completion({"content": None, "refusal": "I will not."})), {"failed:refused"}),
    "more calls than a plan has": (says(calls(*[call(n) for n in range(MOST_CALLS + 1)])), {"failed:reply"}),
}


@pytest.mark.parametrize("name", REPLIES)
def test_reply(name: str) -> None:
    play, wanted = REPLIES[name]
    result, took, service = ask(play, endless=True, retries=0, limits=OPEN.change(max_steps=2))
    assert reason(result) in wanted
    assert took < 5
    assert len(service.requests) == (2 if reason(result) == "stopped:steps" else 1)
    assert "<" not in "".join(result["warnings"])
    assert result["summary"]["usage"]["usd"] <= 10


@pytest.mark.parametrize(
    "name", ["reset", "hung up", "cut off", "too short for its length", "packed but broken", "packed"]
)
def test_a_client_that_is_built_on_the_older_httpx(name: str) -> None:
    """The SDK takes one too, and its errors are classes of their own."""
    play, wanted = REPLIES[name]
    http = pytest.importorskip("httpx").AsyncClient()
    with Service(says(calls()), play) as service:
        model = service.model()
        model.client = model.client.copy(http_client=http)
        result = run_task("What is the total?", client=model, limits=OPEN, retries=0, toolbox=toolbox(plain))
    assert reason(result) in wanted
    assert len(result["summary"]["tool_results"]) == 1


def code_of_the_callers(where: str) -> dict[str, Any]:
    async def breaks(*_: object) -> Any:
        raise LookupError("of the caller's")

    if where == "key":
        return {"api_key": breaks}
    return {"http_client": httpx2.AsyncClient(event_hooks={where: [breaks]})}


@pytest.mark.parametrize("where", ["key", "request", "response"])
def test_code_of_the_callers_in_the_client_that_breaks(where: str) -> None:
    """A source of keys that fails in mid-run, or a hook: what was done until then is kept."""
    with Service(says(calls()), says(text())) as service:
        model = service.model()

        def breaks_the_client(relative_path: str) -> int:
            model.client = model.client.copy(**code_of_the_callers(where))
            return 1

        tools = toolbox(breaks_the_client)
        result = run_task("What is the total?", client=model, limits=OPEN, toolbox=tools)
    assert (reason(result), len(result["summary"]["tool_results"])) == ("failed:model", 1)
    assert "LookupError" in result["warnings"][0]


def test_no_more_than_most_bytes_are_kept() -> None:
    body = json.dumps(text()).encode()
    assert reason(ask(says(b" " * (MOST_BYTES - len(body)) + body))[0]) == "done"
    assert reason(ask(says(b" " * (MOST_BYTES - len(body) + 1) + body))[0]) == "failed:reply"


@pytest.mark.parametrize(
    "usage",
    [
        None,
        "many",
        [],
        {},
        {"prompt_tokens": 5},
        {"prompt_tokens": -1, "completion_tokens": 1},
        {"prompt_tokens": True, "completion_tokens": 1},
        {"prompt_tokens": "5", "completion_tokens": 1},
        {"prompt_tokens": 1.5, "completion_tokens": 1},
        {"prompt_tokens": float("nan"), "completion_tokens": 1},
        {"prompt_tokens": 1, "completion_tokens": float("inf")},
        {"prompt_tokens": 10**30, "completion_tokens": 1},
    ],
)
def test_a_usage_that_cannot_be_is_no_usage(usage: Any) -> None:
    result, _, _ = ask(says(text(usage=usage)))
    counted = result["summary"]["usage"]
    assert counted["estimated"] is True
    assert counted["usd"] == result["summary"]["trace"][0]["data"]["quote_usd"]
    assert (counted["input_tokens"], counted["output_tokens"]) == (0, 0)


@pytest.mark.parametrize(
    ("total", "counted"), [(135, 103), (41, 9), (40, 9), (0, 9), (None, 9), ("135", 9), (float("nan"), 9), (10**30, 9)]
)
def test_reasoning_that_only_the_total_counts_is_paid_for(total: Any, counted: int) -> None:
    usage = {"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": total}
    used = ask(says(text(usage=usage)))[0]["summary"]["usage"]
    assert (used["output_tokens"], used["usd"]) == (counted, (32 + 10 * counted) / 1_000_000)


def test_a_prompt_that_seems_to_shrink_does_not_lower_the_quote() -> None:
    asks = says(calls(call("c"), usage=(900, 1)))
    only_fresh_input = says(calls(call("c"), usage=(5, 1)))
    result, _, _ = ask(asks, only_fresh_input, asks, limits=OPEN.change(max_steps=3), toolbox=toolbox(plain))
    quotes = [e["data"]["quote_usd"] for e in result["summary"]["trace"] if e["kind"] == "step"]
    assert quotes[2] > quotes[1]


def test_cached_input_has_its_own_price() -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 400}}
    assert ask(says(text(usage=usage)))[0]["summary"]["usage"]["usd"] == 0.00064
    usage["prompt_tokens_details"] = {"cached_tokens": 10**9}  # more than there is
    assert ask(says(text(usage=usage)))[0]["summary"]["usage"]["usd"] == 0.0001


# --- tool calls -------------------------------------------------------------------------------------------------------


def test_two_hundred_calls_in_one_reply() -> None:
    ran: list[str] = []
    limits = OPEN.change(max_tool_calls=8)
    many = says(calls(*[call(f"c{n}") for n in range(200)]))
    result, took, service = ask(
        many, says(text()), limits=limits, toolbox=toolbox(lambda relative_path: ran.append(relative_path))
    )
    assert reason(result) == "done"
    assert (len(ran), result["summary"]["tool_calls_used"]) == (8, 8)
    codes = [(done["result"]["error"] or {}).get("code") for done in result["summary"]["tool_results"]]
    assert codes == [None] * 8 + ["TOOL_LIMIT"] * 192
    answers = [message for message in service.requests[1]["messages"] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in answers] == [f"c{n}" for n in range(200)]
    assert took < 5


def test_two_hundred_calls_without_a_cap_on_calls_are_cut_by_time() -> None:
    many = says(calls(*[call(f"c{n}") for n in range(200)]))
    slow = toolbox(lambda relative_path: time.sleep(0.1))
    result, took, _ = ask(many, limits=OPEN.change(max_seconds=0.5, max_tool_calls=None), toolbox=slow)
    assert reason(result) == "stopped:time"
    assert took < 0.5 + 4 * SLACK
    assert len(result["summary"]["tool_results"]) == 200


def test_an_endless_loop_of_tool_calls() -> None:
    result, _, service = ask(says(calls()), endless=True, limits=OPEN.change(max_steps=7))
    assert (reason(result), len(service.requests), result["summary"]["steps"]) == ("stopped:steps", 7, 7)
    assert len(result["summary"]["completed_steps"]) == 7
    assert len({m["tool_call_id"] for m in service.requests[-1]["messages"] if m["role"] == "tool"}) == 6


@pytest.mark.parametrize("wrong", ["call_1", "call", "", None, 5, ["x"], "x" * 500])
def test_ids_that_come_again_and_again(wrong: Any) -> None:
    ask(says(calls(call(wrong), call(wrong), call("call_2"))), endless=True, limits=OPEN.change(max_steps=4))


# --- the key ----------------------------------------------------------------------------------------------------------

ECHOES: dict[str, Play] = {
    "an error": fails(401, f"Incorrect API key provided: {KEY}. Get one at https://example.com"),
    "part of it in an error": fails(401, f"Incorrect API key provided: {KEY[:11]}********. Get one."),
    "an error without JSON": says(f"bad key {KEY}", 401),
    "an error in a header": says({"error": {"message": "no"}}, 429, {"retry-after": KEY, "x-key": KEY}),
    "an error under 200": says({"error": {"message": f"Bearer {KEY} is not known"}}),
    "an error with the key as a name": says({"error": {KEY: KEY, "code": KEY}}, 400),
    "the answer": says(text(f"Your key is {KEY}, and again {KEY}.")),
    "the thinking": says(completion({"content": "x", "reasoning_content": KEY})),
    "a refusal": says(completion({"content": None, "refusal": f"Not with {KEY}"})),
    "a finish reason": says(text(finish=KEY)),
    "the arguments": says(calls(call(arguments=f'{{"relative_path": "{KEY}"}}'))),
    "arguments as an object": says(calls(call(arguments={KEY: KEY}))),
    "a tool's name": says(calls(call(name=KEY))),
    "an id": says(calls(call(KEY))),
    "a web page": says(f"<html>{KEY}</html>", 500),
}


@pytest.mark.parametrize("name", ECHOES)
def test_the_key_comes_back(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []
    options: dict[str, Any] = {"limits": OPEN.change(max_steps=2), "retries": 0, "on_event": seen.append}
    result, _, service = ask(ECHOES[name], endless=True, **options)
    assert KEY not in str(seen) + str(service.requests)
    assert KEY[:11] not in "".join(result["warnings"])
    assert KEY not in "".join(capfd.readouterr())
    assert service.heads[0]["authorization"] == f"bearer {KEY}"
