"""The loop offline: each ending, what is kept at each, limits that move, tools that misbehave, and every door to it."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal, getcontext, localcontext
from pathlib import Path
from typing import Any

import openai
import pytest
from mischief import hangs_with_a_child, spins, vanishes
from wire_server import Service, calls, hangs, says, text

from agentlib import Event, Limits, Tool, arun_task, events, run_task, use_language
from agentlib.loop import Keywords
from agentlib.offline import (
    PRICE,
    Scripted,
    TurnableClock,
    answer,
    costing,
    endless,
    from_results,
    http_error,
    scenario,
    scripted,
    slow,
    tool_call,
    tool_calls,
    uncounted,
)
from agentlib.settings import Price
from agentlib.tools import TOOLBOX
from agentlib.waiting import RealClock

OPEN = Limits(max_steps=20, max_seconds=100, max_usd=10)
NO_CAPS = Limits(None, None, None, None, None)
ROOT = Path(__file__).parent.parent


def test_the_doors_know_every_keyword_of_the_loop() -> None:
    parameters = inspect.signature(arun_task).parameters.values()
    assert set(Keywords.__annotations__) == {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}


def reason(result: Any) -> str:
    return str(result["summary"]["stop_reason"])


def run(*script: Any, question: str = "What is the total?", **options: Any) -> Any:
    """One run on a script; whatever comes back is strict JSON."""
    model = {key: options.pop(key) for key in ("clock", "pace", "price", "max_tokens") if key in options}
    client = options.pop("client", None) or scripted(*script, **model)
    result = run_task(question, client=client, **{"limits": OPEN, **options})
    json.dumps(result, ensure_ascii=False, allow_nan=False).encode()
    return result


def tools(function: Callable[..., Any], **options: Any) -> dict[str, Tool]:
    return {"analyze_csv": Tool(function, "", {"properties": {"relative_path": {}}}, "analyze_csv", **options)}


def codes(result: Any) -> list[str]:
    return [(done["result"]["error"] or {"code": "ok"})["code"] for done in result["summary"]["tool_results"]]


def kinds(result: Any) -> list[str]:
    return [event["kind"] for event in result["summary"]["trace"]]


LOOPS = endless(tool_call())

# --- every ending -----------------------------------------------------------------------------------------------------

WITHHELD = Scripted(body='{"choices": [{"finish_reason": "content_filter", "message": {"content": "So far:"}}]}')
REFUSED = Scripted(body='{"choices": [{"finish_reason": "stop", "message": {"content": null, "refusal": "No."}}]}')
CUT = Scripted(body='{"choices": [{"finish_reason": "length", "message": {"content": "The total is"}}]}')

ENDINGS: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "answer": ([tool_call(), answer("42")], {}, "done"),
    "steps": ([LOOPS], {"limits": OPEN.change(max_steps=3)}, "stopped:steps"),
    "requests": ([tool_call(), LOOPS], {"limits": OPEN.change(max_requests=2)}, "stopped:steps"),
    "time": ([tool_call(), endless(slow(40, tool_call()))], {}, "stopped:time"),
    "budget": ([endless(costing(tool_call(), 500, 1000))], {"limits": OPEN.change(max_usd=0.05)}, "stopped:budget"),
    "user": ([LOOPS], {"stop": 60}, "stopped:user"),
    "a stop that fails": ([LOOPS], {"stop": lambda: 1 / 0}, "stopped:user"),
    "no question": ([LOOPS], {"question": " \n"}, "failed:config"),
    "a question of another kind": ([LOOPS], {"question": 5}, "failed:config"),
    "no limits": ([LOOPS], {"limits": 5}, "failed:config"),
    "no limits from the source": ([LOOPS], {"limits": lambda: 5}, "failed:config"),
    "a source that fails": ([LOOPS], {"limits": lambda: 1 / 0}, "failed:config"),
    "no price": ([LOOPS], {"price": None}, "failed:config"),
    "no client": ([], {"client": object()}, "failed:config"),
    "a client that cannot be cut": (
        [],
        {"client": openai.OpenAI(api_key="k", base_url="http://x/v1")},
        "failed:config",
    ),
    "a toolbox of functions": ([LOOPS], {"toolbox": {"f": print}}, "failed:config"),
    "a toolbox that is a list": ([LOOPS], {"toolbox": [1]}, "failed:config"),
    "a schema that is no JSON": ([LOOPS], {"toolbox": {"f": Tool(print, "", {"x": {1}})}}, "failed:config"),
    "a refused request": ([tool_call(), http_error(400, "no")], {}, "failed:model"),
    "a reply that is none": ([tool_call(), Scripted(body="[]")], {}, "failed:reply"),
    "withheld": ([tool_call(), WITHHELD], {}, "failed:filtered"),
    "refused": ([tool_call(), REFUSED], {}, "failed:refused"),
    "cut": ([tool_call(), CUT], {}, "failed:truncated"),
    "no words": ([tool_call(), answer("")], {}, "failed:no_answer"),
}


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", ENDINGS)
def test_ending(name: str, lang: str) -> None:
    use_language(lang)
    script, options, wanted = ENDINGS[name]
    if name == "user":
        options = {"stop": iter([False] * options["stop"] + [True] * 9).__next__}
    result = run(*script, **options)
    summary = result["summary"]
    assert reason(result) == wanted
    assert set(result) == {"task_id", "status", "report_path", "summary", "warnings"}
    always = {"stop_reason", "steps", "tool_calls_used", "tool_results", "completed_steps", "usage", "limits"}
    assert always < set(summary)
    assert ("answer" in summary) == (result["status"] == "completed") == (wanted == "done")
    assert ("stop" in summary) == (wanted in {"stopped:steps", "stopped:time", "stopped:budget"})
    assert bool(result["warnings"]) == (wanted != "done")
    assert all(0 < len(sentence) < 400 for sentence in result["warnings"])
    if wanted == "failed:config":
        assert summary["trace"] == [] and summary["usage"]["requests"] == 0
    else:  # partial results
        assert codes(result)[:1] == ["ok"] or name == "a stop that fails"
        assert len(summary["completed_steps"]) == summary["steps"]


def test_the_words_of_the_step_cap() -> None:
    limits = Limits(max_steps=4)
    assert run(LOOPS, limits=limits)["warnings"] == ["step cap reached: MAX_STEPS=4, still no final text answer"]
    use_language("zh")
    assert run(LOOPS, limits=limits)["warnings"] == ["达到步数上限 MAX_STEPS=4，仍未收到最终文本回答"]
    assert (
        run_task("总额是多少？", client=scripted(LOOPS))["warnings"][0]
        == "达到步数上限 MAX_STEPS=4，仍未收到最终文本回答"
    )


def test_numbers_in_sentences_are_whole() -> None:
    assert "MAX_STEPS=1000001," in run(limits=OPEN.change(max_steps=0))["warnings"][0].replace("=0", "=1000001")
    warning = run(LOOPS, limits=OPEN.change(max_usd=0.000001))["warnings"]
    assert warning[0].startswith("budget cap reached: MAX_USD=0.000001,")
    assert "$0 spent, $0.000001 left" in warning[1]
    assert "e-" not in warning[1].lower()


def test_the_text_beside_a_call_is_kept_as_interim_text() -> None:
    result = run(endless(tool_call(says="So far so good")), limits=OPEN.change(max_steps=2))
    assert result["summary"]["interim_text"] == "So far so good"
    assert "interim_text" not in run(tool_call(says="x"), answer("y"))["summary"]


# --- before, not after ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cap", "wanted"),
    [("max_steps", "steps"), ("max_requests", "steps"), ("max_seconds", "time"), ("max_usd", "budget")],
)
def test_zero_means_that_nothing_is_asked(cap: str, wanted: str) -> None:
    model = scripted(answer("42"))
    result = run(client=model, limits=OPEN.change(**{cap: 0}))
    assert (reason(result), model.requests, kinds(result)) == (f"stopped:{wanted}", [], [])
    assert result["summary"]["stop"]["limit"] == cap


def test_a_step_that_the_budget_may_not_pay_for_is_not_begun() -> None:
    model = scripted(endless(costing(tool_call(), 500, 1000)))
    result = run(client=model, limits=OPEN.change(max_usd=0.05))
    stop = result["summary"]["stop"]
    assert result["summary"]["usage"]["usd"] == 0.044 == stop["used"]
    assert len(model.requests) == result["summary"]["steps"] == 4
    assert stop["used"] + stop["quote"] > stop["limit_value"] == 0.05


def test_the_answer_asked_for_is_as_long_as_the_budget_pays_for() -> None:
    model = scripted(endless(costing(tool_call(), 100, 64)), max_tokens=5000)
    result = run(client=model, limits=OPEN.change(max_usd=0.02))
    asked = [body["max_tokens"] for body in model.requests]
    assert asked == sorted(asked, reverse=True)
    assert asked[0] < 2000
    for event in result["summary"]["trace"]:
        if event["kind"] == "step":
            assert Decimal(str(event["usd"])) + Decimal(str(event["data"]["quote_usd"])) <= Decimal("0.02")


def test_an_answer_that_the_budget_cut_short_ends_at_the_budget() -> None:
    result = run(costing(answer("word " * 2000), 100, 2000), limits=OPEN.change(max_usd=0.01))
    assert reason(result) == "stopped:budget"
    assert result["summary"]["usage"]["usd"] <= 0.01
    assert result["summary"]["interim_text"].startswith("word word")


def test_three_times_a_tenth_is_three_tenths() -> None:
    dime = Price(Decimal(0), Decimal(100_000))
    model = scripted(endless(costing(tool_call(), 0, 1)), price=dime, max_tokens=1)
    result = run(client=model, limits=OPEN.change(max_usd=0.3))
    assert (result["summary"]["steps"], result["summary"]["usage"]["usd"]) == (3, 0.3)
    assert reason(result) == "stopped:budget"
    result = run(endless(slow(0.1, tool_call())), limits=OPEN.change(max_seconds=0.3))
    assert (result["summary"]["steps"], result["summary"]["usage"]["seconds"]) == (3, 0.3)


def test_sums_are_exact_whatever_precision_the_caller_has_set() -> None:
    price = Price(Decimal("0.123456789"), Decimal("9.87654321"))
    with localcontext() as context:
        context.prec = 3
        client = scripted(costing(answer("x"), 123_457, 7), price=price)
        result = asyncio.run(arun_task("?", client=client, limits=OPEN))
        assert getcontext().prec == 3
    exactly = (Decimal("0.123456789") * 123_457 + Decimal("9.87654321") * 7) / 1_000_000
    assert result["summary"]["usage"]["usd"] == float(exactly)


def test_time_is_cut_exactly() -> None:
    result = run(endless(slow(0.7, tool_call())), limits=OPEN.change(max_seconds=2.0))
    assert (result["summary"]["steps"], result["summary"]["usage"]["seconds"]) == (2, 2.0)
    result = run(endless(slow(1.0, tool_call())), limits=OPEN.change(max_seconds=2.0))  # as in a plan: 2 x 1.0 fit
    assert (result["summary"]["steps"], result["summary"]["usage"]["seconds"]) == (2, 2.0)


def test_the_time_of_day_may_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    jumps = iter(range(10**6))
    monkeypatch.setattr(time, "time", lambda: 1e9 + next(jumps) % 2 * 3600)
    result = run(*[tool_call()] * 3, answer("42"), clock=RealClock(), limits=OPEN.change(max_seconds=20))
    assert reason(result) == "done"
    assert result["summary"]["usage"]["seconds"] < 10
    result = run(endless(tool_call()), clock=RealClock(), pace=0.1, limits=OPEN.change(max_seconds=0.35))
    assert reason(result) == "stopped:time"


# --- the unknown ------------------------------------------------------------------------------------------------------


def test_no_price_is_not_free() -> None:
    result = run(tool_call(), answer("42"), price=None, limits=OPEN.change(max_usd=None))
    assert result["summary"]["usage"]["usd"] is None
    assert {event["usd"] for event in result["summary"]["trace"]} == {None}
    refused = run(answer("42"), price=None)
    assert refused["summary"]["usage"]["usd"] is None
    assert "MODEL_PRICE_INPUT" in refused["warnings"][0]


def test_a_price_of_nothing_is_free() -> None:
    result = run(tool_call(), answer("42"), price=Price(Decimal(0), Decimal(0)), limits=OPEN.change(max_usd=0))
    assert (reason(result), result["summary"]["usage"]["usd"]) == ("done", 0.0)


def test_missing_usage_is_charged_at_the_quote() -> None:
    result = run(uncounted(tool_call()), answer("42"))
    quote = next(event["data"]["quote_usd"] for event in result["summary"]["trace"])
    first, second = (event["data"] for event in result["summary"]["trace"] if event["kind"] == "reply")
    assert (first["usd"], first["estimated"], first["input_tokens"]) == (quote, True, None)
    assert (second["usd"], second["estimated"], second["input_tokens"]) == (0.002, False, 500)
    assert result["summary"]["usage"]["usd"] == pytest.approx(quote + 0.002, abs=1e-15)
    assert result["summary"]["usage"]["estimated"] is True


def test_the_quote_of_the_first_call_is_a_token_for_each_byte() -> None:
    model = scripted(answer("x"))
    quote = run(client=model)["summary"]["trace"][0]["data"]["quote_usd"]
    sent = len(json.dumps(model.requests[0], ensure_ascii=False).encode())
    assert quote == pytest.approx((sent * 2 + 2048 * 10) / 1e6)


# --- limits that move -------------------------------------------------------------------------------------------------


class Dial:
    """Limits that change when a certain event comes for the n-th time."""

    def __init__(self, begin: Limits, kind: str, number: int, **change: Any) -> None:
        self.now, self._kind, self._left, self._change = begin, kind, number, change

    def __call__(self) -> Limits:
        return self.now

    def on_event(self, event: Event) -> None:
        self._left -= event.kind == self._kind
        if self._left == 0:
            self.now = self.now.change(**self._change)


MOVES: dict[str, tuple[list[Any], Dial, str, int]] = {
    "steps down": ([LOOPS], Dial(OPEN, "reply", 2, max_steps=2), "stopped:steps", 2),
    "steps below what is used": ([LOOPS], Dial(OPEN, "reply", 3, max_steps=1), "stopped:steps", 3),
    "steps up": ([LOOPS], Dial(OPEN.change(max_steps=2), "reply", 2, max_steps=5), "stopped:steps", 5),
    "steps off": ([*[tool_call()] * 30, answer("x")], Dial(OPEN, "reply", 2, max_steps=None), "done", 31),
    "seconds down": ([endless(slow(3, tool_call()))], Dial(OPEN, "reply", 2, max_seconds=7), "stopped:time", 2),
    "seconds down while it waits": (
        [endless(slow(3, tool_call()))],
        Dial(OPEN, "request", 3, max_seconds=7),
        "stopped:time",
        2,
    ),
    "seconds up": (
        [endless(slow(3, tool_call()))],
        Dial(OPEN.change(max_seconds=7), "reply", 2, max_seconds=13),
        "stopped:time",
        4,
    ),
    "dollars down": ([LOOPS], Dial(OPEN, "reply", 2, max_usd=0.005), "stopped:budget", 2),
    "requests down": ([LOOPS], Dial(OPEN, "reply", 2, max_requests=3), "stopped:steps", 3),
}


@pytest.mark.parametrize("name", MOVES)
def test_limits_move_while_it_runs(name: str) -> None:
    script, dial, wanted, steps = MOVES[name]
    result = run(*script, limits=dial, on_event=dial.on_event)
    assert reason(result) == wanted
    assert result["summary"]["steps"] == steps
    assert result["summary"]["limits"] == dial.now.as_dict()


def test_more_dollars_are_more_steps() -> None:
    little = run(LOOPS, limits=OPEN.change(max_usd=0.025))
    dial = Dial(OPEN.change(max_usd=0.025), "reply", 1, max_usd=0.03)
    assert run(LOOPS, limits=dial, on_event=dial.on_event)["summary"]["steps"] > little["summary"]["steps"]


def test_calls_and_tool_seconds_move_within_a_step() -> None:
    dial = Dial(OPEN, "tool_result", 2, max_tool_calls=3)
    many = tool_calls([("analyze_csv", {"relative_path": "sales.csv"})] * 5)
    assert codes(run(many, answer("x"), limits=dial, on_event=dial.on_event)) == ["ok"] * 3 + ["TOOL_LIMIT"] * 2
    dial = Dial(OPEN.change(max_tool_seconds=60), "tool_call", 1)
    threading.Timer(0.3, lambda: setattr(dial, "now", OPEN.change(max_tool_seconds=0.1))).start()
    hang = tools(lambda relative_path: time.sleep(6))
    assert codes(run(tool_call(), answer("x"), limits=dial, toolbox=hang, clock=RealClock())) == ["TOOL_TIMEOUT"]


def test_a_source_of_limits_that_breaks_leaves_the_last_in_force() -> None:
    source = iter([OPEN.change(max_steps=2)] * 3)
    result = run(LOOPS, limits=source.__next__)
    assert (reason(result), result["summary"]["steps"]) == ("stopped:steps", 2)
    assert result["summary"]["limits"]["max_steps"] == 2
    assert any("StopIteration" in sentence for sentence in result["warnings"])


# --- the last word ----------------------------------------------------------------------------------------------------


def test_wrap_up_spends_the_last_step_and_no_more() -> None:
    model = scripted(tool_call(), tool_call(), answer("As far as I got: 42"), answer("never asked"))
    result = run(client=model, limits=OPEN.change(max_steps=3), wrap_up=True)
    assert (reason(result), result["status"], len(model.requests)) == ("stopped:steps", "failed", 3)
    assert result["summary"]["interim_text"] == "As far as I got: 42"
    assert "answer" not in result["summary"]
    assert "tools" in model.requests[1] and "tools" not in model.requests[2]
    assert model.requests[2]["messages"][-1]["role"] == "user"
    assert result["summary"]["stop"] == {"limit": "max_steps", "limit_value": 3, "used": 3.0, "quote": None}
    assert result["warnings"][0] == "step cap reached: MAX_STEPS=3, still no final text answer"


def test_wrap_up_keeps_the_other_caps() -> None:
    model = scripted(endless(costing(tool_call(), 500, 1000)))
    result = run(client=model, limits=OPEN.change(max_steps=3, max_usd=0.03), wrap_up=True)
    assert reason(result) == "stopped:budget"
    assert len(model.requests) == 2
    result = run(tool_call(), slow(500, answer("late")), limits=OPEN.change(max_steps=2), wrap_up=True)
    assert reason(result) == "stopped:time"


@pytest.mark.parametrize("last", [CUT, WITHHELD, REFUSED, answer(""), tool_call(says="more")])
def test_wrap_up_ends_at_the_step_cap_whatever_the_last_word_is(last: Scripted) -> None:
    result = run(tool_call(says="earlier"), last, limits=OPEN.change(max_steps=2), wrap_up=True)
    assert (reason(result), result["summary"]["stop"]["limit"]) == ("stopped:steps", "max_steps")
    assert result["summary"]["interim_text"] in {"earlier", "The total is", "So far:", "more"}


def test_wrap_up_runs_no_tool_and_does_not_matter_where_the_answer_comes_early() -> None:
    result = run(tool_call(), tool_call(), limits=OPEN.change(max_steps=2), wrap_up=True)
    assert (reason(result), codes(result)) == ("stopped:steps", ["ok"])
    assert reason(run(tool_call(), answer("42"), wrap_up=True)) == "done"
    assert reason(run(answer("42"), limits=OPEN.change(max_steps=1), wrap_up=True)) == "done"


# --- tools ------------------------------------------------------------------------------------------------------------


def raises(problem: BaseException) -> Callable[..., Any]:
    def tool(relative_path: str) -> Any:
        raise problem

    return tool


def forks(relative_path: str) -> str:
    """Both the parent and the child return; only the parent's answer may count."""
    child = os.fork()
    return f"parent of {child}" if child else "child"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


