"""For any plan, limits, model and toolbox: no cap is exceeded, nothing is raised, and every result is strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hypothesis import example, given
from hypothesis import settings as budget
from hypothesis import strategies as st

from agentlib import Limits, Tool, run, run_task
from agentlib.limits import EXACT, Quote, Usage, decide, exact
from agentlib.offline import (
    Scripted,
    answer,
    costing,
    endless,
    http_error,
    scripted,
    slow,
    tool_call,
    tool_calls,
    uncounted,
)
from agentlib.plan import PlanStep
from agentlib.settings import Price

# --- numbers ----------------------------------------------------------------------------------------------------------

tenths = st.integers(0, 30).map(lambda n: n / 10)
amounts = tenths | st.floats(0, 1e9, allow_subnormal=False) | st.sampled_from([0.1, 0.2, 0.3, 1e-12, 1 / 3])
counts = st.integers(0, 12)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


limits_of = st.builds(
    Limits,
    max_steps=maybe(counts),
    max_seconds=maybe(tenths | st.floats(0, 500)),
    max_usd=maybe(amounts),
    max_tool_calls=maybe(st.integers(0, 4)),
    max_tool_seconds=maybe(tenths),
    max_requests=maybe(counts),
)
plans = st.lists(st.builds(lambda s, u: PlanStep(name="step", seconds=s, usd=u), amounts, amounts), max_size=15)


def written(value: float) -> Fraction:
    """The number that a person reads, not the nearest binary one."""
    return Fraction(repr(value))


# --- the plan loop ----------------------------------------------------------------------------------------------------


def allows(limits: Limits, steps: list[PlanStep]) -> dict[str, bool]:
    """Whether each cap allows these steps together: said again, without ``decide``, in exact fractions."""
    seconds = sum((written(step["seconds"]) for step in steps), Fraction())
    usd = sum((written(step["usd"]) for step in steps), Fraction())
    counted = [cap for cap in (limits.max_steps, limits.max_requests) if cap is not None]
    return {
        "stopped:steps": len(steps) <= min(counted, default=len(steps)),
        "stopped:time": limits.max_seconds is None or seconds <= written(limits.max_seconds),
        "stopped:budget": limits.max_usd is None or usd <= written(limits.max_usd),
    }


@given(plans, limits_of)
@example([PlanStep(name="dime", seconds=0.1, usd=0.1)] * 4, Limits(None, 0.3, 0.3))
def test_run_exceeds_no_cap_and_does_all_that_is_allowed(plan: list[PlanStep], limits: Limits) -> None:
    reason, steps, log = run(plan, limits)
    assert len(log) == steps
    assert not log or all(allows(limits, plan[:steps]).values())
    if reason == "done":
        assert steps == len(plan)
    else:
        assert allows(limits, plan[: steps + 1])[reason] is False
    assert json.loads(json.dumps(log, allow_nan=False)) == log


@given(plans, limits_of)
def test_wider_caps_never_do_less(plan: list[PlanStep], limits: Limits) -> None:
    steps = run(plan, limits)[1]
    for name in ("max_steps", "max_seconds", "max_usd", "max_requests"):
        value = getattr(limits, name)
        for wider in (None,) if value is None else (None, value + 1):
            assert run(plan, limits.change(**{name: wider}))[1] >= steps


@given(st.lists(amounts, max_size=40))
def test_sums_are_exact(values: list[float]) -> None:
    total = Decimal(0)
    for value in values:
        total = EXACT.add(total, exact(value))
    true = sum(map(written, values), Fraction())
    assert Fraction(total) >= true  # where 60 digits are not enough it errs upwards
    assert Fraction(total) - true <= true / 10**50


@given(limits_of, counts, counts, amounts, amounts, maybe(amounts), maybe(amounts))
def test_what_decide_allows_stays_within_the_caps(
    limits: Limits, steps: int, requests: int, spent: float, usd: float, seconds: float | None, ask: float | None
) -> None:
    used = Usage(steps=steps, requests=requests, seconds=exact(spent), usd=exact(usd))
    quote = Quote(*(None if value is None else exact(value) for value in (seconds, ask)))
    stop = decide(limits, used, quote)
    for name, now, more in (
        ("max_steps", Fraction(steps), Fraction(1)),
        ("max_requests", Fraction(requests), Fraction(1)),
        ("max_seconds", written(spent), None if seconds is None else written(seconds)),
        ("max_usd", written(usd), None if ask is None else written(ask)),
    ):
        cap = getattr(limits, name)
        fits = cap is None or (now < Fraction(str(cap)) if more is None else now + more <= Fraction(str(cap)))
        if not fits:
            assert stop is not None and stop.limit_name == name
            json.dumps(stop.as_dict(), allow_nan=False)
            return
    assert stop is None


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.decimals() | st.just([1])


@given(st.sampled_from([f.name for f in Limits.__dataclass_fields__.values()]), anything)
@example("max_usd", 10**400)
@example("max_steps", 10**5000)
@example("max_seconds", Decimal("sNaN"))
def test_limits_take_a_number_or_say_which_is_wrong(name: str, value: Any) -> None:
    try:
        limits = Limits(**{name: value})
    except ValueError as problem:
        assert name in str(problem)
    else:
        kept = getattr(limits, name)
        assert kept is None or (math.isfinite(kept) and kept >= 0 and not isinstance(kept, bool))
        json.dumps(limits.as_dict(), allow_nan=False)


# --- the two loops agree ----------------------------------------------------------------------------------------------

some_seconds = st.integers(1, 40).map(lambda n: n / 10)


@given(
    st.lists(some_seconds, max_size=8),
    st.integers(1, 64),
    st.builds(Limits, maybe(counts), maybe(some_seconds), maybe(st.integers(0, 400).map(lambda n: n / 100))),
)
@example([5.0] * 6, 50, Limits())
@example([5.0] * 6, 50, Limits(10, 12.0, 1.0))
@example([5.0] * 6, 50, Limits(10, 100.0, 0.012))
@example([5.0] * 6, 50, Limits(10, 10.0, 1.0))
def test_the_loop_with_a_model_decides_as_the_loop_without(seconds: list[float], tokens: int, limits: Limits) -> None:
    """A model whose every step takes and costs what the plan says: the same reason after the same number of steps."""
    price = Price(Decimal(0), Decimal(100))
    plan: list[PlanStep] = [{"name": "step", "seconds": s, "usd": tokens / 10_000} for s in seconds]
    script = [costing(slow(s, tool_call()), 0, tokens) for s in seconds]
    if script:  # the last one answers, so that both loops have an end
        script[-1] = costing(slow(seconds[-1], answer("42")), 0, tokens)
    model = scripted(*script, price=price, max_tokens=tokens)
    reason, steps, log = run(plan, limits)
    result = run_task("?", client=model, limits=limits, toolbox=TOOLS)
    ways = {(reason, steps)}
    if reason == "stopped:time":  # where another cap forbids the step too, it may come first: its length is not known
        ways.add(run(plan, limits.change(max_seconds=None))[:2])
    if plan:
        ended = (result["summary"]["stop_reason"], result["summary"]["steps"])
        assert ended in ways and ended[1] == steps
        assert reason == "stopped:time" or result["summary"]["usage"]["usd"] == (log[-1]["usd"] if log else 0)


# --- the loop with a model --------------------------------------------------------------------------------------------


def misbehaves(relative_path: Any) -> Any:
    """A tool that does as its argument says."""
    match relative_path:
        case "raise":
            raise ValueError(relative_path)
        case "exit":
            raise SystemExit
        case "nan":
            return float("nan")
        case "bytes":
            return b"x"
    return {"echo": relative_path}


TOOLS = {"analyze_csv": Tool(misbehaves, "Looks.", {"properties": {"relative_path": {}}}, "analyze_csv")}
TOOLBOXES = [{}, TOOLS, {**TOOLS, "other": Tool(lambda: None, "", {}, "other")}]

jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["analyze_csv", "other", "analyze_csv ", "functions.analyze_csv", ""]) | st.text(max_size=5)
arguments = (
    st.sampled_from(["raise", "exit", "nan", "bytes", "sales.csv"]).map(lambda word: {"relative_path": word})
    | st.text(max_size=10)
    | jsons.map(json.dumps)
)
wanted = st.lists(st.tuples(names, arguments), min_size=1, max_size=5)
said = st.text(max_size=12)
usual = st.builds(answer, said) | st.builds(lambda calls, words: tool_calls(calls, says=words), wanted, maybe(said))

# What a service may send that looks like a reply, but is one only in part.
KEYS = ["role", "content", "tool_calls", "refusal", "reasoning_content", "function_call", "id", "function", "name"]
parts = st.dictionaries(st.sampled_from(KEYS), jsons, max_size=4)
odd_messages = st.builds(
    lambda message, calls: {**message, **({"tool_calls": calls} if calls is not None else {})},
    parts,
    maybe(st.lists(parts | jsons, max_size=3)),
)
odd_bodies = jsons | st.builds(
    lambda choices, usage, error: {"choices": choices, "usage": usage, **({"error": error} if error else {})},
    st.lists(st.builds(lambda m, f: {"message": m, "finish_reason": f}, odd_messages | jsons, jsons), max_size=2)
    | jsons,
    st.dictionaries(st.sampled_from(["prompt_tokens", "completion_tokens", "prompt_tokens_details"]), jsons) | jsons,
    maybe(jsons),
)
odd = st.builds(lambda body: Scripted(body=json.dumps(body)), odd_bodies)
STATUSES = [204, 302, 400, 401, 408, 418, 429, 500, 529]
errors = st.builds(
    lambda status, words, after: http_error(status, words, {"retry-after": after} if after else {}),
    st.sampled_from(STATUSES),
    said,
    st.sampled_from(["", "0", "0.4", "3", "100", "277403", "soon", "Thu, 01 Jan 1970 00:00:00 GMT"]),
)
raw = st.builds(lambda body: Scripted(body=body), st.binary(max_size=20) | st.text(max_size=20))


def honest(reply: Scripted) -> st.SearchStrategy[Scripted]:
    """The same reply with counts, length and pace of any kind; it never bills more than it was asked for."""
    return st.builds(
        lambda asked, made, pace, counts: slow(pace, costing(reply, asked, made) if counts else uncounted(reply)),
        st.integers(0, 300),
        st.integers(0, 3000),
        tenths,
        st.booleans(),
    )


replies = usual.flatmap(honest) | errors | odd | raw
scripts = st.lists(replies, max_size=6)
prices = maybe(st.builds(Price, *[st.decimals(0, 1000, places=3)] * 2))
ENDINGS = {"done"} | {f"stopped:{word}" for word in ("steps", "time", "budget", "user")}
ENDINGS |= {f"failed:{w}" for w in ("config", "model", "reply", "filtered", "refused", "truncated", "no_answer")}


def within(limits: Limits, result: Any) -> None:
    """No cap is exceeded: exactly, for this clock stands still where nothing takes time."""
    summary, usage = result["summary"], result["summary"]["usage"]
    assert limits.max_steps is None or summary["steps"] <= limits.max_steps
    assert limits.max_requests is None or usage["requests"] <= limits.max_requests
    assert (
        limits.max_seconds is None or usage["seconds"] <= limits.max_seconds + 0.0005
    )  # it is rounded to a thousandth
    assert limits.max_usd is None or usage["usd"] is None or usage["usd"] <= limits.max_usd
    for step in range(1, summary["steps"] + 1):
        ran = [e for e in summary["trace"] if e["kind"] == "tool_result" and e["step"] == step and was_run(e)]
        assert limits.max_tool_calls is None or len(ran) <= limits.max_tool_calls


def was_run(event: dict[str, Any]) -> bool:
    error = event["data"]["result"]["error"]
    return error is None or error["code"] not in {"TOOL_LIMIT", "TOOL_TIMEOUT"}


def shaped(result: Any) -> None:
    """The contract of a TaskResult."""
    assert json.loads(json.dumps(result, ensure_ascii=False, allow_nan=False).encode()) == result
    assert set(result) == {"task_id", "status", "report_path", "summary", "warnings"}
    summary = result["summary"]
    assert summary["stop_reason"] in ENDINGS
    assert result["status"] == ("completed" if summary["stop_reason"] == "done" else "failed")
    assert result["report_path"] is None
    assert ("answer" in summary) == (result["status"] == "completed")
    assert result["status"] == "completed" or result["warnings"]
    assert all(isinstance(sentence, str) and sentence for sentence in result["warnings"])
    assert set(summary["usage"]) == {"seconds", "usd", "input_tokens", "output_tokens", "requests", "estimated"}
    assert set(summary["limits"]) == set(Limits().as_dict())
    for done in summary["tool_results"]:
        assert set(done) == {"tool", "result"}
        assert set(done["result"]) == {"status", "data", "source", "error"}
        assert (done["result"]["status"] == "ok") == (done["result"]["error"] is None)
    assert len([e for e in summary["trace"] if e["kind"] == "request"]) == summary["usage"]["requests"]
    assert len([e for e in summary["trace"] if e["kind"] == "reply"]) == summary["steps"]
    assert len(summary["tool_results"]) == len([e for e in summary["trace"] if e["kind"] == "tool_call"])


@budget(max_examples=200)
@given(
    scripts,
    st.booleans(),
    limits_of,
    prices,
    st.sampled_from(TOOLBOXES),
    st.booleans(),
    st.integers(0, 3),
    st.integers(1, 3000),
)
def test_any_model_any_limits_any_toolbox(
    script: list[Scripted],
    loops: bool,
    limits: Limits,
    price: Price | None,
    toolbox: dict[str, Tool],
    wrap_up: bool,
    retries: int,
    max_tokens: int,
) -> None:
    if script and loops:
        script = [*script[:-1], endless(script[-1])]
        limits = limits.change(max_steps=4 if limits.max_steps is None else limits.max_steps)
    model = scripted(*script, price=price, max_tokens=max_tokens)
    result = run_task("?", client=model, limits=limits, toolbox=toolbox, wrap_up=wrap_up, retries=retries)
    shaped(result)
    if not any(reply.body for reply in script):  # the odd ones count what they like
        within(limits, result)
    assert len(model.requests) <= result["summary"]["usage"]["requests"]  # one may be cut before it leaves


@budget(max_examples=60)
@given(scripts, st.lists(limits_of, min_size=1, max_size=12))
def test_limits_that_move_at_every_look(script: list[Scripted], moves: list[Limits]) -> None:
    source: Callable[[], Limits] = iter(moves * 500).__next__
    result = run_task("?", client=scripted(*script), limits=source, toolbox=TOOLS)
    shaped(result)
    most = [limits.max_steps for limits in moves]
    assert None in most or result["summary"]["steps"] <= max(most)


@budget(max_examples=60)
@given(st.text() | jsons, jsons, scripts)
def test_any_question_and_any_name(question: Any, task_id: Any, script: list[Scripted]) -> None:
    shaped(run_task(question, task_id, client=scripted(*script), limits=Limits()))
