"""The live panel without a browser: its models in plain Python, and its widgets as Python objects."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from statistics import median
from typing import Any

import pytest
from ipywidgets.widgets.widget import _instances
from jupyter_client.manager import start_new_kernel

from agentlib import PROFILES, Event, Limits, use_language
from agentlib.offline import TurnableClock, answer, costing, endless, http_error, scenario, scripted, tool_call
from agentlib.panel import LimitsModel, PlanModel, RunModel, plan_panel, run_panel
from agentlib.panel import html as panel_html
from agentlib.panel.model import CAPS
from agentlib.panel.story import KEPT_LINES
from agentlib.panel.view import RunPanel
from agentlib.plan import DEMO_LIMITS, stop_line


def in_a_loop(work: Callable[[], Awaitable[Any]]) -> Any:
    """Run a coroutine function as a notebook cell would be; no task and no unseen exception may be left behind."""
    unseen: list[dict[str, Any]] = []

    async def main() -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unseen.append(context))
        result = await work()
        await asyncio.sleep(0.05)
        gc.collect()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, left
        return result

    gc.collect()  # clients of earlier tests: within a running loop they would close themselves in tasks of their own
    result = asyncio.run(main())
    assert not unseen, unseen
    return result


def runaway(seconds: float = 0.7) -> Any:
    """A model that never answers, on a clock that takes no real time."""
    return scenario("runaway", clock=TurnableClock(), pace=seconds)


# The limits


BAD_STEPS = [-1, 1.5, "4", True, float("nan"), float("inf"), [5]]


@pytest.mark.parametrize("value", BAD_STEPS, ids=repr)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_refused_value_keeps_the_old_one_and_says_why(lang: str, value: Any) -> None:
    use_language(lang)
    model = LimitsModel(max_steps=7)
    before = model.limits
    model.max_steps = value
    assert model.max_steps == 7
    assert model.limits is before
    assert "max_steps" in model.error
    model.max_steps = 8
    assert (model.limits.max_steps, model.error) == (8, "")


def test_a_value_refused_by_the_constructor_raises() -> None:
    with pytest.raises(ValueError, match="max_usd"):
        LimitsModel(max_usd=-0.1)


@pytest.mark.parametrize("name", CAPS)
def test_each_cap_can_be_off_and_zero(name: str) -> None:
    model = LimitsModel()
    for value in (None, 0):
        setattr(model, name, value)
        assert getattr(model.limits, name) == value
        assert getattr(model, name) == value
    assert model.error == ""


def test_the_limits_are_swapped_whole_and_once() -> None:
    model, seen = LimitsModel(), []
    model.observe(lambda change: seen.append(change.new), names="limits")
    model.max_steps = 9
    model.max_steps = 9
    model.profile = "relaxed"
    assert seen == [Limits(max_steps=9), PROFILES["relaxed"]]
    assert [getattr(model, name) for name in CAPS] == [getattr(PROFILES["relaxed"], name) for name in CAPS]


def test_profiles() -> None:
    model = LimitsModel()
    assert model.profile == "standard"
    model.max_seconds = 31
    assert model.profile == ""
    model.max_seconds = 30
    assert model.profile == "standard"
    model.profile = "reckless"
    assert (model.profile, model.limits) == ("standard", PROFILES["standard"])
    assert "reckless" in model.error and "conservative" in model.error
    model.limits = PROFILES["conservative"]
    assert (model.profile, model.max_steps) == ("conservative", 3)


def test_limits_set_from_many_threads_stay_whole() -> None:
    model = LimitsModel()
    seen: list[Limits] = []
    model.observe(lambda change: seen.append(model.limits), names="limits")

    def turn(name: str) -> None:
        for value in range(1, 200):
            setattr(model, name, value)

    threads = [threading.Thread(target=turn, args=(name,)) for name in CAPS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert model.limits == Limits(199, 199.0, 199.0, 199)
    assert all(isinstance(limits, Limits) for limits in seen)
    assert model.error == ""


# A run


ENDINGS = {
    "answers": ("done", "step 2"),
    "tool-error": ("done", "step 3"),
    "runaway": ("stopped:steps", "MAX_STEPS = 5"),
    "slow": ("stopped:time", "MAX_SECONDS = 30"),
    "costly": ("stopped:budget", "MAX_USD = $0.050"),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_each_scenario_tells_how_it_ended(name: str) -> None:
    async def work() -> RunModel:
        model = RunModel()
        assert model.start(client=scenario(name, clock=TurnableClock()))
        await model.finished()
        return model

    model = in_a_loop(work)
    reason, words = ENDINGS[name]
    assert (model.reason, model.status, model.error) == (reason, "finished", "")
    assert words in model.ending
    summary, used = model.result["summary"], model.progress
    assert (used.steps, used.seconds, used.usd) == (
        summary["steps"],
        summary["usage"]["seconds"],
        summary["usage"]["usd"],
    )
    assert used.steps <= 5 and used.seconds <= 30 and used.usd is not None and used.usd <= 0.05
    assert used.tool_calls == summary["tool_calls_used"]
    assert [line.state for line in model.log if line.kind == "tool"] == [
        each["result"]["status"] for each in summary["tool_results"]
    ]


@pytest.mark.parametrize(
    ("lang", "sentence"),
    [
        ("en", "One more request would make 4, but MAX_REQUESTS = 3"),
        ("zh", "再发一次请求就是第 4 次，而 MAX_REQUESTS=3"),
    ],
)
def test_a_run_that_ends_at_its_requests_does_not_speak_of_steps(lang: str, sentence: str) -> None:
    use_language(lang)

    async def work() -> RunPanel:
        panel = run_panel(limits=Limits(max_requests=3))
        panel.model.start(client=scripted(http_error(503), endless(tool_call()), clock=TurnableClock()))
        await panel.model.finished()
        panel.close()
        return panel

    panel = in_a_loop(work)
    assert (panel.model.reason, panel.model.progress.steps) == ("stopped:steps", 2)
    assert sentence in panel.ending.value
    assert "al-fired" not in panel.bars.value  # the bar of the steps has room


def test_every_offline_scenario_has_a_name_in_the_panel() -> None:
    assert list(ENDINGS) == [name for name in RunModel.scenarios() if name != "live"]


def test_the_sum_in_the_ending_can_be_checked_aloud() -> None:
    async def work() -> RunModel:
        model = RunModel(max_usd=0.02, max_steps=None)
        model.start(client=scripted(endless(costing(tool_call(), 1000, 500)), max_tokens=800))
        await model.finished()
        return model

    model = in_a_loop(work)
    stop = model.result["summary"]["stop"]
    assert model.reason == "stopped:budget"
    assert stop["used"] + stop["quote"] > stop["limit_value"]
    for figure in (stop["used"], stop["quote"], stop["used"] + stop["quote"]):
        assert f"{figure:.6f}".rstrip("0") in model.ending


@pytest.mark.parametrize(("start", "later", "steps"), [(6, 3, 3), (2, 4, 4), (6, 1, 2), (6, 0, 2), (3, None, 7)])
def test_a_step_cap_moved_in_mid_run_counts(start: int, later: int | None, steps: int) -> None:
    """Down, up, under what is used already, to nothing, and off."""

    async def work() -> RunModel:
        model = RunModel(max_steps=start, max_usd=0.1)

        def hand(event: Event) -> None:
            if event.kind == "step" and event.step == 2:
                model.max_steps = later
            if event.kind == "step" and event.step == 7:
                model.max_steps = 7

        model.start(client=runaway(), on_event=hand)
        await model.finished()
        return model

    model = in_a_loop(work)
    assert (model.reason, model.progress.steps) == ("stopped:steps", steps)


def test_a_time_cap_lowered_while_a_call_waits_cuts_it() -> None:
    async def work() -> tuple[RunModel, float]:
        model = RunModel(scenario="slow", pace=0.0)
        model.start()
        await asyncio.sleep(0.3)
        began = time.monotonic()
        model.max_seconds = 0.4
        await model.finished()
        return model, time.monotonic() - began

    model, took = in_a_loop(work)
    assert model.reason == "stopped:time"
    assert took < 2
    assert [(line.text, line.state) for line in model.log] == [("model cut off", "error")]
    assert "charged at its quote" in model.ending


def test_a_budget_lowered_and_raised_in_mid_run() -> None:
    async def work(later: float) -> RunModel:
        model = RunModel(max_steps=20, max_usd=0.05)

        def hand(event: Event) -> None:
            if event.kind == "step" and event.step == 2:
                model.max_usd = later

        model.start(client=scenario("costly", clock=TurnableClock()), on_event=hand)
        await model.finished()
        return model

    less, more = in_a_loop(lambda: work(0.025)), in_a_loop(lambda: work(0.1))
    assert less.reason == more.reason == "stopped:budget"
    assert less.progress.usd <= 0.025 < 0.05 < more.progress.usd <= 0.1


def test_stop_keeps_what_was_done() -> None:
    async def work() -> tuple[RunModel, float]:
        model = RunModel(pace=0.2)
        model.start()
        while model.progress.tool_calls < 1:
            await asyncio.sleep(0.01)
        model.stop()
        began = time.monotonic()
        await model.finished()
        return model, time.monotonic() - began

    model, took = in_a_loop(work)
    assert model.reason == "stopped:user"
    assert took < 1
    assert model.result["summary"]["tool_results"][0]["result"]["data"]["total_revenue"] == 9692
    assert "by hand" in model.ending


def test_a_second_start_is_refused_in_words_and_harms_nothing() -> None:
    async def work() -> RunModel:
        model = RunModel(pace=0.05)
        assert model.start()
        assert not model.start()
        assert "stop it" in model.error
        await model.finished()
        return model

    model = in_a_loop(work)
    assert (model.reason, model.progress.requests, model.error) == ("stopped:steps", 5, "")


def test_a_run_starts_from_nothing_each_time() -> None:
    async def work() -> list[Any]:
        model, seen = RunModel(), []
        for _ in range(2):
            model.start(client=runaway())
            assert (model.progress.steps, model.log, model.result, model.ending) == (0, (), None, "")
            await model.finished()
            seen.append((model.progress, model.log, model.ending))
        return seen

    first, second = in_a_loop(work)
    assert first == second


def test_settings_that_are_missing_are_an_ending_not_a_crash(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("AGENTLAB_ENV_FILE", str(tmp_path / "none.env"))
    for name in ("DASHSCOPE_API_KEY", "MODEL_BASE_URL", "MODEL_NAME"):
        monkeypatch.delenv(name, raising=False)

    async def work() -> RunModel:
        model = RunModel(scenario="live")
        model.start()
        await model.finished()
        return model

    assert "live" not in RunModel.scenarios()
    model = in_a_loop(work)
    assert model.reason == "failed:config"
    assert "DASHSCOPE_API_KEY" in model.ending


def test_a_scenario_that_does_not_exist_is_refused_in_words() -> None:
    async def work() -> RunModel:
        model = RunModel(scenario="no such thing")
        assert not model.start()
        return model

    model = in_a_loop(work)
    assert (model.status, model.result) == ("idle", None)
    assert "no such thing" in model.error


def test_retries_are_counted_and_shown() -> None:
    async def work() -> RunModel:
        model = RunModel()
        model.start(client=scripted(http_error(503, "busy <now>"), answer("42")))
        await model.finished()
        return model

    model = in_a_loop(work)
    assert (model.reason, model.progress.requests, model.progress.retries) == ("done", 2, 1)
    assert [line.kind for line in model.log] == ["model", "retry"]
    assert "503" in model.log[1].text
    assert "<now>" not in panel_html.log(model.log)


# What can go wrong around a run


def broken_events(*arguments: Any, **options: Any) -> AsyncIterator[Event]:
    async def one_step_then_a_fault() -> AsyncIterator[Event]:
        yield Event("step", 1, 0.0, 0.0, {"quote_usd": 0.1, "max_tokens": 10})
        raise LookupError("the events broke <off>")

    return one_step_then_a_fault()


def test_an_exception_in_the_task_is_seen() -> None:
    async def work() -> RunModel:
        model = RunModel(events=broken_events)
        model.start()
        assert await model.finished() is None
        return model

    model = in_a_loop(work)
    assert model.status == "finished"
    assert "LookupError: the events broke <off>" in model.error


def test_a_fault_in_the_hook_is_seen_and_the_run_goes_on() -> None:
    async def work() -> tuple[RunModel, str]:
        model, errors = RunModel(), []
        model.observe(lambda change: errors.append(change.new), names="error")
        model.start(client=runaway(), on_event=lambda event: 1 / 0)
        await model.finished()
        return model, "".join(errors)

    model, errors = in_a_loop(work)
    assert model.reason == "stopped:steps"
    assert "ZeroDivisionError" in errors


def test_close_ends_even_a_run_that_does_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentlib.panel.run._GRACE", 0.1)

    async def deaf(*arguments: Any, **options: Any) -> AsyncIterator[Event]:
        await asyncio.sleep(60)
        yield Event("step", 1, 0.0, 0.0, {})

    async def work() -> RunModel:
        model = RunModel(events=deaf)
        model.start()
        await asyncio.sleep(0)
        model.close()
        await asyncio.wait_for(model.finished(), 2)
        return model

    assert in_a_loop(work).status == "finished"


def test_a_close_does_not_end_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentlib.panel.run._GRACE", 0.05)

    async def work() -> RunModel:
        model = RunModel(pace=0.05)
        model.close()
        model.start()
        await model.finished()
        assert model.reason == "stopped:steps"
        model.start()
        model.close()
        await model.finished()
        assert model.reason == "stopped:user"
        model.start()
        await model.finished()
        return model

    assert in_a_loop(work).reason == "stopped:steps"


def test_without_a_running_loop_it_says_so() -> None:
    model = RunModel()
    assert not model.start()
    assert "event loop" in model.error
    model.stop()
    model.close()
    assert model.status == "idle"


def test_start_and_stop_from_another_thread_reach_the_loop_of_the_model() -> None:
    """JupyterLab calls the handlers of widgets in a thread of their own, with an event loop of its own."""

    async def work() -> tuple[RunModel, set[threading.Thread]]:
        model, threads = RunModel(pace=0.1), set()

        async def press() -> None:
            assert model.start(on_event=lambda event: threads.add(threading.current_thread()))

        await asyncio.to_thread(lambda: asyncio.run(press()))
        while not model.progress.requests:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(model.stop)
        await model.finished()
        return model, threads

    model, threads = in_a_loop(work)
    assert model.reason == "stopped:user"
    assert threads == {threading.main_thread()}


def test_a_fast_runaway_does_not_flood_the_page() -> None:
    async def work() -> tuple[RunModel, int, float]:
        model, updates = RunModel(max_steps=120, max_usd=None, max_seconds=None), []
        model.observe(lambda change: updates.append(change.name), names=["log", "progress"])
        began = time.monotonic()
        model.start(client=runaway(0.0))
        await model.finished()
        return model, len(updates), time.monotonic() - began

    model, updates, took = in_a_loop(work)
    assert model.progress.steps == 120
    assert len(model.log) == KEPT_LINES
    assert updates <= 2 * (20 * took + 2)


def test_the_seconds_go_on_while_a_call_waits() -> None:
    async def work() -> list[float]:
        model, seconds = RunModel(pace=0.6, max_steps=1), []
        model.observe(lambda change: seconds.append(change.new.seconds), names="progress")
        model.start()
        await model.finished()
        return seconds

    seconds = in_a_loop(work)
    assert len({round(value, 1) for value in seconds}) >= 5
    assert seconds == sorted(seconds) or seconds[-1] <= seconds[-2] + 0.1


# The plan loop


LINES = {
    "en": {"default": "stopped:steps steps=5", "time": "stopped:time steps=2", "budget": "stopped:budget steps=2"},
    "zh": {"default": "stopped:steps 步数=5", "time": "stopped:time 步数=2", "budget": "stopped:budget 步数=2"},
}


@pytest.mark.parametrize("lang", LINES)
def test_the_plan_gives_the_known_lines(lang: str) -> None:
    use_language(lang)
    model = PlanModel()
    for name, ending in LINES[lang].items():
        model.limits = DEMO_LIMITS[name]
        assert model.line.endswith(ending)
        assert model.line == stop_line(model.line.split("：")[0].split(":")[0], *model.outcome[:2])
    model.limits = DEMO_LIMITS["open"]
    assert model.outcome[:2] == ("done", 6)
    model.max_steps = 4
    assert model.outcome[:2] == ("stopped:steps", 4)


def test_an_instructor_edits_the_plan() -> None:
    model = PlanModel(max_seconds=12)
    model.plan_text = "read, 1, 0.001\n\n  think，hard, 12, $0.004  \n"
    assert model.plan == [
        {"name": "read", "seconds": 1.0, "usd": 0.001},
        {"name": "think,hard", "seconds": 12.0, "usd": 0.004},
    ]
    assert model.outcome[:2] == ("stopped:time", 1)
    assert model.plan_error == ""


@pytest.mark.parametrize("line", ["read", "read, 1", "read, one, 0", "read, 1, -1", "read, nan, 0", "read, 1, inf"])
def test_a_plan_that_cannot_be_read_keeps_the_old_one(line: str) -> None:
    model = PlanModel()
    before = model.plan
    model.plan_text = f"fine, 1, 0\n{line}"
    assert model.plan is before
    assert "2" in model.plan_error
    model.plan_text = "fine, 1, 0"
    assert (len(model.plan), model.plan_error) == (1, "")


def test_a_plan_from_code_is_the_plan_that_is_shown() -> None:
    plan = [{"name": "a, b\nc", "seconds": 0.1, "usd": 1e-7}]
    panel = plan_panel(plan)
    assert panel.model.plan == [{"name": "a, b c", "seconds": 0.1, "usd": 1e-7}]
    panel.close()


def test_the_what_if_view_redraws_at_once() -> None:
    panel = plan_panel(max_usd=None)
    took = []
    for steps in range(1, 7):
        began = time.perf_counter()
        panel.model.max_steps = steps
        took.append(time.perf_counter() - began)
        assert f"steps={steps}" in panel.line.value
        assert f"{steps} / {steps}" in panel.bars.value
    assert median(took) < 0.1
    panel.close()


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(), "5 + 1 = 6"),
        (DEMO_LIMITS["time"], "10 + 5 = 15"),
        (DEMO_LIMITS["budget"], "$0.010 + $0.005 = $0.015"),
        (DEMO_LIMITS["open"], "fits"),
    ],
    ids=["steps", "time", "budget", "open"],
)
def test_the_what_if_view_shows_the_sum(limits: Limits, words: str) -> None:
    panel = plan_panel(limits=limits)
    assert words in panel.why.value
    panel.close()


def test_an_empty_plan_is_done() -> None:
    panel = plan_panel()
    panel.model.plan_text = ""
    assert panel.model.outcome[:2] == ("done", 0)
    assert panel.model.error == ""
    panel.close()


# The widgets


def part(panel: Any, name: str) -> Any:
    """The widget of a panel that bears a class."""

    def walk(widget: Any) -> Any:
        yield widget
        for child in getattr(widget, "children", ()):
            yield from walk(child)

    return next(widget for widget in walk(panel) if f"al-{name}" in getattr(widget, "_dom_classes", ()))


def push(panel: Any, name: str) -> None:
    """Press a button as the page does: its value turns."""
    button = part(panel, name)
    button.value = not button.value


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_buttons_start_and_stop_a_run(lang: str) -> None:
    use_language(lang)

    async def work() -> RunPanel:
        panel = run_panel(pace=0.1)
        push(panel, "start")
        push(panel, "start")
        assert "⚠" in panel.error.value
        assert part(panel, "start").value is True
        while panel.model.progress.tool_calls < 1:
            await asyncio.sleep(0.02)
        push(panel, "stop")
        await panel.model.finished()
        assert part(panel, "start").value is part(panel, "stop").value is False
        shown = [panel.bars.value, panel.lines.value, panel.ending.value, panel.error.value]
        panel.close()
        return shown

    bars, lines, ending, error = in_a_loop(work)
    assert "stopped:user" in ending
    assert "analyze_csv(sales.csv)" in lines
    assert bars.count("al-track") == 3
    assert error == ""


def test_the_bar_of_the_cap_that_fired_turns_in_colour_sign_and_word() -> None:
    async def work() -> str:
        panel = run_panel()
        panel.model.start(client=scenario("costly", clock=TurnableClock()))
        await panel.model.finished()
        panel.model.max_usd = 1.0  # what is turned now is for the next run
        panel.close()
        return panel.bars.value

    steps, seconds, dollars = in_a_loop(work).split('<div class="al-bar')[1:]
    assert "al-fired" not in steps + seconds
    assert "al-fired" in dollars and "◀ fired" in dollars and "$0.044 / $0.050" in dollars


def test_controls_and_model_move_each_other() -> None:
    panel = plan_panel()
    slider, switch, profile = part(panel, "max_steps"), part(panel, "max_steps-on"), part(panel, "profile")
    slider.value = 3
    assert panel.model.max_steps == 3
    assert profile.value is None
    switch.value = False
    assert panel.model.max_steps is None
    assert slider.disabled
    assert "no limit" in panel.bars.value
    switch.value = True
    assert panel.model.max_steps == 3
    profile.value = "conservative"
    assert (panel.model.limits, slider.value) == (PROFILES["conservative"], 3)
    panel.model.limits = Limits(max_steps=40, max_seconds=300, max_usd=None)
    assert (slider.value, part(panel, "max_seconds").value, part(panel, "max_usd-on").value) == (40, 300, False)
    panel.close()


def test_the_money_slider_makes_room_without_touching_the_limit() -> None:
    panel, seen = plan_panel(), []
    panel.model.observe(lambda change: seen.append(change.new), names="max_usd")
    panel.model.max_usd = 0.0137
    assert part(panel, "max_usd").value == 0.0137
    assert seen == [0.0137]
    labels = [label for label, _ in part(panel, "max_usd").options]
    assert labels[0] == "$0.000" and "$0.0137" in labels
    panel.close()


def test_a_value_that_the_limits_refuse_goes_back_and_the_panel_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = plan_panel()
    slider = part(panel, "max_steps")
    slider.min = -5
    slider.value = -2
    assert (slider.value, panel.model.max_steps) == (5, 5)
    assert "max_steps must not be negative" in panel.error.value
    panel.close()


def test_a_fault_in_a_handler_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = plan_panel()
    monkeypatch.setattr(panel_html, "plan_bars", lambda *arguments: 1 / 0)
    part(panel, "max_steps").value = 2
    assert "ZeroDivisionError" in panel.error.value
    panel.close()


EVIL = "<img src=x onerror=alert(1)>"


def test_text_from_models_tools_and_people_is_escaped() -> None:
    async def work() -> str:
        panel = run_panel(question=EVIL)
        panel.model.start(client=scripted(tool_call(EVIL, EVIL), http_error(503, EVIL), answer(EVIL)))
        await panel.model.finished()
        panel.model.error = EVIL
        plan = plan_panel([{"name": EVIL, "seconds": 99.0, "usd": 0.0}])
        plan.model.plan_text = f"a, {EVIL}, 1"
        widgets = (panel.bars, panel.counter, panel.lines, panel.ending, panel.error, plan.bars, plan.why, plan.error)
        shown = "".join(widget.value for widget in widgets)
        assert panel.model.reason == "done"
        panel.close()
        plan.close()
        return shown

    shown = in_a_loop(work)
    assert "<img" not in shown
    assert shown.count("&lt;img") >= 5


def test_arguments_of_any_shape_are_a_line_of_the_log() -> None:
    async def work() -> RunModel:
        model = RunModel()
        model.start(client=scripted(tool_call(arguments="[" * 100_000), answer("42")))
        await model.finished()
        return model

    model = in_a_loop(work)
    assert (model.reason, model.error) == ("done", "")
    assert len(model.log[1].text) < 250


def test_the_newest_panel_wins_and_nothing_is_left_of_the_older() -> None:
    async def work() -> tuple[RunModel, RunModel]:
        older = run_panel(pace=0.1)
        older.model.start()
        await asyncio.sleep(0.15)
        newer = run_panel(pace=0.01)
        await older.model.finished()
        assert older.comm is None and part(older, "start").comm is None
        before = older.bars.value
        older.model.max_steps = 1
        assert older.bars.value == before
        push(newer, "start")
        await newer.model.finished()
        newer.close()
        return older.model, newer.model

    older, newer = in_a_loop(work)
    assert (older.reason, newer.reason, newer.progress.requests) == ("stopped:user", "stopped:steps", 5)


def test_a_second_panel_over_the_same_model_does_not_double_the_handlers() -> None:
    async def work() -> RunModel:
        model = RunModel(pace=0.01)
        run_panel(model)
        panel = run_panel(model)
        push(panel, "start")
        await asyncio.sleep(0.01)
        gc.collect()  # ipywidgets closes a widget when it is collected; the first panel has no say in this run
        await model.finished()
        assert panel.ending.value
        panel.close()
        return model

    assert in_a_loop(work).reason == "stopped:steps"


@pytest.mark.parametrize(("lang", "words"), [("en", "run this cell"), ("zh", "运行这个单元格")])
def test_on_a_page_without_a_kernel_a_sentence_stands_for_the_panel(lang: str, words: str) -> None:
    use_language(lang)
    panel = plan_panel()
    shown = panel._repr_mimebundle_()["text/plain"]
    panel.close()
    assert words in shown and not shown.endswith("…")


def test_closing_takes_every_widget_off() -> None:
    async def work() -> tuple[int, int]:
        before = len(_instances)
        panel = run_panel()
        during = len(_instances)
        panel.close()
        panel.close()
        assert len(_instances) == before
        return before, during

    before, during = in_a_loop(work)
    assert during > before + 20


@pytest.mark.parametrize("fails", [False, True])
def test_the_chart_of_the_finished_run_or_a_sentence_instead(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_chart(result: Any) -> Any:
        raise ImportError("no pencils <here>")

    if fails:
        monkeypatch.setattr("agentlib.panel.view.caps_chart", no_chart)

    async def work() -> str:
        panel = run_panel()
        panel.model.start(client=runaway())
        await panel.model.finished()
        for _ in range(3000):
            if panel.chart.value:
                break
            await asyncio.sleep(0.01)
        panel.close()
        return panel.chart.value

    chart = in_a_loop(work)
    assert ("no pencils &lt;here&gt;" in chart) if fails else ('alt="' in chart)


# The run log


def test_every_run_of_the_panel_is_written_down(tmp_path: Any) -> None:
    from agentlib import RunLog

    async def work() -> None:
        with RunLog(tmp_path / "runs.db") as log:
            model = RunModel(runlog=log, max_steps=2)
            for _ in range(2):
                assert model.start(client=runaway())
                await model.finished()
            assert log.flush()
            assert [row["stop_reason"] for row in log.runs()] == ["stopped:steps", "stopped:steps"]

    in_a_loop(work)


def test_a_control_moved_while_an_async_cell_runs_is_answered() -> None:
    """A page holds back what a control has to say until the kernel is idle again; with no word of that, for ever."""
    manager, client = start_new_kernel()
    try:
        make = "from ipywidgets import IntSlider; slider = IntSlider(); print(slider.comm.comm_id)"
        said = list[str]()
        client.execute_interactive(make, output_hook=lambda m: said.append(m["content"].get("text", "")), timeout=60)
        client.execute("import asyncio; print('begun', flush=True); await asyncio.sleep(1)")
        while client.get_iopub_msg(timeout=30)["msg_type"] != "stream":
            pass
        data = {"method": "update", "state": {"value": 3}, "buffer_paths": []}
        moved = client.session.msg("comm_msg", {"comm_id": "".join(said).strip(), "data": data})
        client.shell_channel.send(moved)
        idle = False
        while not idle:
            message = client.get_iopub_msg(timeout=10)  # raises Empty if nothing more is said
            about_it = message["parent_header"].get("msg_id") == moved["header"]["msg_id"]
            idle = about_it and message["content"].get("execution_state") == "idle"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