LOOPED: list[Any] = []
LOOPED.append(LOOPED)


@pytest.mark.parametrize(
    "tool",
    [
        raises(ZeroDivisionError("at /home/somebody/secret/file.py")),
        raises(SystemExit(3)),
        raises(KeyboardInterrupt()),
        raises(asyncio.CancelledError()),
        raises(StopIteration()),
        raises(Unspeakable()),
        raises(RecursionError()),
        raises(MemoryError()),
        lambda relative_path: float("nan"),
        lambda relative_path: "\ud83d",
        lambda relative_path: LOOPED,
        lambda relative_path: object(),
        lambda relative_path: (n for n in range(3)),
        lambda: "it takes no argument",
        lambda relative_path: sys.exit("bye"),
    ],
)
def test_what_a_tool_does_wrong_is_an_error_for_the_model(tool: Callable[..., Any]) -> None:
    model = scripted(tool_call(), answer("It does not work."))
    result = run(client=model, toolbox=tools(tool))
    assert (reason(result), codes(result)) == ("done", ["TOOL_FAILED"])
    told = model.requests[1]["messages"][-1]["content"]
    assert "Traceback" not in told
    assert "somebody" not in told


@pytest.mark.parametrize("value", [None, "", 0, [], {}, "键盘", {"status": "ok"}, [1, [2]], 10**400, "x" * 10**6])
def test_whatever_json_can_carry_comes_back(value: Any) -> None:
    result = run(tool_call(), answer("x"), toolbox=tools(lambda relative_path: value))
    assert result["summary"]["tool_results"][0]["result"]["data"] == {"value": value}


DEEP: dict[str, Any] = {}
for _ in range(5000):
    DEEP = {"items": DEEP}


@pytest.mark.parametrize(
    "toolbox",
    [
        None,
        list(TOOLBOX.values()),
        {"analyze_csv": print},
        {"another_name": TOOLBOX["analyze_csv"]},
        {"print": Tool(print, "half \ud83d a character", {})},
        {"print": Tool(print, "", {"properties": {"x": DEEP}})},
        {"print": Tool(print, "", {"default": float("nan")})},
    ],
)
def test_a_toolbox_that_cannot_be_ends_the_run_before_it_begins(toolbox: Any) -> None:
    model = scripted(answer("x"))
    result = run(client=model, toolbox=toolbox)
    assert (reason(result), model.requests) == ("failed:config", [])
    assert "toolbox" in result["warnings"][0]


@pytest.mark.parametrize("retries", [None, "2", 2.5])
def test_retries_that_cannot_be_end_the_run_before_it_asks(retries: Any) -> None:
    model = scripted(http_error(500), answer("x"))
    result = run(client=model, retries=retries)
    assert (reason(result), model.requests) == ("failed:config", [])
    assert "retries" in result["warnings"][0]


def test_the_sums_of_a_tool_round_as_ever() -> None:
    result = run(tool_call(), answer("x"), toolbox=tools(lambda relative_path: str(Decimal(2) / Decimal(3))))
    assert result["summary"]["tool_results"][0]["result"]["data"] == {"value": f"0.{'6' * 27}7"}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_tool_that_prints_and_forks(capfd: pytest.CaptureFixture[str]) -> None:
    result = run(tool_call(), answer("x"), toolbox=tools(lambda relative_path: print("hello")))
    assert codes(result) == ["ok"]
    if sys.platform == "linux":
        result = run(tool_call(), answer("x"), toolbox=tools(forks))
        said, child = result["summary"]["tool_results"][0]["result"]["data"]["value"].rsplit(" ", 1)
        assert said == "parent of"
        end = time.monotonic() + 5
        while not (ended := os.waitpid(int(child), os.WNOHANG)[0]) and time.monotonic() < end:
            time.sleep(0.02)
        assert ended, "the forked process lives on"
    assert capfd.readouterr().out == "hello\n"


def test_no_thread_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*args: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("agentlib.waiting._idle", [])
    monkeypatch.setattr("agentlib.waiting.start_new_thread", refuses)
    result = run(tool_call(), answer("It does not work."))
    assert (reason(result), codes(result)) == ("done", ["TOOL_FAILED"])


def test_many_hung_tools_are_left_behind() -> None:
    gate = threading.Event()
    many = tool_calls([("analyze_csv", {"relative_path": str(n)}) for n in range(30)])
    limits = OPEN.change(max_tool_calls=None, max_tool_seconds=0.01)
    result = run(
        many, answer("x"), limits=limits, clock=RealClock(), toolbox=tools(lambda relative_path: gate.wait(20))
    )
    gate.set()
    assert (reason(result), codes(result)) == ("done", ["TOOL_TIMEOUT"] * 30)


def test_calls_beyond_the_cap_are_answered_not_run() -> None:
    many = tool_calls([("analyze_csv", {"relative_path": "sales.csv"})] * 5)
    for most in (0, 2, 5):
        model = scripted(many, answer("x"))
        result = run(client=model, limits=OPEN.change(max_tool_calls=most))
        assert codes(result) == ["ok"] * most + ["TOOL_LIMIT"] * (5 - most)
        assert result["summary"]["tool_calls_used"] == most
        assert len([m for m in model.requests[1]["messages"] if m["role"] == "tool"]) == 5


def test_the_line_of_a_step_is_a_line() -> None:
    result = run(tool_call("no\nsuch" * 100, "x\ny" * 1000), limits=OPEN.change(max_steps=1))
    (line,) = result["summary"]["completed_steps"]
    assert "\n" not in line
    assert len(line) < 250


# --- tools that hang --------------------------------------------------------------------------------------------------


def isolated(function: Callable[..., Any]) -> dict[str, Tool]:
    return tools(function, isolated=True)


def test_an_isolated_tool_is_killed_with_all_that_it_has_started(tmp_path: Path) -> None:
    sign = tmp_path / "still here"
    begun = sign.with_name(sign.name + ".begun")
    limits = [OPEN.change(max_tool_seconds=60)]

    def lower() -> None:
        while not begun.exists():
            time.sleep(0.02)
        limits[0] = OPEN.change(max_tool_seconds=0)

    threading.Thread(target=lower, daemon=True).start()
    script = [tool_call(arguments={"relative_path": str(sign)}), answer("x")]
    result = run(*script, limits=lambda: limits[0], clock=RealClock(), toolbox=isolated(hangs_with_a_child))
    assert (reason(result), codes(result)) == ("done", ["TOOL_TIMEOUT"])
    time.sleep(2)
    assert not sign.exists()


def test_isolated_tools_that_spin_vanish_or_cannot_be_reached() -> None:
    timed = {"limits": OPEN.change(max_tool_seconds=0.5), "clock": RealClock()}
    assert codes(run(tool_call(), answer("x"), toolbox=isolated(spins), **timed)) == ["TOOL_TIMEOUT"]
    patient = {"limits": OPEN.change(max_tool_seconds=60), "clock": RealClock()}
    assert codes(run(tool_call(), answer("x"), toolbox=isolated(vanishes), **patient)) == ["TOOL_FAILED"]
    assert codes(run(tool_call(), answer("x"), toolbox=isolated(lambda relative_path: 1))) == ["TOOL_FAILED"]
    wrong = tool_call(arguments="{broken")
    assert codes(run(wrong, answer("x"), toolbox=isolated(spins))) == ["INVALID_ARGUMENTS"]


def test_no_process_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*args: Any, **kwargs: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuses)
    assert codes(run(tool_call(), answer("x"), toolbox=isolated(spins))) == ["TOOL_FAILED"]


HUNG = """
import asyncio, time
from agentlib import Limits, Tool, arun_task, run_task
from agentlib.offline import endless, scripted, tool_call
from agentlib.waiting import RealClock
schema = {{"properties": {{"relative_path": {{}}}}}}
box = {{"analyze_csv": Tool(lambda relative_path: time.sleep(20), "", schema, "analyze_csv")}}
options = dict(client=scripted(endless(tool_call()), clock=RealClock()), limits=Limits(max_seconds=0.5), toolbox=box)
began = time.monotonic()
result = {door}
print(result["summary"]["stop_reason"], time.monotonic() - began, flush=True)
"""


@pytest.mark.parametrize("door", ["run_task('?', **options)", "asyncio.run(arun_task('?', **options))"])
def test_a_hung_tool_holds_up_neither_the_run_nor_the_end_of_the_process(door: str) -> None:
    code = HUNG.format(door=door)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT, encoding="utf-8")
    assert process.stdout
    ending, took = process.stdout.readline().split()
    began = time.monotonic()
    assert process.wait(timeout=15) == 0
    assert ending == "stopped:time"
    assert float(took) < 2
    assert time.monotonic() - began < 5


# --- doors ------------------------------------------------------------------------------------------------------------


def test_inside_a_running_loop() -> None:
    async def cell() -> list[str]:
        first = run(tool_call(), answer("42"))
        second = await arun_task("?", client=scripted(answer("42")), limits=OPEN)
        return [reason(first), reason(second)]

    assert asyncio.run(cell()) == ["done", "done"]


def test_from_threads_at_the_same_time_with_one_client() -> None:
    results: list[Any] = []
    with Service(says(text(), delay=0.1), endless=True) as service:
        model = service.model()

        def work() -> None:
            results.append(run_task("What is the total?", client=model, limits=OPEN))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [reason(result) for result in results] == ["done"] * 8
    assert len({result["task_id"] for result in results}) == 8


def test_twice_in_a_row_with_one_client() -> None:
    with Service(says(text()), endless=True) as service:
        model = service.model()
        for client in (model, model):
            result = run_task("?", client=client, limits=OPEN)
            assert (reason(result), result["summary"]["usage"]["requests"]) == ("done", 1)
            assert result["summary"]["usage"]["usd"] == 0.0003


def test_one_client_in_several_event_loops() -> None:
    """A connection belongs to its event loop. A run in another one says so, tries again, and counts both."""
    with Service(says(text()), endless=True) as service:
        model, asked = service.model(), 0
        for door in (run_task, lambda *a, **k: asyncio.run(arun_task(*a, **k))) * 2:
            result = door("?", client=model, limits=OPEN)
            usage = result["summary"]["usage"]
            asked += usage["requests"]
            assert reason(result) == "done"
            assert usage["estimated"] == (usage["requests"] > 1)  # what was cut may be billed
            for event in result["summary"]["trace"]:
                assert event["kind"] != "retry" or "event loop" in event["data"]["message"]
        assert asked == len(service.requests)


def test_a_client_that_is_closed() -> None:
    with Service(says(text())) as service:
        model = service.model()
        asyncio.run(model.close())
        result = run_task("?", client=model, limits=OPEN)
    assert reason(result) == "failed:model"
    assert "closed" in result["warnings"][0]
    assert (result["summary"]["usage"]["requests"], result["summary"]["usage"]["usd"]) == (1, 0.0)


def test_a_tool_may_run_an_agent() -> None:
    def inner(relative_path: str) -> str:
        return str(reason(run(tool_call(), answer("inner"))))

    result = run(tool_call(), answer("outer"), toolbox=tools(inner))
    assert result["summary"]["tool_results"][0]["result"]["data"] == {"value": "done"}


def test_a_listener_may_not() -> None:
    result = run(answer("42"), on_event=lambda event: run(answer("inner")))
    assert (result["status"], len(result["warnings"])) == ("completed", 1)
    assert "arun_task" in result["warnings"][0]


def test_the_current_folder_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home = run(tool_call(), from_results)["summary"]
    monkeypatch.chdir(tmp_path)
    assert run(tool_call(), from_results)["summary"]["answer"] == at_home["answer"]
    assert "9692" in at_home["answer"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process with threads had better not fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_after_a_fork() -> None:
    run(answer("x"))
    child = os.fork()
    if not child:
        with suppress(BaseException):
            os._exit(0 if reason(run(tool_call(), answer("x"))) == "done" else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("task_id", ["", "my task", "\ud83d", 5, float("nan"), object(), ["x"]])
def test_any_name_for_a_task(task_id: Any) -> None:
    result = run(answer("42"), task_id=task_id)
    assert isinstance(result["task_id"], str)
    assert result["task_id"].startswith("task-") is False
    assert run(answer("42"))["task_id"] != run(answer("42"))["task_id"]


@pytest.mark.parametrize("question", ["\ud83d half", "\x00", "键" * 10_000, "{braces} %s", "<script>"])
def test_any_question(question: str) -> None:
    assert reason(run(answer(question), question=question)) == "done"


def test_scenarios_end_as_their_names_say() -> None:
    endings = {
        name: reason(run_task("?", client=scenario(name))) for name in ("answers", "tool-error", "runaway", "slow")
    }
    assert endings == {"answers": "done", "tool-error": "done", "runaway": "stopped:steps", "slow": "stopped:time"}
    assert reason(run_task("?", client=scenario("costly"), limits=Limits(max_steps=20))) == "stopped:budget"
    with pytest.raises(ValueError, match="costly"):
        scenario("other")


def test_offline_nothing_can_reach_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a connection")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr("socket.socket." + name, refuses)
    monkeypatch.setattr("socket.getaddrinfo", refuses)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert reason(run_task("?", client=scenario("answers"))) == "done"


# --- interrupts -------------------------------------------------------------------------------------------------------

PRESSED = """
import asyncio, random, signal, sys, time
sys.path.insert(0, {tests!r})
from test_loop import LOOPS, NO_CAPS, RealClock, run_task, scripted
from agentlib import waiting

def press(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, press)
dice, seen = random.Random(1), dict.fromkeys(("stopped:user", "raised"), 0)
run_task("?", client=scripted(*[LOOPS] * 2))
for _ in range(40):
    try:
        signal.setitimer(signal.ITIMER_REAL, dice.choice([1e-5, 1e-4, 1e-3, 1e-2]) * (0.5 + dice.random()))
        result = run_task("?", client=scripted(LOOPS, clock=RealClock(), pace=0.001), limits=NO_CAPS)
        seen[result["summary"]["stop_reason"]] += 1
    except KeyboardInterrupt:
        seen["raised"] += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    end = time.monotonic() + 5
    while asyncio.all_tasks(waiting._loop) and time.monotonic() < end:
        time.sleep(0.01)
    assert not asyncio.all_tasks(waiting._loop), "a run goes on that nobody can stop"
print(seen)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs an alarm clock")
def test_an_interrupt_at_any_moment_leaves_no_run_behind() -> None:
    code = PRESSED.format(tests=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, cwd=ROOT, encoding="utf-8", timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "'stopped:user': 0" not in done.stdout


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="needs a signal of its own")
def test_whatever_a_signal_handler_raises_leaves_no_run_behind() -> None:
    """A caller's own time limit, for instance: the run must not go on, and pay, when nobody waits for it any more."""

    class Enough(Exception):
        pass

    def ring(*_: object) -> None:
        raise Enough

    def watch(event: Event) -> None:
        if (event.kind, event.step) == ("request", 3):
            os.kill(os.getpid(), signal.SIGUSR1)

    model, before = scripted(LOOPS, clock=RealClock(), pace=0.05), signal.signal(signal.SIGUSR1, ring)
    try:
        with pytest.raises(Enough):
            run(client=model, limits=NO_CAPS.change(max_seconds=5), on_event=watch)
    finally:
        signal.signal(signal.SIGUSR1, before)
    asked = len(model.requests)
    time.sleep(0.5)
    assert len(model.requests) <= asked + 1


def test_the_kernels_interrupt() -> None:
    """In a real kernel: the partial result comes back, and a second run works."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3", cwd=str(ROOT))
    begin = """
from agentlib import run_task, Limits
from agentlib.offline import answer, scripted, slow, tool_call
from agentlib.waiting import RealClock
model = scripted(tool_call(), slow(60, answer("late")), clock=RealClock())
print("ready", flush=True)
say = lambda event: print(event.kind, event.step, flush=True)
result = run_task("?", client=model, limits=Limits(max_seconds=90), on_event=say)
"""
    try:
        client.execute(begin)
        output = ""
        while "request 2" not in output:
            message = client.get_iopub_msg(timeout=60)
            output += message["content"].get("text", "") if message["msg_type"] == "stream" else ""
        time.sleep(0.2)
        began = time.monotonic()
        manager.interrupt_kernel()
        reply = client.get_shell_msg(timeout=30)
        assert time.monotonic() - began < 3
        assert reply["content"]["status"] == "ok", reply["content"]
        look = "[r['summary']['stop_reason'], len(r['summary']['tool_results']), r['status']]"
        again = "run_task('?', client=scripted(answer('x')))"
        answers = client.execute_interactive(
            "",
            user_expressions={"first": f"[{look} for r in [result]]", "second": f"[{look} for r in [{again}]]"},
            timeout=60,
        )["content"]["user_expressions"]
        assert answers["first"]["data"]["text/plain"] == "[['stopped:user', 1, 'failed']]"
        assert answers["second"]["data"]["text/plain"] == "[['done', 0, 'completed']]"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


# --- listeners --------------------------------------------------------------------------------------------------------


def test_events_tell_everything_in_order() -> None:
    seen: list[Event] = []
    result = run(http_error(500), tool_call(says="I look"), slow(2, answer("42")), on_event=seen.append)
    assert [event.kind for event in seen] == [
        *("start", "step", "request", "retry", "request", "reply", "tool_call", "tool_result"),
        *("step", "request", "reply", "end"),
    ]
    assert seen[-1].data["result"] == result
    assert [event.step for event in seen] == sorted(event.step for event in seen)
    assert [event.seconds for event in seen] == sorted(event.seconds for event in seen)
    assert [event.usd for event in seen] == sorted(event.usd or 0 for event in seen)
    inner = [
        {name: getattr(event, name) for name in ("kind", "step", "seconds", "usd", "data")} for event in seen[1:-1]
    ]
    assert result["summary"]["trace"] == inner
    assert seen[0].data.keys() == {"task_id", "question", "model", "limits", "offline"}
    for event in seen:
        json.dumps(event.data, ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize("problem", [ValueError("at /home/somebody/x"), Unspeakable(), RecursionError()])
def test_a_listener_that_fails_is_a_warning(problem: Exception) -> None:
    class Log:
        def on_event(self, event: Event) -> None:
            raise problem

    for options in ({"on_event": Log().on_event}, {"runlog": Log()}):
        result = run(tool_call(), answer("42"), **options)
        assert result["status"] == "completed"
        assert len(result["warnings"]) == 1
        assert type(problem).__name__ in result["warnings"][0]
        assert "somebody" not in result["warnings"][0]


@pytest.mark.parametrize("leaving", [SystemExit, KeyboardInterrupt])
def test_an_exit_in_a_listener_reaches_the_caller_and_harms_no_other_run(leaving: type[BaseException]) -> None:
    def leaves(event: Event) -> None:
        raise leaving

    others: list[Any] = []
    neighbour = threading.Thread(target=lambda: others.append(run(slow(0.3, answer("x")), clock=RealClock())))
    neighbour.start()
    with pytest.raises(leaving):
        run(answer("42"), on_event=leaves)
    assert run(answer("42"))["status"] == "completed"
    neighbour.join(10)
    assert reason(others[0]) == "done"


def test_events_as_an_iterator() -> None:
    heard: list[str] = []

    async def go() -> list[Event]:
        stream = events(
            "?", client=scripted(tool_call(), answer("42")), on_event=lambda event: heard.append(event.kind)
        )
        return [event async for event in stream]

    seen = asyncio.run(go())
    assert [event.kind for event in seen] == heard
    assert seen[-1].data["result"]["summary"]["answer"] == "42"


def test_events_left_early_cancel_the_run() -> None:
    async def go() -> int:
        model = scripted(endless(tool_call()), clock=RealClock(), pace=0.01)
        stream = events("?", client=model, limits=NO_CAPS)
        async for event in stream:
            if event.kind == "tool_result":
                break
        await stream.aclose()  # type: ignore[attr-defined]
        await asyncio.sleep(0.05)
        asked = len(model.requests)
        await asyncio.sleep(0.2)
        assert len(model.requests) == asked
        return len(asyncio.all_tasks())

    assert asyncio.run(go()) == 1


def test_a_run_that_is_cancelled_lets_go_of_its_request(recwarn: pytest.WarningsRecorder) -> None:
    async def go(service: Service) -> int:
        task = asyncio.create_task(arun_task("?", client=service.model(), limits=OPEN))
        while len(service.requests) < 2:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.05)
        return len(asyncio.all_tasks())

    with Service(says(calls()), hangs) as service:
        assert asyncio.run(go(service)) == 1


def test_a_tool_that_outlives_a_cancelled_run_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    gate, inside = threading.Event(), threading.Event()

    def waits(relative_path: str) -> None:
        inside.set()
        gate.wait(20)
        raise ValueError("too late")

    async def go() -> None:
        task = asyncio.create_task(arun_task("?", client=scripted(tool_call()), limits=OPEN, toolbox=tools(waits)))
        while not inside.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(go())
    gate.set()
    time.sleep(0.2)
    assert capfd.readouterr().err == ""


# --- the clock of the lessons -----------------------------------------------------------------------------------------


def test_a_clock_that_is_turned_by_hand() -> None:
    clock = TurnableClock()
    turn = {"reply": 4.0, "tool_result": 1.0}
    result = run(
        LOOPS,
        clock=clock,
        limits=OPEN.change(max_seconds=12),
        on_event=lambda event: clock.turn(turn.get(event.kind, 0)),
    )
    assert (reason(result), result["summary"]["steps"]) == ("stopped:time", 3)
    assert clock.now() == 15


def test_long_waits_take_no_time() -> None:
    began = time.monotonic()
    result = run(
        http_error(503, headers={"retry-after": "50"}), slow(300, answer("42")), limits=OPEN.change(max_seconds=400)
    )
    assert time.monotonic() - began < 5
    assert (reason(result), result["summary"]["usage"]["seconds"]) == ("done", 350)
    assert PRICE.cost(500, 100) == Decimal("0.002")


@pytest.fixture(autouse=True)
def no_thread_of_ours_complains(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    assert "Traceback" not in capfd.readouterr().err
